//! Which copy will be done first.

use std::time::Duration;

/// Bytes and busy time are halved when they are of so much, so that a rate follows the disk.
const WINDOW: Duration = Duration::from_secs(1);

/// A copy that was not read for so long is taken to be as fast as the fastest again: what made it
/// slow may be over, and only a read can tell.
const FORGET: Duration = Duration::from_secs(10);

/// What one copy has to do, and how fast it was. Times count from the making of the mirror.
#[derive(Debug, Default)]
pub(super) struct Load {
    /// Bytes of the reads in flight.
    outstanding: u64,
    in_flight: u64,
    /// When busy time was last added, or the last read ended.
    since: Duration,
    /// Bytes that came, while at least one read was in flight for `busy`.
    bytes: f64,
    busy: Duration,
    /// All reads.
    pub(super) reads: u64,
}

impl Load {
    pub(super) fn begin(&mut self, now: Duration, bytes: u64) {
        if self.in_flight > 0 {
            self.busy += now.saturating_sub(self.since);
        } else if now.saturating_sub(self.since) > FORGET {
            (self.bytes, self.busy) = (0.0, Duration::ZERO);
        }
        self.since = now;
        self.outstanding = self.outstanding.saturating_add(bytes);
        self.in_flight += 1;
        self.reads += 1;
    }

    /// Ends a read that began with the same `bytes`.
    pub(super) fn end(&mut self, now: Duration, bytes: u64) {
        self.busy += now.saturating_sub(self.since);
        self.since = now;
        self.outstanding = self.outstanding.saturating_sub(bytes);
        self.in_flight = self.in_flight.saturating_sub(1);
        self.bytes += bytes as f64;
        if self.busy > WINDOW {
            self.busy /= 2;
            self.bytes /= 2.0;
        }
    }

    /// Bytes a second of all its reads together; `None` before the first, and when that was long
    /// ago.
    fn rate(&self, now: Duration) -> Option<f64> {
        let idle = self.in_flight == 0 && now.saturating_sub(self.since) > FORGET;
        let rate = self.bytes / self.busy.as_secs_f64();
        (!idle && rate.is_finite() && rate > 0.0).then_some(rate)
    }
}

/// The copy that would finish `bytes` more first, of those that `may` be read. One whose rate is
/// not known is taken to be as fast as the fastest, and goes first among equals.
pub(super) fn earliest(
    loads: &[Load],
    now: Duration,
    bytes: u64,
    may: impl Fn(usize) -> bool,
) -> Option<usize> {
    let fastest = loads.iter().filter_map(|load| load.rate(now)).fold(f64::NAN, f64::max);
    let fastest = if fastest.is_nan() { 1.0 } else { fastest };
    let finish = |i: usize| {
        let rate = loads[i].rate(now);
        let todo = loads[i].outstanding.saturating_add(bytes);
        (todo as f64 / rate.unwrap_or(fastest), rate.is_some())
    };
    (0..loads.len()).filter(|i| may(*i)).min_by(|a, b| {
        let ((a, known_a), (b, known_b)) = (finish(*a), finish(*b));
        a.total_cmp(&b).then(known_a.cmp(&known_b))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const MB: u64 = 1 << 20;

    fn at(millis: u64) -> Duration {
        Duration::from_millis(millis)
    }

    /// `depth` reads always in flight, over disks of `rates` (MB a second) that each serve one
    /// read after the other: reads of each disk, and the time that all took.
    fn play(rates: &[u64], depth: usize, reads: usize) -> (Vec<u64>, Duration) {
        let mut loads: Vec<Load> = rates.iter().map(|_| Load::default()).collect();
        let mut free = vec![Duration::ZERO; rates.len()];
        let mut running: Vec<(Duration, usize)> = Vec::new();
        let mut now = Duration::ZERO;
        for _ in 0..reads {
            if running.len() == depth {
                let first = (0..depth).min_by_key(|i| running[*i].0).unwrap();
                let (end, disk) = running.swap_remove(first);
                now = end;
                loads[disk].end(now, MB);
            }
            let disk = earliest(&loads, now, MB, |_| true).unwrap();
            loads[disk].begin(now, MB);
            free[disk] = free[disk].max(now) + Duration::from_micros(1_000_000 / rates[disk]);
            running.push((free[disk], disk));
        }
        let end = running.iter().map(|(end, _)| *end).max().unwrap();
        (loads.iter().map(|load| load.reads).collect(), end)
    }

    #[test]
    fn disks_share_by_their_speed() {
        for rates in [[1000, 1000], [1000, 300], [300, 1000], [1000, 50]] {
            let (reads, time) = play(&rates, 16, 8000);
            let ideal = 8000.0 / (rates[0] + rates[1]) as f64;
            let share = reads[0] as f64 / 8000.0;
            let fair = rates[0] as f64 / (rates[0] + rates[1]) as f64;
            assert!((share - fair).abs() < 0.05, "{rates:?}: {reads:?}");
            assert!(time.as_secs_f64() < ideal * 1.05, "{rates:?}: {time:?} of {ideal}");
        }
    }

    #[test]
    fn one_at_a_time_the_fastest_reads_nearly_all() {
        for rates in [[1000, 100], [100, 1000]] {
            let (reads, _) = play(&rates, 1, 1000);
            assert!(reads.iter().min() < Some(&10), "{rates:?}: {reads:?}");
            assert!(reads.iter().all(|reads| *reads > 0), "each is tried: {reads:?}");
        }
    }

    #[test]
    fn a_slow_disk_is_tried_again_after_a_while() {
        let mut loads = [Load::default(), Load::default()];
        for (disk, took) in [(0, 1), (1, 100)] {
            loads[disk].begin(at(0), MB);
            loads[disk].end(at(took), MB);
        }
        let next = |loads: &[Load], now| earliest(loads, at(now), MB, |_| true);
        assert_eq!(next(&loads, 200), Some(0));
        loads[0].begin(at(10_200), MB);
        loads[0].end(at(10_201), MB);
        assert_eq!(next(&loads, 10_202), Some(1));
        loads[1].begin(at(10_202), MB);
        loads[1].end(at(10_302), MB);
        assert_eq!(next(&loads, 10_303), Some(0));
    }

    #[test]
    fn who_may_not_is_not_chosen() {
        let loads = [Load::default(), Load::default()];
        assert_eq!(earliest(&loads, at(0), u64::MAX, |i| i == 1), Some(1));
        assert_eq!(earliest(&loads, at(0), 0, |_| false), None);
    }
}
