//! The contract of whatever brings bytes from a file.

use std::fmt;
use std::path::{Path, PathBuf};

use crate::{ErrorKind, Extent, FileId, Job};

/// Brings the bytes of an extent into a buffer. Positional, blocking, callable from any number
/// of threads at once; knows no tensors and no caching.
///
/// `FileId` is an index into the list of paths that the reader was made from.
pub trait RecordReader: Send + Sync + fmt::Debug {
    /// Fills `buffer` with the bytes of `extent`.
    ///
    /// `buffer` is as long as the extent. On an error its content is unspecified.
    ///
    /// # Errors
    /// A [`ReadError`] that carries the path, the offset, and how many bytes were wanted and got.
    fn read_exact_at(&self, extent: &Extent, buffer: &mut [u8]) -> Result<(), ReadError>;

    /// Reads several extents and calls `landed(i, result)` once for each as it completes, in any
    /// order.
    fn read_batch(
        &self,
        requests: &mut [ReadRequest<'_>],
        landed: &mut dyn FnMut(usize, Result<(), ReadError>),
    ) {
        for (i, request) in requests.iter_mut().enumerate() {
            landed(i, self.read_exact_at(&request.extent, request.buffer));
        }
    }

    /// How many reads one call of [`read_jobs`](Self::read_jobs) keeps in flight, 1 at least: how
    /// many jobs it is worth to hand over at once. Asked once, when a queue is made.
    fn batch_depth(&self) -> usize {
        1
    }

    /// Reads several owned jobs and ends each with [`Job::complete`] as soon as its read has
    /// ended, in any order; returns when all have ended. The jobs are taken to begin at the call.
    ///
    /// Not a [`read_batch`](Self::read_batch) over borrowed buffers: a buffer goes back to its
    /// owner while others are still being written to, so the reader must own it until then. A
    /// reader whose `batch_depth` is 1 need not provide it.
    fn read_jobs(&self, jobs: Vec<Job>) {
        for mut job in jobs {
            let extent = *job.extent();
            let buffer = job.buffer();
            let result = if buffer.len() as u64 == extent.len() {
                self.read_exact_at(&extent, buffer)
            } else {
                Err(ReadError::buffer_length(&extent, buffer.len()))
            };
            job.complete(result);
        }
    }

    /// What the reader likes its memory, offsets and lengths to be multiples of. Other requests
    /// are served too, through a bounce buffer.
    fn alignment(&self) -> Alignment {
        Alignment::NONE
    }

    /// What the reader really does, as opposed to what it was asked to do.
    fn effective(&self) -> ReaderMode;

    /// Bytes that a read of `extent` moves, widening to alignment included.
    fn issued_len(&self, extent: &Extent) -> u64 {
        extent.len()
    }

    /// A hint about future reads. May be ignored.
    fn advise(&self, extent: &Extent, advice: Advice) {
        let _ = (extent, advice);
    }

    /// Whether every file is still the one that was opened: its size, its modification time, and
    /// what its path leads to. Reads no data. The engine calls it after each pass, before it gives
    /// out what the pass computed, so it should cost microseconds. A reader whose bytes cannot
    /// change has nothing to check.
    ///
    /// # Errors
    /// [`ReadError::Changed`] for the first file that differs, with its path and what differs.
    fn check_unchanged(&self) -> Result<(), ReadError> {
        Ok(())
    }

    /// Bytes that a file had when it was opened; `None` when there is no such file, or when the
    /// reader does not know.
    fn file_len(&self, file: FileId) -> Option<u64> {
        let _ = file;
        None
    }

    /// Memory that the reader holds at most, besides the buffers it is lent: bounce buffers, or
    /// the files themselves. For a memory plan. 0 for a reader that holds a few words.
    fn held_bytes(&self) -> u64 {
        0
    }

    /// The path behind a file number, for messages; `None` when there is no such file.
    fn path(&self, file: FileId) -> Option<&Path>;
}

macro_rules! forward_reader {
    ($($wrapper:ty),+) => {$(
        impl<R: RecordReader + ?Sized> RecordReader for $wrapper {
            fn read_exact_at(&self, extent: &Extent, buffer: &mut [u8]) -> Result<(), ReadError> {
                (**self).read_exact_at(extent, buffer)
            }
            fn read_batch(
                &self,
                requests: &mut [ReadRequest<'_>],
                landed: &mut dyn FnMut(usize, Result<(), ReadError>),
            ) {
                (**self).read_batch(requests, landed);
            }
            fn batch_depth(&self) -> usize {
                (**self).batch_depth()
            }
            fn read_jobs(&self, jobs: Vec<Job>) {
                (**self).read_jobs(jobs);
            }
            fn alignment(&self) -> Alignment {
                (**self).alignment()
            }
            fn effective(&self) -> ReaderMode {
                (**self).effective()
            }
            fn issued_len(&self, extent: &Extent) -> u64 {
                (**self).issued_len(extent)
            }
            fn advise(&self, extent: &Extent, advice: Advice) {
                (**self).advise(extent, advice);
            }
            fn check_unchanged(&self) -> Result<(), ReadError> {
                (**self).check_unchanged()
            }
            fn file_len(&self, file: FileId) -> Option<u64> {
                (**self).file_len(file)
            }
            fn held_bytes(&self) -> u64 {
                (**self).held_bytes()
            }
            fn path(&self, file: FileId) -> Option<&Path> {
                (**self).path(file)
            }
        }
    )+};
}

forward_reader!(&R, Box<R>, std::sync::Arc<R>);

/// One read of a batch.
#[derive(Debug)]
#[expect(clippy::exhaustive_structs, reason = "a read is an extent and its destination")]
pub struct ReadRequest<'a> {
    /// What to read.
    pub extent: Extent,
    /// Where to put it; as long as the extent.
    pub buffer: &'a mut [u8],
}

/// Powers of two that a reader likes its requests to be multiples of.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[expect(clippy::exhaustive_structs, reason = "a request has exactly these three quantities")]
pub struct Alignment {
    /// Of the buffer's address.
    pub memory: usize,
    /// Of the offset in the file.
    pub offset: u64,
    /// Of the length.
    pub length: u64,
}

impl Alignment {
    /// No preference.
    pub const NONE: Self = Self { memory: 1, offset: 1, length: 1 };
}

/// What a reader really does.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub struct ReaderMode {
    /// A short word: `buffered`, `uncached`, `memory`, ...
    pub name: String,
    /// Why it is so: the request, or the refusal that made it fall back.
    pub why: String,
}

impl ReaderMode {
    /// A mode and its reason.
    #[must_use]
    pub fn new(name: impl Into<String>, why: impl Into<String>) -> Self {
        Self { name: name.into(), why: why.into() }
    }
}

/// A hint about future reads of an extent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Advice {
    /// It will be read soon.
    WillNeed,
    /// It will not be read again soon.
    DontNeed,
    /// Reads will be scattered: read nothing ahead.
    Random,
    /// Reads will go forward: reading ahead pays.
    Sequential,
}

/// A read that did not bring all its bytes.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ReadError {
    /// The operating system refused.
    #[error("reading {wanted} bytes at offset {offset} of {} failed after {got} bytes", path.display())]
    #[non_exhaustive]
    Io {
        /// The file.
        path: PathBuf,
        /// First byte of the request.
        offset: u64,
        /// Length of the request.
        wanted: u64,
        /// Bytes that had arrived.
        got: u64,
        /// The system's own error.
        source: std::io::Error,
    },
    /// The file ended early.
    #[error(
        "{} ends after {got} of the {wanted} bytes at offset {offset}: the file is shorter than \
         its header says; download it again",
        path.display()
    )]
    #[non_exhaustive]
    EndOfFile {
        /// The file.
        path: PathBuf,
        /// First byte of the request.
        offset: u64,
        /// Length of the request.
        wanted: u64,
        /// Bytes that had arrived.
        got: u64,
    },
    /// The file is not the one that was opened: its size, time or identity differ.
    #[error(
        "{} changed while it was open: {what}; put the former file back, or load the model again",
        path.display()
    )]
    #[non_exhaustive]
    Changed {
        /// The file.
        path: PathBuf,
        /// What differs, with both values.
        what: String,
    },
    /// Two copies of a file hold different bytes, and nobody knows which are right.
    #[error(
        "{} is no copy of {}: {what}; one of them is damaged: copy it or make it again, or leave \
         the copy out of the mirror",
        other.display(),
        first.display()
    )]
    #[non_exhaustive]
    CopiesDiffer {
        /// The file of one copy.
        first: Box<Path>,
        /// The file of another copy.
        other: Box<Path>,
        /// What differs, with both values.
        what: Box<str>,
    },
    /// The bytes are not those that the file's own checksum is of.
    #[error(
        "{}: the {wanted} bytes at offset {offset} have checksum {found:08x}, expected \
         {expected:08x}: the file or the disk is damaged; make the container again with `repack \
         --replace`, after `inspect --sha256` has compared the model",
        path.display()
    )]
    #[non_exhaustive]
    Checksum {
        /// The file.
        path: PathBuf,
        /// First byte under the checksum.
        offset: u64,
        /// Bytes under it.
        wanted: u64,
        /// The CRC-32 that there should be.
        expected: u32,
        /// That of the bytes.
        found: u32,
    },
    /// A file number that the reader does not have.
    #[error("{file} was asked for, the reader has {files} files")]
    #[non_exhaustive]
    UnknownFile {
        /// The number asked for.
        file: FileId,
        /// How many files there are.
        files: usize,
    },
    /// The buffer is not as long as the extent.
    #[error("a buffer of {got} bytes for {wanted} bytes at offset {offset} of {file}")]
    #[non_exhaustive]
    BufferLength {
        /// The file.
        file: FileId,
        /// First byte of the request.
        offset: u64,
        /// Length of the extent.
        wanted: u64,
        /// Length of the buffer.
        got: u64,
    },
    /// The caller cancelled before the read began.
    #[error("the read of {wanted} bytes at offset {offset} of {file} was cancelled")]
    #[non_exhaustive]
    Cancelled {
        /// The file.
        file: FileId,
        /// First byte of the request.
        offset: u64,
        /// Length of the request.
        wanted: u64,
    },
    /// The queue was shut down before the read began.
    #[error(
        "the read queue was shut down before {wanted} bytes at offset {offset} of {file} were read"
    )]
    #[non_exhaustive]
    Closed {
        /// The file.
        file: FileId,
        /// First byte of the request.
        offset: u64,
        /// Length of the request.
        wanted: u64,
    },
    /// A reader of somebody else failed in its own way.
    #[error("reading {wanted} bytes at offset {offset} of {file} failed")]
    #[non_exhaustive]
    Other {
        /// The file.
        file: FileId,
        /// First byte of the request.
        offset: u64,
        /// Length of the request.
        wanted: u64,
        /// The reader's own error.
        source: Box<dyn std::error::Error + Send + Sync>,
    },
}

impl ReadError {
    /// The operating system refused `wanted` bytes at `offset`, after `got` bytes.
    #[must_use]
    pub fn io(path: &Path, extent: &Extent, got: u64, source: std::io::Error) -> Self {
        let (offset, wanted) = (extent.offset(), extent.len());
        Self::Io { path: path.into(), offset, wanted, got, source }
    }

    /// The file ended `got` bytes into `extent`.
    #[must_use]
    pub fn end_of_file(path: &Path, extent: &Extent, got: u64) -> Self {
        Self::EndOfFile { path: path.into(), offset: extent.offset(), wanted: extent.len(), got }
    }

    /// The file at `path` is not the one that was opened.
    #[must_use]
    pub fn changed(path: &Path, what: impl Into<String>) -> Self {
        Self::Changed { path: path.into(), what: what.into() }
    }

    /// The file at `other` is not a copy of that at `first`.
    #[must_use]
    pub fn copies_differ(first: &Path, other: &Path, what: impl Into<Box<str>>) -> Self {
        Self::CopiesDiffer { first: first.into(), other: other.into(), what: what.into() }
    }

    /// The bytes of `extent` have the CRC-32 `found`.
    #[must_use]
    pub fn checksum(path: &Path, extent: &Extent, expected: u32, found: u32) -> Self {
        let (offset, wanted) = (extent.offset(), extent.len());
        Self::Checksum { path: path.into(), offset, wanted, expected, found }
    }

    /// The reader has only `files` files.
    #[must_use]
    pub fn unknown_file(file: FileId, files: usize) -> Self {
        Self::UnknownFile { file, files }
    }

    /// The buffer holds `got` bytes instead of the extent's length.
    #[must_use]
    pub fn buffer_length(extent: &Extent, got: usize) -> Self {
        let (file, offset, wanted) = (extent.file(), extent.offset(), extent.len());
        Self::BufferLength { file, offset, wanted, got: got as u64 }
    }

    /// The caller cancelled before the read began.
    #[must_use]
    pub fn cancelled(extent: &Extent) -> Self {
        let (file, offset, wanted) = (extent.file(), extent.offset(), extent.len());
        Self::Cancelled { file, offset, wanted }
    }

    /// The queue was shut down before the read began.
    #[must_use]
    pub fn closed(extent: &Extent) -> Self {
        let (file, offset, wanted) = (extent.file(), extent.offset(), extent.len());
        Self::Closed { file, offset, wanted }
    }

    /// A reader of somebody else failed in its own way.
    #[must_use]
    pub fn other(
        extent: &Extent,
        source: impl Into<Box<dyn std::error::Error + Send + Sync>>,
    ) -> Self {
        let (file, offset, wanted) = (extent.file(), extent.offset(), extent.len());
        Self::Other { file, offset, wanted, source: source.into() }
    }

    /// What the caller can do about it.
    #[must_use]
    pub fn kind(&self) -> ErrorKind {
        match self {
            Self::Io { source, .. } if source.kind() == std::io::ErrorKind::PermissionDenied => {
                ErrorKind::User
            }
            Self::Io { .. } | Self::Other { .. } => ErrorKind::Transient,
            Self::EndOfFile { .. }
            | Self::Changed { .. }
            | Self::CopiesDiffer { .. }
            | Self::Checksum { .. } => ErrorKind::Corrupt,
            Self::Cancelled { .. } | Self::Closed { .. } => ErrorKind::Cancelled,
            Self::UnknownFile { .. } | Self::BufferLength { .. } => ErrorKind::Bug,
        }
    }
}
