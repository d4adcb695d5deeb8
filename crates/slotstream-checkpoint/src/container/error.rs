//! What can be wrong with a container or its making.

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};

use slotstream_core::{ErrorKind, ReadError};

use super::SourceIdentity;
use crate::{Checkpoint, CheckpointError};

/// Why a container was refused, or could not be made. Every variant names the file or folder.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ContainerError {
    /// The operating system refused.
    #[error("cannot {action} {} at byte {offset}", path.display())]
    #[non_exhaustive]
    Io {
        /// The file or folder.
        path: PathBuf,
        /// What was tried: `open`, `read`, `write`, ...
        action: &'static str,
        /// First byte of what was tried; 0 where that means nothing.
        offset: u64,
        /// The system's own error.
        source: io::Error,
    },
    /// Something else stands where a file of a container is, or is to be written.
    #[error("{} is {found}, not a file of its own: remove it", path.display())]
    #[non_exhaustive]
    NotAFile {
        /// Where.
        path: PathBuf,
        /// What it is.
        found: &'static str,
    },
    /// A folder without a container.
    #[error(
        "{} holds neither experts.slots nor ngram.rows: it is not a container; make one with \
         `repack --model MODEL --out {}`",
        folder.display(), folder.display()
    )]
    #[non_exhaustive]
    NoContainer {
        /// The folder.
        folder: PathBuf,
    },
    /// A file whose making was cut off.
    #[error("{}: the container is not finished; go on with `{remedy} --resume`", path.display())]
    #[non_exhaustive]
    Unfinished {
        /// The file.
        path: PathBuf,
        /// How to go on, together with `--resume`.
        remedy: Box<RepackCommand>,
    },
    /// A file that begins like no container.
    #[error(
        "{}: begins with {found}, a container with {expected}; repack it with --replace",
        path.display()
    )]
    #[non_exhaustive]
    Magic {
        /// The file.
        path: PathBuf,
        /// Its first bytes, hexadecimal.
        found: String,
        /// The magic, hexadecimal.
        expected: String,
    },
    /// A container of a version that this build does not read.
    #[error(
        "{}: container version {found}, this build reads version {known}: repack with this build",
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
    /// A file that is shorter or longer than its header says.
    #[error(
        "{} has {found} bytes, expected {expected}: it was cut off or added to; repack it",
        path.display()
    )]
    #[non_exhaustive]
    Length {
        /// The file.
        path: PathBuf,
        /// Bytes that there should be.
        expected: u64,
        /// Bytes that there are.
        found: u64,
    },
    /// A header or table that is not what was written.
    #[error(
        "{}: the {what} at byte {offset} is damaged: expected checksum {expected:08x}, found \
         {found:08x}; repack it",
        path.display()
    )]
    #[non_exhaustive]
    Checksum {
        /// The file.
        path: PathBuf,
        /// `header` or `checksum table`.
        what: &'static str,
        /// Where its bytes begin.
        offset: u64,
        /// The checksum in the file.
        expected: u32,
        /// That of the bytes.
        found: u32,
    },
    /// A field of the header that cannot be.
    #[error(
        "{}: byte {offset}: {field}: expected {expected}, found {found}; repack it",
        path.display()
    )]
    #[non_exhaustive]
    Field {
        /// The file.
        path: PathBuf,
        /// Where the field begins.
        offset: u64,
        /// The field.
        field: &'static str,
        /// What would be legal.
        expected: String,
        /// What is there.
        found: String,
    },
    /// A container of another source than this checkpoint, as it is now.
    #[error(
        "{} is stale: {}: expected {}, made from {}; make it again with `{remedy}`",
        path.display(), difference.what, difference.expected, difference.found
    )]
    #[non_exhaustive]
    Stale {
        /// The file.
        path: PathBuf,
        /// What differs.
        difference: Box<Difference>,
        /// How to make it again.
        remedy: Box<RepackCommand>,
    },
    /// A file that was made from other weights stands where one was to be written.
    #[error(
        "{} was made from other weights: {}: expected {}, found {}; this checkpoint has {expected}, \
         the file is of {found}; write to another folder, or replace it with --replace",
        path.display(), difference.what, difference.expected, difference.found
    )]
    #[non_exhaustive]
    OtherModel {
        /// The file.
        path: PathBuf,
        /// The first thing that differs.
        difference: Box<Difference>,
        /// The checkpoint that was to be repacked.
        expected: Box<SourceIdentity>,
        /// The one that the file was made from.
        found: Box<SourceIdentity>,
    },
    /// A file that this build cannot read stands where one was to be written.
    #[error(
        "{} is not written over: whose it is cannot be read; remove it, or replace it with --replace",
        path.display()
    )]
    #[non_exhaustive]
    Foreign {
        /// The file.
        path: PathBuf,
        /// [`Self::Magic`] or [`Self::Version`].
        source: Box<Self>,
    },
    /// The checkpoint changed while it was repacked.
    #[error("{}: {what} changed while it was repacked; repack it again", folder.display())]
    #[non_exhaustive]
    SourceChanged {
        /// The checkpoint's folder.
        folder: PathBuf,
        /// Which file or property.
        what: String,
    },
    /// Bytes of a container that differ from those of the checkpoint.
    #[error(
        "{}: {what}: byte {offset} is {found:#04x}, expected {expected:#04x} as in {origin}; \
         repack it with --replace",
        path.display()
    )]
    #[non_exhaustive]
    Differs {
        /// The file.
        path: PathBuf,
        /// The record or row, and the piece.
        what: String,
        /// The first byte that differs.
        offset: u64,
        /// The byte that there should be.
        expected: u8,
        /// The byte that is there.
        found: u8,
        /// Where the right byte stands.
        origin: String,
    },
    /// A checksum of the table that is not that of the source's bytes.
    #[error(
        "{}: the checksum of {what}, at byte {offset}, is {found:08x}, expected {expected:08x}; \
         repack it",
        path.display()
    )]
    #[non_exhaustive]
    TableEntry {
        /// The file.
        path: PathBuf,
        /// The record or the rows.
        what: String,
        /// Where the checksum stands.
        offset: u64,
        /// The checksum of the source's bytes.
        expected: u32,
        /// The checksum in the table.
        found: u32,
    },
    /// A model without an n-gram table was to be given `ngram.rows`.
    #[error("{}: the model has no n-gram table to repack", folder.display())]
    #[non_exhaustive]
    NoNgram {
        /// The checkpoint's folder.
        folder: PathBuf,
    },
    /// A disk without enough room.
    #[error("{} has {free} bytes free and {needed} are needed", folder.display())]
    #[non_exhaustive]
    Space {
        /// The container's folder.
        folder: PathBuf,
        /// Bytes needed.
        needed: u64,
        /// Bytes free.
        free: u64,
    },
    /// The unfinished file of an earlier run is there.
    #[error(
        "{}: an earlier run was not finished: go on with --resume, or begin anew with --replace",
        path.display()
    )]
    #[non_exhaustive]
    PartExists {
        /// The file.
        path: PathBuf,
    },
    /// Another process writes the same file.
    #[error("{}: another process is writing it", path.display())]
    #[non_exhaustive]
    Busy {
        /// The file.
        path: PathBuf,
    },
    /// Reading a record or row of the source, or of the container, failed.
    #[error("reading {what} failed")]
    #[non_exhaustive]
    Read {
        /// The record, the rows or the file.
        what: String,
        /// The reader's error.
        source: ReadError,
    },
    /// The caller cancelled.
    #[error("{}: cancelled after {done} of {total} bytes", path.display())]
    #[non_exhaustive]
    Cancelled {
        /// The file that was being written or verified.
        path: PathBuf,
        /// Bytes done.
        done: u64,
        /// Bytes that there are to do.
        total: u64,
    },
    /// A number of the container that makes no extent, or a file of the checkpoint that is gone.
    #[error("{}: the checkpoint cannot be read again", folder.display())]
    #[non_exhaustive]
    Source {
        /// The checkpoint's folder.
        folder: PathBuf,
        /// What is wrong with it.
        source: Box<CheckpointError>,
    },
}

/// In what the checkpoint differs from the one that a container was made from.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Difference {
    /// Which file or property of the checkpoint.
    pub what: String,
    /// What the checkpoint has.
    pub expected: String,
    /// What the container was made from.
    pub found: String,
}

/// The command that makes a container; shown as one types it.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct RepackCommand {
    /// The checkpoint's folder.
    pub model: PathBuf,
    /// The container's folder.
    pub out: PathBuf,
    /// Whether it has to be told to replace what is there: a container of other weights.
    pub replace: bool,
}

impl RepackCommand {
    pub(super) fn new(checkpoint: &Checkpoint, out: &Path) -> Box<Self> {
        Box::new(Self { model: checkpoint.folder().into(), out: out.into(), replace: false })
    }
}

impl fmt::Display for RepackCommand {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "repack --model {} --out {}", self.model.display(), self.out.display())?;
        if self.replace { f.write_str(" --replace") } else { Ok(()) }
    }
}

impl ContainerError {
    pub(crate) fn io(path: &Path, action: &'static str, offset: u64, source: io::Error) -> Self {
        Self::Io { path: path.into(), action, offset, source }
    }

    /// What the caller can do about it.
    #[must_use]
    pub fn kind(&self) -> ErrorKind {
        match self {
            Self::Io { source, .. } => match source.kind() {
                io::ErrorKind::AlreadyExists => ErrorKind::User,
                io::ErrorKind::UnexpectedEof => ErrorKind::Corrupt,
                _ => ErrorKind::of_file(source),
            },
            Self::Read { source, .. } => source.kind(),
            Self::Source { source, .. } => source.kind(),
            Self::NotAFile { .. }
            | Self::NoContainer { .. }
            | Self::Unfinished { .. }
            | Self::Version { .. }
            | Self::Stale { .. }
            | Self::OtherModel { .. }
            | Self::Foreign { .. }
            | Self::NoNgram { .. }
            | Self::Space { .. }
            | Self::PartExists { .. } => ErrorKind::User,
            Self::Busy { .. } | Self::SourceChanged { .. } => ErrorKind::Transient,
            Self::Cancelled { .. } => ErrorKind::Cancelled,
            Self::Magic { .. }
            | Self::Length { .. }
            | Self::Checksum { .. }
            | Self::Field { .. }
            | Self::Differs { .. }
            | Self::TableEntry { .. } => ErrorKind::Corrupt,
        }
    }
}
