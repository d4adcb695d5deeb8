//! A provider over two threads that land its pieces, and ops that check what they are lent.

use std::panic::resume_unwind;
use std::sync::Arc;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use loom::thread;
use slotstream_core::{
    AffineFormat, Deadline, ExpertIdx, ExpertKey, ExpertShape, Extent, FileId, Forecaster,
    Geometry, Job, LayerIdx, PassId, Phase, Prediction, Probe, ProbeResults, ReadClass,
    ReadCounters, ReadError, ReadQueue, RecordLayout, Routing, SessionId, SlotId, Step, Tap,
};

use crate::provider::StreamingExperts;
use crate::sweep::PrefillSweep;
use crate::tickets::Speculation;
use crate::{Error, ExpertProvider, Ops, Reading, RecordIndex, SlotRows, Tensor};

pub(crate) fn layout() -> RecordLayout {
    RecordLayout::new(ExpertShape::new(64, 64, AffineFormat::Q4_G64).expect("whole groups"))
}

/// Every byte of a piece names its record and itself.
pub(crate) fn mark(record: usize, piece: usize) -> u8 {
    (record * 16 + piece + 1) as u8
}

/// The record whose nine pieces `bytes` holds; panics when they are not of one record.
pub(crate) fn record_in(layout: &RecordLayout, bytes: &[u8]) -> usize {
    let record = usize::from(bytes[layout.pieces()[0].offset] / 16);
    for (number, piece) in layout.pieces().iter().enumerate() {
        let bytes = &bytes[piece.offset..piece.offset + piece.len];
        let whole = bytes.iter().all(|byte| *byte == mark(record, number));
        assert!(whole, "piece {number} of a record that is visible is not there");
    }
    record
}

/// Piece `p` of record `r` lies at position `r * 16 + p` (it may be longer than that).
#[derive(Debug)]
struct Index(Geometry);

impl RecordIndex for Index {
    fn pieces(&self, key: ExpertKey) -> Option<[Extent; 9]> {
        let record = self.0.index(key)? as u64;
        let layout = layout();
        Some(std::array::from_fn(|piece| {
            let (at, len) = (record * 16 + piece as u64, layout.pieces()[piece].len as u64);
            Extent::new(FileId::new(0), at, len).expect("small")
        }))
    }
}

/// Two threads a batch: one lands the pieces of even, one those of odd position; or none, and
/// the pieces land as they are queued.
#[derive(Debug, Default)]
pub(crate) struct Lanes {
    /// Land at once.
    pub(crate) inline: AtomicBool,
    /// Positions of the pieces whose reads fail.
    pub(crate) failing: Mutex<Vec<u64>>,
    /// Speculative reads fail.
    pub(crate) spoils_speculation: AtomicBool,
    /// Positions of the pieces whose jobs are dropped.
    pub(crate) dropped: Mutex<Vec<u64>>,
    queued: AtomicUsize,
    ended: Arc<AtomicUsize>,
}

impl Lanes {
    /// Asserts that every job that was queued has ended.
    pub(crate) fn assert_all_ended(&self) {
        let (queued, ended) =
            (self.queued.load(Ordering::SeqCst), self.ended.load(Ordering::SeqCst));
        assert_eq!(queued, ended, "jobs are still running");
    }
}

fn land(mut job: Job, fails: bool, is_dropped: bool, ended: &AtomicUsize) {
    let (extent, at) = (*job.extent(), job.extent().offset() as usize);
    // Counted first: the provider may return as soon as the last piece has landed.
    ended.fetch_add(1, Ordering::SeqCst);
    if is_dropped {
        drop(job);
    } else if job.is_cancelled() {
        job.complete(Err(ReadError::cancelled(&extent)));
    } else {
        job.buffer().fill(mark(at / 16, at % 16));
        let result = if fails { Err(ReadError::other(&extent, "it fails")) } else { Ok(()) };
        job.complete(result);
    }
}

impl ReadQueue for Lanes {
    fn submit(&self, class: ReadClass, jobs: Vec<Job>) {
        let spoilt = class != ReadClass::Demand && self.spoils_speculation.load(Ordering::SeqCst);
        self.queued.fetch_add(jobs.len(), Ordering::SeqCst);
        let failing = self.failing.lock().expect("one thread at a time").clone();
        let dropped = self.dropped.lock().expect("one thread at a time").clone();
        let ended = Arc::clone(&self.ended);
        let land = move |job: Job| {
            let at = job.extent().offset();
            land(job, spoilt || failing.contains(&at), dropped.contains(&at), &ended);
        };
        if self.inline.load(Ordering::SeqCst) || jobs.is_empty() {
            jobs.into_iter().for_each(land);
            return;
        }
        let odd = |job: &Job| job.extent().offset() % 2 == 1;
        let (odd, even): (Vec<Job>, Vec<Job>) = jobs.into_iter().partition(odd);
        for jobs in [even, odd] {
            let land = land.clone();
            thread::spawn(move || jobs.into_iter().for_each(land));
        }
    }

    fn counters(&self) -> ReadCounters {
        ReadCounters::default()
    }
}

/// Checks the slots that it is lent.
#[derive(Debug, Default)]
pub(crate) struct Checks {
    /// Panic instead.
    pub(crate) panics: AtomicBool,
    /// Records that were computed.
    pub(crate) seen: Mutex<Vec<usize>>,
}

impl Ops for Checks {
    fn expert_mlp(
        &self,
        layout: &RecordLayout,
        slots: &Reading,
        experts: &[SlotRows<'_>],
        _x: &Tensor,
        _out: &Tensor,
    ) -> Result<(), Error> {
        if self.panics.load(Ordering::SeqCst) {
            // Without the hook, which would write a report in each of thousands of runs.
            resume_unwind(Box::new("an op's panic"));
        }
        for SlotRows { slot, rows, places } in experts {
            assert_eq!(rows.len(), places.len());
            let bytes = slots.record(*slot).expect("the slot is among those lent");
            self.seen.lock().expect("one thread at a time").push(record_in(layout, bytes));
        }
        Ok(())
    }

    fn rank_sum(&self, _y: &Tensor, _weights: &Tensor) -> Result<Tensor, Error> {
        Ok(Tensor)
    }
}

/// Says what it is told.
#[derive(Debug, Default)]
pub(crate) struct Says(Arc<Mutex<Vec<u16>>>);

impl Says {
    /// What it will say.
    pub(crate) fn told(&self) -> Arc<Mutex<Vec<u16>>> {
        Arc::clone(&self.0)
    }
}

impl Forecaster for Says {
    fn probes(&mut self, _at: Tap, _want: &mut Vec<Probe>) {}
    fn predict(&mut self, at: Tap, _results: &ProbeResults<'_>, out: &mut Vec<Prediction>) {
        let layer = at.layer();
        out.extend(self.0.lock().expect("one at a time").iter().map(|expert| Prediction {
            key: ExpertKey::new(layer, ExpertIdx::new(*expert)),
            confidence: 1.0,
            needed_by: Deadline { passes_ahead: 0, layer },
        }));
    }
    fn observe(&mut self, _routing: &Routing<'_>) {}
}

/// One layer of four experts and a pool of two or more slots.
pub(crate) struct Rig {
    pub(crate) experts: StreamingExperts,
    pub(crate) lanes: Arc<Lanes>,
    pub(crate) checks: Arc<Checks>,
    says: Arc<Mutex<Vec<u16>>>,
    pass: u64,
    phase: Phase,
}

impl Rig {
    pub(crate) fn new(top_k: u16, slots: usize) -> Self {
        Self::of(top_k, slots, PrefillSweep::Off)
    }

    /// Every pass is swept.
    pub(crate) fn sweeping(top_k: u16, slots: usize) -> Self {
        Self::of(top_k, slots, PrefillSweep::Rows(1))
    }

    fn of(top_k: u16, slots: usize, sweep: PrefillSweep) -> Self {
        let geometry = Geometry::new(1, 4, top_k).expect("legal");
        let (lanes, checks) = (Arc::new(Lanes::default()), Arc::new(Checks::default()));
        let phase = if sweep.rows().is_some() { Phase::Prefill } else { Phase::Decode };
        let says = Says::default();
        let told = says.told();
        let experts = StreamingExperts::builder(geometry, layout(), slots)
            .with_sweep(sweep)
            .with_forecaster(Box::new(says))
            .with_speculation(Speculation::always())
            .build(Arc::new(Index(geometry)), lanes.clone(), checks.clone())
            .expect("small");
        Self { experts, lanes, checks, says: told, pass: 0, phase }
    }

    /// A pass of one row that chooses `ids`, up to the demand of its layer.
    pub(crate) fn demand(&mut self, ids: &[u16]) -> Result<(), Error> {
        self.forecast(&[])?;
        self.demand_in_pass(ids)
    }

    /// A pass of one row, up to the forecast of its layer.
    pub(crate) fn forecast(&mut self, says: &[u16]) -> Result<(), Error> {
        self.pass += 1;
        *self.says.lock().expect("one at a time") = says.to_vec();
        self.experts.begin_pass(&self.step())?;
        let none = ProbeResults { rows: 1, results: &[] };
        self.experts.predict(Tap::BeforeLayer(LayerIdx::new(0)), &none);
        Ok(())
    }

    pub(crate) fn forecast_and_demand(&mut self, says: &[u16], ids: &[u16]) -> Result<(), Error> {
        self.forecast(says)?;
        self.demand_in_pass(ids)
    }

    fn step(&self) -> Step<'static> {
        Step {
            pass: PassId::new(self.pass),
            phase: self.phase,
            session: SessionId::new(0),
            position: self.pass,
            tokens: &[0],
        }
    }

    fn demand_in_pass(&mut self, ids: &[u16]) -> Result<(), Error> {
        let ids: Vec<ExpertIdx> = ids.iter().copied().map(ExpertIdx::new).collect();
        let step = self.step();
        self.experts.demand(&Routing::new(&step, LayerIdx::new(0), ids.len(), &ids, &[]))
    }

    /// The session ends: nothing is read ahead any more.
    pub(crate) fn join(&mut self) {
        self.experts.forget(SessionId::new(0));
    }

    pub(crate) fn compute(&mut self) -> Result<Tensor, Error> {
        self.experts.compute(&Tensor, &Tensor)
    }

    /// A whole pass, whose reads land as they are queued.
    pub(crate) fn pass_at_once(&mut self, ids: &[u16]) {
        self.lanes.inline.store(true, Ordering::SeqCst);
        self.demand(ids).expect("a lawful demand");
        self.compute().expect("its records are read");
        self.experts.end_pass();
        self.lanes.inline.store(false, Ordering::SeqCst);
        self.assert_sound();
    }

    /// The records that were computed since the last call, ascending.
    pub(crate) fn take_seen(&self) -> Vec<usize> {
        let mut seen = std::mem::take(&mut *self.checks.seen.lock().expect("one at a time"));
        seen.sort_unstable();
        seen
    }

    pub(crate) fn is_resident(&self, expert: u16) -> bool {
        let key = ExpertKey::new(LayerIdx::new(0), ExpertIdx::new(expert));
        self.experts.pool().is_resident(key)
    }

    /// Between two passes: everything has ended, nothing is claimed, the tables agree.
    pub(crate) fn assert_sound(&self) {
        self.lanes.assert_all_ended();
        let pool = self.experts.pool();
        assert_eq!(pool.open_claims(), 0, "a claim is open");
        pool.validate().expect("the pool's tables agree");
        for slot in (0..pool.slots()).map(|slot| SlotId::new(slot as u32)) {
            let state = pool.state(slot);
            assert!(state.is_some(), "{slot} is one of the pool's");
        }
    }
}
