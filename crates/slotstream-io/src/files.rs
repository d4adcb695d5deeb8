//! Open files and what they were when they were opened.

use std::fmt;
use std::fs::{File, Metadata};
use std::io;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};

use rustix::fs::{Mode, OFlags};
use slotstream_core::{Extent, ReadError};

use crate::IoError;
use crate::errno::errno_name;
use crate::retry::{Stop, read_full};

/// A [`slotstream_core::FileId`] has 16 bits.
pub(crate) const MAX_FILES: usize = 1 << 16;

/// A regular file, open for reading.
#[derive(Debug)]
pub(crate) struct OpenFile {
    pub(crate) file: File,
    pub(crate) path: PathBuf,
    identity: Identity,
}

impl OpenFile {
    /// Opens `path`, the file after `opened` others.
    pub(crate) fn open(path: &Path, opened: usize) -> Result<Self, IoError> {
        let refuse = |source| IoError::opening(path, opened, source);
        // NONBLOCK: opening a pipe would wait for its writer. It means nothing to regular files
        // and is taken back below.
        let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NONBLOCK;
        let file = loop {
            match rustix::fs::open(path, flags, Mode::empty()) {
                Ok(descriptor) => break File::from(descriptor),
                Err(rustix::io::Errno::INTR) => {}
                Err(errno) => return Err(refuse(errno.into())),
            }
        };
        let metadata = file.metadata().map_err(refuse)?;
        if !metadata.is_file() {
            let found = describe(&metadata);
            return Err(IoError::NotAFile { path: path.into(), found });
        }
        rustix::fs::fcntl_setfl(&file, OFlags::empty()).map_err(|errno| refuse(errno.into()))?;
        Ok(Self { file, path: path.into(), identity: Identity::of(&metadata) })
    }

    /// Opens every path, in order.
    pub(crate) fn open_all(paths: &[PathBuf], limit: usize) -> Result<Vec<Self>, IoError> {
        let limit = limit.min(MAX_FILES);
        if paths.len() > limit {
            return Err(IoError::TooManyFiles { found: paths.len(), limit });
        }
        paths.iter().enumerate().map(|(i, path)| Self::open(path, i)).collect()
    }

    /// Bytes when it was opened.
    pub(crate) const fn size(&self) -> u64 {
        self.identity.size
    }

    /// Compares the open file, and whatever the path leads to now, with what was opened.
    pub(crate) fn check_unchanged(&self) -> Result<(), ReadError> {
        let changed = |what: String| ReadError::changed(&self.path, what);
        let now = self.file.metadata().map_err(|error| {
            changed(format!("the open file can no longer be examined ({})", errno_name(&error)))
        })?;
        self.identity.same_as(&Identity::of(&now)).map_err(changed)?;
        let there = std::fs::metadata(&self.path).map_err(|error| {
            changed(format!("the path no longer leads to it ({})", errno_name(&error)))
        })?;
        self.identity.same_as(&Identity::of(&there)).map_err(changed)
    }

    /// Reads through the descriptor as it is: through the page cache.
    pub(crate) fn read_plain(&self, extent: &Extent, buffer: &mut [u8]) -> Result<(), ReadError> {
        read_full(buffer, extent.offset(), |rest, at| self.pread(rest, at))
            .map_err(|stop| self.stopped(extent, stop))
    }

    /// One read of the system.
    pub(crate) fn pread(&self, buffer: &mut [u8], at: u64) -> io::Result<usize> {
        rustix::io::pread(&self.file, buffer, at).map_err(io::Error::from)
    }

    /// The error of a read that ended before its buffer was full.
    pub(crate) fn stopped(&self, extent: &Extent, stop: Stop) -> ReadError {
        match stop {
            Stop::End { got } => self.ended_early(extent, got),
            Stop::Failed { got, source } => ReadError::io(&self.path, extent, got, source),
        }
    }

    /// Whether `other` is open on the same file, unchanged.
    pub(crate) fn is_also(&self, other: &File) -> io::Result<bool> {
        Ok(Identity::of(&other.metadata()?) == self.identity)
    }

    /// The error of a read that met the end of the file `got` bytes into `extent`, although the
    /// file was long enough when it was opened.
    pub(crate) fn ended_early(&self, extent: &Extent, got: u64) -> ReadError {
        let then = self.identity.size;
        match self.file.metadata() {
            Ok(metadata) if metadata.len() != then => ReadError::changed(
                &self.path,
                format!(
                    "it had {then} bytes when it was opened and was truncated to {} since",
                    metadata.len()
                ),
            ),
            _ => ReadError::end_of_file(&self.path, extent, got),
        }
    }
}

/// The file of `extent`, once the request itself is found to be in order.
pub(crate) fn requested<'a>(
    files: &'a [OpenFile],
    extent: &Extent,
    buffer: &[u8],
) -> Result<&'a OpenFile, ReadError> {
    let file = files
        .get(extent.file().index())
        .ok_or_else(|| ReadError::unknown_file(extent.file(), files.len()))?;
    check_request(&file.path, file.size(), extent, buffer)?;
    Ok(file)
}

/// Refuses a buffer of another length, and an extent beyond the `size` bytes of the file.
pub(crate) fn check_request(
    path: &Path,
    size: u64,
    extent: &Extent,
    buffer: &[u8],
) -> Result<(), ReadError> {
    if buffer.len() as u64 != extent.len() {
        return Err(ReadError::buffer_length(extent, buffer.len()));
    }
    if !extent.is_empty() && extent.end() > size {
        let there = size.saturating_sub(extent.offset());
        return Err(ReadError::end_of_file(path, extent, there));
    }
    Ok(())
}

/// What makes a file the one that was opened.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Identity {
    device: u64,
    inode: u64,
    size: u64,
    /// Seconds and nanoseconds.
    modified: (i64, i64),
}

impl Identity {
    fn of(metadata: &Metadata) -> Self {
        Self {
            device: metadata.dev(),
            inode: metadata.ino(),
            size: metadata.size(),
            modified: (metadata.mtime(), metadata.mtime_nsec()),
        }
    }

    /// Names what differs, with both values.
    fn same_as(&self, now: &Self) -> Result<(), String> {
        if (self.device, self.inode) != (now.device, now.inode) {
            Err(format!(
                "the path led to inode {} of device {} and leads to inode {} of device {} now",
                self.inode, self.device, now.inode, now.device
            ))
        } else if self.size != now.size {
            Err(format!("its size was {} bytes and is {} now", self.size, now.size))
        } else if self.modified != now.modified {
            let ((a, b), (c, d)) = (self.modified, now.modified);
            Err(format!("its modification time was {a}.{b:09} and is {c}.{d:09} now"))
        } else {
            Ok(())
        }
    }
}

impl fmt::Debug for Identity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} bytes, inode {} of device {}", self.size, self.inode, self.device)
    }
}

fn describe(metadata: &Metadata) -> &'static str {
    let kind = metadata.file_type();
    if kind.is_dir() {
        "a directory"
    } else if kind.is_fifo() {
        "a pipe"
    } else if kind.is_socket() {
        "a socket"
    } else if kind.is_block_device() {
        "a block device"
    } else if kind.is_char_device() {
        "a character device"
    } else {
        "no regular file"
    }
}
