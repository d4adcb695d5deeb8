//! How scenarios are explored, and what is on the threads' ends.

use std::fmt;
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
    let orders = count(preemptions, scenario);
    eprintln!("{orders} orders with up to {preemptions} preemptions");
    assert!(orders >= least, "only {orders} orders were explored, expected {least}");
}

/// [`explore`] for each of `programs`; `least` orders of each.
pub(crate) fn explore_all<P: fmt::Debug + Send + Sync + 'static>(
    preemptions: usize,
    least: usize,
    programs: Vec<P>,
    scenario: impl Fn(&P) + Clone + Send + Sync + 'static,
) {
    let (mut all, number) = (0, programs.len());
    for program in programs {
        let name = format!("{program:?}");
        let scenario = scenario.clone();
        let failed = Named(name);
        let orders = count(preemptions, move || scenario(&program));
        assert!(orders >= least, "{}: only {orders} orders, expected {least}", failed.0);
        all += orders;
    }
    eprintln!("{all} orders of {number} programs with up to {preemptions} preemptions each");
}

/// Says which program it was, when one fails.
struct Named(String);

impl Drop for Named {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("in the program {}", self.0);
        }
    }
}

/// Runs a scenario in every order and counts them.
fn count(preemptions: usize, scenario: impl Fn() + Send + Sync + 'static) -> usize {
    let orders = Arc::new(AtomicUsize::new(0));
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(preemptions);
    builder.max_branches = 10_000;
    let count = Arc::clone(&orders);
    builder.check(move || {
        count.fetch_add(1, Ordering::Relaxed);
        scenario();
    });
    orders.load(Ordering::Relaxed)
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
