//! Work spread over threads.

use std::any::Any;
use std::hint;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use super::CpuError;

/// Multiply-adds below which calling another thread costs more than it saves.
const WORTH_CALLING: usize = 1 << 18;

/// How long a thread looks for the next call before it sleeps: about as long as waking it takes.
const LOOK: Duration = Duration::from_micros(30);

/// The calling thread and others, which sleep when there has been nothing to do for a moment.
///
/// A caller never waits for a thread that has not begun: it does all that nobody else takes, and
/// then waits only for what others are in the middle of.
#[derive(Debug)]
pub(super) struct Threads {
    /// The caller included.
    count: usize,
    shared: Arc<Shared>,
    others: Vec<JoinHandle<()>>,
}

#[derive(Debug, Default)]
struct Shared {
    gate: Mutex<Gate>,
    /// Told of a new call, and of the end.
    called: Condvar,
    /// Told when the last thread has left a call.
    left: Condvar,
    /// Calls so far. Changes while the gate is held; read without it by threads that look for
    /// the next call.
    calls: AtomicUsize,
}

#[derive(Debug, Default)]
struct Gate {
    /// What threads may enter.
    open: Option<Call>,
    /// A call is open or is being left.
    busy: bool,
    /// Threads that are in the call.
    inside: usize,
    asleep: usize,
    /// The first panic of a thread in the call.
    panic: Option<Box<dyn Any + Send>>,
    over: bool,
}

/// The tasks of a call, on the stack of the caller.
struct Tasks<'a> {
    next: AtomicUsize,
    count: usize,
    task: &'a (dyn Fn(usize) + Sync),
}

impl Tasks<'_> {
    /// Runs tasks until none is left.
    fn drain(&self) {
        loop {
            let i = self.next.fetch_add(1, Ordering::Relaxed);
            if i >= self.count {
                break;
            }
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
    fn gate(&self) -> MutexGuard<'_, Gate> {
        // Nothing panics while it is held.
        self.gate.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What the other threads do; `look` is how long each looks for a call before it sleeps.
    fn serve(&self, look: Duration) {
        let mut seen = 0;
        loop {
            let begun = Instant::now();
            while self.calls.load(Ordering::Relaxed) == seen && begun.elapsed() < look {
                (0..32).for_each(|_| hint::spin_loop());
            }
            let mut gate = self.gate();
            while self.calls.load(Ordering::Relaxed) == seen && !gate.over {
                gate.asleep += 1;
                gate = self.called.wait(gate).unwrap_or_else(PoisonError::into_inner);
                gate.asleep -= 1;
            }
            if gate.over {
                return;
            }
            seen = self.calls.load(Ordering::Relaxed);
            // Without an open call this one came too late for it.
            let Some(Call(tasks)) = gate.open else { continue };
            gate.inside += 1;
            drop(gate);
            // SAFETY: the call was open and this thread was counted in under the same lock, so
            // the caller waits in `leave` until it is counted out, and the tasks stay.
            let result = catch_unwind(AssertUnwindSafe(|| unsafe { (*tasks).drain() }));
            let mut gate = self.gate();
            gate.inside -= 1;
            if let Err(panic) = result {
                gate.panic.get_or_insert(panic);
            }
            if gate.inside == 0 {
                self.left.notify_one();
            }
        }
    }

    /// Opens a call, unless there is one.
    fn enter(&self, tasks: &Tasks<'_>) -> bool {
        let mut gate = self.gate();
        if gate.busy {
            return false;
        }
        let tasks: *const Tasks<'_> = tasks;
        gate.busy = true;
        gate.open = Some(Call(tasks.cast()));
        self.calls.fetch_add(1, Ordering::Relaxed);
        if gate.asleep > 0 {
            self.called.notify_all();
        }
        true
    }

    /// Closes the call and waits for those inside; gives their panic.
    fn leave(&self) -> Option<Box<dyn Any + Send>> {
        let mut gate = self.gate();
        gate.open = None;
        while gate.inside > 0 {
            gate = self.left.wait(gate).unwrap_or_else(PoisonError::into_inner);
        }
        gate.busy = false;
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
        let look = if alone { LOOK } else { Duration::ZERO };
        let mut threads = Self { count, shared: Arc::default(), others: Vec::new() };
        for i in 1..count {
            let shared = Arc::clone(&threads.shared);
            let other = thread::Builder::new()
                .name(format!("slotstream-cpu-{i}"))
                .spawn(move || shared.serve(look))
                .map_err(|source| CpuError::Threads { threads: count, source })?;
            threads.others.push(other);
        }
        Ok(threads)
    }

    /// Threads, the caller included.
    pub(super) fn count(&self) -> usize {
        self.count
    }

    /// Runs `task(i)` for each `i` in `0..tasks`, in any order, on all threads; returns when all
    /// are done. `work` is their size in multiply-adds, all together.
    ///
    /// While another thread's call is going on, the caller works alone.
    pub(super) fn run(&self, tasks: usize, work: usize, task: impl Fn(usize) + Sync) {
        if self.others.is_empty() || tasks < 2 || work < WORTH_CALLING {
            return (0..tasks).for_each(task);
        }
        let tasks = Tasks { next: AtomicUsize::new(0), count: tasks, task: &task };
        if !self.shared.enter(&tasks) {
            return tasks.drain();
        }
        // Also after a panic nobody may be left with the tasks.
        let own = catch_unwind(AssertUnwindSafe(|| tasks.drain()));
        let others = self.shared.leave();
        if let Some(panic) = own.err().or(others) {
            resume_unwind(panic);
        }
    }

    /// Rows of a task, so that `rows` rows of one of `parts` matrices make a few tasks a thread.
    pub(super) fn rows_per_task(&self, rows: usize, parts: usize) -> usize {
        let tasks = (4 * self.count).div_ceil(parts);
        rows.div_ceil(tasks).next_multiple_of(16)
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

    const WORK: usize = WORTH_CALLING;

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
    fn panics_reach_the_caller() {
        let threads = Threads::new(3).unwrap();
        for bad in 0..50 {
            let call = || threads.run(50, WORK, |i| assert_ne!(i, bad, "as it should"));
            assert!(catch_unwind(AssertUnwindSafe(call)).is_err());
            check(&threads, 50);
        }
    }
}
