//! How scenarios are explored, and what is on the threads' ends.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use loom::sync::{Condvar, Mutex};

/// Runs `scenario` in every order of steps that has at most `preemptions` of them (a thread that
/// waits or ends is none). There must be at least `least` orders: a check that explores nothing
/// checks nothing.
pub(crate) fn explore(
    preemptions: usize,
    least: usize,
    scenario: impl Fn() + Send + Sync + 'static,
) {
    let orders = Arc::new(AtomicUsize::new(0));
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(preemptions);
    builder.max_branches = 10_000;
    let count = Arc::clone(&orders);
    builder.check(move || {
        count.fetch_add(1, Ordering::Relaxed);
        scenario();
    });
    let orders = orders.load(Ordering::Relaxed);
    eprintln!("{orders} orders with up to {preemptions} preemptions");
    assert!(orders >= least, "only {orders} orders were explored, expected {least}");
}

/// Counts events; threads can wait for a number of them.
pub(crate) struct Tally {
    count: Mutex<usize>,
    more: Condvar,
}

impl Tally {
    pub(crate) fn new() -> Self {
        Self { count: Mutex::new(0), more: Condvar::new() }
    }

    pub(crate) fn add(&self) {
        *self.count.lock().expect("nobody panics while counting") += 1;
        self.more.notify_all();
    }

    pub(crate) fn wait_for(&self, number: usize) {
        let mut count = self.count.lock().expect("nobody panics while counting");
        while *count < number {
            count = self.more.wait(count).expect("nobody panics while counting");
        }
    }
}
