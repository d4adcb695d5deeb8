//! Reading ahead and all that may befall it, in every order: forecast, demand, the end of a pass,
//! the end of a session, a resize. A reader thread meanwhile takes one record at a time, demands
//! first, so that each of these finds the reads queued, running, landed or failed.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use loom::sync::{Condvar, Mutex};
use loom::thread;
use slotstream_core::{
    CancelToken, ExpertIdx, ExpertKey, Extent, FileId, Geometry, Job, LayerIdx, PassId, Phase,
    ProbeResults, ReadClass, ReadCounters, ReadError, ReadQueue, Routing, SessionId, SlotId, Step,
    Tap,
};

use crate::explore::explore_all;
use crate::provider::StreamingExperts;
use crate::rig::{Checks, Says, layout, mark};
use crate::tickets::Speculation;
use crate::{ExpertProvider, RecordIndex, Tensor};

/// What is forecast, and what is demanded where that was wrong.
const FORESEEN: u16 = 2;
const OTHER: u16 = 1;

/// Each record is one read.
#[derive(Debug)]
struct Whole(Geometry);

impl RecordIndex for Whole {
    fn pieces(&self, _key: ExpertKey) -> Option<[Extent; 9]> {
        None
    }

    fn whole(&self, key: ExpertKey) -> Option<Extent> {
        let (at, len) = (self.0.index(key)? as u64, layout().record_len() as u64);
        Extent::new(FileId::new(0), at, len).ok()
    }
}

/// Jobs that wait, each with whether its read fails.
#[derive(Debug, Default)]
struct Waiting {
    demand: VecDeque<(Job, bool)>,
    ahead: VecDeque<(Job, bool)>,
    over: bool,
}

#[derive(Debug)]
struct Lane {
    waiting: Mutex<Waiting>,
    more: Condvar,
    /// Speculative reads fail, promoted ones as well.
    spoils: bool,
    queued: AtomicUsize,
    ended: AtomicUsize,
}

impl Lane {
    fn new(spoils: bool) -> Arc<Self> {
        let (waiting, more) = (Mutex::new(Waiting::default()), Condvar::new());
        let (queued, ended) = (AtomicUsize::new(0), AtomicUsize::new(0));
        Arc::new(Self { waiting, more, spoils, queued, ended })
    }

    fn lock(&self) -> loom::sync::MutexGuard<'_, Waiting> {
        self.waiting.lock().expect("nobody panics while holding it")
    }

    /// Reads until it is told to end; what is queued then is read before.
    fn run(&self) {
        loop {
            let mut waiting = self.lock();
            let next = loop {
                let next = waiting.demand.pop_front();
                let next = next.or_else(|| waiting.ahead.pop_front());
                if next.is_some() || waiting.over {
                    break next;
                }
                waiting = self.more.wait(waiting).expect("nobody panics while holding it");
            };
            drop(waiting);
            let Some((job, fails)) = next else { return };
            self.read(job, fails);
        }
    }

    fn read(&self, mut job: Job, fails: bool) {
        let extent = *job.extent();
        self.ended.fetch_add(1, Ordering::SeqCst);
        if job.is_cancelled() {
            return job.complete(Err(ReadError::cancelled(&extent)));
        }
        let (record, layout) = (extent.offset() as usize, layout());
        let buffer = job.buffer();
        for (number, piece) in layout.pieces().iter().enumerate() {
            buffer[piece.offset..piece.offset + piece.len].fill(mark(record, number));
        }
        job.complete(if fails { Err(ReadError::other(&extent, "it fails")) } else { Ok(()) });
    }

    fn end(&self) {
        self.lock().over = true;
        self.more.notify_one();
    }
}

impl ReadQueue for Lane {
    fn submit(&self, class: ReadClass, jobs: Vec<Job>) {
        self.queued.fetch_add(jobs.len(), Ordering::SeqCst);
        let mut waiting = self.lock();
        match class {
            ReadClass::Demand => waiting.demand.extend(jobs.into_iter().map(|job| (job, false))),
            _ => waiting.ahead.extend(jobs.into_iter().map(|job| (job, self.spoils))),
        }
        drop(waiting);
        self.more.notify_one();
    }

    fn promote(&self, tokens: &[CancelToken]) {
        let mut waiting = self.lock();
        let urgent = |(job, _): &(Job, bool)| tokens.iter().any(|token| job.has_token(token));
        let (urgent, rest) = waiting.ahead.drain(..).partition::<VecDeque<_>, _>(urgent);
        waiting.demand.extend(urgent);
        waiting.ahead = rest;
    }

    fn counters(&self) -> ReadCounters {
        ReadCounters::default()
    }
}

/// What happens to the provider.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Act {
    /// Another pass begins, without an end of the one before, and forecasts.
    Forecast,
    /// The running pass, or else a new one, wants a record.
    Demand,
    EndPass,
    /// The session ends.
    Forget,
    Resize,
}

use Act::{Demand, EndPass, Forecast, Forget, Resize};

/// What varies from program to program beside the order.
#[derive(Clone, Copy, Debug)]
struct Variant {
    wants: u16,
    /// Nobody computes what was demanded.
    abandons: bool,
    spoils: bool,
    /// From three slots to so many.
    slots: usize,
}

struct Run {
    experts: StreamingExperts,
    lane: Arc<Lane>,
    checks: Arc<Checks>,
    says: Arc<std::sync::Mutex<Vec<u16>>>,
    pass: u64,
    runs: bool,
}

impl Run {
    fn new(spoils: bool) -> Self {
        let geometry = Geometry::new(1, 4, 1).expect("legal");
        let (lane, checks) = (Lane::new(spoils), Arc::new(Checks::default()));
        let says = Says::default();
        let told = says.told();
        let experts = StreamingExperts::builder(geometry, layout(), 3)
            .with_forecaster(Box::new(says))
            .with_speculation(Speculation::always())
            .build(Arc::new(Whole(geometry)), lane.clone(), checks.clone())
            .expect("small");
        Self { experts, lane, checks, says: told, pass: 0, runs: false }
    }

    fn step(&self) -> Step<'static> {
        let (pass, session) = (PassId::new(self.pass), SessionId::new(0));
        Step { pass, phase: Phase::Decode, session, position: self.pass, tokens: &[0] }
    }

    fn begin(&mut self, says: &[u16]) {
        self.pass += 1;
        self.runs = true;
        *self.says.lock().expect("one at a time") = says.to_vec();
        self.experts.begin_pass(&self.step()).expect("a lawful pass");
        let none = ProbeResults { rows: 1, results: &[] };
        self.experts.predict(Tap::BeforeLayer(LayerIdx::new(0)), &none);
    }

    fn end_pass(&mut self) {
        if std::mem::take(&mut self.runs) {
            self.experts.end_pass();
        }
    }

    /// What was demanded is computed whole, and nothing else is.
    fn demand(&mut self, expert: u16, abandons: bool) {
        if !self.runs {
            self.begin(&[]);
        }
        let ids = [ExpertIdx::new(expert)];
        let step = self.step();
        let routing = Routing::new(&step, LayerIdx::new(0), 1, &ids, &[]);
        self.experts.demand(&routing).expect("a lawful demand");
        if !abandons {
            self.experts.compute(&Tensor, &Tensor).expect("its record is read");
            let seen = std::mem::take(&mut *self.checks.seen.lock().expect("one at a time"));
            assert_eq!(seen, [usize::from(expert)]);
        }
    }

    fn act(&mut self, act: Act, variant: Variant) {
        match act {
            Forecast => self.begin(&[FORESEEN, 3]),
            Demand => self.demand(variant.wants, variant.abandons),
            EndPass => self.end_pass(),
            Forget => {
                self.end_pass();
                self.experts.forget(SessionId::new(0));
                self.assert_joined();
            }
            Resize => {
                self.end_pass();
                self.experts.resize(variant.slots).expect("from the floor up");
                self.assert_joined();
            }
        }
        self.experts.pool().validate().expect("the pool's tables agree");
    }

    /// Nothing is read, claimed or lost.
    fn assert_joined(&self) {
        let count = |count: &AtomicUsize| count.load(Ordering::SeqCst);
        assert_eq!(count(&self.lane.queued), count(&self.lane.ended), "jobs are still running");
        let pool = self.experts.pool();
        assert_eq!((pool.open_claims(), pool.available()), (0, pool.slots()), "a slot is lost");
        let resident = (0..pool.slots() as u32).filter_map(|slot| pool.key(SlotId::new(slot)));
        let mut resident: Vec<ExpertKey> = resident.collect();
        resident.sort_unstable();
        assert!(resident.windows(2).all(|pair| pair[0] != pair[1]), "two slots of one record");
    }

    /// Every slot can still be had, and each record be read into one.
    fn finish(mut self) {
        self.act(Forget, Variant { wants: 0, abandons: false, spoils: false, slots: 3 });
        for expert in 0..4 {
            self.demand(expert, false);
            self.end_pass();
        }
        self.assert_joined();
        let (lane, pool) = (Arc::clone(&self.lane), self.experts.pool());
        assert_eq!(pool.resident_count(), pool.slots(), "a slot is never filled");
        drop(self);
        lane.end();
    }
}

/// A forecast, and then the acts one after the other.
fn run(acts: &[Act], variant: Variant) {
    let mut run = Run::new(variant.spoils);
    let lane = Arc::clone(&run.lane);
    let reader = thread::spawn(move || lane.run());
    run.act(Forecast, variant);
    for act in acts {
        run.act(*act, variant);
    }
    run.finish();
    reader.join().expect("it does not panic");
}

/// All orders of `acts`.
fn permutations(acts: &[Act]) -> Vec<Vec<Act>> {
    if acts.is_empty() {
        return vec![Vec::new()];
    }
    let mut all = Vec::new();
    for first in 0..acts.len() {
        let mut rest = acts.to_vec();
        let act = rest.remove(first);
        all.extend(permutations(&rest).into_iter().map(|rest| [&[act][..], &rest].concat()));
    }
    all
}

/// Every order of all acts, under this variant.
fn check(variant: Variant) {
    let programs = permutations(&[Forecast, Demand, EndPass, Forget, Resize]);
    assert_eq!(programs.len(), 120);
    explore_all(2, 20, programs, move |acts: &Vec<Act>| run(acts, variant));
}

const VARIANT: Variant = Variant { wants: FORESEEN, abandons: false, spoils: false, slots: 2 };

#[test]
fn a_right_forecast_in_every_order() {
    check(VARIANT);
    check(Variant { slots: 4, ..VARIANT });
}

#[test]
fn a_wrong_forecast_in_every_order() {
    check(Variant { wants: OTHER, ..VARIANT });
}

#[test]
fn a_failed_forecast_in_every_order() {
    check(Variant { spoils: true, ..VARIANT });
    check(Variant { spoils: true, wants: OTHER, slots: 4, ..VARIANT });
}

#[test]
fn an_abandoned_demand_in_every_order() {
    check(Variant { abandons: true, ..VARIANT });
    check(Variant { abandons: true, spoils: true, slots: 4, ..VARIANT });
}
