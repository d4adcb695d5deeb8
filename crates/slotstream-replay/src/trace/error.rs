//! What can be wrong with a trace.

use std::io;
use std::path::{Path, PathBuf};

use slotstream_cache::{CacheError, PolicyNameError};
use slotstream_core::ErrorKind;

/// A trace that cannot be read, written or replayed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TraceError {
    /// The system failed.
    #[error("{}: {doing} failed at byte {offset}", path.display())]
    #[non_exhaustive]
    Io {
        /// The file.
        path: PathBuf,
        /// What was being done.
        doing: &'static str,
        /// Bytes done before.
        offset: u64,
        /// Why.
        source: io::Error,
    },
    /// Bytes of no format that is known here.
    #[error(
        "{}: begins with {found}: expected a recorded trace, a CSV or JSONL table, a text trace, \
         oracleGeneral records of 24 bytes, or one key a line, which has to be asked for",
        path.display()
    )]
    #[non_exhaustive]
    UnknownFormat {
        /// The file.
        path: PathBuf,
        /// Its first bytes.
        found: String,
    },
    /// Something else where only what a run recorded will do.
    #[error("{}: begins with {found}: expected a trace that a run recorded (`--trace`)", path.display())]
    #[non_exhaustive]
    NotRecorded {
        /// The file.
        path: PathBuf,
        /// Its first bytes.
        found: String,
    },
    /// A trace of a version that this build does not read.
    #[error(
        "{}: trace format version {found}: this build reads version {known}; use the slotstream \
         that recorded it",
        path.display()
    )]
    #[non_exhaustive]
    Version {
        /// The file.
        path: PathBuf,
        /// The version in the file.
        found: u16,
        /// The version that is read.
        known: u16,
    },
    /// A field of a trace that cannot be.
    #[error(
        "{}: byte {offset}, {}: {field}: expected {expected}, found {found}; what lies before the \
         block can be read leniently",
        path.display(),
        place(*block)
    )]
    #[non_exhaustive]
    Field {
        /// The file.
        path: PathBuf,
        /// Where the field begins.
        offset: u64,
        /// Number of the block; `None` for the header.
        block: Option<u64>,
        /// The field.
        field: &'static str,
        /// What would be legal.
        expected: String,
        /// What is there.
        found: String,
    },
    /// A header or a block that is not what was written.
    #[error(
        "{}: byte {offset}, {}: damaged: expected checksum {expected:08x}, found {found:08x}; \
         what lies before it can be read leniently",
        path.display(),
        place(*block)
    )]
    #[non_exhaustive]
    Checksum {
        /// The file.
        path: PathBuf,
        /// Where the bytes begin.
        offset: u64,
        /// Number of the block; `None` for the header.
        block: Option<u64>,
        /// The checksum in the file.
        expected: u32,
        /// That of the bytes.
        found: u32,
    },
    /// A file that stops before its end mark.
    #[error(
        "{}: the recording ended without its end mark, at byte {offset} in {}: {passes} whole \
         passes are readable, leniently",
        path.display(),
        place(*block)
    )]
    #[non_exhaustive]
    Truncated {
        /// The file.
        path: PathBuf,
        /// Its length.
        offset: u64,
        /// Number of the block that is missing or incomplete; `None` for the header.
        block: Option<u64>,
        /// Passes that are there from begin to end.
        passes: u64,
    },
    /// A line of a text that cannot be.
    #[error("{}: line {line}: {field}: expected {expected}, found {found:?}", path.display())]
    #[non_exhaustive]
    Line {
        /// The file.
        path: PathBuf,
        /// Number of the line, from 1; of a binary table, of the record.
        line: u64,
        /// The column or field.
        field: String,
        /// What would be legal.
        expected: String,
        /// What is there, shortened.
        found: String,
    },
    /// More records than a pool keeps a table for.
    #[error("{}: {records} different keys: a pool takes at most {most}", path.display())]
    #[non_exhaustive]
    TooManyKeys {
        /// The file.
        path: PathBuf,
        /// Different keys so far.
        records: u64,
        /// Most of them.
        most: u64,
    },
    /// A file without a request.
    #[error("{}: no request in it", path.display())]
    #[non_exhaustive]
    Empty {
        /// The file.
        path: PathBuf,
    },
    /// A writer was told something that it cannot write.
    #[error("{}: event {event} cannot be written: {what}: expected {expected}", path.display())]
    #[non_exhaustive]
    Unwritable {
        /// The file.
        path: PathBuf,
        /// Number of the event, from 0.
        event: u64,
        /// What is wrong with it.
        what: &'static str,
        /// What would be legal.
        expected: String,
    },
    /// A writer was finished before.
    #[error("{}: finished before; record into another file", path.display())]
    #[non_exhaustive]
    Finished {
        /// The file.
        path: PathBuf,
    },
    /// An exact replay that is not of this run.
    #[error(
        "event {event}: expected {expected}, found {found}: an exact replay needs the recorded \
         policy, slots and outcomes; replay the requests alone for others"
    )]
    #[non_exhaustive]
    Diverged {
        /// Number of the event, from 0; of all events, at the end.
        event: u64,
        /// What the replay's pool says.
        expected: String,
        /// What the recording says.
        found: String,
    },
    /// The recorded policy is none of the built-in ones.
    #[error("the recorded policy is no built-in one: replay with the policy itself")]
    #[non_exhaustive]
    Policy {
        /// What is wrong with its name.
        source: PolicyNameError,
    },
    /// The replay's pool or policy refused.
    #[error("event {event}: the pool of the replay refused it")]
    #[non_exhaustive]
    Pool {
        /// Number of the event, from 0.
        event: u64,
        /// Why.
        source: Box<CacheError>,
    },
}

fn place(block: Option<u64>) -> String {
    block.map_or_else(|| "header".to_owned(), |block| format!("block {block}"))
}

impl TraceError {
    pub(crate) fn io(path: &Path, doing: &'static str, offset: u64, source: io::Error) -> Self {
        Self::Io { path: path.into(), doing, offset, source }
    }

    pub(crate) fn pool(event: u64, source: CacheError) -> Self {
        Self::Pool { event, source: Box::new(source) }
    }

    /// What the caller can do about it.
    #[must_use]
    pub fn kind(&self) -> ErrorKind {
        match self {
            Self::Io { source, .. } => match source.kind() {
                io::ErrorKind::AlreadyExists => ErrorKind::User,
                io::ErrorKind::InvalidData
                | io::ErrorKind::InvalidInput
                | io::ErrorKind::UnexpectedEof => ErrorKind::Corrupt,
                _ => ErrorKind::of_file(source),
            },
            Self::UnknownFormat { .. }
            | Self::NotRecorded { .. }
            | Self::Version { .. }
            | Self::TooManyKeys { .. }
            | Self::Empty { .. }
            | Self::Finished { .. }
            | Self::Policy { .. }
            | Self::Diverged { .. } => ErrorKind::User,
            Self::Field { .. }
            | Self::Checksum { .. }
            | Self::Truncated { .. }
            | Self::Line { .. } => ErrorKind::Corrupt,
            Self::Unwritable { .. } => ErrorKind::Bug,
            Self::Pool { source, .. } => source.kind(),
        }
    }
}
