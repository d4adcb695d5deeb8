//! What can be wrong with a session's file.

use std::io;
use std::path::{Path, PathBuf};

use slotstream_core::ErrorKind;

/// Why a session's file was refused, or could not be written. Every variant names the file.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SessionFileError {
    /// The operating system refused.
    #[error("cannot {action} the session's file {}", path.display())]
    #[non_exhaustive]
    Io {
        /// The file or its folder.
        path: PathBuf,
        /// What was tried: `open`, `read`, `write`, ...
        action: &'static str,
        /// The system's own error.
        source: io::Error,
    },
    /// Something else stands there: a folder, a pipe, a device, a link where the file is written.
    #[error("{} is no file of its own", path.display())]
    #[non_exhaustive]
    NotAFile {
        /// Where.
        path: PathBuf,
    },
    /// A file that begins like no session's.
    #[error("{} is no session's file: it begins with {found}", path.display())]
    #[non_exhaustive]
    Magic {
        /// The file.
        path: PathBuf,
        /// Its first bytes, hexadecimal.
        found: String,
    },
    /// A version that this build does not read.
    #[error("{} has version {found}, this build reads version {known}", path.display())]
    #[non_exhaustive]
    Version {
        /// The file.
        path: PathBuf,
        /// Its version.
        found: u16,
        /// The version that is read.
        known: u16,
    },
    /// The file ends too early, or goes on behind its end.
    #[error("{} has {found} bytes, expected {expected}", path.display())]
    #[non_exhaustive]
    Length {
        /// The file.
        path: PathBuf,
        /// Its length should be.
        expected: u64,
        /// Its length.
        found: u64,
    },
    /// A field that cannot be.
    #[error("{}: {field} is {found}, expected {expected}", path.display())]
    #[non_exhaustive]
    Field {
        /// The file.
        path: PathBuf,
        /// The field.
        field: &'static str,
        /// What it may be.
        expected: String,
        /// What it is.
        found: String,
    },
    /// A section whose bytes are not those that were written.
    #[error("{}: the {section} differ from their checksum: {found:08x}, expected {expected:08x}", path.display())]
    #[non_exhaustive]
    Checksum {
        /// The file.
        path: PathBuf,
        /// The section.
        section: String,
        /// The checksum in the file.
        expected: u32,
        /// That of the bytes.
        found: u32,
    },
    /// A session of something else, which would go on with other bits.
    #[error("{} is a session of another {what}: {found}, here it is {expected}", path.display())]
    #[non_exhaustive]
    Foreign {
        /// The file.
        path: PathBuf,
        /// Of which: config, weights, tokenizer, chat template, norm form, arithmetic.
        what: &'static str,
        /// That of the engine.
        expected: String,
        /// That of the file.
        found: String,
    },
    /// A session that is longer than the context.
    #[error("{} has {tokens} tokens, the context here has {context}: plan for a longer one", path.display())]
    #[non_exhaustive]
    TooLong {
        /// The file.
        path: PathBuf,
        /// Its tokens.
        tokens: usize,
        /// Those that fit.
        context: usize,
    },
}

impl SessionFileError {
    pub(crate) fn io(path: &Path, action: &'static str, source: io::Error) -> Self {
        Self::Io { path: path.into(), action, source }
    }

    /// What the caller can do about it.
    #[must_use]
    pub fn kind(&self) -> ErrorKind {
        match self {
            Self::Io { source, .. } => match source.kind() {
                io::ErrorKind::ReadOnlyFilesystem => ErrorKind::User,
                _ => ErrorKind::of_file(source),
            },
            Self::NotAFile { .. }
            | Self::Version { .. }
            | Self::Foreign { .. }
            | Self::TooLong { .. } => ErrorKind::User,
            Self::Magic { .. }
            | Self::Length { .. }
            | Self::Field { .. }
            | Self::Checksum { .. } => ErrorKind::Corrupt,
        }
    }
}
