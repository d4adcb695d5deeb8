//! A recorded run for tests.

use std::path::Path;

use slotstream_cache::{Claim, Ensured, Found, Lru, SlotPool};
use slotstream_core::{
    Attached, Deadline, EventSink, ExpertIdx, ExpertKey, Geometry, LayerIdx, Origin, Outcome,
    PassId, Phase, Prediction, Routing, SessionId, Step, Tap,
};
use slotstream_replay::{PoolEnd, TraceOptions, TraceWriter};

use crate::{Console, Ended, Failure};

const LAYER: LayerIdx = LayerIdx::new(0);

/// The routes, one a pass. The first expert of the third and of the fifth is forecast.
const ROUTES: [[u16; 2]; 7] = [[0, 1], [2, 3], [4, 0], [5, 0], [6, 5], [0, 6], [1, 2]];

/// What `replay` writes for these arguments, and how it ends.
pub(super) fn shown(arguments: &[&str]) -> (String, Result<Ended, Failure>) {
    let mut out = Vec::new();
    let line = ["replay"].iter().chain(arguments).map(Into::into);
    let ended = super::run(line, &mut Console::new(&mut out));
    (String::from_utf8(out).expect("UTF-8"), ended)
}

/// Records a run under `lru` in 4 slots into `run.trace` in `folder`. At its end the trace claims
/// `more` evictions than there were; without, it says nothing of its pool.
pub(super) fn record(folder: &Path, more: Option<u64>) -> String {
    let path = folder.join("run.trace");
    let mut trace = TraceWriter::create(&path, TraceOptions::new()).expect("a folder");
    let geometry = Geometry::new(1, 8, 2).expect("legal");
    let mut pool = SlotPool::new(geometry, 4, Lru::new()).expect("at the floor");
    let (floor, record_bytes) = (geometry.floor_slots(), 1000);
    trace.on_attach(&Attached { geometry, record_bytes, slots: 4, floor, policy: "lru" });
    let mut reserved = None;
    for (number, route) in (0..).zip(ROUTES) {
        pass(&mut pool, &mut trace, (number, route), reserved.take());
        if number == 1 || number == 3 {
            reserved = Some(forecast(&mut pool, &mut trace, ROUTES[number as usize + 1][0]));
        }
    }
    let mut end = PoolEnd::of(&pool);
    end.counters.evicted += more.unwrap_or(0);
    trace.finish(more.map(|_| &end)).expect("a folder");
    path.to_str().expect("UTF-8").to_owned()
}

fn pass(
    pool: &mut SlotPool<Lru>,
    trace: &mut dyn EventSink,
    (number, route): (u64, [u16; 2]),
    reserved: Option<Claim>,
) {
    let step = Step {
        pass: PassId::new(number),
        phase: Phase::Decode,
        session: SessionId::new(0),
        position: number,
        tokens: &[0],
    };
    pool.begin_step(&step).expect("sane");
    trace.on_step(&step);
    let route = route.map(ExpertIdx::new);
    let routing = Routing::new(&step, LAYER, 2, &route, &[]);
    pool.routing(&routing).expect("sane");
    trace.on_routing(&routing);
    let mut ensured = Ensured::new();
    pool.ensure(LAYER, &route, Phase::Decode, &mut ensured).expect("room");
    for entry in ensured.entries().iter().filter(|entry| entry.found == Found::Adopted) {
        let key = ExpertKey::new(LAYER, entry.expert);
        trace.on_outcome(&Outcome::Adopted { slot: entry.slot, key });
    }
    if let Some(claim) = reserved {
        pool.publish(claim).expect("adopted");
    }
    pool.publish_all(&mut ensured).expect("open");
    pool.release();
    trace.on_outcome(&Outcome::Ended { layer: LAYER, waves: 0 });
}

fn forecast(pool: &mut SlotPool<Lru>, trace: &mut dyn EventSink, expert: u16) -> Claim {
    let key = ExpertKey::new(LAYER, ExpertIdx::new(expert));
    let needed_by = Deadline { passes_ahead: 1, layer: LAYER };
    let predictions = [Prediction { key, confidence: 0.9, needed_by }];
    pool.forecast(&predictions).expect("sane");
    trace.on_forecast(Tap::AfterAttention(LAYER), &predictions);
    let claim = pool.claim(key, Origin::Prefetch).expect("room");
    trace.on_outcome(&Outcome::Reserved { slot: claim.slot(), key });
    claim
}
