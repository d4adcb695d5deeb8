//! Reads around the page cache, from the disk into the buffer.

use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};

use slotstream_core::{
    Advice, Alignment, Extent, FileId, ReadError, ReaderMode, RecordReader, SLOT_ALIGNMENT,
};

use crate::around::{Missed, TwoWays, finish, read_around};
use crate::errno::errno_name;
use crate::files::{MAX_FILES, OpenFile, requested};
use crate::{IoError, ScratchPool, bypass, dio};

/// How to open a [`DirectReader`].
///
/// ```
/// use slotstream_io::DirectOptions;
/// // Records of 2,764,800 bytes in raw shards, eight at a time.
/// let options = DirectOptions::new().with_bounce(3 << 20, 8);
/// assert_ne!(options, DirectOptions::new());
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DirectOptions {
    page_len: usize,
    pages: usize,
    max_files: usize,
}

impl DirectOptions {
    /// At most 32 bounce pages of 1 MiB, and 2,048 files.
    #[must_use]
    pub const fn new() -> Self {
        Self { page_len: 1 << 20, pages: 32, max_files: 2048 }
    }

    /// The bounce pages: a request that is not aligned takes one, and is read in as many steps as
    /// it fills pages. `page_len` bytes are rounded up to whole 16 KiB, two at least; a reader
    /// makes its pages when it first needs them, `pages` at most (one at least). Requests beyond
    /// that number wait.
    #[must_use]
    pub const fn with_bounce(mut self, page_len: usize, pages: usize) -> Self {
        self.page_len = page_len;
        self.pages = pages;
        self
    }

    /// The largest number of files (each holds two descriptors), 65,536 at most.
    #[must_use]
    pub const fn with_max_files(mut self, max_files: usize) -> Self {
        self.max_files = if max_files < MAX_FILES { max_files } else { MAX_FILES };
        self
    }

    /// The most bytes that the bounce pages take, for a memory plan.
    #[must_use]
    pub fn planned_bytes(self) -> u64 {
        self.scratch().map_or(0, |pool| pool.max_bytes())
    }

    /// The same where no more than `reads` requests are made at once: the last page given back is
    /// the next one taken, so no other is ever touched.
    #[must_use]
    pub fn planned_bytes_of(self, reads: usize) -> u64 {
        Self { pages: self.pages.min(reads), ..self }.planned_bytes()
    }

    fn scratch(self) -> Result<ScratchPool, IoError> {
        // Two blocks: a step that begins inside one still brings bytes.
        let len = self.page_len.max(2 * SLOT_ALIGNMENT);
        let whole = len.checked_next_multiple_of(SLOT_ALIGNMENT).unwrap_or(len);
        ScratchPool::new(whole, self.pages.max(1))
    }
}

impl Default for DirectOptions {
    fn default() -> Self {
        Self::new()
    }
}

/// Reads by position around the page cache: `O_DIRECT` on Linux, `F_NOCACHE` and whole pages on
/// macOS.
///
/// A request whose memory, offset and length are multiples of [`alignment`] goes from the disk
/// into its buffer. Any other is widened to whole blocks, read into a page of a bounded pool
/// ([`DirectOptions::with_bounce`]) and copied. A direct read that comes short, at the end of a
/// file or elsewhere, is finished through the page cache.
///
/// It checks itself and gives way, all files or none, so that one word describes it. Where a file
/// refuses direct reads, at the opening or later, and where the first direct read of a file brings
/// other bytes than a buffered read of the same place, the reader is buffered from then on;
/// [`effective`] says so, with the path and the reason. That comparison reads the first request
/// of each file twice; [`issued_len`] does not count it.
///
/// A file system may accept direct reads and still answer from a cache of its own, or of the host
/// it runs on. This reader cannot see that. Changes are noticed as by a
/// [`PositionalReader`](crate::PositionalReader). Once every page exists, reads allocate nothing.
///
/// [`alignment`]: RecordReader::alignment
/// [`effective`]: RecordReader::effective
/// [`issued_len`]: RecordReader::issued_len
#[derive(Debug)]
pub struct DirectReader {
    files: Vec<OpenFile>,
    way: Result<Way, String>,
    pages: ScratchPool,
    /// Why the way was given up after the opening.
    lapsed: OnceLock<String>,
}

/// The way around the cache: one more descriptor for each file.
#[derive(Debug)]
pub(crate) struct Way {
    pub(crate) alignment: Alignment,
    pub(crate) files: Vec<DirectFile>,
}

#[derive(Debug)]
pub(crate) struct DirectFile {
    pub(crate) file: File,
    /// Whether a direct read of it has brought the same bytes as a buffered one.
    compared: AtomicBool,
}

struct Both<'a>(&'a File, &'a OpenFile);

impl TwoWays for Both<'_> {
    fn direct(&self, buffer: &mut [u8], at: u64) -> io::Result<usize> {
        rustix::io::pread(self.0, buffer, at).map_err(io::Error::from)
    }

    fn plain(&self, buffer: &mut [u8], at: u64) -> io::Result<usize> {
        self.1.pread(buffer, at)
    }
}

impl DirectReader {
    /// Opens every file twice. `FileId` n is `paths[n]`.
    ///
    /// # Errors
    /// As [`PositionalReader::open`](crate::PositionalReader::open). A refusal of direct reads is
    /// no error: the reader is then buffered.
    pub fn open(paths: &[PathBuf], options: DirectOptions) -> Result<Self, IoError> {
        let files = OpenFile::open_all(paths, options.max_files)?;
        let way = Way::open(&files);
        if let Err(why) = &way {
            tracing::warn!(why, "direct reads were refused, reading through the cache");
        }
        Ok(Self { files, way, pages: options.scratch()?, lapsed: OnceLock::new() })
    }

    /// The way around the cache, as long as it is trusted.
    pub(crate) fn way(&self) -> Option<&Way> {
        self.way.as_ref().ok().filter(|_| self.lapsed.get().is_none())
    }

    /// Whether the way was given up after the opening.
    pub(crate) fn has_lapsed(&self) -> bool {
        self.lapsed.get().is_some()
    }

    /// How it reads around the cache, or why it does not.
    pub(crate) fn how(&self) -> Result<String, &str> {
        match (&self.way, self.lapsed.get()) {
            (Err(why), _) | (Ok(_), Some(why)) => Err(why),
            (Ok(way), None) => {
                let Alignment { memory, offset, .. } = way.alignment;
                let how = dio::HOW;
                Ok(format!("{how}, blocks of {offset} bytes, memory at multiples of {memory}"))
            }
        }
    }

    /// For the rings.
    #[cfg(target_os = "linux")]
    pub(crate) fn files(&self) -> &[OpenFile] {
        &self.files
    }

    /// For the rings.
    #[cfg(target_os = "linux")]
    pub(crate) fn pages(&self) -> &ScratchPool {
        &self.pages
    }

    /// Reads through the cache from now on.
    pub(crate) fn lapse(&self, file: &OpenFile, why: &str) {
        self.lapsed.get_or_init(|| {
            let path = file.path.display();
            tracing::warn!(%path, why, "direct reads are given up, reading through the cache");
            self.files.iter().for_each(|plain| bypass::restore(&plain.file));
            format!("direct was wanted, but for {path} {why}")
        });
    }

    /// A direct read of `extent` failed with what says that all would.
    pub(crate) fn refused(&self, file: &OpenFile, error: &io::Error) {
        self.lapse(file, &format!("a direct read failed with {}", errno_name(error)));
    }

    /// Compares the first direct read of a file with a buffered one. `buffer` has what the direct
    /// one brought, and gets what the other did if they differ.
    pub(crate) fn compare(&self, extent: &Extent, buffer: &mut [u8]) -> Result<(), ReadError> {
        let number = extent.file().index();
        // Also when the way was given up while the read was in flight: its bytes are doubtful.
        let (Ok(way), Some(file)) = (&self.way, self.files.get(number)) else { return Ok(()) };
        let compared = &way.files[number].compared;
        if compared.load(Ordering::Relaxed) {
            return Ok(());
        }
        let mut page = self.pages.take().map_err(|error| ReadError::other(extent, error))?;
        let mut differ = None;
        for (part, begin) in buffer.chunks_mut(page.len()).zip((0_u64..).step_by(page.len())) {
            let plain = &mut page[..part.len()];
            finish(plain, extent.offset() + begin, 0, |rest, at| file.pread(rest, at))
                .map_err(|missed| self.error(file, extent, missed))?;
            let first = part.iter().zip(&*plain).position(|(a, b)| a != b);
            if let Some(first) = first {
                differ.get_or_insert(extent.offset() + begin + first as u64);
                part.copy_from_slice(plain);
            }
        }
        drop(page);
        match differ {
            None => {
                compared.store(true, Ordering::Relaxed);
                // The pages were read for this alone. A refusal leaves them where they are.
                let _ = bypass::after_read(&file.file, extent.offset(), extent.len());
            }
            Some(at) => {
                let why = format!(
                    "the byte at offset {at} of a direct read differs from a \
                                   buffered one"
                );
                self.lapse(file, &why);
            }
        }
        Ok(())
    }

    /// The error of a read that brought too little; `Refused` does not get here.
    pub(crate) fn error(&self, file: &OpenFile, extent: &Extent, missed: Missed) -> ReadError {
        match missed {
            Missed::Stop(stop) => file.stopped(extent, stop),
            Missed::Refused(source) => ReadError::io(&file.path, extent, 0, source),
            Missed::Memory(error) => ReadError::other(extent, error),
        }
    }
}

impl Way {
    fn open(files: &[OpenFile]) -> Result<Self, String> {
        let mut alignment = Alignment::NONE;
        let mut direct = Vec::with_capacity(files.len());
        for plain in files {
            let (file, wants) = dio::open(plain).map_err(|refusal| {
                format!("direct was wanted, but for {} {}", plain.path.display(), refusal.why)
            })?;
            alignment = Alignment {
                memory: alignment.memory.max(wants.memory),
                offset: alignment.offset.max(wants.offset),
                length: alignment.length.max(wants.length),
            };
            direct.push(DirectFile { file, compared: AtomicBool::new(false) });
        }
        // The few reads through the cache bring in what they ask for, and nothing beside it. A
        // length of 0 is the whole file.
        files.iter().for_each(|plain| bypass::hint(&plain.file, 0, 0, Advice::Random));
        Ok(Self { alignment, files: direct })
    }
}

impl RecordReader for DirectReader {
    fn read_exact_at(&self, extent: &Extent, buffer: &mut [u8]) -> Result<(), ReadError> {
        let file = requested(&self.files, extent, buffer)?;
        if extent.is_empty() {
            return Ok(());
        }
        let Some(way) = self.way() else { return file.read_plain(extent, buffer) };
        let both = Both(&way.files[extent.file().index()].file, file);
        match read_around(&both, way.alignment, &self.pages, buffer, extent.offset()) {
            Ok(()) => self.compare(extent, buffer),
            Err(Missed::Refused(error)) => {
                self.refused(file, &error);
                file.read_plain(extent, buffer)
            }
            Err(missed) => Err(self.error(file, extent, missed)),
        }
    }

    fn alignment(&self) -> Alignment {
        self.way().map_or(Alignment::NONE, |way| way.alignment)
    }

    fn effective(&self) -> ReaderMode {
        match self.how() {
            Ok(how) => ReaderMode::new("direct", format!("as requested: {how}")),
            Err(why) => ReaderMode::new("buffered", why),
        }
    }

    /// Whole blocks, as far as the file has them.
    fn issued_len(&self, extent: &Extent) -> u64 {
        let (Some(way), Some(file)) = (self.way(), self.files.get(extent.file().index())) else {
            return extent.len();
        };
        if extent.is_empty() || extent.end() > file.size() {
            return extent.len();
        }
        let block = way.alignment.offset;
        let end = extent.end().next_multiple_of(block).min(file.size());
        end - (extent.offset() - extent.offset() % block)
    }

    fn advise(&self, extent: &Extent, advice: Advice) {
        // Around the cache there is nowhere to read ahead to.
        if let (None, Some(file)) = (self.way(), self.files.get(extent.file().index())) {
            bypass::hint(&file.file, extent.offset(), extent.len(), advice);
        }
    }

    /// As [`PositionalReader`](crate::PositionalReader)'s.
    fn check_unchanged(&self) -> Result<(), ReadError> {
        self.files.iter().try_for_each(OpenFile::check_unchanged)
    }

    fn file_len(&self, file: FileId) -> Option<u64> {
        self.files.get(file.index()).map(OpenFile::size)
    }

    /// All bounce pages.
    fn held_bytes(&self) -> u64 {
        if self.way.is_ok() { self.pages.max_bytes() } else { 0 }
    }

    fn path(&self, file: FileId) -> Option<&Path> {
        self.files.get(file.index()).map(|file| file.path.as_path())
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use std::os::unix::fs::FileExt;

    use super::*;

    /// Beside the test program: the temporary directory may lie in memory.
    pub(crate) fn folder() -> tempfile::TempDir {
        let beside = std::env::current_exe().unwrap();
        tempfile::tempdir_in(beside.parent().unwrap()).unwrap()
    }

    pub(crate) fn file(folder: &tempfile::TempDir, name: &str, bytes: &[u8]) -> PathBuf {
        let path = folder.path().join(name);
        std::fs::write(&path, bytes).unwrap();
        path
    }

    fn read(reader: &DirectReader, number: u16, offset: u64, len: usize) -> Vec<u8> {
        let mut buffer = vec![0; len];
        let extent = Extent::new(FileId::new(number), offset, len as u64).unwrap();
        reader.read_exact_at(&extent, &mut buffer).unwrap();
        buffer
    }

    /// A reader whose way around the cache leads to `files`, at any alignment.
    pub(crate) fn crooked(paths: &[PathBuf], files: Vec<File>) -> DirectReader {
        let options = DirectOptions::new().with_bounce(0, 2);
        let mut reader = DirectReader::open(paths, options).unwrap();
        let compared = || AtomicBool::new(false);
        let files = files.into_iter().map(|file| DirectFile { file, compared: compared() });
        reader.way = Ok(Way { alignment: Alignment::NONE, files: files.collect() });
        reader
    }

    #[test]
    fn other_bytes_than_a_buffered_read_brings_end_the_direct_reads_of_all_files() {
        let folder = folder();
        let mut bytes = vec![3; 100_000];
        let right = [file(&folder, "a", &bytes), file(&folder, "b", &bytes)];
        bytes[70_000] = 4;
        let wrong = file(&folder, "wrong", &bytes);
        let files = vec![File::open(&right[0]).unwrap(), File::open(wrong).unwrap()];
        let reader = crooked(&right, files);
        assert_eq!(read(&reader, 0, 1, 80_000), [3; 80_000]);
        assert_eq!(reader.effective().name, "direct");
        // In the third page of the comparison.
        assert_eq!(read(&reader, 1, 1, 80_000), [3; 80_000], "the buffered bytes count");
        let mode = reader.effective();
        assert_eq!(mode.name, "buffered");
        let place = format!("{} the byte at offset 70000 of a direct read", right[1].display());
        assert!(mode.why.contains(&place), "{mode:?}");
        assert_eq!(read(&reader, 1, 69_999, 3), [3; 3]);
        assert_eq!(reader.alignment(), Alignment::NONE);
    }

    #[test]
    fn only_the_first_read_of_a_file_is_compared() {
        let folder = folder();
        let right = [file(&folder, "a", &[3; 1000])];
        let other = file(&folder, "other", &[3; 1000]);
        let reader = crooked(&right, vec![File::open(&other).unwrap()]);
        assert_eq!(read(&reader, 0, 0, 1000), [3; 1000]);
        let writer = std::fs::OpenOptions::new().write(true).open(&other).unwrap();
        writer.write_all_at(&[9], 5).unwrap();
        assert_eq!(read(&reader, 0, 5, 1), [9]);
        assert_eq!(reader.effective().name, "direct");
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn a_refusal_at_a_read_ends_the_direct_reads_and_is_named() {
        let folder = folder();
        let path = [file(&folder, "a", &[3; 10_000])];
        let plain = OpenFile::open(&path[0], 0).unwrap();
        let Ok((direct, _)) = dio::open(&plain) else { return };
        // It claims that any alignment will do.
        let reader = crooked(&path, vec![direct]);
        assert_eq!(read(&reader, 0, 1, 10), [3; 10]);
        let mode = reader.effective();
        assert_eq!(mode.name, "buffered");
        assert!(mode.why.ends_with("a direct read failed with EINVAL"), "{mode:?}");
    }
}
