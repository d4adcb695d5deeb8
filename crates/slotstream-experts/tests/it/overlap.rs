//! What is computed while misses load, on a disk that stands still until it is told to go on.

use std::path::Path;
use std::sync::{Arc, Condvar, Mutex, OnceLock};
use std::time::Duration;

use slotstream_candle::{ExpertProvider, HostOps};
use slotstream_core::{
    ExpertIdx, ExpertKey, Extent, FileId, Job, LayerIdx, PassId, Phase, ReadClass, ReadCounters,
    ReadError, ReadQueue, ReaderMode, RecordLayout, RecordReader, Routing, SessionId, Step,
};
use slotstream_experts::{RecordIndex, StreamingExperts};
use slotstream_io::{LaneQueue, MemReader};
use slotstream_kernels::{ExpertRows, Kernels, reference};

use crate::{File, TOP_K, expected, geometry, layout, rows, weights};

/// Keeps jobs until `serve`: one delay of a disk, in which everything queued is read at once.
#[derive(Debug)]
struct Disk {
    reader: MemReader,
    queued: Mutex<Vec<Job>>,
    /// Jobs of each delay.
    delays: Mutex<Vec<usize>>,
}

impl Disk {
    fn serve(&self) {
        let jobs = std::mem::take(&mut *self.queued.lock().expect("not poisoned"));
        if jobs.is_empty() {
            return;
        }
        self.delays.lock().expect("not poisoned").push(jobs.len());
        for mut job in jobs {
            let extent = *job.extent();
            let result = self.reader.read_exact_at(&extent, job.buffer());
            job.complete(result);
        }
    }
}

impl ReadQueue for Disk {
    fn submit(&self, _class: ReadClass, jobs: Vec<Job>) {
        self.queued.lock().expect("not poisoned").extend(jobs);
    }

    fn counters(&self) -> ReadCounters {
        ReadCounters::default()
    }
}

/// Lets the disk go on when some experts have been computed, and not before: a provider that
/// waited for it first would wait for ever.
#[derive(Debug, Default)]
struct Watching {
    disk: OnceLock<Arc<Disk>>,
    /// Experts of each call.
    calls: Mutex<Vec<usize>>,
}

impl Kernels for Watching {
    fn name(&self) -> String {
        "watching".into()
    }

    fn expert_mlp(
        &self,
        layout: &RecordLayout,
        x: &[f32],
        experts: &[ExpertRows<'_>],
        out: &mut [f32],
    ) {
        reference::expert_mlp(self, layout, x, experts, out);
        self.calls.lock().expect("not poisoned").push(experts.len());
        self.disk.get().expect("set").serve();
    }
}

#[test]
fn residents_are_computed_while_all_misses_load_in_one_delay() {
    let file = File::new();
    let kernels = Arc::new(Watching::default());
    let disk = Arc::new(Disk {
        reader: MemReader::from_bytes(vec![file.bytes.clone()]).expect("small"),
        queued: Mutex::default(),
        delays: Mutex::default(),
    });
    kernels.disk.set(Arc::clone(&disk)).expect("once");
    let queue: Arc<dyn ReadQueue> = Arc::clone(&disk) as _;
    let ops = Arc::new(HostOps::new(Arc::clone(&kernels) as _));
    let mut experts = StreamingExperts::builder(geometry(), layout(), 16)
        .build(Arc::new(file.clone()), queue, ops)
        .expect("builds");
    let mut layer_of = |route: [u16; TOP_K], early: bool| {
        let ids = route.map(ExpertIdx::new);
        let (pass, session, phase) = (PassId::new(1), SessionId::new(1), Phase::Decode);
        let step = Step { pass, phase, session, position: 0, tokens: &[0] };
        let routing = Routing::new(&step, LayerIdx::new(0), TOP_K, &ids, &[]);
        experts.begin_pass(&step).expect("begins");
        experts.demand(&routing).expect("queues");
        // All reads of the layer are under way before anything is computed.
        let queued = disk.queued.lock().expect("not poisoned").len();
        if early {
            disk.serve();
        }
        let y = experts.compute(&rows(1), &weights(1)).expect("computes");
        experts.end_pass();
        let y: Vec<f32> = y.flatten_all().and_then(|t| t.to_vec1()).expect("f32");
        let want = expected(&file, 0, &[route]);
        assert!(y.iter().zip(&want).all(|(a, b)| (a - b).abs() <= 1e-5 * b.abs().max(1.0)));
        queued
    };
    // Nothing is resident, so there is nothing to compute before the disk has gone on.
    assert_eq!(layer_of([5, 0, 2], true), 3 * 9);
    // One is resident; two misses.
    assert_eq!(layer_of([1, 5, 7], false), 2 * 9);
    // Two are resident; one miss.
    assert_eq!(layer_of([1, 6, 0], false), 9);
    // All are.
    assert_eq!(layer_of([6, 1, 2], false), 0);
    assert_eq!(*disk.delays.lock().expect("not poisoned"), [3 * 9, 2 * 9, 9]);
    assert_eq!(*kernels.calls.lock().expect("not poisoned"), [3, 1, 2, 2, 1, 3]);
}

/// Records as wholes: one read each.
#[derive(Debug)]
struct Whole(File);

impl RecordIndex for Whole {
    fn pieces(&self, key: ExpertKey) -> Option<[Extent; 9]> {
        self.0.pieces(key)
    }

    fn whole(&self, key: ExpertKey) -> Option<Extent> {
        let len = layout().payload_len() as u64;
        Extent::new(FileId::new(0), geometry().index(key)? as u64 * len, len).ok()
    }
}

/// Each read takes until as many reads as given are in flight together, or far too long.
#[derive(Debug)]
struct Meeting {
    inner: MemReader,
    wanted: usize,
    /// In flight, and the most there were.
    now: Mutex<(usize, usize)>,
    met: Condvar,
}

impl RecordReader for Meeting {
    fn read_exact_at(&self, extent: &Extent, buffer: &mut [u8]) -> Result<(), ReadError> {
        let mut now = self.now.lock().expect("not poisoned");
        now.0 += 1;
        now.1 = now.1.max(now.0);
        self.met.notify_all();
        let missing = |now: &mut (usize, usize)| now.1 < self.wanted;
        // Only a failure lasts that long.
        let hang = Duration::from_secs(60);
        let (mut now, _) = self.met.wait_timeout_while(now, hang, missing).expect("not poisoned");
        now.0 -= 1;
        drop(now);
        self.inner.read_exact_at(extent, buffer)
    }

    fn effective(&self) -> ReaderMode {
        self.inner.effective()
    }

    fn path(&self, file: FileId) -> Option<&Path> {
        self.inner.path(file)
    }
}

#[test]
fn k_misses_of_a_layer_are_in_flight_together() {
    let file = File::new();
    for lanes in [TOP_K, 8] {
        let reader = Arc::new(Meeting {
            inner: MemReader::from_bytes(vec![file.bytes.clone()]).expect("small"),
            wanted: TOP_K,
            now: Mutex::default(),
            met: Condvar::new(),
        });
        let queue = LaneQueue::new(Arc::clone(&reader) as Arc<dyn RecordReader>, lanes);
        let queue: Arc<dyn ReadQueue> = Arc::new(queue.expect("lanes"));
        let ops = Arc::new(HostOps::new(Arc::new(slotstream_kernels::Reference)));
        let mut experts = StreamingExperts::builder(geometry(), layout(), 16)
            .build(Arc::new(Whole(file.clone())), queue, ops)
            .expect("builds");
        let found = crate::pass(&mut experts, &[[3, 1, 4]]).expect("runs");
        let want = expected(&file, 0, &[[3, 1, 4]]);
        assert!(found[0].iter().zip(&want).all(|(a, b)| (a - b).abs() <= 1e-5 * b.abs().max(1.0)));
        assert_eq!(reader.now.lock().expect("not poisoned").1, TOP_K, "{lanes} lanes");
        assert_eq!(experts.metrics().records_read, 2 * TOP_K as u64);
    }
}
