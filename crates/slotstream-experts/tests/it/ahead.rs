//! Records that are read before their layer asks: on a queue that reads speculation only when it
//! is told to.

use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::Duration;

use slotstream_cache::Lru;
use slotstream_candle::{ExpertProvider, HostOps};
use slotstream_core::{
    CancelToken, Deadline, ExpertIdx, ExpertKey, Forecaster, Job, LayerIdx, PassId, Phase,
    Prediction, Probe, ProbeResults, ReadClass, ReadCounters, ReadError, ReadQueue, RecordReader,
    Routing, SessionId, Step, Tap,
};
use slotstream_experts::{LayerLookahead, Speculation, StreamingExperts};
use slotstream_io::MemReader;
use slotstream_kernels::Reference;
use slotstream_replay::{ExactReplay, PoolEnd, Shared, TraceHeader};

use crate::{File, TOP_K, expected, geometry, layout, rows, weights};

/// Demands are read at once; speculation waits, and is ended when it is called off.
#[derive(Debug)]
struct Held {
    inner: Arc<Inner>,
    ender: Option<JoinHandle<()>>,
}

#[derive(Debug)]
struct Inner {
    reader: MemReader,
    jobs: Mutex<Vec<Job>>,
    /// Speculative reads fail.
    fails: Mutex<bool>,
    promoted: Mutex<usize>,
    over: CancelToken,
}

impl Inner {
    fn read(&self, mut job: Job, fails: bool) {
        let extent = *job.extent();
        let result = if job.is_cancelled() {
            Err(ReadError::cancelled(&extent))
        } else {
            let read = self.reader.read_exact_at(&extent, job.buffer());
            if fails { Err(ReadError::other(&extent, "it fails")) } else { read }
        };
        job.complete(result);
    }

    fn take(&self, wanted: impl Fn(&Job) -> bool) -> Vec<Job> {
        let mut jobs = self.jobs.lock().expect("not poisoned");
        let (taken, left) = jobs.drain(..).partition(|job| wanted(job));
        *jobs = left;
        taken
    }
}

impl Held {
    fn new(file: &File) -> Arc<Self> {
        let inner = Arc::new(Inner {
            reader: MemReader::from_bytes(vec![file.bytes.clone()]).expect("small"),
            jobs: Mutex::default(),
            fails: Mutex::new(false),
            promoted: Mutex::new(0),
            over: CancelToken::new(),
        });
        let own = Arc::clone(&inner);
        let ender = std::thread::spawn(move || {
            while !own.over.is_cancelled() {
                own.take(Job::is_cancelled).into_iter().for_each(|job| own.read(job, false));
                std::thread::sleep(Duration::from_millis(1));
            }
        });
        Arc::new(Self { inner, ender: Some(ender) })
    }

    /// Reads the speculation that waits.
    fn serve(&self) {
        let fails = *self.inner.fails.lock().expect("not poisoned");
        self.inner.take(|_| true).into_iter().for_each(|job| self.inner.read(job, fails));
    }

    fn fail(&self, fails: bool) {
        *self.inner.fails.lock().expect("not poisoned") = fails;
    }

    fn waiting(&self) -> usize {
        self.inner.jobs.lock().expect("not poisoned").len()
    }

    fn promoted(&self) -> usize {
        *self.inner.promoted.lock().expect("not poisoned")
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        self.inner.over.cancel();
        self.ender.take().map(JoinHandle::join);
    }
}

impl ReadQueue for Held {
    fn submit(&self, class: ReadClass, jobs: Vec<Job>) {
        match class {
            ReadClass::Demand => jobs.into_iter().for_each(|job| self.inner.read(job, false)),
            _ => self.inner.jobs.lock().expect("not poisoned").extend(jobs),
        }
    }

    fn promote(&self, tokens: &[CancelToken]) {
        let jobs = self.inner.take(|job| tokens.iter().any(|token| job.has_token(token)));
        *self.inner.promoted.lock().expect("not poisoned") += jobs.len();
        let fails = *self.inner.fails.lock().expect("not poisoned");
        jobs.into_iter().for_each(|job| self.inner.read(job, fails));
    }

    fn counters(&self) -> ReadCounters {
        ReadCounters::default()
    }
}

/// Says at every layer that these experts of the next layer will be wanted.
#[derive(Debug, Default)]
struct Says(Arc<Mutex<Vec<u16>>>);

impl Forecaster for Says {
    fn probes(&mut self, _at: Tap, _want: &mut Vec<Probe>) {}
    fn predict(&mut self, at: Tap, _results: &ProbeResults<'_>, out: &mut Vec<Prediction>) {
        if at == Tap::AfterAttention(LayerIdx::new(0)) {
            let layer = LayerIdx::new(1);
            out.extend(self.0.lock().expect("not poisoned").iter().map(|expert| Prediction {
                key: ExpertKey::new(layer, ExpertIdx::new(*expert)),
                confidence: 0.5,
                needed_by: Deadline { passes_ahead: 0, layer },
            }));
        }
    }
    fn observe(&mut self, _routing: &Routing<'_>) {}
}

struct Rig {
    file: File,
    experts: StreamingExperts,
    held: Arc<Held>,
    says: Arc<Mutex<Vec<u16>>>,
    replay: Shared<ExactReplay<Lru>>,
    pass: u64,
}

impl Rig {
    fn new(slots: usize) -> Self {
        let (file, says) = (File::new(), Says::default());
        let held = Held::new(&file);
        let mut header = TraceHeader::requests(geometry());
        (header.slots, header.floor) = (slots, geometry().floor_slots());
        let replay = Shared::new(ExactReplay::with_pool(&header, Lru::new()).expect("legal"));
        let told = Arc::clone(&says.0);
        let experts = StreamingExperts::builder(geometry(), layout(), slots)
            .with_policy(Box::new(Lru::new()))
            .with_forecaster(Box::new(says))
            .with_speculation(Speculation::always())
            .with_sink(Box::new(replay.clone()))
            .build(
                Arc::new(file.clone()),
                held.clone(),
                Arc::new(HostOps::new(Arc::new(Reference))),
            )
            .expect("builds");
        Self { file, experts, held, says: told, replay, pass: 0 }
    }

    /// Both layers of a pass of one row, each with its route. `before` runs after the forecast for
    /// layer 1 and before its demand.
    fn pass(&mut self, routes: [[u16; TOP_K]; 2], says: &[u16], before: impl Fn(&Held)) {
        self.pass += 1;
        *self.says.lock().expect("not poisoned") = says.to_vec();
        let (pass, session, phase) = (PassId::new(self.pass), SessionId::new(1), Phase::Decode);
        let step = Step { pass, phase, session, position: self.pass, tokens: &[0] };
        self.experts.begin_pass(&step).expect("begins");
        for (layer, route) in (0..).zip(routes) {
            let (ids, layer) = (route.map(ExpertIdx::new), LayerIdx::new(layer));
            let routing = Routing::new(&step, layer, TOP_K, &ids, &[]);
            self.experts.demand(&routing).expect("queues");
            let none = ProbeResults { rows: 1, results: &[] };
            self.experts.predict(Tap::AfterAttention(layer), &none);
            let y = self.experts.compute(&rows(1), &weights(1)).expect("computes");
            let y: Vec<f32> = y.flatten_all().and_then(|t| t.to_vec1()).expect("f32");
            let want = expected(&self.file, layer.get(), &[route]);
            let close = |(a, b): (&f32, &f32)| (a - b).abs() <= 1e-5 * b.abs().max(1.0);
            assert!(y.iter().zip(&want).all(close), "pass {} {layer}", self.pass);
            before(&self.held);
        }
        self.experts.end_pass();
        self.experts.pool().validate().expect("consistent");
    }

    fn layer(&self) -> LayerLookahead {
        self.experts.lookahead().layers[1]
    }

    /// Ends everything; what replays the outcomes has the same pool.
    fn finish(mut self) {
        self.experts.forget(SessionId::new(1));
        assert_eq!(self.experts.pool().open_claims(), 0);
        self.experts.pool().validate().expect("consistent");
        let live = PoolEnd::of(self.experts.pool());
        drop(self.experts);
        let replay = self.replay.into_inner().expect("the provider is gone");
        assert_eq!(PoolEnd::of(&replay.finish().expect("the same")), live);
    }
}

const ROUTES: [[u16; TOP_K]; 2] = [[0, 1, 2], [3, 4, 5]];

#[test]
fn what_was_read_ahead_is_adopted_and_not_read_again() {
    let mut rig = Rig::new(16);
    rig.pass(ROUTES, &[3, 5, 7], Held::serve);
    let layer = rig.layer();
    assert_eq!((layer.issued, layer.on_time, layer.late, layer.expired), (3, 2, 0, 1));
    assert_eq!((layer.misses, layer.demanded, layer.foreseen), (3, 3, 2));
    assert_eq!(layer.wasted_bytes, layout().payload_len() as u64);
    assert_eq!(rig.experts.metrics().records_read, 4, "three of layer 0, one of layer 1");
    let decode = rig.experts.pool().counters().decode;
    assert_eq!((decode.misses, decode.adopted), (6, 2));
    // What is resident is not reserved.
    rig.pass(ROUTES, &[3, 5], Held::serve);
    assert_eq!(rig.layer().issued, 3);
    rig.finish();
}

#[test]
fn what_is_late_goes_behind_the_demand_and_is_joined() {
    let mut rig = Rig::new(16);
    rig.pass(ROUTES, &[3, 7], |_| {});
    let layer = rig.layer();
    assert_eq!((layer.issued, layer.on_time, layer.late), (2, 0, 1));
    assert_eq!(rig.held.promoted(), 9, "the pieces of one record");
    rig.experts.forget(SessionId::new(1));
    assert_eq!((rig.layer().cancelled, rig.layer().wasted_bytes), (1, 0));
    assert_eq!(rig.held.waiting(), 0);
    rig.finish();
}

#[test]
fn a_speculative_read_that_fails_is_nobodys_error() {
    for late in [false, true] {
        let mut rig = Rig::new(16);
        rig.held.fail(true);
        rig.pass(ROUTES, &[3, 4, 5, 6], |held| {
            if !late {
                held.serve();
            }
        });
        assert_eq!(rig.layer().failed, if late { 3 } else { 4 });
        rig.held.fail(false);
        rig.pass(ROUTES, &[], |_| {});
        assert_eq!(rig.experts.pool().counters().decode.hits, 6);
        rig.finish();
    }
}

/// Called off and wanted once more before the read has ended: it is read on demand.
#[test]
fn a_retired_ticket_can_be_adopted() {
    let mut rig = Rig::new(16);
    for n in 0..20 {
        let other = [[0, 1, 2], [5, 6, 7]];
        rig.pass(if n % 2 == 0 { other } else { ROUTES }, &[3, 4], |_| {});
    }
    assert_eq!(rig.experts.pool().counters().decode.misses, 8);
    rig.finish();
}

#[test]
fn demand_goes_before_tickets_where_both_do_not_fit() {
    // At the floor of 6 slots the running layer and a route are all there is.
    let mut rig = Rig::new(6);
    rig.pass(ROUTES, &[3, 4], Held::serve);
    assert_eq!((rig.layer().issued, rig.layer().refused), (0, 2));
    rig.finish();
    let mut rig = Rig::new(7);
    rig.pass(ROUTES, &[3, 7], |_| {});
    assert_eq!((rig.layer().issued, rig.layer().refused), (1, 1));
    rig.pass([[3, 4, 5], [0, 1, 2]], &[6, 7], |_| {});
    rig.finish();
}

#[test]
fn resizing_and_clearing_join_what_is_read_ahead() {
    let mut rig = Rig::new(16);
    for slots in [9, 16, 6, 12] {
        rig.pass(ROUTES, &[6, 7], |_| {});
        rig.experts.resize(slots).expect("from the floor up");
        assert_eq!((rig.experts.pool().slots(), rig.experts.pool().open_claims()), (slots, 0));
        assert_eq!(rig.held.waiting(), 0);
        rig.pass(ROUTES, &[6, 7], Held::serve);
    }
    rig.pass(ROUTES, &[6, 7], |_| {});
    rig.experts.clear();
    assert_eq!((rig.experts.pool().resident_count(), rig.held.waiting()), (0, 0));
    rig.pass(ROUTES, &[3], Held::serve);
    assert!(rig.experts.resize(2).is_err(), "below the floor");
    rig.pass(ROUTES, &[3], Held::serve);
    rig.finish();
}
