//! Records that are read ahead change nothing, and neither does a fault of any such read.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use slotstream_core::{Geometry, Job, Landing, ReadClass, ReadCounters, ReadError, ReadQueue};
use slotstream_io::LaneQueue;
use slotstream_kernels::Cpu;
use slotstream_lookahead::parse_forecaster;

use crate::rig::{Goldens, Rig, files_in_memory, random_model};

/// Which speculative reads fail.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Fails {
    None,
    All,
    Nth(u64),
}

/// Lanes whose speculative reads fail, and no others.
#[derive(Debug)]
struct Spoiling {
    lanes: LaneQueue,
    fails: Fails,
    speculative: AtomicU64,
}

/// A read whose end is another one than its own.
struct Spoilt(Job, bool);

impl Landing for Spoilt {
    fn buffer(&mut self) -> &mut [u8] {
        self.0.buffer()
    }
    fn landed(self: Box<Self>, result: Result<(), ReadError>) {
        let Self(mut job, fails) = *self;
        let extent = *job.extent();
        if fails {
            // Nothing of what came may be used.
            job.buffer().fill(0xff);
        }
        let spoilt = || Err(ReadError::other(&extent, "a speculative read fails"));
        job.complete(if fails { spoilt() } else { result });
    }
}

impl ReadQueue for Spoiling {
    fn submit(&self, class: ReadClass, jobs: Vec<Job>) {
        if class == ReadClass::Demand {
            return self.lanes.submit(class, jobs);
        }
        let spoil = |job: Job| {
            let number = self.speculative.fetch_add(1, Ordering::SeqCst);
            let fails = self.fails == Fails::All || self.fails == Fails::Nth(number);
            Job::new(*job.extent(), Box::new(Spoilt(job, fails)))
        };
        self.lanes.submit(class, jobs.into_iter().map(spoil).collect());
    }

    fn counters(&self) -> ReadCounters {
        self.lanes.counters()
    }
}

/// Logits of every token run one by one, how many speculative reads there were, and how many
/// records failed.
fn run(forecaster: &str, lanes: usize, fails: Fails) -> (Vec<f32>, u64, u64) {
    let goldens = Goldens::open("random/golden.safetensors");
    let tokens = goldens.ids("p17.input_ids");
    let reader = files_in_memory(&random_model());
    let lanes = LaneQueue::new(reader, lanes).expect("lanes");
    let queue = Arc::new(Spoiling { lanes, fails, speculative: AtomicU64::new(0) });
    // 8 layers of 16 experts, of which 4 are chosen.
    let geometry = Geometry::new(8, 16, 4).expect("legal");
    let forecaster = parse_forecaster(forecaster, &geometry).expect("listed");
    let kernels = Arc::new(Cpu::new(1).expect("one thread"));
    let mut rig = Rig::ahead(&random_model(), kernels, 0.2, forecaster, queue.clone());
    let logits = rig.all_logits(&tokens, 1);
    rig.experts.pool().validate().expect("consistent");
    let failed = rig.experts.lookahead().total().failed;
    (logits, queue.speculative.load(Ordering::SeqCst), failed)
}

#[test]
fn a_fault_at_every_speculative_read_leaves_no_trace() {
    let (expected, none, _) = run("none", 2, Fails::None);
    assert_eq!(none, 0);
    for forecaster in ["attention-tap", "boundary-1:top=8+threshold=-9", "mixture:threshold=0.1"] {
        for lanes in [1, 3] {
            let (logits, reads, failed) = run(forecaster, lanes, Fails::None);
            assert!(logits == expected && reads > 100, "{forecaster}: {reads} reads");
            assert_eq!(failed, 0);
            let (logits, _, failed) = run(forecaster, lanes, Fails::All);
            assert!(logits == expected && failed > 10, "{forecaster}: {failed} records");
        }
    }
    let (_, reads, _) = run("attention-tap", 1, Fails::None);
    let step = if cfg!(debug_assertions) { 17 } else { 1 };
    for n in (0..reads).step_by(step) {
        let (logits, _, failed) = run("attention-tap", 2, Fails::Nth(n));
        assert!(logits == expected, "read {n}");
        assert!(failed <= 1, "read {n}");
    }
}
