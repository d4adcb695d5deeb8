//! What the conformance suite finds.

use std::path::PathBuf;

use slotstream_core::{Alignment, ErrorKind, Extent, FileId, ReadError};

/// One way in which a reader breaks the contract of [`RecordReader`].
///
/// [`RecordReader`]: slotstream_core::RecordReader
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Violation {
    /// The suite could not write its own files: nothing is known about the reader.
    #[error("the files of the suite could not be written at {}", path.display())]
    #[non_exhaustive]
    Setup {
        /// The file or directory.
        path: PathBuf,
        /// The system's own error.
        source: std::io::Error,
    },
    /// A read succeeded with other bytes than the file has.
    #[error(
        "{case}: byte {index} of {extent:?} is {found:#04x}, the file has {expected:#04x} \
         ({wrong} bytes are wrong)"
    )]
    #[non_exhaustive]
    WrongBytes {
        /// What the suite was doing.
        case: &'static str,
        /// What was read.
        extent: Extent,
        /// The first wrong byte, from the extent's first.
        index: usize,
        /// What the file has there.
        expected: u8,
        /// What the buffer has there.
        found: u8,
        /// How many bytes are wrong.
        wrong: usize,
    },
    /// Bytes beside the buffer were written.
    #[error("{case}: reading {extent:?} wrote outside its buffer")]
    #[non_exhaustive]
    OutOfBounds {
        /// What the suite was doing.
        case: &'static str,
        /// What was read.
        extent: Extent,
    },
    /// A lawful read failed.
    #[error("{case}: reading {extent:?} failed, the file has these bytes")]
    #[non_exhaustive]
    Refused {
        /// What the suite was doing.
        case: &'static str,
        /// What was read.
        extent: Extent,
        /// The reader's error.
        source: ReadError,
    },
    /// An impossible read succeeded.
    #[error("{case}: reading {extent:?} succeeded, expected: {expected}")]
    #[non_exhaustive]
    Accepted {
        /// What the suite was doing.
        case: &'static str,
        /// What was read.
        extent: Extent,
        /// The error that should have come.
        expected: ReadError,
    },
    /// An impossible read failed in the wrong way.
    #[error("{case}: reading {extent:?} gave {found:?}, expected {expected:?}")]
    #[non_exhaustive]
    WrongError {
        /// What the suite was doing.
        case: &'static str,
        /// What was read.
        extent: Extent,
        /// The error that should have come, with its numbers.
        expected: ReadError,
        /// The error that came.
        found: ReadError,
    },
    /// A request of a batch was reported not once.
    #[error("request {index} of a batch of {requests} landed {times} times instead of once")]
    #[non_exhaustive]
    BatchCount {
        /// The request; at or above `requests` for one that was never made.
        index: usize,
        /// How many there were.
        requests: usize,
        /// How often it was reported.
        times: usize,
    },
    /// `path` names another file than the one at that place of the list, or one beyond it.
    #[error("the path of {file} is {found:?}, expected {expected:?}")]
    #[non_exhaustive]
    WrongPath {
        /// The file asked for.
        file: FileId,
        /// The path in the list.
        expected: Option<PathBuf>,
        /// The path given.
        found: Option<PathBuf>,
    },
    /// `effective` names no mode, or no reason.
    #[error("the effective mode is {name:?} because of {why:?}: neither may be empty")]
    #[non_exhaustive]
    EmptyMode {
        /// The mode's name.
        name: String,
        /// The mode's reason.
        why: String,
    },
    /// An alignment that is not made of powers of two.
    #[error("{alignment:?} is not made of powers of two")]
    #[non_exhaustive]
    OddAlignment {
        /// What the reader asked for.
        alignment: Alignment,
    },
    /// `issued_len` is below what the read must move.
    #[error("{issued} bytes issued for {extent:?}")]
    #[non_exhaustive]
    TooFewIssued {
        /// What was asked about.
        extent: Extent,
        /// The answer.
        issued: u64,
    },
    /// `check_unchanged` complains about files that nobody touched.
    #[error("check_unchanged fails although no file changed")]
    #[non_exhaustive]
    ClaimsChange {
        /// The reader's error.
        source: ReadError,
    },
    /// The reader panicked.
    #[error("{case}: the reader panicked: {message}")]
    #[non_exhaustive]
    Panicked {
        /// What the suite was doing.
        case: &'static str,
        /// The panic's text.
        message: String,
    },
}

impl Violation {
    /// [`ErrorKind::Bug`] of the reader; [`ErrorKind::Transient`] where the suite itself failed.
    #[must_use]
    pub const fn kind(&self) -> ErrorKind {
        match self {
            Self::Setup { .. } => ErrorKind::Transient,
            _ => ErrorKind::Bug,
        }
    }
}
