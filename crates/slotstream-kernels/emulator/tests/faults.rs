//! What a kernel must not do is seen.

use std::path::PathBuf;
use std::sync::LazyLock;

use slotstream_emulator::{Emulator, EmulatorError, Order};
use slotstream_kernels::metal::{BufferId, Dispatch, Library, Memory, View};

const INCLUDES: &str = "#include <metal_stdlib>\nusing namespace metal;\n";

static RIGHT: Library = Library::new(
    "right",
    &[
        INCLUDES,
        r"
struct Args { uint n; };

// out[i] = the sum of all x, by way of threadgroup memory.
[[kernel]] void total(const device float* x [[buffer(0)]], device float* out [[buffer(1)]],
                      constant Args& a [[buffer(2)]], threadgroup float* parts [[threadgroup(0)]],
                      uint t [[thread_index_in_threadgroup]], uint sg [[simdgroup_index_in_threadgroup]],
                      uint lane [[thread_index_in_simdgroup]], uint simdgroups [[simdgroups_per_threadgroup]]) {
  const float sum = simd_sum(x[t]);
  if (lane == 0) { parts[sg] = sum; }
  threadgroup_barrier(mem_flags::mem_threadgroup);
  float all = 0.0f;
  for (uint i = 0; i < simdgroups; i++) { all += parts[i]; }
  if (t < a.n) { out[t] = all; }
}",
    ],
);

static WRONG: Library = Library::new(
    "wrong",
    &[
        INCLUDES,
        r"
// `total` without its barrier.
[[kernel]] void no_barrier(const device float* x [[buffer(0)]], device float* out [[buffer(1)]],
                           threadgroup float* parts [[threadgroup(0)]], uint t [[thread_index_in_threadgroup]],
                           uint sg [[simdgroup_index_in_threadgroup]], uint lane [[thread_index_in_simdgroup]],
                           uint simdgroups [[simdgroups_per_threadgroup]]) {
  const float sum = simd_sum(x[t]);
  if (lane == 0) { parts[sg] = sum; }
  float all = 0.0f;
  for (uint i = 0; i < simdgroups; i++) { all += parts[i]; }
  out[t] = all;
}
// Without a barrier, but so that it is right when the lowest simdgroup runs first.
[[kernel]] void lucky(const device float* x [[buffer(0)]], device float* out [[buffer(1)]],
                      threadgroup float* parts [[threadgroup(0)]], uint t [[thread_index_in_threadgroup]]) {
  if (t == 0) { parts[0] = x[0]; }
  out[t] = parts[0];
}
[[kernel]] void divergent_operation(device float* out [[buffer(0)]], uint t [[thread_index_in_threadgroup]],
                                    uint lane [[thread_index_in_simdgroup]]) {
  if (lane < 16) { out[t] = simd_sum(1.0f); }
  else { out[t] = simd_max(2.0f); }
}
[[kernel]] void operation_of_some(device float* out [[buffer(0)]], uint t [[thread_index_in_threadgroup]],
                                  uint lane [[thread_index_in_simdgroup]]) {
  if (lane < 16) { out[t] = simd_sum(1.0f); }
}
[[kernel]] void divergent_barrier(device float* out [[buffer(0)]], uint t [[thread_index_in_threadgroup]],
                                  uint sg [[simdgroup_index_in_threadgroup]]) {
  if (sg == 0) { threadgroup_barrier(mem_flags::mem_threadgroup); }
  else {
    threadgroup_barrier(mem_flags::mem_threadgroup); }
  out[t] = 0.0f;
}
[[kernel]] void barrier_of_some(device float* out [[buffer(0)]], uint t [[thread_index_in_threadgroup]],
                                uint sg [[simdgroup_index_in_threadgroup]]) {
  out[t] = 0.0f;
  if (sg != 0) { return; }
  threadgroup_barrier(mem_flags::mem_threadgroup);
}
[[kernel]] void past_the_end(device float* out [[buffer(0)]], uint t [[thread_index_in_threadgroup]]) { out[t + 1] = 0.0f; }
[[kernel]] void past_the_memory(device float* out [[buffer(0)]], threadgroup float* memory [[threadgroup(0)]],
                                uint t [[thread_index_in_threadgroup]]) {
  memory[t] = 1.0f;
  out[t] = memory[t];
}
[[kernel]] void misaligned(device float* out [[buffer(0)]], uint t [[thread_index_in_threadgroup]]) {
  out[t] = *reinterpret_cast<const device float*>(
    reinterpret_cast<const device uchar*>(out) + 1);
}
[[kernel]] void undefined_shift(device float* out [[buffer(0)]], uint t [[thread_index_in_threadgroup]]) {
  out[t] = float(1u << (t + 1));
}",
    ],
);

fn folder(name: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(name)
}

static EMULATOR: LazyLock<Emulator> =
    LazyLock::new(|| match Emulator::new(&[&RIGHT, &WRONG], &folder("faults")) {
        Ok(emulator) => emulator,
        Err(error) => panic!("{error}"),
    });

const THREADS: usize = 128;
const ORDERS: [Order; 3] = [Order::Normal, Order::Reversed, Order::Random { seed: 1 }];

/// A plan of `kernel` with `x`, `out` and threadgroup memory as it wants them.
struct Job {
    memory: Memory,
    plan: Dispatch<BufferId>,
    out: View<BufferId>,
}

impl Job {
    fn new(library: &'static Library, kernel: &'static str, reads: bool, memory: usize) -> Self {
        let mut buffers = Memory::new();
        let len = 4 * THREADS;
        let x = View::new(buffers.floats(&[1.0; THREADS]), 0, len);
        let out = View::new(buffers.poisoned(len), 0, len);
        let plan = Dispatch::new(library, kernel);
        let plan = if reads { plan.input(x) } else { plan };
        let plan = plan.output(out).with_threadgroup_memory(memory);
        Self { memory: buffers, plan, out }
    }

    fn run(self, emulator: &Emulator, order: Order) -> Result<Vec<f32>, EmulatorError> {
        let plan = self.plan.launch([1, 1, 1], THREADS as u32).expect("a plan");
        let bytes = emulator.run(&self.memory, &[plan], &[self.out], order)?;
        let (words, _) = bytes[0].as_chunks::<4>();
        Ok(words.iter().map(|bytes| f32::from_le_bytes(*bytes)).collect())
    }
}

#[test]
#[ignore = "needs clang >= 19"]
fn a_right_kernel_runs_in_every_order() {
    for order in ORDERS {
        let mut job = Job::new(&RIGHT, "total", true, 16);
        job.plan = job.plan.with_constants((THREADS as u32).to_le_bytes().to_vec());
        assert_eq!(job.run(&EMULATOR, order).expect("runs"), [THREADS as f32; THREADS]);
    }
}

#[test]
#[ignore = "needs clang >= 19"]
fn a_missing_barrier_shows() {
    let result =
        |kernel, order| Job::new(&WRONG, kernel, true, 16).run(&EMULATOR, order).expect("runs");
    for order in ORDERS {
        assert!(result("no_barrier", order).iter().any(|v| v.is_nan()), "{order:?}");
    }
    assert_eq!(result("lucky", Order::Normal), [1.0; THREADS]);
    assert!(result("lucky", Order::Reversed).iter().any(|v| v.is_nan()));
}

#[test]
#[ignore = "needs clang >= 19"]
fn divergence_ends_the_run() {
    for (kernel, message) in [
        ("divergent_operation", "divergent simdgroup operation"),
        ("operation_of_some", "divergent simdgroup"),
        ("divergent_barrier", "divergent threadgroup barrier"),
        ("barrier_of_some", "threadgroup barrier that some threads never reach"),
    ] {
        for order in ORDERS {
            ends(Job::new(&WRONG, kernel, false, 0).run(&EMULATOR, order), kernel, message);
        }
    }
}

#[test]
#[ignore = "needs clang >= 19"]
fn the_sanitizers_end_the_run() {
    for (kernel, memory, message) in [
        ("past_the_end", 0, "heap-buffer-overflow"),
        ("past_the_memory", 4 * THREADS - 16, "heap-buffer-overflow"),
        ("misaligned", 0, "misaligned address"),
        ("undefined_shift", 0, "shift exponent"),
    ] {
        let run = Job::new(&WRONG, kernel, false, memory).run(&EMULATOR, Order::Normal);
        ends(run, kernel, message);
    }
}

#[track_caller]
fn ends(run: Result<Vec<f32>, EmulatorError>, kernel: &str, message: &str) {
    match run {
        Err(EmulatorError::Run { messages, .. }) => {
            assert!(messages.contains(message), "{kernel}: {messages}");
        }
        other => panic!("{kernel}: {other:?}"),
    }
}

#[test]
#[ignore = "needs clang >= 19"]
fn a_plan_that_does_not_fit_its_kernel_is_refused() {
    let constants = |n: usize| vec![0; n];
    let refused = |job: Job| {
        let run = job.run(&EMULATOR, Order::Normal);
        assert!(
            matches!(run, Err(EmulatorError::Mismatch { .. } | EmulatorError::Run { .. })),
            "{run:?}"
        );
    };
    // Buffers, directions, threadgroup memory, the size of constants, the name.
    refused(Job::new(&RIGHT, "total", false, 16));
    refused(Job::new(&WRONG, "lucky", true, 0));
    refused(Job::new(&WRONG, "past_the_end", false, 16));
    refused(Job::new(&WRONG, "nobody", false, 0));
    for len in [0, 8] {
        let mut job = Job::new(&RIGHT, "total", true, 16);
        job.plan = job.plan.with_constants(constants(len));
        refused(job);
    }
    let mut job = Job::new(&WRONG, "past_the_end", false, 0);
    job.plan = Dispatch::new(&WRONG, "past_the_end").input(job.out);
    refused(job);
    let mut job = Job::new(&WRONG, "past_the_end", false, 0);
    job.plan = Dispatch::new(&WRONG, "past_the_end").output(View { offset: 4, ..job.out });
    refused(job);
}

/// One kernel with this body; `x` and `out` are device memory.
macro_rules! library {
    ($name:literal, $body:literal) => {{
        static LIBRARY: Library = Library::new(
            $name,
            &[
                INCLUDES,
                "[[kernel]] void f(const device float* x [[buffer(0)]], device float* out [[buffer(1)]], \
                 threadgroup float* memory [[threadgroup(0)]], uint t [[thread_index_in_threadgroup]]) {",
                $body,
                "}",
            ],
        );
        &LIBRARY
    }};
}

#[test]
#[ignore = "needs clang >= 19"]
fn what_is_not_msl_does_not_compile() {
    let right = library!("plain", "out[t] = x[t] + memory[t];");
    assert!(Emulator::new(&[right], &folder("refused")).is_ok());
    for (library, message) in [
        // Address spaces.
        (library!("thread_pointer", "const float* p = x; out[t] = p[0];"), "cannot initialize"),
        (
            library!("device_pointer", "device float* p = memory; out[t] = p[0];"),
            "cannot initialize",
        ),
        (library!("cast", "out[t] = *(threadgroup float*)(out + t);"), "old-style cast"),
        (
            library!("spaces", "out[t] = *reinterpret_cast<threadgroup float*>(out + t);"),
            "reinterpret_cast",
        ),
        // Declared by no header of MSL.
        (library!("libc", "out[t] = expf(x[t]);"), "expf"),
        (library!("print", "printf(\"%f\", x[t]); out[t] = 0.0f; memory[t] = 0.0f;"), "printf"),
        (library!("wide", "out[t] = float(double(x[t])) + memory[t];"), "poisoned"),
        (library!("literal", "out[t] = x[t] * 2.0 + memory[t];"), "double"),
        (library!("header", "\n#include <cmath>\nout[t] = x[t];"), "cmath"),
        // Writing what is only read.
        (library!("read_only", "x[t] = memory[t]; out[t] = 0.0f;"), "read-only"),
        (library!("unused", "const float y = x[t]; out[t] = memory[t];"), "unused"),
    ] {
        match Emulator::new(&[library], &folder("refused")) {
            Err(EmulatorError::Compile { messages, .. }) => {
                assert!(messages.contains(message), "{}: {messages}", library.name());
            }
            other => panic!("{}: {other:?}", library.name()),
        }
    }
}
