//! A fuzzer for a stable toolchain: mutates the inputs of a corpus for some time.
//!
//! It sees no coverage. Inputs that end in a new way (another refusal, in its words) are kept and
//! changed further, which leads it past one check after the other. The same seed gives the same
//! inputs in the same order.

use std::collections::HashSet;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};
use slotstream_testkit::mutate::Edit;

use crate::{Finding, MOST_TIME, Target, run_one};

/// The most inputs that are kept.
const POOL: usize = 4096;

/// The most outcomes that are told apart.
const OUTCOMES: usize = 1 << 16;

/// The longest input that is kept.
const LONGEST: usize = 64 << 10;

/// What a run did.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct Summary {
    /// Inputs that were run.
    pub executions: u64,
    /// How long that took.
    pub time: Duration,
    /// Different ways in which they ended.
    pub outcomes: usize,
    /// The longest that one took.
    pub slowest: Duration,
}

/// When a run ends.
#[derive(Clone, Copy, Debug)]
#[expect(clippy::exhaustive_enums, reason = "a run is bounded by time or by work")]
pub enum Limit {
    /// After this time.
    Time(Duration),
    /// After so many inputs.
    Executions(u64),
}

/// What the worker does now.
#[derive(Debug)]
enum Now {
    /// Prepares an input.
    Idle,
    /// Runs one since this moment.
    Runs(Instant, Vec<u8>),
    /// Has ended.
    Done,
}

/// Runs the corpus and then mutations of it.
///
/// # Errors
/// The first input that is a finding, and the finding. An input that does not end is one, too;
/// the thread that runs it is then left behind, so the program should end.
pub fn run(
    target: &'static Target,
    corpus: Vec<Vec<u8>>,
    seed: u64,
    limit: Limit,
) -> Result<Summary, (Vec<u8>, Finding)> {
    let now = Arc::new(Mutex::new(Now::Idle));
    let worker = {
        let now = Arc::clone(&now);
        std::thread::spawn(move || {
            let result = Worker::new(target, corpus, seed, Arc::clone(&now)).run(limit);
            *lock(&now) = Now::Done;
            result
        })
    };
    loop {
        std::thread::park_timeout(Duration::from_millis(20));
        match &*lock(&now) {
            Now::Done => break,
            Now::Runs(since, input) if since.elapsed() > 2 * MOST_TIME => {
                let took = since.elapsed();
                let finding = Finding::Slow { target: target.name, took, limit: MOST_TIME };
                return Err((input.clone(), finding));
            }
            _ => {}
        }
    }
    worker.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
}

fn lock(now: &Mutex<Now>) -> MutexGuard<'_, Now> {
    now.lock().unwrap_or_else(PoisonError::into_inner)
}

struct Worker {
    target: &'static Target,
    pool: Vec<Vec<u8>>,
    outcomes: HashSet<String>,
    random: SmallRng,
    now: Arc<Mutex<Now>>,
    executions: u64,
    slowest: Duration,
}

impl Worker {
    fn new(target: &'static Target, pool: Vec<Vec<u8>>, seed: u64, now: Arc<Mutex<Now>>) -> Self {
        let random = SmallRng::seed_from_u64(seed);
        let (outcomes, slowest) = (HashSet::new(), Duration::ZERO);
        Self { target, pool, outcomes, random, now, executions: 0, slowest }
    }

    fn run(mut self, limit: Limit) -> Result<Summary, (Vec<u8>, Finding)> {
        let begun = Instant::now();
        for input in self.pool.clone() {
            self.try_one(input, false)?;
        }
        let over = |done: u64| match limit {
            Limit::Time(time) => begun.elapsed() >= time,
            Limit::Executions(most) => done >= most,
        };
        while !over(self.executions) {
            let input = self.mutated();
            self.try_one(input, true)?;
        }
        Ok(Summary {
            executions: self.executions,
            time: begun.elapsed(),
            outcomes: self.outcomes.len(),
            slowest: self.slowest,
        })
    }

    fn mutated(&mut self) -> Vec<u8> {
        let mut pick = || match self.pool.len() {
            0 => Vec::new(),
            len => self.pool[self.random.random_range(0..len)].clone(),
        };
        let (mut input, other) = (pick(), pick());
        // One edit half the time, two a quarter of it, ...
        loop {
            self.target.edit(Edit(self.random.random()), &mut input, &other);
            if self.random.random() {
                return input;
            }
        }
    }

    fn try_one(&mut self, input: Vec<u8>, keep: bool) -> Result<(), (Vec<u8>, Finding)> {
        let begun = Instant::now();
        *lock(&self.now) = Now::Runs(begun, input.clone());
        let result = run_one(self.target, &input);
        *lock(&self.now) = Now::Idle;
        self.executions += 1;
        self.slowest = self.slowest.max(begun.elapsed());
        let outcome = match result {
            Ok(outcome) => outcome,
            Err(finding) => return Err((input, finding)),
        };
        let new = self.outcomes.len() < OUTCOMES && self.outcomes.insert(outcome);
        if new && keep && input.len() <= LONGEST {
            if self.pool.len() < POOL {
                self.pool.push(input);
            } else {
                let at = self.random.random_range(0..POOL);
                self.pool[at] = input;
            }
        }
        Ok(())
    }
}
