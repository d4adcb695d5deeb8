//! Files that lie wholly in memory.

use std::fmt;
use std::io::Read;
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};

use slotstream_core::{Extent, FileId, ReadError, ReaderMode, RecordReader};

use crate::IoError;
use crate::files::{MAX_FILES, OpenFile, check_request};

/// Bytes read between two calls of the progress callback.
const STEP: u64 = 8 << 20;

/// How far [`MemReader::from_files`] has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct LoadProgress {
    /// The file being read.
    pub file: FileId,
    /// Bytes in memory, of all files.
    pub loaded: u64,
    /// Bytes of all files.
    pub total: u64,
}

/// Serves reads from memory: for tests, and for machines that hold all experts.
///
/// ```
/// use slotstream_core::{Extent, FileId, RecordReader};
/// let reader = slotstream_io::MemReader::from_bytes(vec![b"abcdef".to_vec()])?;
/// let mut buffer = [0; 3];
/// reader.read_exact_at(&Extent::new(FileId::new(0), 2, 3)?, &mut buffer)?;
/// assert_eq!(&buffer, b"cde");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct MemReader {
    files: Vec<(PathBuf, Vec<u8>)>,
}

impl MemReader {
    /// Files made up of `bytes`; `FileId` n is `bytes[n]`, its path for messages `memory:n`.
    ///
    /// # Errors
    /// [`IoError::TooManyFiles`] above 65,536.
    pub fn from_bytes(bytes: Vec<Vec<u8>>) -> Result<Self, IoError> {
        if bytes.len() > MAX_FILES {
            return Err(IoError::TooManyFiles { found: bytes.len(), limit: MAX_FILES });
        }
        let name = |i| PathBuf::from(format!("memory:{i}"));
        Ok(Self { files: bytes.into_iter().enumerate().map(|(i, b)| (name(i), b)).collect() })
    }

    /// Reads the files into memory; `FileId` n is `paths[n]`. Calls `progress` before the first
    /// byte and every few megabytes; `ControlFlow::Break` cancels.
    ///
    /// # Errors
    /// As [`PositionalReader::open`](crate::PositionalReader::open);
    /// [`IoError::Memory`] when a file does not fit; [`IoError::Load`] when one cannot be read;
    /// [`IoError::LoadCancelled`].
    pub fn from_files(
        paths: &[PathBuf],
        progress: &mut dyn FnMut(LoadProgress) -> ControlFlow<()>,
    ) -> Result<Self, IoError> {
        let open = OpenFile::open_all(paths, MAX_FILES)?;
        let total = open.iter().map(OpenFile::size).sum();
        let mut loaded = 0;
        let mut files = Vec::with_capacity(open.len());
        for (file, source) in (0..).map(FileId::new).zip(open) {
            let mut report =
                |here: u64| match progress(LoadProgress { file, loaded: loaded + here, total }) {
                    ControlFlow::Continue(()) => Ok(()),
                    ControlFlow::Break(()) => {
                        Err(IoError::LoadCancelled { loaded: loaded + here, total })
                    }
                };
            let bytes = load(file, &source, &mut report)?;
            loaded += bytes.len() as u64;
            files.push((source.path, bytes));
        }
        Ok(Self { files })
    }

    /// Bytes held, of all files.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.files.iter().map(|(_, bytes)| bytes.len() as u64).sum()
    }
}

/// Reads the whole of one file, as long as it was when it was opened.
fn load(
    id: FileId,
    from: &OpenFile,
    report: &mut dyn FnMut(u64) -> Result<(), IoError>,
) -> Result<Vec<u8>, IoError> {
    let size = from.size();
    let refuse = |source| IoError::Load { path: from.path.clone(), source };
    let mut bytes = Vec::new();
    let room = usize::try_from(size).map_err(|_| IoError::Memory { bytes: size })?;
    bytes.try_reserve_exact(room).map_err(|_| IoError::Memory { bytes: size })?;
    report(0)?;
    while (bytes.len() as u64) < size {
        let at = bytes.len() as u64;
        let step = STEP.min(size - at);
        // An extent of an open file's own size cannot overflow; if it does, the file changed.
        let extent = Extent::new(id, at, step)
            .map_err(|error| refuse(ReadError::changed(&from.path, error.to_string())))?;
        let mut part = (&from.file).take(step);
        let got = part.read_to_end(&mut bytes).map_err(|error| {
            let got = bytes.len() as u64 - at;
            refuse(ReadError::io(&from.path, &extent, got, error))
        })? as u64;
        if got < step {
            return Err(refuse(from.ended_early(&extent, got)));
        }
        report(bytes.len() as u64)?;
    }
    Ok(bytes)
}

impl RecordReader for MemReader {
    fn read_exact_at(&self, extent: &Extent, buffer: &mut [u8]) -> Result<(), ReadError> {
        let (path, bytes) = self
            .files
            .get(extent.file().index())
            .ok_or_else(|| ReadError::unknown_file(extent.file(), self.files.len()))?;
        check_request(path, bytes.len() as u64, extent, buffer)?;
        if !extent.is_empty() {
            // Inside the file, so both ends fit a usize.
            buffer.copy_from_slice(&bytes[extent.offset() as usize..extent.end() as usize]);
        }
        Ok(())
    }

    fn effective(&self) -> ReaderMode {
        let (files, bytes) = (self.files.len(), self.bytes());
        ReaderMode::new("memory", format!("as requested: {files} files of {bytes} bytes in memory"))
    }

    fn file_len(&self, file: FileId) -> Option<u64> {
        self.files.get(file.index()).map(|(_, bytes)| bytes.len() as u64)
    }

    fn held_bytes(&self) -> u64 {
        self.bytes()
    }

    fn path(&self, file: FileId) -> Option<&Path> {
        self.files.get(file.index()).map(|(path, _)| path.as_path())
    }
}

impl fmt::Debug for MemReader {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MemReader")
            .field("files", &self.files.len())
            .field("bytes", &self.bytes())
            .finish()
    }
}
