//! Work spread over threads.

use std::sync::atomic::{AtomicUsize, Ordering};

use super::CpuError;

/// Multiply-adds below which waking another thread costs more than it saves.
const WORTH_WAKING: usize = 1 << 19;

/// The calling thread and a pool of others.
#[derive(Debug)]
pub(super) struct Threads {
    count: usize,
    /// `count - 1` threads; none when the caller works alone.
    others: Option<rayon::ThreadPool>,
}

impl Threads {
    pub(super) fn new(count: usize) -> Result<Self, CpuError> {
        let others = match count {
            0 => return Err(CpuError::NoThreads),
            1 => None,
            _ => Some(
                rayon::ThreadPoolBuilder::new()
                    .num_threads(count - 1)
                    .thread_name(|i| format!("slotstream-cpu-{}", i + 1))
                    .build()
                    .map_err(|source| CpuError::Threads { threads: count, source })?,
            ),
        };
        Ok(Self { count, others })
    }

    /// Threads, the caller included.
    pub(super) fn count(&self) -> usize {
        self.count
    }

    /// Runs `task(i)` for each `i` in `0..tasks`, in any order, on all threads; returns when all
    /// are done. `work` is their size in multiply-adds, all together.
    pub(super) fn run(&self, tasks: usize, work: usize, task: impl Fn(usize) + Sync) {
        match &self.others {
            Some(others) if tasks > 1 && work >= WORTH_WAKING => {
                let next = AtomicUsize::new(0);
                let drain = || {
                    loop {
                        let i = next.fetch_add(1, Ordering::Relaxed);
                        if i >= tasks {
                            break;
                        }
                        task(i);
                    }
                };
                others.in_place_scope(|scope| {
                    for _ in 1..self.count.min(tasks) {
                        scope.spawn(|_| drain());
                    }
                    drain();
                });
            }
            _ => (0..tasks).for_each(task),
        }
    }

    /// Rows of a task, so that `rows` rows of one of `parts` matrices make a few tasks a thread.
    pub(super) fn rows_per_task(&self, rows: usize, parts: usize) -> usize {
        let tasks = (4 * self.count).div_ceil(parts);
        rows.div_ceil(tasks).next_multiple_of(8)
    }
}
