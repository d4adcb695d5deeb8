//! Files mapped into the address space, for comparison.

use std::fmt;
use std::path::{Path, PathBuf};

use memmap2::{Mmap, MmapOptions};
use slotstream_core::{Advice, Extent, FileId, ReadError, ReaderMode, RecordReader};

use crate::IoError;
use crate::files::{MAX_FILES, OpenFile, requested};

/// Copies out of files that are mapped into memory. There to be compared with: each page that is
/// not in memory is a fault of its own, which costs more than its part of a read.
///
/// The system is told that reads are scattered (`MADV_RANDOM`): without that each fault reads as
/// much ahead as the disk is set to, megabytes in places. [`Advice::WillNeed`] is passed on, and
/// lets the pages of an extent be read together.
#[derive(Debug)]
pub struct MmapReader {
    files: Vec<OpenFile>,
    /// Of each file; `None` of an empty one, which has nothing to map.
    maps: Vec<Option<Map>>,
    why: String,
}

struct Map(Mmap);

impl MmapReader {
    /// Maps every file. `FileId` n is `paths[n]`.
    ///
    /// # Errors
    /// As [`PositionalReader::open`](crate::PositionalReader::open); [`IoError::Open`] when the
    /// system refuses to map a file, [`IoError::Memory`] when it has more bytes than addresses.
    ///
    /// # Safety
    /// As long as the reader lives no process may cut a file shorter or write to it. A read of a
    /// page that the file no longer has, or that the disk cannot bring, ends this process
    /// (`SIGBUS`); no error is returned. A write while bytes are copied is a data race.
    #[expect(unsafe_code, reason = "the caller answers for the files")]
    pub unsafe fn open(paths: &[PathBuf]) -> Result<Self, IoError> {
        let files = OpenFile::open_all(paths, MAX_FILES)?;
        let mut maps = Vec::with_capacity(files.len());
        let mut why = "as requested: mapped, MADV_RANDOM".to_owned();
        for (opened, file) in files.iter().enumerate() {
            let refuse = |source| IoError::opening(&file.path, opened, source);
            let too_large = |_| IoError::Memory { bytes: file.size() };
            let len = usize::try_from(file.size()).map_err(too_large)?;
            if len == 0 {
                maps.push(None);
                continue;
            }
            // SAFETY: the caller promises that nobody writes to the file or cuts it while the
            // reader, which owns the map, lives.
            let map = unsafe { MmapOptions::new().len(len).map(&file.file) }.map_err(refuse)?;
            if let Err(error) = map.advise(memmap2::Advice::Random) {
                why = format!("as requested: mapped, but MADV_RANDOM was refused ({error})");
            }
            maps.push(Some(Map(map)));
        }
        Ok(Self { files, maps, why })
    }
}

impl RecordReader for MmapReader {
    fn read_exact_at(&self, extent: &Extent, buffer: &mut [u8]) -> Result<(), ReadError> {
        requested(&self.files, extent, buffer)?;
        if let Some(Some(Map(map))) = self.maps.get(extent.file().index())
            && !extent.is_empty()
        {
            // Inside the map, which has all of the file's bytes.
            buffer.copy_from_slice(&map[extent.offset() as usize..extent.end() as usize]);
        }
        Ok(())
    }

    fn effective(&self) -> ReaderMode {
        ReaderMode::new("mmap", &self.why)
    }

    fn advise(&self, extent: &Extent, advice: Advice) {
        let advice = match advice {
            Advice::WillNeed => memmap2::Advice::WillNeed,
            Advice::Random => memmap2::Advice::Random,
            Advice::Sequential => memmap2::Advice::Sequential,
            // What `MADV_DONTNEED` does to a map is no mere hint to memmap2.
            _ => return,
        };
        if let Some(Some(Map(map))) = self.maps.get(extent.file().index()) {
            let end = extent.end().min(map.len() as u64);
            if let Some(len @ 1..) = end.checked_sub(extent.offset()) {
                // A hint that is refused changes nothing.
                let _ = map.advise_range(advice, extent.offset() as usize, len as usize);
            }
        }
    }

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

impl fmt::Debug for Map {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} bytes", self.0.len())
    }
}
