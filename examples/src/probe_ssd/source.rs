//! Where bytes come from: a reader of files, or the model of a disk.

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use slotstream_core::{CancelToken, Extent, FileId, ReadError, ReaderMode, RecordReader};
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
    pub(super) fn open(
        self,
        files: &[PathBuf],
        cancel: &CancelToken,
    ) -> Result<Arc<dyn RecordReader>, Failure> {
        match self {
            Self::Reader(kind) => {
                let reader = open_reader(kind, files);
                Ok(Arc::new(Single(reader.map_err(|source| Failure::Reader { source })?)))
            }
            Self::Model(throttle) => {
                Ok(Arc::new(Throttled::new(Nothing, throttle).woken_by(cancel.clone())))
            }
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
