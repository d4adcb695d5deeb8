//! Plain keys for a comparison with another simulator, which `libcachesim/compare.sh` makes:
//!
//! - `cargo bench --bench keys -- write FILE`: the lookups of a synthetic trace of the 48 x 512
//!   model, in libCacheSim's oracleGeneral format;
//! - `cargo bench --bench keys -- run FILE SLOTS`: `clock` on these keys, one a call and ten a call.
//!   One line each: keys a call, misses, and millions of lookups a second, by the clock and by
//!   the processor's time.

use std::error::Error;
use std::fs::{self, File};
use std::io::Write;
use std::time::{Duration, Instant};

use slotstream_benches::processor_time;
use slotstream_cache::Clock;
use slotstream_core::{
    EventSink, ExpertIdx, Geometry, LayerIdx, PassId, Phase, Routing, SessionId, Step,
};
use slotstream_replay::{Phases, Requests, Simulation, Synthetic, write_oracle_general};

const LAYERS: u16 = 48;
const EXPERTS: u16 = 512;
const TOP_K: u16 = 10;

/// Seconds, id, size, next access: 4, 8, 4 and 8 bytes, little-endian.
const RECORD: usize = 24;

fn main() -> Result<(), Box<dyn Error>> {
    // Cargo adds a flag of its own.
    let arguments: Vec<String> = std::env::args().skip(1).filter(|a| a != "--bench").collect();
    match arguments.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        ["write", path] => write(path),
        ["run", path, slots] => run(&fs::read(path)?, slots.parse()?),
        // Without arguments it is one of all the benches that cargo runs: nothing to compare with.
        [] => Ok(()),
        _ => Err("expected: write FILE, or run FILE SLOTS".into()),
    }
}

fn write(path: &str) -> Result<(), Box<dyn Error>> {
    let geometry = Geometry::new(LAYERS, EXPERTS, TOP_K)?;
    let requests = Synthetic::new(0.6, 1.6, 60.0)?.passes(4000).requests(geometry);
    write_oracle_general(&requests, 1, File::create(path)?)?;
    Ok(())
}

fn run(bytes: &[u8], slots: usize) -> Result<(), Box<dyn Error>> {
    let keys: Vec<u16> = bytes
        .chunks_exact(RECORD)
        .map(|record| Ok(u16::try_from(u64::from_le_bytes(record[4..12].try_into()?))?))
        .collect::<Result<_, Box<dyn Error>>>()?;
    for call in [1, TOP_K] {
        let requests = requests(&keys, call)?;
        let (begun, used) = (Instant::now(), processor_time());
        let run = Simulation::new(slots).unfloored().run(&requests, Clock::new())?;
        let (elapsed, used) = (begun.elapsed(), processor_time() - used);
        let speed = |time: Duration| keys.len() as f64 / time.as_secs_f64() / 1e6;
        let misses = run.count(Phases::All).lookups.misses;
        writeln!(std::io::stdout(), "{call} {misses} {:.3} {:.3}", speed(elapsed), speed(used))?;
    }
    Ok(())
}

/// The keys in calls of `call` keys: each call a pass.
fn requests(keys: &[u16], call: u16) -> Result<Requests, Box<dyn Error>> {
    let mut requests = Requests::new(Geometry::new(LAYERS, EXPERTS, call)?);
    for (number, keys) in (0..).zip(keys.chunks_exact(call.into())) {
        let step = Step {
            pass: PassId::new(number),
            phase: Phase::Decode,
            session: SessionId::new(0),
            position: number,
            tokens: &[0],
        };
        requests.on_step(&step);
        let ids: Vec<ExpertIdx> = keys.iter().map(|key| ExpertIdx::new(key % EXPERTS)).collect();
        let layer = LayerIdx::new(keys[0] / EXPERTS);
        requests.on_routing(&Routing::new(&step, layer, call.into(), &ids, &[]));
    }
    Ok(requests)
}
