//! Where bytes come from: a reader of files, or the model of a disk.

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use slotstream_core::{Extent, FileId, ReadError, ReaderMode, RecordReader};
use slotstream_io::{ReaderKind, Throttle, Throttled, open_reader};

use super::Arguments;
use crate::Failure;

/// Length of the file that the model of a disk has.
pub(super) const MODEL_BYTES: u64 = 1 << 40;

/// What serves the reads of a measurement.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Source {
    Reader(ReaderKind),
    Model(Throttle),
}

impl Source {
    /// Everything that the command line asks for.
    pub(super) fn all(arguments: &Arguments) -> Vec<Self> {
        match arguments.throttle {
            Some(throttle) => vec![Self::Model(throttle)],
            None => arguments.reader.iter().copied().map(Self::Reader).collect(),
        }
    }

    /// Opens it over `files`.
    pub(super) fn open(self, files: &[PathBuf]) -> Result<Arc<dyn RecordReader>, Failure> {
        match self {
            Self::Reader(kind) => {
                let reader = open_reader(kind, files);
                Ok(Arc::new(Single(reader.map_err(|source| Failure::Reader { source })?)))
            }
            Self::Model(throttle) => Ok(Arc::new(Throttled::new(Nothing, throttle))),
        }
    }

    /// Whether the system may fetch more than was asked for.
    pub(super) const fn reads_ahead(self) -> bool {
        !matches!(self, Self::Model(_) | Self::Reader(ReaderKind::Direct | ReaderKind::Uring))
    }

    /// Whether there is a disk behind it.
    pub(super) const fn fetches(self) -> bool {
        matches!(self, Self::Reader(_))
    }
}

impl fmt::Display for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Reader(kind) => kind.fmt(f),
            Self::Model(_) => f.pad("simulated"),
        }
    }
}

/// Takes one read at a time from a lane, so that there are as many at once as lanes, whatever a
/// reader would take together.
#[derive(Debug)]
struct Single(Arc<dyn RecordReader>);

impl RecordReader for Single {
    fn read_exact_at(&self, extent: &Extent, buffer: &mut [u8]) -> Result<(), ReadError> {
        self.0.read_exact_at(extent, buffer)
    }

    fn effective(&self) -> ReaderMode {
        self.0.effective()
    }

    fn issued_len(&self, extent: &Extent) -> u64 {
        self.0.issued_len(extent)
    }

    fn path(&self, file: FileId) -> Option<&Path> {
        self.0.path(file)
    }
}

/// Brings nothing, at once: a disk moves bytes without the processor, so a model of one that copied
/// them would show the speed of memory.
#[derive(Debug)]
struct Nothing;

impl RecordReader for Nothing {
    fn read_exact_at(&self, _: &Extent, _: &mut [u8]) -> Result<(), ReadError> {
        Ok(())
    }

    fn effective(&self) -> ReaderMode {
        ReaderMode::new("simulated", "the model of a disk, which moves no bytes")
    }

    fn path(&self, _: FileId) -> Option<&Path> {
        None
    }
}

/// Why a text is no model of a disk.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "expected apple, or latency=TIME,gbs=N,deep=N with TIME in ns, us or ms, 10000ms at most, and N \
     from 0.001 to 1000"
)]
pub(super) struct NotAModel;

/// `apple`, or `latency=53us,gbs=11.57,deep=17.3` in any order; without `deep` reads together are
/// no faster than one.
pub(super) fn parse_throttle(text: &str) -> Result<Throttle, NotAModel> {
    if text == "apple" {
        return Ok(Throttle::APPLE_SSD);
    }
    let (mut latency, mut alone, mut deep) = (None, None, None);
    for part in text.split(',') {
        let (key, value) = part.split_once('=').ok_or(NotAModel)?;
        let known = match key {
            "latency" => latency.replace(time(value)?).is_some(),
            "gbs" => alone.replace(rate(value)?).is_some(),
            "deep" => deep.replace(rate(value)?).is_some(),
            _ => true,
        };
        if known {
            return Err(NotAModel);
        }
    }
    let (latency, alone) = latency.zip(alone).ok_or(NotAModel)?;
    let gain = deep.map_or(1.0, |deep| deep / alone);
    Ok(Throttle::new(latency, alone * 1e9).with_queue_gain(gain))
}

fn rate(text: &str) -> Result<f64, NotAModel> {
    text.parse().ok().filter(|n: &f64| (0.001..=1000.0).contains(n)).ok_or(NotAModel)
}

fn time(text: &str) -> Result<Duration, NotAModel> {
    const UNITS: [(&str, f64); 3] = [("ns", 1e-9), ("us", 1e-6), ("ms", 1e-3)];
    let found = UNITS.iter().find_map(|(unit, s)| Some((text.strip_suffix(unit)?, *s)));
    let (number, unit) = found.ok_or(NotAModel)?;
    let number: f64 = number.parse().map_err(|_| NotAModel)?;
    // A model that waits for minutes is a mistake.
    let seconds = number * unit;
    (0.0..=10.0).contains(&seconds).then(|| Duration::from_secs_f64(seconds)).ok_or(NotAModel)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn models_of_disks_by_name_and_by_number() {
        assert_eq!(parse_throttle("apple"), Ok(Throttle::APPLE_SSD));
        let slow = Throttle::new(Duration::from_millis(2), 0.5e9);
        assert_eq!(parse_throttle("gbs=0.5,latency=2ms"), Ok(slow));
        let spelt = parse_throttle("latency=53.5us,gbs=11.5,deep=17.25");
        let fast = Throttle::new(Duration::from_nanos(53_500), 11.5e9);
        assert_eq!(spelt, Ok(fast.with_queue_gain(1.5)));
        for wrong in [
            "",
            "fast",
            "latency=1us",
            "gbs=1",
            "latency=1,gbs=1",
            "latency=-1us,gbs=1",
            "latency=NaNus,gbs=1",
            "latency=1us,gbs=0",
            "latency=1us,gbs=1e-300,deep=1e-300",
            "latency=1us,gbs=1e308",
            "latency=1us,gbs=1,deep=1001",
            "latency=10001ms,gbs=1",
            "latency=1us,gbs=inf",
            "latency=1us,gbs=1,gbs=2",
            "latency=1us,gbs=1,wide=2",
            "latency=1us,gbs=1,",
        ] {
            assert_eq!(parse_throttle(wrong), Err(NotAModel), "{wrong}");
        }
    }
}
