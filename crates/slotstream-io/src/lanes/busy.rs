//! How long at least one read was in flight.

use std::time::{Duration, Instant};

/// Sums the spans of time that are covered by at least one of several overlapping reads: each
/// moment counts once, however many reads are running. Told the time, never asks for it.
#[derive(Debug)]
pub(super) struct BusyClock {
    running: usize,
    /// When the first of the running reads began.
    since: Option<Instant>,
    past: Duration,
}

impl BusyClock {
    pub(super) const fn new() -> Self {
        Self { running: 0, since: None, past: Duration::ZERO }
    }

    pub(super) fn begin(&mut self, now: Instant) {
        self.running += 1;
        self.since.get_or_insert(now);
    }

    pub(super) fn end(&mut self, now: Instant) {
        self.running = self.running.saturating_sub(1);
        if self.running == 0
            && let Some(since) = self.since.take()
        {
            self.past += now.saturating_duration_since(since);
        }
    }

    /// Busy time up to `now`, the reads still running included.
    pub(super) fn total(&self, now: Instant) -> Duration {
        let current = self.since.map_or(Duration::ZERO, |s| now.saturating_duration_since(s));
        self.past + current
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_moment_counts_once() {
        let zero = Instant::now();
        let at = |ms| zero + Duration::from_millis(ms);
        let mut clock = BusyClock::new();
        clock.begin(at(0));
        clock.begin(at(10));
        assert_eq!(clock.total(at(20)), Duration::from_millis(20));
        clock.end(at(30));
        clock.end(at(40));
        assert_eq!(clock.total(at(1000)), Duration::from_millis(40));
        clock.begin(at(1000));
        clock.end(at(1001));
        assert_eq!(clock.total(at(2000)), Duration::from_millis(41));
    }

    /// No rounding piles up over many short reads that touch end to end.
    #[test]
    fn no_drift() {
        let zero = Instant::now();
        let at = |ns| zero + Duration::from_nanos(ns);
        let mut clock = BusyClock::new();
        for i in 0..100_000 {
            clock.begin(at(7 * i));
            clock.end(at(7 * i + 7));
        }
        assert_eq!(clock.total(at(u64::from(u32::MAX))), Duration::from_nanos(700_000));
    }
}
