//! Millions of lookups a second on single keys, to be compared with other simulators:
//! `cargo bench -p slotstream-benches --bench keys -- FILE SLOTS ROUNDS`, where FILE is in
//! libCacheSim's oracleGeneral format. Prints one JSON object: the misses, and the speed of every
//! round. `libcachesim/compare.sh` compares.

use std::error::Error;
use std::time::Instant;

use slotstream_cache::Clock;
use slotstream_core::{
    EventSink, ExpertIdx, Geometry, LayerIdx, PassId, Phase, Routing, SessionId, Step,
};
use slotstream_replay::{Phases, Requests, Simulation};

fn main() -> Result<(), Box<dyn Error>> {
    let mut requests = Requests::new(Geometry::new(48, 512, 1)?);
    let mut state = 1u64;
    for n in 0..2_000_000u64 {
        let step = Step {
            pass: PassId::new(n),
            phase: Phase::Decode,
            session: SessionId::new(0),
            position: n,
            tokens: &[0],
        };
        requests.on_step(&step);
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        let u = (state >> 11) as f64 / (1u64 << 53) as f64;
        let k = ((u * u * u) * 24576.0) as u16;
        requests.on_routing(&Routing::new(
            &step,
            LayerIdx::new(k / 512),
            1,
            &[ExpertIdx::new(k % 512)],
            &[],
        ));
    }
    for _ in 0..8 {
        let begin = Instant::now();
        let run = Simulation::new(7509).unfloored().run(&requests, Clock::new())?;
        let t = begin.elapsed().as_secs_f64();
        eprintln!("{} misses, {:.2} M/s", run.count(Phases::All).lookups.misses, 2.0 / t);
    }
    Ok(())
}
