//! Two readers for disks that are not to be trusted: [`Files`] reads through the standard
//! library alone, and [`Retrying`] reads again after a failure that may pass.

use std::fs::File;
use std::io::ErrorKind as Io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

use slotstream_core::{
    Advice, Alignment, ErrorKind, Extent, FileId, ReadError, ReaderMode, RecordReader,
};

/// Files, read by position through the page cache.
#[derive(Debug)]
pub struct Files(Vec<(PathBuf, File)>);

impl Files {
    /// Opens all files; [`FileId`] is a place in this list.
    pub fn open(paths: &[PathBuf]) -> std::io::Result<Self> {
        let open = |path: &PathBuf| Ok((path.clone(), File::open(path)?));
        paths.iter().map(open).collect::<Result<_, _>>().map(Self)
    }
}

impl RecordReader for Files {
    fn read_exact_at(&self, extent: &Extent, buffer: &mut [u8]) -> Result<(), ReadError> {
        let id = extent.file();
        let unknown = || ReadError::unknown_file(id, self.0.len());
        let (path, file) = self.0.get(id.index()).ok_or_else(unknown)?;
        if buffer.len() as u64 != extent.len() {
            return Err(ReadError::buffer_length(extent, buffer.len()));
        }
        let mut got = 0;
        while got < buffer.len() {
            match file.read_at(&mut buffer[got..], extent.offset() + got as u64) {
                Ok(0) => return Err(ReadError::end_of_file(path, extent, got as u64)),
                Ok(read) => got += read,
                Err(error) if error.kind() == Io::Interrupted => {}
                Err(error) => return Err(ReadError::io(path, extent, got as u64, error)),
            }
        }
        Ok(())
    }

    fn effective(&self) -> ReaderMode {
        ReaderMode::new("buffered", "the standard library reads through the page cache")
    }

    fn path(&self, file: FileId) -> Option<&Path> {
        self.0.get(file.index()).map(|(path, _)| path.as_path())
    }
}

/// Tries a read again when its error is [`ErrorKind::Transient`].
#[derive(Debug)]
pub struct Retrying<R> {
    inner: R,
    attempts: u32,
    retries: AtomicU64,
}

impl<R: RecordReader> Retrying<R> {
    /// Tries each read up to `attempts` times, at least once.
    pub fn new(inner: R, attempts: u32) -> Self {
        Self { inner, attempts: attempts.max(1), retries: AtomicU64::new(0) }
    }

    /// Reads that were tried again so far.
    pub fn retries(&self) -> u64 {
        self.retries.load(Ordering::Relaxed)
    }
}

impl<R: RecordReader> RecordReader for Retrying<R> {
    fn read_exact_at(&self, extent: &Extent, buffer: &mut [u8]) -> Result<(), ReadError> {
        for _ in 1..self.attempts {
            match self.inner.read_exact_at(extent, buffer) {
                Err(error) if error.kind() == ErrorKind::Transient => {
                    self.retries.fetch_add(1, Ordering::Relaxed);
                }
                ended => return ended,
            }
        }
        self.inner.read_exact_at(extent, buffer)
    }

    fn alignment(&self) -> Alignment {
        self.inner.alignment()
    }

    fn effective(&self) -> ReaderMode {
        let mode = self.inner.effective();
        let why = format!("{}; up to {} attempts a read", mode.why, self.attempts);
        ReaderMode::new(mode.name, why)
    }

    fn issued_len(&self, extent: &Extent) -> u64 {
        self.inner.issued_len(extent)
    }

    fn advise(&self, extent: &Extent, advice: Advice) {
        self.inner.advise(extent, advice);
    }

    fn check_unchanged(&self) -> Result<(), ReadError> {
        self.inner.check_unchanged()
    }

    fn path(&self, file: FileId) -> Option<&Path> {
        self.inner.path(file)
    }
}
