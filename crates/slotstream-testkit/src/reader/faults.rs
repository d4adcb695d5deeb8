//! Readers that fail by a schedule.

use std::io;
use std::sync::{Mutex, MutexGuard, PoisonError};

use slotstream_core::{Extent, ReadError, RecordReader};

use super::hand_on;

/// Which reads fail, counted from the moment of arming.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Schedule {
    /// None.
    #[default]
    Never,
    /// All.
    Always,
    /// One: the n-th, counted from 0.
    Nth(u64),
    /// One in k: reads k-1, 2k-1, ... counted from 0. `Every(0)` is `Never`.
    Every(u64),
}

impl Schedule {
    fn strikes(self, read: u64) -> bool {
        match self {
            Self::Never | Self::Every(0) => false,
            Self::Always => true,
            Self::Nth(n) => read == n,
            Self::Every(k) => read % k == k - 1,
        }
    }
}

/// The system's error that a [`FaultyReader`] reports.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Fault {
    /// An error of this kind.
    Kind(io::ErrorKind),
    /// An error with this number, as the system would give it (`EIO` is 5).
    Errno(i32),
}

impl From<io::ErrorKind> for Fault {
    fn from(kind: io::ErrorKind) -> Self {
        Self::Kind(kind)
    }
}

impl From<Fault> for io::Error {
    fn from(fault: Fault) -> Self {
        match fault {
            Fault::Kind(kind) => kind.into(),
            Fault::Errno(number) => Self::from_raw_os_error(number),
        }
    }
}

/// Counts reads and says which of them fail.
#[derive(Debug)]
struct Trigger(Mutex<Count>);

#[derive(Clone, Copy, Debug)]
struct Count {
    schedule: Schedule,
    since_armed: u64,
    reads: u64,
    faults: u64,
}

impl Trigger {
    const fn new(schedule: Schedule) -> Self {
        Self(Mutex::new(Count { schedule, since_armed: 0, reads: 0, faults: 0 }))
    }

    fn count(&self) -> MutexGuard<'_, Count> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn arm(&self, schedule: Schedule) {
        let mut count = self.count();
        count.schedule = schedule;
        count.since_armed = 0;
    }

    /// Counts one read; whether it fails.
    fn strikes(&self) -> bool {
        let mut count = self.count();
        let strikes = count.schedule.strikes(count.since_armed);
        count.since_armed += 1;
        count.reads += 1;
        count.faults += u64::from(strikes);
        strikes
    }
}

macro_rules! scheduled {
    ($reader:ident) => {
        impl<R> $reader<R> {
            /// Starts counting anew: from the next read on, which is number 0, reads fail by
            /// `schedule`.
            pub fn arm(&self, schedule: Schedule) {
                self.trigger.arm(schedule);
            }

            /// Reads since it was made, failed ones included.
            pub fn reads(&self) -> u64 {
                self.trigger.count().reads
            }

            /// Reads that were made to fail.
            pub fn faults(&self) -> u64 {
                self.trigger.count().faults
            }

            /// The reader behind it.
            pub const fn inner(&self) -> &R {
                &self.inner
            }
        }
    };
}

/// Fails reads with an error of the system; their buffers stay untouched.
#[derive(Debug)]
pub struct FaultyReader<R> {
    inner: R,
    trigger: Trigger,
    fault: Fault,
}

impl<R: RecordReader> FaultyReader<R> {
    /// Reads of `inner` that `schedule` names fail with `fault`.
    pub fn new(inner: R, schedule: Schedule, fault: impl Into<Fault>) -> Self {
        Self { inner, trigger: Trigger::new(schedule), fault: fault.into() }
    }
}

scheduled!(FaultyReader);

impl<R: RecordReader> RecordReader for FaultyReader<R> {
    fn read_exact_at(&self, extent: &Extent, buffer: &mut [u8]) -> Result<(), ReadError> {
        match (self.trigger.strikes(), self.inner.path(extent.file())) {
            (true, Some(path)) => Err(ReadError::io(path, extent, 0, self.fault.into())),
            _ => self.inner.read_exact_at(extent, buffer),
        }
    }

    hand_on!("with faults");
}

/// Brings all bytes, and then reports that the file ended after half of them.
#[derive(Debug)]
pub struct ShortReader<R> {
    inner: R,
    trigger: Trigger,
}

impl<R: RecordReader> ShortReader<R> {
    /// Reads of `inner` that `schedule` names come short.
    pub const fn new(inner: R, schedule: Schedule) -> Self {
        Self { inner, trigger: Trigger::new(schedule) }
    }
}

scheduled!(ShortReader);

impl<R: RecordReader> RecordReader for ShortReader<R> {
    fn read_exact_at(&self, extent: &Extent, buffer: &mut [u8]) -> Result<(), ReadError> {
        let strikes = self.trigger.strikes();
        self.inner.read_exact_at(extent, buffer)?;
        match self.inner.path(extent.file()) {
            Some(path) if strikes => Err(ReadError::end_of_file(path, extent, extent.len() / 2)),
            _ => Ok(()),
        }
    }

    hand_on!("coming short");
}

/// Brings the first half of the bytes, leaves garbage in the rest and fails.
#[derive(Debug)]
pub struct TornReader<R> {
    inner: R,
    trigger: Trigger,
}

impl<R: RecordReader> TornReader<R> {
    /// Reads of `inner` that `schedule` names are torn.
    pub const fn new(inner: R, schedule: Schedule) -> Self {
        Self { inner, trigger: Trigger::new(schedule) }
    }
}

scheduled!(TornReader);

impl<R: RecordReader> RecordReader for TornReader<R> {
    fn read_exact_at(&self, extent: &Extent, buffer: &mut [u8]) -> Result<(), ReadError> {
        let strikes = self.trigger.strikes();
        self.inner.read_exact_at(extent, buffer)?;
        match self.inner.path(extent.file()) {
            Some(path) if strikes => {
                let half = buffer.len() / 2;
                // Different from what was there, byte for byte.
                buffer[half..].iter_mut().for_each(|byte| *byte ^= 0xA5);
                Err(ReadError::io(path, extent, half as u64, Fault::Errno(5).into()))
            }
            _ => Ok(()),
        }
    }

    hand_on!("torn");
}
