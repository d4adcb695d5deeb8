//! A reader on a slow device.

use std::sync::{Mutex, PoisonError};
use std::thread::sleep;
use std::time::{Duration, Instant};

use slotstream_core::{Extent, ReadError, RecordReader};

use super::faults::{Schedule, Trigger, triggered};
use super::hand_on;

/// Takes a fixed time for each read and, if it has a bandwidth, the time of its bytes. The fixed
/// times of concurrent reads overlap; their bytes share one line, one after the other. All reads are slow, or those of a schedule.
#[derive(Debug)]
pub struct SlowReader<R> {
    inner: R,
    delay: Duration,
    bytes_per_second: Option<u64>,
    /// When the line is free again.
    free: Mutex<Option<Instant>>,
    trigger: Trigger,
}

triggered!(SlowReader);

impl<R: RecordReader> SlowReader<R> {
    /// Each read of `inner` takes `delay` longer.
    pub fn new(inner: R, delay: Duration) -> Self {
        let trigger = Trigger::new(Schedule::Always);
        Self { inner, delay, bytes_per_second: None, free: Mutex::new(None), trigger }
    }

    /// Limits the bytes of all reads together. 0 means no limit.
    #[must_use]
    pub const fn with_bandwidth(mut self, bytes_per_second: u64) -> Self {
        self.bytes_per_second = if bytes_per_second == 0 { None } else { Some(bytes_per_second) };
        self
    }

    /// When the bytes of a read that begins now have passed the line.
    fn line(&self, bytes: u64) -> Instant {
        let now = Instant::now();
        let Some(rate) = self.bytes_per_second else { return now };
        let time = Duration::from_secs_f64(bytes as f64 / rate as f64);
        let mut free = self.free.lock().unwrap_or_else(PoisonError::into_inner);
        let end = free.map_or(now, |at| at.max(now)) + time;
        *free = Some(end);
        end
    }
}

impl<R: RecordReader> RecordReader for SlowReader<R> {
    fn read_exact_at(&self, extent: &Extent, buffer: &mut [u8]) -> Result<(), ReadError> {
        if !self.trigger.strikes() {
            return self.inner.read_exact_at(extent, buffer);
        }
        // What the buffer asks for: an extent may claim any length.
        let end = self.line(buffer.len() as u64) + self.delay;
        self.inner.read_exact_at(extent, buffer)?;
        sleep(end.saturating_duration_since(Instant::now()));
        Ok(())
    }

    hand_on!("slowed down");
}
