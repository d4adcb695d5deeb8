//! Requests made by hand and by chance.

use proptest::prelude::*;
use slotstream_core::{
    EventSink, ExpertIdx, Geometry, LayerIdx, PassId, Phase, Routing, SessionId, Step,
};
use slotstream_replay::Requests;

/// A layer's visit: the layer and the ids, `[rows, top_k]`.
pub(crate) type Visit = (u16, Vec<u16>);

/// Passes of one session; a pass of several rows is a prefill.
pub(crate) fn requests(geometry: Geometry, passes: &[Vec<Visit>]) -> Requests {
    let mut requests = Requests::new(geometry);
    for (number, visits) in passes.iter().enumerate() {
        let top_k = geometry.top_k();
        let rows = visits.first().map_or(1, |(_, ids)| ids.len() / top_k);
        let tokens = vec![0; rows];
        let step = Step {
            pass: PassId::new(number as u64),
            phase: if rows == 1 { Phase::Decode } else { Phase::Prefill },
            session: SessionId::new(0),
            position: number as u64,
            tokens: &tokens,
        };
        requests.on_step(&step);
        for (layer, ids) in visits {
            let ids: Vec<ExpertIdx> = ids.iter().copied().map(ExpertIdx::new).collect();
            requests.on_routing(&Routing::new(&step, LayerIdx::new(*layer), top_k, &ids, &[]));
        }
    }
    assert_eq!(requests.rejected(), 0);
    requests
}

/// Each key is a pass of one layer and one expert.
pub(crate) fn keys(keys: &[u16]) -> Requests {
    let experts = keys.iter().max().map_or(1, |most| most + 1);
    let passes: Vec<Vec<Visit>> = keys.iter().map(|key| vec![(0, vec![*key])]).collect();
    requests(Geometry::new(1, experts, 1).unwrap(), &passes)
}

/// Random passes over every layer, of 1 to `rows` rows; each row's experts are distinct and low
/// numbers are likely.
pub(crate) fn passes(
    (layers, experts, top_k): (u16, u16, u16),
    rows: usize,
    most: usize,
) -> impl Strategy<Value = Vec<Vec<Visit>>> {
    let row = prop::collection::vec(0_u32..1000, usize::from(top_k)).prop_map(move |draws| {
        let mut row: Vec<u16> = Vec::new();
        for draw in draws {
            let skewed = draw * draw / 1000;
            let mut expert = (skewed * u32::from(experts) / 1000) as u16;
            while row.contains(&expert) {
                expert = (expert + 1) % experts;
            }
            row.push(expert);
        }
        row
    });
    let pass = (1..=rows).prop_flat_map(move |rows| {
        let visit = prop::collection::vec(row.clone(), rows).prop_map(|rows| rows.concat());
        prop::collection::vec(visit, usize::from(layers)).prop_map(|visits| {
            visits.into_iter().enumerate().map(|(layer, ids)| (layer as u16, ids)).collect()
        })
    });
    prop::collection::vec(pass, 1..=most)
}
