//! Files read by position.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use slotstream_core::{Extent, FileId, ReadError, ReaderMode, RecordReader};

use super::ContainerError;

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
            std::io::ErrorKind::UnexpectedEof => ReadError::end_of_file(path, extent, 0),
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
