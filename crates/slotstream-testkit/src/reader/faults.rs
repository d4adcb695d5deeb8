//! Readers that fail by a schedule.

use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use slotstream_core::{Extent, ReadError, ReadRequest, RecordReader};

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
    /// The n-th, counted from 0, and all after it.
    From(u64),
    /// One in k: reads k-1, 2k-1, ... counted from 0. `Every(0)` is `Never`.
    Every(u64),
}

impl Schedule {
    fn strikes(self, read: u64) -> bool {
        match self {
            Self::Never | Self::Every(0) => false,
            Self::Always => true,
            Self::Nth(n) => read == n,
            Self::From(n) => read >= n,
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
#[derive(Clone, Debug)]
pub(super) struct Trigger(Arc<Mutex<Count>>);

#[derive(Clone, Copy, Debug)]
pub(super) struct Count {
    schedule: Schedule,
    since_armed: u64,
    pub(super) reads: u64,
    pub(super) faults: u64,
}

impl Trigger {
    pub(super) fn new(schedule: Schedule) -> Self {
        Self(Arc::new(Mutex::new(Count { schedule, since_armed: 0, reads: 0, faults: 0 })))
    }

    pub(super) fn count(&self) -> MutexGuard<'_, Count> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn arm(&self, schedule: Schedule) {
        let mut count = self.count();
        count.schedule = schedule;
        count.since_armed = 0;
    }

    /// Counts one read; whether it fails.
    pub(super) fn strikes(&self) -> bool {
        let mut count = self.count();
        let strikes = count.schedule.strikes(count.since_armed);
        count.since_armed += 1;
        count.reads += 1;
        count.faults += u64::from(strikes);
        strikes
    }
}

/// What a reader with a trigger can be asked and told.
macro_rules! triggered {
    ($reader:ident) => {
        impl<R> $reader<R> {
            /// Starts counting anew: from the next read on, which is number 0, reads go wrong by
            /// `schedule`.
            pub fn arm(&self, schedule: super::Schedule) {
                self.trigger.arm(schedule);
            }

            /// Takes the schedule of another reader: the reads of both are counted together, and
            /// arming one arms both. For copies behind a mirror, of which it is not known which
            /// one will be read.
            #[must_use]
            pub fn counted_with(mut self, other: &Self) -> Self {
                self.trigger = other.trigger.clone();
                self
            }

            /// Reads since it was made, failed ones included.
            pub fn reads(&self) -> u64 {
                self.trigger.count().reads
            }

            /// Reads that were made to go wrong.
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
pub(super) use triggered;

/// A reader whose `spoil` reads what its trigger strikes.
macro_rules! scheduled {
    ($reader:ident, $label:literal) => {
        triggered!($reader);

        impl<R: RecordReader> RecordReader for $reader<R> {
            fn read_exact_at(&self, extent: &Extent, buffer: &mut [u8]) -> Result<(), ReadError> {
                if self.trigger.strikes() {
                    self.spoil(extent, buffer)
                } else {
                    self.inner.read_exact_at(extent, buffer)
                }
            }

            /// What is not struck stays a batch of the reader behind.
            fn read_batch(
                &self,
                requests: &mut [ReadRequest<'_>],
                landed: &mut dyn FnMut(usize, Result<(), ReadError>),
            ) {
                let (mut struck, mut places, mut rest) = (Vec::new(), Vec::new(), Vec::new());
                for (i, ReadRequest { extent, buffer }) in requests.iter_mut().enumerate() {
                    if self.trigger.strikes() {
                        struck.push((i, *extent, buffer));
                    } else {
                        places.push(i);
                        rest.push(ReadRequest { extent: *extent, buffer });
                    }
                }
                self.inner.read_batch(&mut rest, &mut |i, result| {
                    // A reader that lands what nobody asked for is shown as such.
                    landed(places.get(i).copied().unwrap_or(usize::MAX), result);
                });
                for (i, extent, buffer) in struck {
                    landed(i, self.spoil(&extent, buffer));
                }
            }

            hand_on!($label);
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

    fn spoil(&self, extent: &Extent, buffer: &mut [u8]) -> Result<(), ReadError> {
        match self.inner.path(extent.file()) {
            Some(path) => Err(ReadError::io(path, extent, 0, self.fault.into())),
            None => self.inner.read_exact_at(extent, buffer),
        }
    }
}

scheduled!(FaultyReader, "with faults");

/// Brings all bytes, and then reports that the file ended after half of them.
#[derive(Debug)]
pub struct ShortReader<R> {
    inner: R,
    trigger: Trigger,
}

impl<R: RecordReader> ShortReader<R> {
    /// Reads of `inner` that `schedule` names come short.
    pub fn new(inner: R, schedule: Schedule) -> Self {
        Self { inner, trigger: Trigger::new(schedule) }
    }

    fn spoil(&self, extent: &Extent, buffer: &mut [u8]) -> Result<(), ReadError> {
        self.inner.read_exact_at(extent, buffer)?;
        self.inner
            .path(extent.file())
            .map_or(Ok(()), |path| Err(ReadError::end_of_file(path, extent, extent.len() / 2)))
    }
}

scheduled!(ShortReader, "coming short");

/// Brings the first half of the bytes, leaves garbage in the rest and fails.
#[derive(Debug)]
pub struct TornReader<R> {
    inner: R,
    trigger: Trigger,
}

impl<R: RecordReader> TornReader<R> {
    /// Reads of `inner` that `schedule` names are torn.
    pub fn new(inner: R, schedule: Schedule) -> Self {
        Self { inner, trigger: Trigger::new(schedule) }
    }

    fn spoil(&self, extent: &Extent, buffer: &mut [u8]) -> Result<(), ReadError> {
        self.inner.read_exact_at(extent, buffer)?;
        let Some(path) = self.inner.path(extent.file()) else { return Ok(()) };
        let half = buffer.len() / 2;
        // Different from what was there, byte for byte.
        buffer[half..].iter_mut().for_each(|byte| *byte ^= 0xA5);
        Err(ReadError::io(path, extent, half as u64, Fault::Errno(5).into()))
    }
}

scheduled!(TornReader, "torn");

/// Changes one bit of what was read and reports success: what only a checksum finds.
#[derive(Debug)]
pub struct FlippingReader<R> {
    inner: R,
    trigger: Trigger,
}

impl<R: RecordReader> FlippingReader<R> {
    /// Reads of `inner` that `schedule` names bring one wrong bit, in the middle of the bytes.
    pub fn new(inner: R, schedule: Schedule) -> Self {
        Self { inner, trigger: Trigger::new(schedule) }
    }

    fn spoil(&self, extent: &Extent, buffer: &mut [u8]) -> Result<(), ReadError> {
        self.inner.read_exact_at(extent, buffer)?;
        let middle = buffer.len() / 2;
        if let Some(byte) = buffer.get_mut(middle) {
            *byte ^= 1;
        }
        Ok(())
    }
}

scheduled!(FlippingReader, "with flipped bits");
