//! Reads by position, one descriptor a file, through or around the page cache.

use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use slotstream_core::{Advice, Extent, FileId, ReadError, ReaderMode, RecordReader};

use crate::files::{MAX_FILES, OpenFile, requested};
use crate::{IoError, bypass};

/// What a [`PositionalReader`] does about the system's page cache.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ReadMode {
    /// `Buffered` on Linux, whose page cache gives its memory back when it is needed; `Uncached`
    /// on macOS, where the cache competes with the slots for unified memory.
    #[default]
    Auto,
    /// Through the page cache, with the system's read-ahead.
    Buffered,
    /// Around it. macOS: `F_NOCACHE`, no `F_RDAHEAD`. Linux: no read-ahead, and the pages of a
    /// read are dropped after it. Where the system refuses, the reader is buffered and says so.
    /// Neither system empties the cache first: what it held before may still be used, and may
    /// stay.
    Uncached,
}

/// How to open a [`PositionalReader`].
///
/// ```
/// use slotstream_io::{PositionalOptions, ReadMode};
/// let options = PositionalOptions::new().with_mode(ReadMode::Uncached).with_max_files(64);
/// assert_eq!(options, PositionalOptions::new().with_max_files(64).with_mode(ReadMode::Uncached));
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PositionalOptions {
    mode: ReadMode,
    max_files: usize,
}

impl PositionalOptions {
    /// [`ReadMode::Auto`] and at most 4,096 files.
    #[must_use]
    pub const fn new() -> Self {
        Self { mode: ReadMode::Auto, max_files: 4096 }
    }

    /// What to do about the page cache.
    #[must_use]
    pub const fn with_mode(mut self, mode: ReadMode) -> Self {
        self.mode = mode;
        self
    }

    /// The largest number of files (each holds a descriptor), 65,536 at most.
    #[must_use]
    pub const fn with_max_files(mut self, max_files: usize) -> Self {
        self.max_files = if max_files < MAX_FILES { max_files } else { MAX_FILES };
        self
    }
}

impl Default for PositionalOptions {
    fn default() -> Self {
        Self::new()
    }
}

/// Reads by position (`pread`), from one descriptor a file that all threads share.
///
/// The size, modification time and inode of each file are recorded at the opening;
/// [`check_unchanged`](RecordReader::check_unchanged) compares them. An extent
/// beyond that size is refused as [`ReadError::EndOfFile`] without a read. A file that ends
/// although it was long enough is reported as [`ReadError::Changed`].
#[derive(Debug)]
pub struct PositionalReader {
    files: Vec<OpenFile>,
    /// Whether the page cache is really bypassed.
    uncached: bool,
    why: String,
    /// The first refusal to drop pages after a read.
    refused_later: OnceLock<String>,
}

impl PositionalReader {
    /// Opens every file. `FileId` n is `paths[n]`.
    ///
    /// # Errors
    /// [`IoError::TooManyFiles`]; [`IoError::NotFound`], [`IoError::Denied`],
    /// [`IoError::NotAFile`], [`IoError::Descriptors`] or [`IoError::Open`] with the path of the
    /// first file that cannot be used.
    pub fn open(paths: &[PathBuf], options: PositionalOptions) -> Result<Self, IoError> {
        let files = OpenFile::open_all(paths, options.max_files)?;
        let (uncached, why) = settle(&files, options.mode);
        Ok(Self { files, uncached, why, refused_later: OnceLock::new() })
    }

    fn drop_pages(&self, file: &OpenFile, extent: &Extent) {
        if !self.uncached {
            return;
        }
        if let Err(refusal) = bypass::after_read(&file.file, extent.offset(), extent.len()) {
            self.refused_later.get_or_init(|| {
                let (path, why) = (file.path.display(), &refusal.why);
                tracing::warn!(%path, why, "pages stay in the cache after an uncached read");
                refusal.why
            });
        }
    }
}

impl RecordReader for PositionalReader {
    fn read_exact_at(&self, extent: &Extent, buffer: &mut [u8]) -> Result<(), ReadError> {
        let file = requested(&self.files, extent, buffer)?;
        if extent.is_empty() {
            return Ok(());
        }
        let outcome = file.read_plain(extent, buffer);
        self.drop_pages(file, extent);
        outcome
    }

    fn effective(&self) -> ReaderMode {
        match (self.uncached, self.refused_later.get()) {
            (false, _) => ReaderMode::new("buffered", &self.why),
            (true, None) => ReaderMode::new("uncached", &self.why),
            (true, Some(later)) => ReaderMode::new(
                "buffered",
                format!("{}; then pages stayed in the cache: {later}", self.why),
            ),
        }
    }

    fn advise(&self, extent: &Extent, advice: Advice) {
        // Without the cache there is nowhere to read ahead to, and nothing to drop.
        if let (false, Some(file)) = (self.uncached, self.files.get(extent.file().index())) {
            bypass::hint(&file.file, extent.offset(), extent.len(), advice);
        }
    }

    /// Compares size, modification time, inode and device of the open file, and of whatever its
    /// path leads to now, with those at the opening. Two calls of the system a file.
    fn check_unchanged(&self) -> Result<(), ReadError> {
        self.files.iter().try_for_each(OpenFile::check_unchanged)
    }

    fn file_len(&self, file: FileId) -> Option<u64> {
        self.files.get(file.index()).map(OpenFile::size)
    }

    fn path(&self, file: FileId) -> Option<&Path> {
        self.files.get(file.index()).map(|file| file.path.as_path())
    }
}

/// Sets the files up for `mode`: whether the cache is bypassed, and why.
fn settle(files: &[OpenFile], mode: ReadMode) -> (bool, String) {
    let request = match mode {
        ReadMode::Auto => bypass::AUTO,
        ReadMode::Buffered => return (false, "as requested".to_owned()),
        ReadMode::Uncached => "as requested",
    };
    if mode == ReadMode::Auto && !bypass::AUTO_BYPASSES {
        return (false, request.to_owned());
    }
    for file in files {
        if let Err(refusal) = bypass::bypass(&file.file) {
            // All or none, so that one word describes the reader.
            files.iter().for_each(|file| bypass::restore(&file.file));
            let (path, why) = (file.path.display(), &refusal.why);
            tracing::warn!(%path, why, "uncached reads were refused, reading through the cache");
            return (false, format!("uncached was wanted, but for {path} {why}"));
        }
    }
    (true, format!("{request}: {}", bypass::HOW))
}
