//! Decoding with a pool that holds every expert, by op, beside what the memory delivers.
//!
//! `cargo bench -p slotstream-benches --bench decode -- --model DIR`, with a checkpoint of
//! `synthesize`. Each round reads memory, then decodes with every op set in turn: the ops of the
//! CPU, and its matrix products with everything else as in `reference`. Figures go to standard
//! output as JSON.

mod timed;

use std::collections::BTreeMap;
use std::hint::black_box;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use clap::Parser;
use serde_json::{Value, json};
use slotstream::core::RecordLayout;
use slotstream::kernels::{AffineMatrix, Arithmetic, Bf16Matrix, Cpu, ExpertRows, Kernels};
use slotstream::ops::{HostOps, Ops};
use slotstream::{Engine, Session, SessionOptions, Sizing};
use slotstream_benches::processor_time;

use timed::{Part, Timed};

type Failure = Box<dyn std::error::Error>;

/// Decodes a resident model and compares with the memory's bandwidth.
#[derive(Debug, Parser)]
struct Arguments {
    /// The checkpoint.
    #[arg(long)]
    model: PathBuf,
    /// Threads that compute and threads that read memory.
    #[arg(long, default_value_t = 2)]
    threads: usize,
    /// Rounds, all sets in turn.
    #[arg(long, default_value_t = 5)]
    rounds: usize,
    /// Tokens a round and set.
    #[arg(long, default_value_t = 16)]
    tokens: usize,
    /// Tokens of the prompt, which also brings the experts into the pool.
    #[arg(long, default_value_t = 600)]
    prompt: usize,
    /// Busy loops beside a further round of each set: what decoding keeps of its speed where others
    /// want the processors, too.
    #[arg(long, default_value_t = 2)]
    busy: usize,
    /// Leaves out the set with the reference's small ops.
    #[arg(long)]
    only_cpu: bool,
    /// Given by `cargo bench`.
    #[arg(long, hide = true)]
    bench: bool,
}

/// The CPU's matrix products, expert MLPs and embedding rows; all else is the reference.
#[derive(Debug)]
struct Products(Cpu);

impl Kernels for Products {
    fn name(&self) -> String {
        format!("products of {}", self.0.name())
    }

    fn arithmetic(&self) -> Arithmetic {
        self.0.arithmetic()
    }

    fn affine_matmul(&self, x: &[f32], w: &AffineMatrix<'_>, out: &mut [f32]) {
        self.0.affine_matmul(x, w, out);
    }

    fn affine_rows(&self, w: &AffineMatrix<'_>, ids: &[u32], out: &mut [f32]) {
        self.0.affine_rows(w, ids, out);
    }

    fn bf16_matmul(&self, x: &[f32], w: &Bf16Matrix<'_>, out: &mut [f32]) {
        self.0.bf16_matmul(x, w, out);
    }

    fn expert_mlp(
        &self,
        layout: &RecordLayout,
        x: &[f32],
        experts: &[ExpertRows<'_>],
        out: &mut [f32],
    ) {
        self.0.expert_mlp(layout, x, experts, out);
    }
}

/// An op set, and what its rounds gave.
struct Case {
    ops: Arc<dyn Ops>,
    rounds: Vec<Round>,
    /// Tokens a second with the busy loops, to those of the round before without.
    beside: Vec<f64>,
}

struct Round {
    tokens: usize,
    wall: Duration,
    processor: Duration,
    /// Bytes a second that the memory delivered just before.
    memory: f64,
    parts: BTreeMap<&'static str, Part>,
}

impl Round {
    fn tok_s(&self) -> f64 {
        self.tokens as f64 / self.wall.as_secs_f64()
    }

    fn bytes(&self) -> f64 {
        self.parts.values().map(|part| part.bytes).sum::<u64>() as f64 / self.tokens as f64
    }

    /// Bytes that a token touches, a second, to what the memory delivered.
    fn share(&self) -> f64 {
        self.tok_s() * self.bytes() / self.memory
    }
}

impl Case {
    fn new(kernels: Arc<dyn Kernels>) -> Self {
        Self { ops: Arc::new(HostOps::new(kernels)), rounds: Vec::new(), beside: Vec::new() }
    }

    fn round(
        &mut self,
        session: &mut Session,
        timed: &Timed,
        tokens: usize,
        memory: f64,
    ) -> Result<(), Failure> {
        timed.exchange(&self.ops);
        // Wakes the threads and warms what they keep between calls.
        session.next()?;
        timed.take();
        let (begun, used) = (Instant::now(), processor_time());
        for _ in 0..tokens {
            session.next()?;
        }
        let (wall, processor) = (begun.elapsed(), processor_time() - used);
        self.rounds.push(Round { tokens, wall, processor, memory, parts: timed.take() });
        Ok(())
    }

    /// A round beside busy loops.
    fn busy_round(
        &mut self,
        session: &mut Session,
        tokens: usize,
        busy: usize,
    ) -> Result<(), Failure> {
        let over = AtomicBool::new(false);
        let time = std::thread::scope(|scope| {
            for _ in 0..busy {
                scope.spawn(|| {
                    while !over.load(Ordering::Relaxed) {
                        std::hint::spin_loop();
                    }
                });
            }
            let begun = Instant::now();
            let last = (0..tokens).try_for_each(|_| session.next().map(drop));
            over.store(true, Ordering::Relaxed);
            last.map(|()| begun.elapsed())
        })?;
        if let Some(round) = self.rounds.last() {
            self.beside.push(tokens as f64 / time.as_secs_f64() / round.tok_s());
        }
        Ok(())
    }

    fn report(&self) -> Value {
        let milliseconds = |time: Duration, tokens: usize| 1e3 * time.as_secs_f64() / tokens as f64;
        let spread =
            |value: &dyn Fn(&Round) -> f64| spread(self.rounds.iter().map(value).collect());
        let mut ops = serde_json::Map::new();
        let mut names: Vec<_> = self.rounds.iter().flat_map(|r| r.parts.keys().copied()).collect();
        names.sort_unstable();
        names.dedup();
        let part = |r: &Round, name: &str| r.parts.get(name).copied().unwrap_or_default();
        for name in names {
            let value = json!({
                "ms_a_token": spread(&|r| milliseconds(part(r, name).time, r.tokens)),
                "calls_a_token": spread(&|r| part(r, name).calls as f64 / r.tokens as f64)[0],
                "bytes_a_token": spread(&|r| part(r, name).bytes as f64 / r.tokens as f64)[0],
            });
            ops.insert(name.to_owned(), value);
        }
        json!({
            "ops": self.ops.name(),
            "tok_s": spread(&Round::tok_s),
            "cpu_ms_a_token": spread(&|r| milliseconds(r.processor, r.tokens)),
            "ms_a_token_outside_ops": spread(&|r| {
                let inside: Duration = r.parts.values().map(|part| part.time).sum();
                milliseconds(r.wall.saturating_sub(inside), r.tokens)
            }),
            "bytes_a_token": spread(&Round::bytes)[0],
            "memory_gb_s": spread(&|r| r.memory / 1e9),
            "share_of_memory": spread(&Round::share),
            "beside_busy_loops": self::spread(self.beside.clone()),
            "by_op": ops,
        })
    }
}

/// Median, lowest, highest.
fn spread(mut values: Vec<f64>) -> [f64; 3] {
    values.sort_unstable_by(f64::total_cmp);
    let at = |i: usize| values.get(i).copied().unwrap_or(f64::NAN);
    [at(values.len() / 2), at(0), at(values.len().saturating_sub(1))]
}

/// Bytes a second at which `threads` threads read `words` once, each its own part.
fn read_memory(words: &[u64], threads: usize) -> f64 {
    let begun = Instant::now();
    std::thread::scope(|scope| {
        for part in words.chunks(words.len().div_ceil(threads)) {
            scope.spawn(move || black_box(sum(part)));
        }
    });
    size_of_val(words) as f64 / begun.elapsed().as_secs_f64()
}

fn sum(words: &[u64]) -> u64 {
    let mut sums = [0_u64; 32];
    for part in words.as_chunks::<32>().0 {
        for (sum, word) in sums.iter_mut().zip(part) {
            *sum = sum.wrapping_add(*word);
        }
    }
    sums.iter().fold(0, |a, b| a.wrapping_add(*b))
}

/// A session after a prompt that has brought the experts into a pool with room for all.
fn warm(arguments: &Arguments, timed: &Timed) -> Result<Session, Failure> {
    let rounds = 4 * arguments.rounds * (arguments.tokens + 1);
    let engine = Engine::builder(&arguments.model)
        .sizing(Sizing::Share(1.0))
        .chunk(256)
        .context(arguments.prompt + rounds + 8)
        .threads(arguments.threads)
        .ops(Arc::new(timed.clone()))
        .build()?;
    let vocabulary = engine.checkpoint().config().vocab_size;
    let prompt: Vec<u32> =
        (0..arguments.prompt).map(|i| ((i * 7919 + 13) % vocabulary) as u32).collect();
    let mut session = engine.session(SessionOptions::new())?;
    session.prefill(&prompt)?;
    session.reset_metrics();
    Ok(session)
}

fn main() -> Result<(), Failure> {
    let arguments = Arguments::parse();
    let mut cases = vec![Case::new(Arc::new(Cpu::new(arguments.threads)?))];
    if !arguments.only_cpu {
        cases.push(Case::new(Arc::new(Products(Cpu::new(arguments.threads)?))));
    }
    let timed = Timed::new(Arc::clone(&cases[0].ops));
    let mut session = warm(&arguments, &timed)?;
    // Many times what the caches hold.
    let words = vec![1_u64; (1 << 30) / 8];
    for _ in 0..arguments.rounds {
        for case in &mut cases {
            // The better of two: the rest of the machine may have had its turn in one.
            let memory =
                read_memory(&words, arguments.threads).max(read_memory(&words, arguments.threads));
            case.round(&mut session, &timed, arguments.tokens, memory)?;
            if arguments.busy > 0 {
                case.busy_round(&mut session, arguments.tokens, arguments.busy)?;
            }
        }
    }
    let reports: Vec<_> = cases.iter().map(Case::report).collect();
    let report = json!({
        "rounds": arguments.rounds,
        "tokens": arguments.tokens,
        "busy_loops": arguments.busy,
        "missed": session.metrics().decode.misses,
        "sets": reports,
    });
    #[expect(clippy::print_stdout, reason = "the figures")]
    {
        println!("{report:#}");
    }
    Ok(())
}
