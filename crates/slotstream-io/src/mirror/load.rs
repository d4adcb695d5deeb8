//! Which copy will be done first.

use std::time::Duration;

use slotstream_core::Rng;

/// Work and busy time are halved when they are of so much, so that a rate follows the disk.
const WINDOW: Duration = Duration::from_secs(1);

/// A copy that was not read for so long is taken to be as fast as the fastest again: what made it
/// slow may be over, and only a read can tell.
const FORGET: Duration = Duration::from_secs(10);

/// Bytes that would take as long as what a read takes beside its bytes, as the work of a read. Of
/// SSDs it is 50 to 600 KB; too much is better than too little, with which a copy that has read
/// little things would look slow for large ones, and would not be read.
const OF_A_READ: u64 = 512 << 10;

/// A copy that is not read because it was slow is tried again when the others have worked for so
/// many times what that read would take: so finding out costs a sixteenth. After few reads it is
/// as many times as there were reads, because a first read says little.
const PATIENCE: u64 = 16;

/// What an estimate weighs against a read that tries a copy again.
const STALE: f64 = 1e-6;

/// Copies that would finish in up to so many times the shortest time are taken to be equal.
const EQUAL: f64 = 1.25;

/// Reads by whose work equal copies may be apart before the one that has worked least goes first.
const SPREAD: f64 = 16.0;

/// The work of one read.
fn work(bytes: u64) -> f64 {
    bytes.saturating_add(OF_A_READ) as f64
}

/// What one copy has to do, and how fast it was. Times count from the making of the mirror.
#[derive(Debug, Default)]
pub(super) struct Load {
    /// Work of the reads in flight.
    outstanding: f64,
    in_flight: u64,
    /// When busy time was last added, or the last read ended.
    since: Duration,
    /// Work that was done while at least one read was in flight for `busy` seconds.
    done: f64,
    busy: f64,
    /// Work of all reads, and of those of the other copies since the last of this one.
    all: f64,
    passed: f64,
    /// All reads.
    pub(super) reads: u64,
}

impl Load {
    fn begin(&mut self, now: Duration, bytes: u64) {
        if self.in_flight > 0 {
            self.busy += now.saturating_sub(self.since).as_secs_f64();
        } else if now.saturating_sub(self.since) > FORGET {
            (self.done, self.busy) = (0.0, 0.0);
        }
        self.since = now;
        self.outstanding += work(bytes);
        self.all += work(bytes);
        self.passed = 0.0;
        self.in_flight += 1;
        self.reads += 1;
    }

    /// Ends a read that began with the same `bytes`.
    pub(super) fn end(&mut self, now: Duration, bytes: u64) {
        self.busy += now.saturating_sub(self.since).as_secs_f64();
        self.since = now;
        self.in_flight = self.in_flight.saturating_sub(1);
        // Without the rounding of what was added and taken away.
        let left = self.outstanding - work(bytes);
        self.outstanding = if self.in_flight == 0 { 0.0 } else { left };
        self.done += work(bytes);
        if self.busy > WINDOW.as_secs_f64() {
            self.busy /= 2.0;
            self.done /= 2.0;
        }
    }

    /// Work a second of all its reads together; `None` before the first, and when that was long
    /// ago.
    fn rate(&self, now: Duration) -> Option<f64> {
        let idle = self.in_flight == 0 && now.saturating_sub(self.since) > FORGET;
        let rate = self.done / self.busy;
        (!idle && rate.is_finite() && rate > 0.0).then_some(rate)
    }

    /// Whether the others have worked, at a rate of `fastest`, so long without it that a read of
    /// `bytes` by its own estimate is little beside that.
    fn due(&self, now: Duration, bytes: u64, fastest: f64) -> bool {
        let alone = self.rate(now).map(|rate| work(bytes) / rate);
        let patience = self.reads.min(PATIENCE) as f64;
        self.in_flight == 0 && alone.is_some_and(|time| self.passed / fastest > patience * time)
    }
}

/// Chooses one of the copies whose bits are set in `may`, and begins a read of it: the one that
/// would finish `bytes` more first. Of those that would take about equally long, it is the one that
/// has worked least. One whose rate is not known is taken to be as fast as the fastest, and goes first; so
/// does one that is due to be tried again, whose estimate is then that of this read.
pub(super) fn begin(loads: &mut [Load], now: Duration, bytes: u64, may: u64) -> Option<usize> {
    let fastest = loads.iter().filter_map(|load| load.rate(now)).fold(f64::NAN, f64::max);
    let fastest = if fastest.is_nan() { 1.0 } else { fastest };
    let may = || (0..loads.len()).filter(|i| may & 1 << i != 0);
    let chosen = if let Some(i) = may().find(|i| loads[*i].due(now, bytes, fastest)) {
        loads[i].done *= STALE;
        loads[i].busy *= STALE;
        i
    } else {
        let rate = |i: usize| loads[i].rate(now).unwrap_or(fastest);
        let finish = |i: usize| (loads[i].outstanding + work(bytes)) / rate(i);
        let limit = may().map(finish).fold(f64::INFINITY, f64::min) * EQUAL;
        // Chance, the same in every run: sizes that come in turn would go to the same copies.
        let mut chance = Rng::new(loads.iter().map(|load| load.reads).sum());
        let spread = work(bytes) * SPREAD / u64::MAX as f64;
        let equal = may().filter(|i| finish(*i) <= limit).map(|i| {
            let worked = loads[i].all + spread * chance.next_u64() as f64;
            (i, loads[i].rate(now).is_some(), worked / rate(i))
        });
        let first = equal.min_by(|a, b| a.1.cmp(&b.1).then(a.2.total_cmp(&b.2)));
        first?.0
    };
    for load in loads.iter_mut() {
        load.passed += work(bytes);
    }
    loads[chosen].begin(now, bytes);
    Some(chosen)
}

#[cfg(test)]
mod tests {
    use super::*;

    const MB: u64 = 1 << 20;
    const ALL: u64 = u64::MAX;

    fn at(millis: u64) -> Duration {
        Duration::from_millis(millis)
    }

    /// A disk that serves one read after the other.
    #[derive(Clone, Copy)]
    struct Disk {
        /// MB a second.
        rate: u64,
        micros_a_read: u64,
        /// What the first read takes beside that.
        first: Duration,
    }

    fn disk(rate: u64) -> Disk {
        Disk { rate, micros_a_read: 0, first: Duration::ZERO }
    }

    /// `depth` reads always in flight: reads of each disk, and the time that all took. The time of
    /// every third read of a disk is longer by half.
    fn play(
        disks: &[Disk],
        depth: usize,
        sizes: impl Iterator<Item = u64>,
    ) -> (Vec<u64>, Duration) {
        let mut loads: Vec<Load> = disks.iter().map(|_| Load::default()).collect();
        let mut free = vec![Duration::ZERO; disks.len()];
        let mut running: Vec<(Duration, usize, u64)> = Vec::new();
        let mut now = Duration::ZERO;
        for bytes in sizes {
            if running.len() == depth {
                let first = (0..depth).min_by_key(|i| running[*i].0).unwrap();
                let (end, disk, bytes) = running.swap_remove(first);
                now = end;
                loads[disk].end(now, bytes);
            }
            let i = begin(&mut loads, now, bytes, ALL).unwrap();
            let Disk { rate, micros_a_read, first } = disks[i];
            let mut takes = Duration::from_micros(micros_a_read + bytes / rate);
            match loads[i].reads {
                1 => takes += first,
                n if n % 3 == 0 => takes += takes / 2,
                _ => {}
            }
            free[i] = free[i].max(now) + takes;
            running.push((free[i], i, bytes));
        }
        let end = running.iter().map(|(end, ..)| *end).max().unwrap();
        (loads.iter().map(|load| load.reads).collect(), end)
    }

    fn share(reads: &[u64]) -> f64 {
        reads[0] as f64 / reads.iter().sum::<u64>() as f64
    }

    #[test]
    fn disks_share_by_their_speed() {
        for rates in [[1000, 1000], [900, 300], [300, 900], [1000, 50]] {
            let (reads, time) = play(&rates.map(disk), 16, (0..8000).map(|_| MB));
            let both = (rates[0] + rates[1]) as f64;
            let ideal = 8000.0 * MB as f64 * 7.0 / 6.0 / (both * 1e6);
            let fair = rates[0] as f64 / both;
            assert!((share(&reads) - fair).abs() < 0.05, "{rates:?}: {reads:?}");
            assert!(time.as_secs_f64() < ideal * 1.05, "{rates:?}: {time:?} of {ideal}");
        }
    }

    /// What a copy reads first says little: a row of 100 bytes, or a disk that had to wake up.
    #[test]
    fn equal_disks_share_equally_whatever_came_first() {
        let sizes: [fn(u64) -> u64; 4] = [
            |_| 2048,
            |_| 4 * MB,
            |i| if i < 4 { 100 } else { 2_764_800 },
            |i| if i % 9 == 0 { 2_764_800 } else { 100 },
        ];
        for (kind, size) in sizes.into_iter().enumerate() {
            for micros_a_read in [2, 100] {
                // The work of sizes that alternate is known only roughly: no copy starves.
                let fair = if kind == 3 { 0.2..0.8 } else { 0.35..0.65 };
                for (depth, first) in [1, 2, 8].into_iter().flat_map(|d| [(d, 0), (d, 20)]) {
                    let slow = Disk { rate: 3000, micros_a_read, first: at(first) };
                    let disks = [slow, Disk { first: Duration::ZERO, ..slow }];
                    for disks in [disks, [disks[1], disks[0]]] {
                        let (reads, _) = play(&disks, depth, (0..100_000).map(size));
                        let case = (kind, micros_a_read, depth, first);
                        assert!(fair.contains(&share(&reads)), "{case:?}: {reads:?}");
                    }
                }
            }
        }
    }

    #[test]
    fn one_at_a_time_the_fastest_reads_nearly_all() {
        for rates in [[1000, 100], [100, 1000]] {
            let (reads, _) = play(&rates.map(disk), 1, (0..1000).map(|_| MB));
            assert!(reads.iter().min() < Some(&20), "{rates:?}: {reads:?}");
            assert!(reads.iter().all(|reads| *reads > 1), "each is tried: {reads:?}");
        }
    }

    #[test]
    fn a_slow_disk_is_tried_again_after_a_while() {
        let mut loads = [Load::default(), Load::default()];
        for (disk, took) in [(0, 1), (1, 100)] {
            loads[disk].begin(at(0), MB);
            loads[disk].end(at(took), MB);
        }
        let read = |loads: &mut [Load], now, took| {
            let disk = begin(loads, at(now), MB, ALL).unwrap();
            loads[disk].end(at(now + took), MB);
            disk
        };
        assert_eq!(read(&mut loads, 200, 1), 0);
        assert_eq!(read(&mut loads, 10_200, 1), 1);
        assert_eq!(read(&mut loads, 10_202, 100), 0);
    }

    #[test]
    fn who_may_not_is_not_chosen() {
        let mut loads = [Load::default(), Load::default()];
        assert_eq!(begin(&mut loads, at(0), u64::MAX, 0b10), Some(1));
        assert_eq!(begin(&mut loads, at(0), 0, 0), None);
    }
}
