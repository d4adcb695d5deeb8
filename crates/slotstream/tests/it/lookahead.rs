//! Reading ahead changes no token: every forecaster, threshold and number of lanes, with faults.

use std::sync::{Arc, Mutex};

use slotstream::checkpoint::container::ContainerKind;
use slotstream::core::{EventSink, Forecaster, Routing, Step};
use slotstream::experts::LayerLookahead;
use slotstream::lookahead::{
    FileFault, ForecastFiles, ForecastOptions, Oracle, OracleRoutes, forecasters,
};
use slotstream::{ContainerChoice, Engine, EngineBuilder, PrefillSweep, Sizing, Speculation};
use slotstream_testkit::reader::Schedule;

use crate::container::repacked;
use crate::rig::{
    builder, chain, faulty, golden, greedy, random_builder, random_golden, random_model, session,
};

const TOKENS: usize = 24;

fn expected() -> Vec<u32> {
    golden("p1.greedy_ids")[..TOKENS].to_vec()
}

fn ahead() -> EngineBuilder {
    builder().sizing(Sizing::Slots(60)).speculation(Speculation::always())
}

fn total(engine: &Engine) -> LayerLookahead {
    engine.inspect(|experts| {
        experts.pool().validate().expect("consistent");
        experts.lookahead().total()
    })
}

/// Tokens of a generation and what reading ahead did for it.
fn run(builder: EngineBuilder) -> (Vec<u32>, LayerLookahead) {
    let engine = builder.build().expect("builds");
    let tokens = greedy(&mut session(&engine), &golden("p1.input_ids"), TOKENS);
    let total = total(&engine);
    (tokens, total)
}

/// Keeps the routes of a run.
#[derive(Clone, Debug, Default)]
struct Kept(Arc<Mutex<OracleRoutes>>);

impl EventSink for Kept {
    fn on_step(&mut self, _step: &Step<'_>) {}
    fn on_routing(&mut self, routing: &Routing<'_>) {
        self.0.lock().expect("not poisoned").add(routing);
    }
}

impl ForecastFiles for Kept {
    fn routes(&self, path: &str) -> Result<OracleRoutes, FileFault> {
        assert_eq!(path, "the/run");
        Ok(self.0.lock().expect("not poisoned").clone())
    }
}

/// The routes of the generation of [`run`].
fn routes() -> Kept {
    let kept = Kept::default();
    assert_eq!(run(builder().sink(Box::new(kept.clone()))).0, expected());
    kept
}

#[test]
fn every_forecaster_and_threshold() {
    let expected = expected();
    for info in forecasters().into_iter().filter(|info| !info.takes_file) {
        let has = |key: &str| info.options.iter().any(|(known, _, _)| *known == key);
        let mut names = vec![info.name.to_owned()];
        if has("ahead") {
            names.push(format!("{}:threshold=0+top=12+ahead=3", info.name));
        } else if info.name == "mixture" {
            names.push("mixture:threshold=0+top=12".into());
            names.push("mixture:threshold=0.7+ple=0".into());
        } else if has("top") {
            names.push(format!("{}:threshold=-1+top=12", info.name));
            names.push(format!("{}:threshold=1+ple=0", info.name));
        }
        for name in names {
            for lanes in [1, 8] {
                let (tokens, total) = run(ahead().lookahead(&name).lanes(lanes));
                assert_eq!(tokens, expected, "{name} lanes {lanes}");
                assert_eq!(total.issued > 0, info.name != "none", "{name}: {total:?}");
                let ended = total.adopted() + total.expired + total.cancelled + total.failed;
                assert!(ended <= total.issued, "{name}: {total:?}");
            }
        }
    }
}

#[test]
fn the_oracle_and_every_size_chunk_and_sweep() {
    let (kept, expected) = (routes(), expected());
    let oracle = || ahead().lookahead("oracle:the/run").forecast_files(Box::new(kept.clone()));
    let (tokens, total) = run(oracle());
    assert_eq!(tokens, expected);
    // The first layers of the first token come without a warning.
    assert!(total.agreement() > Some(0.98), "{total:?}");
    assert_eq!(total.expired + total.cancelled, 0, "it is never wrong");
    for sizing in [Sizing::Slots(18), Sizing::Slots(19), Sizing::Share(0.3), Sizing::Share(1.0)] {
        assert_eq!(run(oracle().sizing(sizing)).0, expected, "{sizing:?}");
    }
    // Other passes than those that were recorded: it is wrong, and harmless.
    for chunk in [1, 2, 7] {
        assert_eq!(run(oracle().chunk(chunk)).0, expected, "chunk {chunk}");
        let swept = oracle().chunk(chunk).prefill_sweep(PrefillSweep::Rows(1));
        assert_eq!(run(swept).0, expected, "chunk {chunk}, swept");
    }
    let none = run(builder()
        .sizing(Sizing::Slots(60))
        .speculation(Speculation::off())
        .forecaster(oracle_of(&kept)));
    assert_eq!((none.0, none.1.issued), (expected, 0));
}

fn oracle_of(kept: &Kept) -> Box<dyn Forecaster> {
    let geometry = slotstream::core::Geometry::new(12, 56, 6).expect("legal");
    let routes = kept.0.lock().expect("not poisoned").clone();
    Box::new(Oracle::new(&geometry, routes, ForecastOptions::known()))
}

#[test]
fn several_sessions_that_go_back_and_end() {
    for name in ["attention-tap:threshold=-1+top=12", "mixture:threshold=0", "markov:ahead=2"] {
        let engine = ahead().lookahead(name).lanes(2).build().expect("builds");
        let (prompt, expected) = (golden("p1.input_ids"), expected());
        let mut one = session(&engine);
        let mut tokens = greedy(&mut one, &prompt, 4);
        for n in 0..4 {
            let mut other = session(&engine);
            assert_eq!(greedy(&mut other, &prompt, 3 + n), expected[..3 + n], "{name}");
            drop(other);
            tokens.extend(one.generate_ids(2).ignoring_eos(true).map(|t| t.expect("runs")));
        }
        assert_eq!(tokens, expected[..12], "{name}");
        one.truncate(prompt.len()).expect("goes back");
        let again: Vec<u32> =
            one.generate_ids(6).ignoring_eos(true).map(|t| t.expect("runs")).collect();
        assert_eq!(again, expected[..6], "{name}");
        assert!(total(&engine).issued > 0);
    }
}

/// Every read goes wrong once, each in a run of its own: it is an error of the pass that demanded
/// the record, or nobody's. In a container a record is one read.
#[test]
fn every_read_goes_wrong_once_while_others_are_ahead() {
    const TOKENS: usize = 3;
    let (prompt, want) = (random_golden("p1.input_ids"), random_golden("p1.greedy.ids"));
    let want = &want[..TOKENS];
    let container = repacked(&random_model(), &[ContainerKind::Experts], false);
    for name in ["attention-tap", "boundary-1:top=6+threshold=-9"] {
        let builder = random_builder().ngram_cache_rows(0).lanes(2).lookahead(name);
        let builder = builder.sizing(Sizing::Slots(12)).speculation(Speculation::always());
        let builder = builder.container(ContainerChoice::Folder(container.path().into()));
        let (engine, reader) = faulty(builder, std::io::ErrorKind::InvalidData);
        let (mut n, mut silent, mut told) = (0, 0, 0);
        loop {
            reader.arm(Schedule::Nth(n));
            let before = reader.faults();
            let mut session = session(&engine);
            let result = session.prefill(&prompt).and_then(|()| {
                session.generate_ids(TOKENS).ignoring_eos(true).collect::<Result<Vec<_>, _>>()
            });
            let failed = reader.faults() > before;
            reader.arm(Schedule::Never);
            match result {
                Ok(tokens) => {
                    assert_eq!(tokens, want, "{name} read {n}");
                    silent += u64::from(failed);
                }
                Err(error) => {
                    assert!(failed, "{name} read {n}: {}", chain(&error));
                    told += 1;
                    let mut tokens = session.generated().to_vec();
                    while tokens.len() < TOKENS {
                        tokens.push(session.next().expect("the next request works"));
                    }
                    assert_eq!(tokens, want, "{name} read {n}");
                }
            }
            if !failed && n > 0 {
                break;
            }
            total(&engine);
            n += 1;
        }
        assert!(silent > 0 && told > 0, "{name}: {n} reads, {silent} silent, {told} told");
        assert!(total(&engine).failed > 0);
    }
}

/// Law 1 for every forecaster, several thresholds and numbers of lanes, while one read in so many
/// goes wrong: what was demanded is an error, after which the session goes on.
#[test]
fn every_forecaster_with_faults_at_many_reads() {
    const TOKENS: usize = 4;
    let (prompt, want) = (random_golden("p1.input_ids"), random_golden("p1.greedy.ids"));
    let names = [
        "boundary-1:threshold=-1+top=6",
        "boundary-2",
        "attention-tap:threshold=0.05",
        "previous-token:threshold=0+ahead=2",
        "markov:threshold=0",
        "co-occurrence:threshold=0",
        "mixture:threshold=0",
        "mixture:threshold=0.7",
    ];
    for (at, name) in names.into_iter().enumerate() {
        let builder = random_builder().ngram_cache_rows(0).lanes([1, 2, 8][at % 3]).lookahead(name);
        let builder = builder.sizing(Sizing::Slots(12)).speculation(Speculation::always());
        let (engine, reader) = faulty(builder, std::io::ErrorKind::InvalidData);
        for every in [5, 17, 64, 211] {
            reader.arm(Schedule::Every(every));
            let mut session = session(&engine);
            let mut failed = u32::from(session.prefill(&prompt).is_err());
            let mut tokens = session.generated().to_vec();
            while tokens.len() < TOKENS {
                match session.next() {
                    Ok(token) => tokens.push(token),
                    Err(_) => failed += 1,
                }
                // A pass of more reads than that would never end.
                if failed > 20 {
                    reader.arm(Schedule::Never);
                }
            }
            assert_eq!(tokens, want[..TOKENS], "{name}, every {every}th read fails");
            reader.arm(Schedule::Never);
            total(&engine);
        }
        assert!(reader.faults() > 0 && total(&engine).issued > 0, "{name}");
    }
}

#[test]
fn the_plan_counts_what_a_forecaster_remembers() {
    let bytes = |name: &str| {
        let plan = builder().lookahead(name).plan().expect("fits");
        plan.rows.iter().find(|row| row.name == "lookahead").expect("always there").bytes
    };
    assert_eq!((bytes("none"), bytes("attention-tap")), (0, 0));
    assert!(bytes("markov") > 672 * 32 * 4);
    assert_eq!(bytes("mixture"), 0);
    for name in ["nonsense", "markov:top=0", "oracle:nowhere", "oracle"] {
        let error = builder().lookahead(name).build().expect_err("not a forecaster");
        assert_eq!(error.kind(), slotstream::core::ErrorKind::User, "{name}: {}", chain(&error));
    }
}
