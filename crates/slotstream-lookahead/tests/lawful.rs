//! Every forecaster keeps to the contract.

use slotstream_core::{
    ExpertIdx, Forecaster, Geometry, LayerIdx, PassId, Phase, Routing, SessionId, Step,
};
use slotstream_lookahead::{ForecastOptions, Oracle, OracleRoutes, forecasters, parse_forecaster};

#[test]
fn every_forecaster_is_lawful() {
    for info in forecasters().into_iter().filter(|info| !info.takes_file) {
        let options = |text: &str| format!("{}{text}", info.name);
        let mut names = vec![options("")];
        let has = |key: &str| info.options.iter().any(|(known, _, _)| *known == key);
        if has("ahead") {
            names.push(options(":top=3+threshold=0+ahead=3"));
        } else if info.name == "mixture" {
            names.push(options(":top=5+threshold=0+ple=0"));
        } else if has("top") {
            names.push(options(":top=5+threshold=-3+ple=0"));
        }
        for name in names {
            slotstream_testkit::forecaster::assert_lawful(|geometry| {
                parse_forecaster(&name, geometry).expect("a listed name")
            });
        }
    }
}

/// A recording of passes of three sessions in turn.
fn routes(geometry: &Geometry) -> OracleRoutes {
    let mut routes = OracleRoutes::new();
    for pass in 1..150_u64 {
        let (session, phase) = (SessionId::new(10 + pass % 3), Phase::Decode);
        let step = Step { pass: PassId::new(pass), phase, session, position: pass, tokens: &[0] };
        for layer in 0..geometry.layers() as u16 {
            let first = (pass as usize + usize::from(layer)) % geometry.experts();
            let ids: Vec<ExpertIdx> = (0..geometry.top_k())
                .map(|rank| ExpertIdx::new(((first + rank) % geometry.experts()) as u16))
                .collect();
            routes.add(&Routing::new(&step, LayerIdx::new(layer), geometry.top_k(), &ids, &[]));
        }
    }
    routes
}

#[test]
fn the_oracle_is_lawful() {
    for ahead in [1, 2, 9] {
        slotstream_testkit::forecaster::assert_lawful(|geometry| {
            let options = ForecastOptions::known().with_ahead(ahead);
            Box::new(Oracle::new(geometry, routes(geometry), options)) as Box<dyn Forecaster>
        });
    }
}
