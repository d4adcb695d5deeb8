//! What a pass computes while reads are under way, on a disk that stands still until the pass
//! has come to a certain op. A pass that waited earlier would wait for ever.

use std::sync::{Arc, Mutex, OnceLock};

use slotstream_core::{Job, ReadClass, ReadCounters, ReadQueue, RecordReader};
use slotstream_kernels::{
    AffineMatrix, Arithmetic, Bf16Matrix, Cpu, ExpertRows, GatedDeltaArgs, Kernels, MlpWeights,
};
use slotstream_qwen::Logits;

use crate::rig::{Goldens, Rig, argmax, files_in_memory, floats, tiny_model};

/// Keeps jobs until it is told to go on: one delay of a disk, in which all are read at once.
#[derive(Debug)]
struct Disk {
    reader: Arc<dyn RecordReader>,
    queued: Mutex<Vec<Job>>,
    log: Mutex<Vec<Event>>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Event {
    /// The delta rule of a layer has run.
    Delta,
    /// The shared expert of a layer has been computed.
    Shared,
    /// Experts have been computed.
    Experts,
    /// So many jobs were read, in one delay.
    Read(usize),
}

impl Disk {
    fn note(&self, event: Event) {
        self.log.lock().expect("not poisoned").push(event);
    }

    /// `event` has happened: what was queued before it arrives now.
    fn go_on(&self, event: Event) {
        self.note(event);
        let jobs = std::mem::take(&mut *self.queued.lock().expect("not poisoned"));
        if jobs.is_empty() {
            return;
        }
        self.note(Event::Read(jobs.len()));
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

/// The CPU's products; tells the disk what has been computed.
#[derive(Debug)]
struct Watching {
    cpu: Cpu,
    disk: OnceLock<Arc<Disk>>,
}

impl Watching {
    fn disk(&self) -> &Disk {
        self.disk.get().expect("set before the first pass")
    }
}

impl Kernels for Watching {
    fn name(&self) -> String {
        "watching".into()
    }

    fn arithmetic(&self) -> Arithmetic {
        self.cpu.arithmetic()
    }

    fn affine_matmul(&self, x: &[f32], w: &AffineMatrix<'_>, out: &mut [f32]) {
        self.cpu.affine_matmul(x, w, out);
    }

    fn bf16_matmul(&self, x: &[f32], w: &Bf16Matrix<'_>, out: &mut [f32]) {
        self.cpu.bf16_matmul(x, w, out);
    }

    fn expert_mlp(
        &self,
        layout: &slotstream_core::RecordLayout,
        x: &[f32],
        experts: &[ExpertRows<'_>],
        out: &mut [f32],
    ) {
        self.cpu.expert_mlp(layout, x, experts, out);
        self.disk().note(Event::Experts);
    }

    fn shared_expert(
        &self,
        x: &[f32],
        mlp: &MlpWeights<'_>,
        gate: &Bf16Matrix<'_>,
        out: &mut [f32],
    ) {
        self.cpu.shared_expert(x, mlp, gate, out);
        self.disk().go_on(Event::Shared);
    }

    fn gated_delta(
        &self,
        args: &GatedDeltaArgs<'_>,
        state: &mut [f32],
        record: &mut [Option<&mut [f32]>],
        out: &mut [f32],
    ) {
        self.cpu.gated_delta(args, state, record, out);
        self.disk().go_on(Event::Delta);
    }
}

fn rig(share: f64) -> (Rig, Arc<Disk>) {
    let disk = Arc::new(Disk {
        reader: files_in_memory(&tiny_model()),
        queued: Mutex::default(),
        log: Mutex::default(),
    });
    let kernels = Arc::new(Watching { cpu: Cpu::new(1).expect("one"), disk: OnceLock::new() });
    kernels.disk.set(Arc::clone(&disk)).expect("once");
    let queue: Arc<dyn ReadQueue> = Arc::clone(&disk) as _;
    (Rig::on_queue(&tiny_model(), kernels, share, queue), disk)
}

/// All of a layer's misses arrive in one delay, after its shared expert; the rows of the n-gram
/// table, which were queued when the pass began, after the first layer's delta rule. Nothing
/// waits for them, and the tokens are the golden ones.
#[test]
fn reads_are_under_way_while_the_pass_computes() {
    let goldens = Goldens::open("tiny-moe/golden.safetensors");
    let (prompt, golden) = (goldens.ids("p1.input_ids"), goldens.ids("p1.greedy_ids"));
    for share in [0.0, 0.3] {
        let (mut rig, disk) = rig(share);
        let layers = rig.model.config().num_hidden_layers;
        let top_k = rig.model.config().num_experts_per_tok;
        let mut state = rig.state();
        // Waves need more delays, so the prompt goes row by row, too.
        let mut logits = Vec::new();
        let mut tokens = prompt.clone();
        for i in 0..prompt.len() + 12 {
            disk.log.lock().expect("not poisoned").clear();
            let read = rig.experts.metrics().records_read;
            let rows = rig.ngram.as_ref().expect("a table").metrics().rows_read;
            let out = rig.run(&mut state, &[tokens[i]], Logits::Last, None);
            logits = floats(&out.logits.expect("last"));
            if i + 1 >= prompt.len() {
                let next = argmax(&logits);
                assert_eq!(next, golden[i + 1 - prompt.len()], "token {i}");
                tokens.push(next);
            }
            let misses = rig.experts.metrics().records_read - read;
            let rows = rig.ngram.as_ref().expect("a table").metrics().rows_read - rows;
            let log = disk.log.lock().expect("not poisoned").clone();
            check(&log, layers, top_k, misses as usize, rows as usize);
        }
        assert!(logits.iter().all(|v| v.is_finite()));
        let store = rig.ngram.as_ref().expect("a table");
        assert_eq!(store.metrics().waits, 0, "rows had arrived wherever they were joined");
        assert!(store.metrics().rows_read > 0 && rig.experts.metrics().records_read > 0);
    }
}

/// One pass: reads end after the first delta rule (rows of the table) and after shared experts
/// (records), as many as there were misses, each layer's in one delay.
fn check(log: &[Event], layers: usize, top_k: usize, misses: usize, rows: usize) {
    assert_eq!(log.iter().filter(|e| **e == Event::Shared).count(), layers);
    let (mut records, mut table) = (0, 0);
    for (i, event) in log.iter().enumerate() {
        if let Event::Read(jobs) = *event {
            match log[i - 1] {
                Event::Shared => {
                    assert!(jobs <= 9 * top_k, "the misses of one layer");
                    records += jobs;
                }
                Event::Delta if table == 0 => table = jobs,
                other => panic!("{jobs} jobs were still waiting after {other:?}"),
            }
        }
    }
    // Nine pieces a record, three a row.
    assert_eq!((records, table), (9 * misses, 3 * rows));
    let first = log.iter().position(|e| *e == Event::Delta);
    assert_eq!(first, Some(0), "the first layer did not wait for the table");
}
