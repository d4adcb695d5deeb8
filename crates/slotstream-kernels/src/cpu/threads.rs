//! Work spread over threads.

use std::any::Any;
use std::hint;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use super::CpuError;

/// Multiply-adds below which calling threads that are awake costs more than it saves.
const WORTH_CALLING: usize = 1 << 16;

/// Multiply-adds below which waking a thread costs more than it saves.
const WORTH_WAKING: usize = 1 << 18;

/// How long a thread looks for the next call, or for the end of this one, before it sleeps: a few
/// times what waking it takes, and what lies between the calls of a decoded token.
const LOOK: Duration = Duration::from_micros(100);

/// The calling thread and others, which sleep when there has been nothing to do for a moment.
///
/// A caller never waits for a thread that has not begun: it does all that nobody else takes, and
/// then waits only for what others are in the middle of. Nobody spins for longer than [`LOOK`],
/// and nobody at all where the threads outnumber the processors.
#[derive(Debug)]
pub(super) struct Threads {
    /// The caller included.
    count: usize,
    shared: Arc<Shared>,
    others: Vec<JoinHandle<()>>,
}

#[derive(Debug)]
struct Shared {
    /// How long to look before sleeping.
    look: Duration,
    gate: Mutex<Gate>,
    /// Told of a new call, and of the end.
    called: Condvar,
    /// Told when the last thread has left a call.
    left: Condvar,
    /// Calls so far. Changes while the gate is held; read without it by threads that look for
    /// the next call.
    calls: AtomicUsize,
    /// Threads that are in the call. Changes while the gate is held; read without it by the
    /// caller that looks for the end.
    inside: AtomicUsize,
    /// Threads that sleep, in the same manner.
    asleep: AtomicUsize,
    /// Nanoseconds that threads which had taken part in a call waited for the last one, all
    /// together.
    waited: AtomicU64,
}

#[derive(Debug, Default)]
struct Gate {
    /// What threads may enter.
    open: Option<Call>,
    /// A call is open or is being left.
    busy: bool,
    /// The caller sleeps until the last thread has left.
    awaited: bool,
    /// When threads left the call.
    ends: Ends,
    /// The first panic of a thread in the call.
    panic: Option<Box<dyn Any + Send>>,
    over: bool,
}

/// When the threads of a call found no more tasks.
#[derive(Clone, Copy, Debug, Default)]
struct Ends {
    last: Option<Instant>,
    /// Of those before the last one, all together.
    waited: Duration,
    threads: u32,
}

impl Ends {
    fn add(&mut self, end: Instant) {
        if let Some(last) = self.last {
            self.waited += end.saturating_duration_since(last) * self.threads;
            self.waited += last.saturating_duration_since(end);
        }
        self.last = self.last.max(Some(end));
        self.threads += 1;
    }
}

/// The tasks of a call, on the stack of the caller.
///
/// The caller takes them from the first on, others from the last on: so most of them are done by
/// the same thread in every call, and what they keep in memory stays in its caches.
struct Tasks<'a> {
    /// The first task that is left, and in the upper half the one after the last.
    left: AtomicU64,
    task: &'a (dyn Fn(usize) + Sync),
}

#[derive(Clone, Copy)]
enum End {
    First,
    Last,
}

impl<'a> Tasks<'a> {
    fn new(count: u32, task: &'a (dyn Fn(usize) + Sync)) -> Self {
        Self { left: AtomicU64::new(u64::from(count) << 32), task }
    }

    fn take(&self, end: End) -> Option<usize> {
        let taken = self.left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| {
            let (first, after) = (left & u64::from(u32::MAX), left >> 32);
            (first < after).then(|| match end {
                End::First => left + 1,
                End::Last => left - (1 << 32),
            })
        });
        let left = taken.ok()?;
        Some(match end {
            End::First => (left & u64::from(u32::MAX)) as usize,
            End::Last => (left >> 32) as usize - 1,
        })
    }

    /// Runs tasks until none is left.
    fn drain(&self, end: End) {
        while let Some(i) = self.take(end) {
            (self.task)(i);
        }
    }
}

/// Tasks of a caller that waits until nobody uses them.
#[derive(Clone, Copy, Debug)]
struct Call(*const Tasks<'static>);

// SAFETY: `Tasks` may be shared among threads: the task is `Sync`, the rest is an atomic number
// and a constant. Whoever follows the pointer vouches that the tasks are still there.
unsafe impl Send for Call {}

impl Shared {
    fn new(look: Duration) -> Self {
        Self {
            look,
            gate: Mutex::default(),
            called: Condvar::new(),
            left: Condvar::new(),
            calls: AtomicUsize::new(0),
            inside: AtomicUsize::new(0),
            asleep: AtomicUsize::new(0),
            waited: AtomicU64::new(0),
        }
    }

    fn gate(&self) -> MutexGuard<'_, Gate> {
        // Nothing panics while it is held.
        self.gate.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Looks for `found` for a while.
    fn look(&self, found: impl Fn() -> bool) {
        let begun = Instant::now();
        while !found() && begun.elapsed() < self.look {
            (0..16).for_each(|_| hint::spin_loop());
        }
    }

    /// What the other threads do.
    fn serve(&self) {
        let mut seen = 0;
        loop {
            self.look(|| self.calls.load(Ordering::Relaxed) != seen);
            let mut gate = self.gate();
            while self.calls.load(Ordering::Relaxed) == seen && !gate.over {
                self.asleep.fetch_add(1, Ordering::Relaxed);
                gate = self.called.wait(gate).unwrap_or_else(PoisonError::into_inner);
                self.asleep.fetch_sub(1, Ordering::Relaxed);
            }
            if gate.over {
                return;
            }
            seen = self.calls.load(Ordering::Relaxed);
            // Without an open call this one came too late for it.
            let Some(Call(tasks)) = gate.open else { continue };
            self.inside.fetch_add(1, Ordering::Relaxed);
            drop(gate);
            // SAFETY: the call was open and this thread was counted in under the same lock, so
            // the caller waits in `leave` until it is counted out, and the tasks stay.
            let result = catch_unwind(AssertUnwindSafe(|| unsafe { (*tasks).drain(End::Last) }));
            let end = Instant::now();
            let mut gate = self.gate();
            gate.ends.add(end);
            if let Err(panic) = result {
                gate.panic.get_or_insert(panic);
            }
            if self.inside.fetch_sub(1, Ordering::Relaxed) == 1 && gate.awaited {
                self.left.notify_one();
            }
        }
    }

    /// Opens a call, unless there is one; `wake` also calls threads that sleep.
    fn enter(&self, tasks: &Tasks<'_>, wake: bool) -> bool {
        let mut gate = self.gate();
        if gate.busy {
            return false;
        }
        let tasks: *const Tasks<'_> = tasks;
        gate.busy = true;
        gate.open = Some(Call(tasks.cast()));
        self.calls.fetch_add(1, Ordering::Relaxed);
        if wake && self.asleep.load(Ordering::Relaxed) > 0 {
            self.called.notify_all();
        }
        true
    }

    /// Closes the call and waits for those inside; gives their panic.
    fn leave(&self) -> Option<Box<dyn Any + Send>> {
        let is_inside = || self.inside.load(Ordering::Relaxed) > 0;
        let end = Instant::now();
        let mut gate = self.gate();
        gate.open = None;
        gate.ends.add(end);
        if is_inside() {
            drop(gate);
            self.look(|| !is_inside());
            gate = self.gate();
        }
        gate.awaited = true;
        while is_inside() {
            gate = self.left.wait(gate).unwrap_or_else(PoisonError::into_inner);
        }
        gate.awaited = false;
        gate.busy = false;
        let waited = std::mem::take(&mut gate.ends).waited.as_nanos() as u64;
        self.waited.fetch_add(waited, Ordering::Relaxed);
        gate.panic.take()
    }
}

impl Threads {
    pub(super) fn new(count: usize) -> Result<Self, CpuError> {
        if count == 0 {
            return Err(CpuError::NoThreads);
        }
        // Where threads outnumber the processors, one that looks takes the place of one that works.
        let alone =
            thread::available_parallelism().is_ok_and(|processors| count <= processors.get());
        let shared = Arc::new(Shared::new(if alone { LOOK } else { Duration::ZERO }));
        let mut threads = Self { count, shared, others: Vec::new() };
        for i in 1..count {
            let shared = Arc::clone(&threads.shared);
            let other = thread::Builder::new()
                .name(format!("slotstream-cpu-{i}"))
                .spawn(move || shared.serve())
                .map_err(|source| CpuError::Threads { threads: count, source })?;
            threads.others.push(other);
        }
        Ok(threads)
    }

    /// Threads, the caller included.
    pub(super) fn count(&self) -> usize {
        self.count
    }

    /// How long an average thread has waited for others to end what they had taken of a call in
    /// which it took part. Threads that were asleep or too late for a call are not counted with it.
    pub(super) fn waited(&self) -> Duration {
        Duration::from_nanos(self.shared.waited.load(Ordering::Relaxed) / self.count as u64)
    }

    /// Runs `task(i)` for each `i` in `0..tasks`, in any order, on all threads; returns when all
    /// are done. `work` is their size in multiply-adds, all together.
    ///
    /// While another thread's call is going on, the caller works alone.
    pub(super) fn run(&self, tasks: usize, work: usize, task: impl Fn(usize) + Sync) {
        let wake = work >= WORTH_WAKING;
        let is_asleep = || self.shared.asleep.load(Ordering::Relaxed) == self.others.len();
        if tasks < 2 || work < WORTH_CALLING || (!wake && is_asleep()) || self.others.is_empty() {
            return (0..tasks).for_each(task);
        }
        let Ok(count) = u32::try_from(tasks) else { return (0..tasks).for_each(task) };
        let tasks = Tasks::new(count, &task);
        if !self.shared.enter(&tasks, wake) {
            return tasks.drain(End::First);
        }
        // Also after a panic nobody may be left with the tasks.
        let own = catch_unwind(AssertUnwindSafe(|| tasks.drain(End::First)));
        let others = self.shared.leave();
        if let Some(panic) = own.err().or(others) {
            resume_unwind(panic);
        }
    }

    /// Rows of a task, so that `rows` rows of one of `parts` matrices make a few tasks a thread;
    /// rather one more than larger ones, since others wait for what one thread does last.
    pub(super) fn rows_per_task(&self, rows: usize, parts: usize) -> usize {
        let tasks = (4 * self.count).div_ceil(parts);
        (rows / tasks / 16 * 16).max(16)
    }
}

impl Drop for Threads {
    fn drop(&mut self) {
        self.shared.gate().over = true;
        self.shared.called.notify_all();
        for other in self.others.drain(..) {
            // It caught the panics of its tasks.
            let _ = other.join();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const WORK: usize = WORTH_WAKING;

    /// Each task of a call is run once, whoever calls.
    fn check(threads: &Threads, tasks: usize) {
        let runs: Vec<_> = (0..tasks).map(|_| AtomicUsize::new(0)).collect();
        threads.run(tasks, WORK, |i| {
            runs[i].fetch_add(1, Ordering::Relaxed);
        });
        assert!(runs.iter().all(|runs| runs.load(Ordering::Relaxed) == 1));
    }

    #[test]
    fn each_task_runs_once() {
        for count in 1..=4 {
            let threads = Threads::new(count).unwrap();
            for call in 0..2000 {
                check(&threads, call % 40);
                if call % 500 == 0 {
                    thread::sleep(3 * LOOK);
                }
            }
        }
    }

    #[test]
    fn several_may_call_at_once_and_from_tasks() {
        let threads = Threads::new(3).unwrap();
        thread::scope(|scope| {
            for _ in 0..3 {
                scope.spawn(|| (0..500).for_each(|call| check(&threads, call % 20)));
            }
        });
        threads.run(8, WORK, |_| check(&threads, 5));
    }

    #[test]
    fn those_that_end_early_wait() {
        let begun = Instant::now();
        let [early, middle, last] = [1, 5, 7].map(|ms| begun + Duration::from_millis(ms));
        for order in [[early, middle, last], [last, early, middle], [middle, last, early]] {
            let mut ends = Ends::default();
            order.into_iter().for_each(|end| ends.add(end));
            assert_eq!(ends.waited, Duration::from_millis(6 + 2), "{order:?}");
        }
    }

    #[test]
    fn waits_are_counted() {
        let threads = Threads::new(2).unwrap();
        // Both take a task, since each waits for the other to have begun.
        let begun = AtomicUsize::new(0);
        threads.run(2, WORK, |i| {
            begun.fetch_add(1, Ordering::Relaxed);
            while begun.load(Ordering::Relaxed) < 2 {
                thread::yield_now();
            }
            thread::sleep(Duration::from_millis(20 * i as u64));
        });
        // One of two threads, so half of what it waited.
        assert!(threads.waited() >= Duration::from_millis(5), "{:?}", threads.waited());
        assert_eq!(Threads::new(1).unwrap().waited(), Duration::ZERO);
    }

    #[test]
    fn panics_reach_the_caller() {
        let threads = Threads::new(3).unwrap();
        for bad in 0..50 {
            let call = || threads.run(50, WORK, |i| assert_ne!(i, bad, "as it should"));
            assert!(catch_unwind(AssertUnwindSafe(call)).is_err());
            check(&threads, 50);
        }
    }
}
