//! A model of another disk.

#[cfg(target_os = "linux")]
use std::num::NonZeroU64;
use std::thread::sleep;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use slotstream_core::{CancelToken, Extent, ReadError, ReadRequest, ReaderMode, RecordReader};

use crate::decorator::hand_on;

/// What a [`Throttled`] reader imitates.
///
/// A read of `n` bytes alone takes `latency + n / bandwidth`. Those times overlap for reads in
/// progress at once; together they bring at most `queue_gain * bandwidth`, in the order in which
/// they began. So a read that begins at time `t` ends at
/// `max(t + latency + n / bandwidth, line)`, where
/// `line = max(t, line before) + n / (queue_gain * bandwidth)`. Failed reads take as long. There
/// is no chance in it: the same beginnings give the same ends.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Throttle {
    latency: Duration,
    bandwidth: f64,
    queue_gain: f64,
}

impl Throttle {
    /// The SSD of an Apple M5 Pro, from four numbers that were measured there by others: 53.6 us
    /// for 4,096 bytes and 292 us for 2,764,800 at depth 1 (9.46 GB/s), 17.3 GB/s at depths 8
    /// and 32.
    pub const APPLE_SSD: Self = Self {
        latency: Duration::from_nanos(53_245),
        // (2,764,800 - 4,096) bytes in (292.26 - 53.6) us.
        bandwidth: 11.568e9,
        queue_gain: 1.4955,
    };

    /// A disk of so many bytes a second for one read after its latency, and no more for many. A
    /// bandwidth that is not above 0 means no limit.
    #[must_use]
    pub const fn new(latency: Duration, bytes_per_second: f64) -> Self {
        Self { latency, bandwidth: bytes_per_second, queue_gain: 1.0 }
    }

    /// How many times as much reads at once bring together: 1 at least.
    #[must_use]
    pub const fn with_queue_gain(mut self, gain: f64) -> Self {
        self.queue_gain = if gain > 1.0 { gain } else { 1.0 };
        self
    }

    /// Time of `bytes` at `gain` times the bandwidth.
    fn time(&self, bytes: u64, gain: f64) -> Duration {
        let rate = self.bandwidth * gain;
        if rate.is_nan() || rate <= 0.0 {
            return Duration::ZERO;
        }
        // A bandwidth of almost nothing waits a day, and not for ever.
        let seconds = bytes as f64 / rate;
        Duration::try_from_secs_f64(seconds).map_or(DAY, |time| time.min(DAY))
    }

    /// When a read of `bytes` that begins at `now` ends, and when the line is free after it.
    fn end(&self, now: Duration, line: Duration, bytes: u64) -> (Duration, Duration) {
        let line = line.max(now).saturating_add(self.time(bytes, self.queue_gain));
        let alone = now.saturating_add(self.latency).saturating_add(self.time(bytes, 1.0));
        (alone.max(line), line)
    }
}

const DAY: Duration = Duration::from_secs(86_400);

/// How long a read sleeps before it looks whether it is to be woken.
const NAP: Duration = Duration::from_millis(20);

/// Lets another reader appear as slow as a [`Throttle`]: for experiments with disks that are not
/// here. Over a [`MemReader`](crate::MemReader), or files that are in the page cache, the model is
/// what is measured; where the reader behind it is slower, that is.
///
/// A read that has brought its bytes sleeps until its end. On Linux the thread's timer slack
/// (50 us, usually) is put aside for that; what is left is a few microseconds, and more where
/// threads wait for a core. Who cannot wait for that [wakes](Self::woken_by) it.
#[derive(Debug)]
pub struct Throttled<R> {
    inner: R,
    throttle: Throttle,
    began: Instant,
    /// When the line is free, since it began.
    line: Mutex<Duration>,
    wake: CancelToken,
}

impl<R: RecordReader> Throttled<R> {
    /// Slows `inner` down.
    pub fn new(inner: R, throttle: Throttle) -> Self {
        let (began, line, wake) = (Instant::now(), Mutex::default(), CancelToken::new());
        Self { inner, throttle, began, line, wake }
    }

    /// From the moment when `token` is set on, reads sleep no more, those that do already among them: they
    /// end as they would without a model.
    #[must_use]
    pub fn woken_by(mut self, token: CancelToken) -> Self {
        self.wake = token;
        self
    }

    /// The reader behind it.
    pub const fn inner(&self) -> &R {
        &self.inner
    }

    /// The end of a read that begins now.
    fn begin(&self, bytes: usize) -> Duration {
        let mut line = self.line.lock();
        let (end, free) = self.throttle.end(self.began.elapsed(), *line, bytes as u64);
        *line = free;
        end
    }

    fn wait(&self, end: Duration) {
        while !self.wake.is_cancelled() {
            let left = end.saturating_sub(self.began.elapsed());
            if left.is_zero() {
                return;
            }
            sleep_finely(left.min(NAP));
        }
    }
}

/// Sleeps, and wakes as soon as the system can.
fn sleep_finely(time: Duration) {
    #[cfg(target_os = "linux")]
    {
        use rustix::thread::{current_timer_slack, set_current_timer_slack};
        // A refusal costs precision alone.
        let before = current_timer_slack().ok();
        let _ = set_current_timer_slack(NonZeroU64::new(1));
        sleep(time);
        let _ = set_current_timer_slack(before.and_then(NonZeroU64::new));
    }
    #[cfg(not(target_os = "linux"))]
    sleep(time);
}

impl<R: RecordReader> RecordReader for Throttled<R> {
    fn read_exact_at(&self, extent: &Extent, buffer: &mut [u8]) -> Result<(), ReadError> {
        // What the buffer holds: an extent may claim any length.
        let end = self.begin(buffer.len());
        let result = self.inner.read_exact_at(extent, buffer);
        self.wait(end);
        result
    }

    /// All requests begin at once.
    fn read_batch(
        &self,
        requests: &mut [ReadRequest<'_>],
        landed: &mut dyn FnMut(usize, Result<(), ReadError>),
    ) {
        let ends: Vec<Duration> =
            requests.iter().map(|request| self.begin(request.buffer.len())).collect();
        self.inner.read_batch(requests, &mut |i, result| {
            if let Some(end) = ends.get(i) {
                self.wait(*end);
            }
            landed(i, result);
        });
    }

    fn effective(&self) -> ReaderMode {
        let Throttle { latency, bandwidth, queue_gain } = self.throttle;
        let mut mode = self.inner.effective();
        mode.why.push_str(&format!(
            " (throttled: {latency:?} a read, {:.2} GB/s alone, {:.2} together)",
            bandwidth / 1e9,
            bandwidth * queue_gain / 1e9
        ));
        mode
    }

    hand_on!();
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Bytes a second of reads of `bytes`, `depth` of them always in progress, by the model.
    fn rate(throttle: Throttle, bytes: u64, depth: usize) -> f64 {
        let (mut line, mut ends) = (Duration::ZERO, vec![Duration::ZERO; depth]);
        const READS: usize = 4000;
        for _ in 0..READS {
            // The next read begins when the earliest in progress ends.
            let first = (0..depth).min_by_key(|i| ends[*i]).unwrap();
            (ends[first], line) = throttle.end(ends[first], line, bytes);
        }
        (READS as u64 * bytes) as f64 / ends.iter().max().unwrap().as_secs_f64()
    }

    #[test]
    fn the_apple_ssd_has_the_numbers_of_the_article() {
        let rate = |bytes, depth| rate(Throttle::APPLE_SSD, bytes, depth) / 1e9;
        for (bytes, depth, measured) in
            [(2_764_800, 1, 9.46), (2_764_800, 8, 17.3), (2_764_800, 32, 17.3)]
        {
            let found = rate(bytes, depth);
            assert!((found / measured - 1.0).abs() < 0.005, "{bytes} at {depth}: {found}");
        }
        let micros = 4096.0 / rate(4096, 1) / 1e3;
        assert!((micros - 53.6).abs() < 0.1, "{micros}");
        let deep = rate(4096, 8) / rate(4096, 1);
        assert!((deep - 8.0).abs() < 0.1, "small reads overlap wholly: {deep}");
    }

    #[test]
    fn nine_pieces_one_after_the_other_wait_nine_times_and_together_less_than_one_record() {
        const PIECES: [u64; 9] =
            [819_200, 51_200, 51_200, 819_200, 51_200, 51_200, 819_200, 51_200, 51_200];
        let begin = Duration::ZERO;
        let end = |now, line, bytes| Throttle::APPLE_SSD.end(now, line, bytes);
        let micros = |time: Duration| time.as_secs_f64() * 1e6;
        let record = micros(end(begin, begin, PIECES.iter().sum()).0);
        let one_by_one = PIECES.iter().fold((begin, begin), |(now, line), n| end(now, line, *n)).0;
        let (mut line, mut together) = (begin, begin);
        for bytes in PIECES {
            let (ends, free) = end(begin, line, bytes);
            (line, together) = (free, together.max(ends));
        }
        for (found, expected) in
            [(record, 292.2), (micros(one_by_one), 718.2), (micros(together), 159.8)]
        {
            assert!((found - expected).abs() < 0.1, "{found}, not {expected}");
        }
    }

    #[test]
    fn a_sleeping_read_is_woken_and_has_its_bytes() {
        let folder = crate::direct::tests::folder();
        let path = crate::direct::tests::file(&folder, "data", b"some bytes");
        let inner = crate::open_reader(crate::ReaderKind::Buffered, &[path]).unwrap();
        let token = CancelToken::new();
        let slow = Throttle::new(Duration::from_secs(3600), 1e9);
        let reader = Throttled::new(inner, slow).woken_by(token.clone());
        let read = || {
            let mut bytes = [0; 4];
            let extent = Extent::new(slotstream_core::FileId::new(0), 5, 4).unwrap();
            reader.read_exact_at(&extent, &mut bytes).unwrap();
            bytes
        };
        std::thread::scope(|scope| {
            let sleeping = scope.spawn(read);
            sleep(Duration::from_millis(50));
            assert!(!sleeping.is_finished());
            token.cancel();
            assert_eq!(&sleeping.join().unwrap(), b"byte");
        });
        assert_eq!(&read(), b"byte", "nor do later ones sleep");
    }

    #[test]
    fn odd_numbers_are_no_panic() {
        for bandwidth in [0.0, -1.0, f64::NAN, f64::INFINITY] {
            let throttle = Throttle::new(Duration::ZERO, bandwidth).with_queue_gain(f64::NAN);
            let (end, line) = throttle.end(Duration::ZERO, Duration::ZERO, 5);
            assert_eq!((end, line), (Duration::ZERO, Duration::ZERO), "{bandwidth}: no limit");
        }
        let crawl = Throttle::new(Duration::MAX, f64::MIN_POSITIVE);
        assert_eq!(crawl.end(Duration::MAX, Duration::MAX, u64::MAX).0, Duration::MAX);
    }
}
