//! What it takes to adopt records that were read ahead, beside what it takes to find them resident:
//! the time of a layer's demand, a record, for records of 27,648 and of 2,764,800 bytes. Whatever
//! does not depend on the bytes copies none. `adopt [PASSES]` prints one JSON object.
#![expect(clippy::print_stdout, reason = "it is a program")]

use std::error::Error;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use serde_json::json;
use slotstream::core::{
    AffineFormat, Deadline, ExpertIdx, ExpertKey, ExpertShape, Extent, FileId, Forecaster,
    Geometry, Job, LayerIdx, PassId, Phase, Prediction, Probe, ProbeResults, ReadClass,
    ReadCounters, ReadQueue, RecordLayout, Routing, SessionId, Step, Tap,
};
use slotstream::experts::{RecordIndex, Speculation, StreamingExperts};
use slotstream::kernels::Cpu;
use slotstream::ops::{ExpertProvider, HostOps};

const TOP_K: usize = 10;
const EXPERTS: u16 = 512;
const SLOTS: usize = 64;

/// Records end to end.
#[derive(Debug)]
struct Records(Geometry, u64);

impl RecordIndex for Records {
    fn pieces(&self, _key: ExpertKey) -> Option<[Extent; 9]> {
        None
    }
    fn whole(&self, key: ExpertKey) -> Option<Extent> {
        Extent::new(FileId::new(0), self.0.index(key)? as u64 * self.1, self.1).ok()
    }
}

/// Every read has ended when it is queued; no byte is written, since none is looked at.
#[derive(Debug)]
struct AtOnce;

impl ReadQueue for AtOnce {
    fn submit(&self, _class: ReadClass, jobs: Vec<Job>) {
        jobs.into_iter().for_each(|job| job.complete(Ok(())));
    }
    fn counters(&self) -> ReadCounters {
        ReadCounters::default()
    }
}

/// Says what it is told, before layer 0.
#[derive(Clone, Debug, Default)]
struct Says(Arc<Mutex<Vec<ExpertIdx>>>);

impl Forecaster for Says {
    fn probes(&mut self, _at: Tap, _want: &mut Vec<Probe>) {}
    fn predict(&mut self, _at: Tap, _results: &ProbeResults<'_>, out: &mut Vec<Prediction>) {
        let layer = LayerIdx::new(0);
        let said = self.0.lock().map(|said| said.clone()).unwrap_or_default();
        out.extend(said.into_iter().map(|expert| Prediction {
            key: ExpertKey::new(layer, expert),
            confidence: 1.0,
            needed_by: Deadline { passes_ahead: 0, layer },
        }));
    }
    fn observe(&mut self, _routing: &Routing<'_>) {}
}

/// How a layer finds what it demands.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Found {
    Resident,
    ReadAhead,
    Missing,
}

struct Bench {
    experts: StreamingExperts,
    says: Says,
    pass: u64,
}

impl Bench {
    fn new(shape: ExpertShape) -> Result<Self, Box<dyn Error>> {
        let (geometry, layout) =
            (Geometry::new(1, EXPERTS, TOP_K as u16)?, RecordLayout::new(shape));
        let (records, says) = (Records(geometry, layout.record_len() as u64), Says::default());
        let experts = StreamingExperts::builder(geometry, layout, SLOTS)
            .with_forecaster(Box::new(says.clone()))
            .with_speculation(Speculation::always())
            .build(
                Arc::new(records),
                Arc::new(AtOnce),
                Arc::new(HostOps::new(Arc::new(Cpu::new(1)?))),
            )?;
        Ok(Self { experts, says, pass: 0 })
    }

    /// Time of the demand of one pass.
    fn demand(&mut self, found: Found) -> Result<Duration, Box<dyn Error>> {
        self.pass += 1;
        let turn = if found == Found::Resident { 0 } else { self.pass % 51 };
        let ids: Vec<ExpertIdx> =
            (0..TOP_K as u16).map(|rank| ExpertIdx::new(turn as u16 * 10 + rank)).collect();
        let said = if found == Found::ReadAhead { ids.clone() } else { Vec::new() };
        *self.says.0.lock().map_err(|_| "poisoned")? = said;
        let (pass, session, phase) = (PassId::new(self.pass), SessionId::new(0), Phase::Decode);
        let step = Step { pass, phase, session, position: self.pass, tokens: &[0] };
        self.experts.begin_pass(&step)?;
        let none = ProbeResults { rows: 1, results: &[] };
        self.experts.predict(Tap::BeforeLayer(LayerIdx::new(0)), &none);
        let routing = Routing::new(&step, LayerIdx::new(0), TOP_K, &ids, &[]);
        let begun = Instant::now();
        self.experts.demand(&routing)?;
        let took = begun.elapsed();
        self.experts.end_pass();
        Ok(took)
    }

    /// Median nanoseconds a record.
    fn measure(&mut self, found: Found, passes: usize) -> Result<f64, Box<dyn Error>> {
        for _ in 0..100 {
            self.demand(found)?;
        }
        let mut times = (0..passes).map(|_| self.demand(found)).collect::<Result<Vec<_>, _>>()?;
        times.sort_unstable();
        Ok(times[passes / 2].as_nanos() as f64 / TOP_K as f64)
    }
}

fn main() -> Result<(), Box<dyn Error>> {
    let passes = std::env::args().nth(1).map_or(Ok(20_000), |text| text.parse())?;
    let mut figures = serde_json::Map::new();
    for (hidden, inner) in [(128, 128), (2560, 640)] {
        let shape = ExpertShape::new(hidden, inner, AffineFormat::Q4_G64)?;
        let mut row = serde_json::Map::new();
        for (name, found) in [
            ("resident_ns", Found::Resident),
            ("adopted_ns", Found::ReadAhead),
            ("missing_ns", Found::Missing),
        ] {
            let mut bench = Bench::new(shape)?;
            row.insert(name.into(), json!(bench.measure(found, passes)?));
            let total = bench.experts.lookahead().total();
            let all = TOP_K as u64 * bench.pass;
            let right = match found {
                Found::Resident => total.misses <= TOP_K as u64,
                Found::ReadAhead => total.on_time == all,
                Found::Missing => total.misses == all && total.on_time == 0,
            };
            if !right {
                return Err(format!("{found:?}: {total:?}").into());
            }
        }
        figures.insert(RecordLayout::new(shape).record_len().to_string(), row.into());
    }
    println!("{}", serde_json::Value::Object(figures));
    Ok(())
}
