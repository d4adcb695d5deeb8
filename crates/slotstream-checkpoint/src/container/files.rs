//! Files read by position.

use std::fs::{self, File, FileType, Metadata};
use std::io::ErrorKind;
use std::os::unix::fs::{FileExt, FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};

use slotstream_core::{Extent, FileId, ReadError, ReaderMode, RecordReader};

use super::ContainerError;

/// Whether there is a file at a path, links followed. A pipe, which would block, a folder, and a
/// link that leads nowhere are errors.
pub(super) fn file_at(path: &Path) -> Result<bool, ContainerError> {
    let Some(there) = entry(path)? else { return Ok(false) };
    let led = match fs::metadata(path) {
        Err(e) if e.kind() == ErrorKind::NotFound && there.is_symlink() => {
            return Err(not_a_file(path, "a link that leads nowhere"));
        }
        led => led.map_err(|e| ContainerError::io(path, "open", 0, e))?,
    };
    if led.is_file() { Ok(true) } else { Err(not_a_file(path, kind_of(led.file_type()))) }
}

/// Whether there is a file at a path that has no other name: it can be written to without changing
/// anything else. Whatever else is there is an error.
pub(super) fn own_file_at(path: &Path) -> Result<bool, ContainerError> {
    let Some(there) = entry(path)? else { return Ok(false) };
    match (there.is_file(), there.nlink()) {
        (true, 1) => Ok(true),
        (true, _) => Err(not_a_file(path, "a file with another name, too")),
        (false, _) => Err(not_a_file(path, kind_of(there.file_type()))),
    }
}

fn entry(path: &Path) -> Result<Option<Metadata>, ContainerError> {
    match fs::symlink_metadata(path) {
        Err(e) if e.kind() == ErrorKind::NotFound => Ok(None),
        there => there.map(Some).map_err(|e| ContainerError::io(path, "open", 0, e)),
    }
}

fn not_a_file(path: &Path, found: &'static str) -> ContainerError {
    ContainerError::NotAFile { path: path.into(), found }
}

fn kind_of(kind: FileType) -> &'static str {
    match kind {
        _ if kind.is_symlink() => "a link",
        _ if kind.is_dir() => "a folder",
        _ if kind.is_fifo() => "a pipe",
        _ if kind.is_socket() => "a socket",
        _ => "a device",
    }
}

/// Reads files by position through the page cache. For those who have no reader of their own at
/// hand: `slotstream-io` has better ones.
#[derive(Debug)]
pub(super) struct PlainReader(Vec<(PathBuf, File)>);

impl PlainReader {
    pub(super) fn open(paths: &[PathBuf]) -> Result<Self, ContainerError> {
        let open = |path: &PathBuf| match File::open(path) {
            Ok(file) => Ok((path.clone(), file)),
            Err(e) => Err(ContainerError::io(path, "open", 0, e)),
        };
        Ok(Self(paths.iter().map(open).collect::<Result<_, _>>()?))
    }
}

impl RecordReader for PlainReader {
    fn read_exact_at(&self, extent: &Extent, buffer: &mut [u8]) -> Result<(), ReadError> {
        let Some((path, file)) = self.0.get(extent.file().index()) else {
            return Err(ReadError::unknown_file(extent.file(), self.0.len()));
        };
        if buffer.len() as u64 != extent.len() {
            return Err(ReadError::buffer_length(extent, buffer.len()));
        }
        file.read_exact_at(buffer, extent.offset()).map_err(|e| match e.kind() {
            ErrorKind::UnexpectedEof => ReadError::end_of_file(path, extent, 0),
            _ => ReadError::io(path, extent, 0, e),
        })
    }

    fn effective(&self) -> ReaderMode {
        ReaderMode::new("buffered", "nothing else was asked for")
    }

    fn path(&self, file: FileId) -> Option<&Path> {
        self.0.get(file.index()).map(|(path, _)| path.as_path())
    }
}
