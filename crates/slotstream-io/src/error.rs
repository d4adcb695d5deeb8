//! What can go wrong before the first read.

use std::io;
use std::path::{Path, PathBuf};

use slotstream_core::{ErrorKind, ReadError};

use crate::ReaderKind;

/// A reader, queue or buffer that could not be made. Reads themselves fail with
/// [`ReadError`].
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum IoError {
    /// No file at this path.
    #[error(
        "{} does not exist: check the path, and whether the download of this shard finished",
        path.display()
    )]
    #[non_exhaustive]
    NotFound {
        /// The path as it was given.
        path: PathBuf,
        /// The system's own error.
        source: io::Error,
    },
    /// The file or a directory above it may not be read.
    #[error("{} may not be read: give this user read permission (chmod u+r)", path.display())]
    #[non_exhaustive]
    Denied {
        /// The path as it was given.
        path: PathBuf,
        /// The system's own error.
        source: io::Error,
    },
    /// The path leads to something that has no bytes at positions.
    #[error("{} is {found}: a reader needs the regular files of a checkpoint", path.display())]
    #[non_exhaustive]
    NotAFile {
        /// The path as it was given.
        path: PathBuf,
        /// What is there, with its article: `a directory`, `a pipe`, ...
        found: &'static str,
    },
    /// The process or the system has no file descriptor left.
    #[error(
        "no file descriptor left for {} after {opened} files were opened: raise the limit \
         (ulimit -n) or close other files",
        path.display()
    )]
    #[non_exhaustive]
    Descriptors {
        /// The file that could not be opened.
        path: PathBuf,
        /// Files that this reader had opened before it.
        opened: usize,
        /// The system's own error.
        source: io::Error,
    },
    /// The system refused to open the file, or to say what it is, for another reason.
    #[error("{} could not be opened", path.display())]
    #[non_exhaustive]
    Open {
        /// The path as it was given.
        path: PathBuf,
        /// The system's own error.
        source: io::Error,
    },
    /// More files than a reader may hold.
    #[error("{found} files for one reader, at most {limit} are allowed")]
    #[non_exhaustive]
    TooManyFiles {
        /// Number of paths given.
        found: usize,
        /// The largest number allowed.
        limit: usize,
    },
    /// A file could not be read into memory.
    #[error("loading {} into memory failed", path.display())]
    #[non_exhaustive]
    Load {
        /// The file.
        path: PathBuf,
        /// The read that failed.
        source: ReadError,
    },
    /// The progress callback asked to stop.
    #[error("loading into memory was cancelled after {loaded} of {total} bytes")]
    #[non_exhaustive]
    LoadCancelled {
        /// Bytes in memory by then.
        loaded: u64,
        /// Bytes of all files.
        total: u64,
    },
    /// The system gave no memory.
    #[error("no memory for a buffer of {bytes} bytes: use less of it, or another reader")]
    #[non_exhaustive]
    Memory {
        /// Size of the allocation.
        bytes: u64,
    },
    /// A pool of scratch pages without a page, or with pages of no bytes.
    #[error("a scratch pool of {pages} pages of {page_len} bytes: both must be at least 1")]
    #[non_exhaustive]
    EmptyPool {
        /// Number of pages asked for.
        pages: usize,
        /// Bytes of a page.
        page_len: usize,
    },
    /// A number of lanes that no queue has.
    #[error("{requested} read lanes: expected 1 to {limit}")]
    #[non_exhaustive]
    Lanes {
        /// Number of lanes asked for.
        requested: usize,
        /// The largest number allowed.
        limit: usize,
    },
    /// The system refused a thread.
    #[error("only {started} of {requested} read lanes could be started: use fewer lanes")]
    #[non_exhaustive]
    Spawn {
        /// Number of lanes asked for.
        requested: usize,
        /// Number of lanes that had started.
        started: usize,
        /// The system's own error.
        source: io::Error,
    },
    /// A mirror of nothing, or of more copies than it can hold.
    #[error("a mirror of {found} copies: expected 1 to {limit}")]
    #[non_exhaustive]
    Copies {
        /// Number of readers given.
        found: usize,
        /// The largest number allowed.
        limit: usize,
    },
    /// Two copies of a mirror do not hold the same bytes.
    #[error(
        "{} is no copy of {}: {what}; copy it again, or leave it out of the mirror",
        other.display(),
        first.display()
    )]
    #[non_exhaustive]
    CopiesDiffer {
        /// The file of the first copy.
        first: PathBuf,
        /// The file of another copy.
        other: PathBuf,
        /// What differs, with both values.
        what: String,
    },
    /// A copy of a mirror could not be read when it was compared with the others.
    #[error("comparing the copies of a mirror failed at {}", path.display())]
    #[non_exhaustive]
    CopyUnread {
        /// The file of the copy.
        path: PathBuf,
        /// The read that failed.
        source: ReadError,
    },
    /// A name that no reader has.
    #[error("there is no reader {found:?}: expected {}", ReaderKind::NAMES.join(", "))]
    #[non_exhaustive]
    ReaderName {
        /// The name as it was given.
        found: String,
    },
}

impl IoError {
    /// What the caller can do about it.
    #[must_use]
    pub fn kind(&self) -> ErrorKind {
        match self {
            Self::NotFound { .. }
            | Self::Denied { .. }
            | Self::NotAFile { .. }
            | Self::Descriptors { .. }
            | Self::TooManyFiles { .. }
            | Self::EmptyPool { .. }
            | Self::Lanes { .. }
            | Self::Copies { .. }
            | Self::ReaderName { .. } => ErrorKind::User,
            Self::Open { .. } | Self::Memory { .. } | Self::Spawn { .. } => ErrorKind::Transient,
            Self::Load { source, .. } | Self::CopyUnread { source, .. } => source.kind(),
            Self::CopiesDiffer { .. } => ErrorKind::Corrupt,
            Self::LoadCancelled { .. } => ErrorKind::Cancelled,
        }
    }

    /// Sorts what the system said when `path` was opened as the file after `opened` others.
    pub(crate) fn opening(path: &Path, opened: usize, source: io::Error) -> Self {
        let path = path.to_path_buf();
        let errno = rustix::io::Errno::from_io_error(&source);
        if matches!(errno, Some(rustix::io::Errno::MFILE | rustix::io::Errno::NFILE)) {
            return Self::Descriptors { path, opened, source };
        }
        match source.kind() {
            io::ErrorKind::NotFound => Self::NotFound { path, source },
            io::ErrorKind::PermissionDenied => Self::Denied { path, source },
            _ => Self::Open { path, source },
        }
    }
}

#[cfg(test)]
mod tests {
    use rustix::io::Errno;

    use super::*;

    /// Root may read everything, so the refusals of the system are made up here.
    #[test]
    fn system_errors_are_sorted() {
        let sorted = |errno: Errno| IoError::opening(Path::new("x.bin"), 3, errno.into());
        let denied = sorted(Errno::ACCESS);
        assert!(matches!(&denied, IoError::Denied { path, .. } if path == Path::new("x.bin")));
        assert!(denied.to_string().contains("chmod"), "{denied}");
        assert_eq!(denied.kind(), ErrorKind::User);
        assert!(matches!(sorted(Errno::NOENT), IoError::NotFound { .. }));
        for errno in [Errno::MFILE, Errno::NFILE] {
            let error = sorted(errno);
            assert!(matches!(&error, IoError::Descriptors { opened: 3, .. }));
            assert!(error.to_string().contains("ulimit -n"), "{error}");
        }
        let other = sorted(Errno::IO);
        assert!(matches!(&other, IoError::Open { .. }));
        assert_eq!(other.kind(), ErrorKind::Transient);
    }
}
