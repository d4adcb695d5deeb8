//! Byte-identical copies on several disks, read as one.

mod compare;
mod load;

use std::path::Path;
use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use slotstream_core::{
    Advice, Alignment, ErrorKind, Extent, FileId, ReadError, ReaderMode, RecordReader,
};

use self::compare::Difference;
use self::load::Load;
use crate::IoError;

/// Several copies of the same files on disks of their own: together they read faster than each,
/// and one may fail.
///
/// **Which copy is read.** The one with the earliest estimated finish: the work it still has to do
/// and that of the request, divided by the rate of all its reads together while it was busy. The
/// work of a read is its bytes and 512 KiB, for what it takes beside them. Copies whose estimates
/// are about equal share the reads. A copy that was slow is tried again when the others have worked
/// for sixteen times what a read of it would take, or after ten seconds. Reads spread over the disks when
/// several are in progress, as from a [`LaneQueue`](crate::LaneQueue); the requests of one batch
/// are read one after the other.
///
/// **Files that a copy lacks** ([`Self::partial`]) are read from the others, and are compared among
/// those that have them.
///
/// **When a read fails** it is repeated on the other copies. If one of them brings the bytes, the
/// copy that failed is left out from then on, and [`effective`] names it with the error. If none
/// does, the first error is returned and no copy is left out: then it may be the request that is
/// wrong.
///
/// **What is compared.** At the making: the number of files, the length of each where the readers
/// know it, and where one knows it the first, the middle and the last 4,096 bytes of each file. At
/// use: the whole of the first four reads of each file, from every copy. Nothing else: what differs
/// elsewhere is found only by a [`Checked`](crate::Checked) around each copy. Copies that differ
/// are refused, at the making by [`IoError::CopiesDiffer`], at use by [`ReadError::CopiesDiffer`],
/// for that read and all later ones.
///
/// **Changes.** [`check_unchanged`] checks the copies that are in use. A copy that changed is
/// reported once, because earlier reads may have come from it, and left out. A copy that is left
/// out because a read of it ended early, or had a wrong checksum, is asked at once.
///
/// Paths in errors are those of the copy that failed; [`path`] is that of the first copy.
///
/// ```
/// use std::sync::Arc;
/// use slotstream_core::{Extent, FileId, RecordReader};
/// use slotstream_io::{MemReader, MirrorReader};
/// let copy = || Arc::new(MemReader::from_bytes(vec![b"the same bytes".to_vec()]).unwrap()) as _;
/// let mirror = MirrorReader::new(vec![copy(), copy()])?;
/// let mut buffer = [0; 4];
/// mirror.read_exact_at(&Extent::new(FileId::new(0), 4, 4)?, &mut buffer)?;
/// assert_eq!(&buffer, b"same");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// [`effective`]: RecordReader::effective
/// [`check_unchanged`]: RecordReader::check_unchanged
/// [`path`]: RecordReader::path
#[derive(Debug)]
pub struct MirrorReader {
    copies: Vec<Copy>,
    loads: Mutex<Vec<Load>>,
    began: Instant,
    /// Reads of each file that are still to be compared.
    to_compare: Vec<AtomicU8>,
    /// Why nothing is read any more.
    refused: OnceLock<Difference>,
    /// A copy that changed and that nobody was told of.
    owed: Mutex<Option<ReadError>>,
}

#[derive(Debug)]
struct Copy {
    reader: Arc<dyn RecordReader>,
    /// Files that it does not have.
    lacks: Vec<FileId>,
    /// Bytes of the reads that succeeded.
    bytes: AtomicU64,
    /// Why it is not read any more.
    left_out: OnceLock<String>,
}

/// What one copy of a mirror has read.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct CopyShare {
    /// Reads that were begun.
    pub reads: u64,
    /// Bytes of those that succeeded.
    pub bytes: u64,
    /// Why it is not read any more.
    pub left_out: Option<String>,
}

impl Copy {
    fn has(&self, file: FileId) -> bool {
        !self.lacks.contains(&file)
    }
}

/// A read in flight: its end is counted even if the reader panics.
struct InFlight<'a> {
    mirror: &'a MirrorReader,
    copy: usize,
    bytes: u64,
}

impl Drop for InFlight<'_> {
    fn drop(&mut self) {
        let now = self.mirror.began.elapsed();
        self.mirror.loads.lock()[self.copy].end(now, self.bytes);
    }
}

impl MirrorReader {
    /// The largest number of copies.
    pub const MAX_COPIES: usize = 64;

    /// Joins copies, each a reader of the same files in the same order.
    ///
    /// # Errors
    /// [`IoError::Copies`] for none or more than [`Self::MAX_COPIES`]; [`IoError::CopiesDiffer`];
    /// [`IoError::CopyUnread`] when a copy cannot be read at once.
    pub fn new(copies: Vec<Arc<dyn RecordReader>>) -> Result<Self, IoError> {
        Self::partial(copies.into_iter().map(|reader| (reader, Vec::new())).collect())
    }

    /// Joins copies of which some lack files: each a reader of as many files in the same order,
    /// and the numbers of those that it is not to be asked for. The first copy must have all.
    ///
    /// # Errors
    /// As [`Self::new`]; what the first copy is said to lack is not looked at.
    pub fn partial(copies: Vec<(Arc<dyn RecordReader>, Vec<FileId>)>) -> Result<Self, IoError> {
        let (found, limit) = (copies.len(), Self::MAX_COPIES);
        if found == 0 || found > limit {
            return Err(IoError::Copies { found, limit });
        }
        let files = compare::files(&copies)?;
        let copy = |(i, (reader, lacks))| Copy {
            reader,
            lacks: if i == 0 { Vec::new() } else { lacks },
            bytes: AtomicU64::new(0),
            left_out: OnceLock::new(),
        };
        let copies: Vec<Copy> = copies.into_iter().enumerate().map(copy).collect();
        Ok(Self {
            loads: Mutex::new(copies.iter().map(|_| Load::default()).collect()),
            copies,
            began: Instant::now(),
            to_compare: (0..files).map(|_| AtomicU8::new(compare::FIRST_READS)).collect(),
            refused: OnceLock::new(),
            owed: Mutex::new(None),
        })
    }

    /// What each copy has read so far, in the order in which they were given.
    #[must_use]
    pub fn shares(&self) -> Vec<CopyShare> {
        let reads: Vec<u64> = self.loads.lock().iter().map(|load| load.reads).collect();
        let share = |(copy, reads): (&Copy, u64)| CopyShare {
            reads,
            bytes: copy.bytes.load(Ordering::Relaxed),
            left_out: copy.left_out.get().cloned(),
        };
        self.copies.iter().zip(reads).map(share).collect()
    }

    fn in_use(&self) -> impl Iterator<Item = (usize, &Copy)> {
        self.copies.iter().enumerate().filter(|(_, copy)| copy.left_out.get().is_none())
    }

    /// Chooses a copy that was not `tried` and begins a read of it.
    fn begin(&self, file: FileId, tried: u64, bytes: u64) -> Option<InFlight<'_>> {
        let now = self.now();
        // Asked once: another thread may leave a copy out while this one chooses.
        let having = || self.copies.iter().enumerate().filter(|(_, copy)| copy.has(file));
        let in_use = mask(having().filter(|(_, copy)| copy.left_out.get().is_none()));
        // Without a copy in use that has the file, one that was left out for another file may do.
        let of = if in_use == 0 { mask(having()) } else { in_use };
        let copy = load::begin(&mut self.loads.lock(), now, bytes, of & !tried)?;
        Some(InFlight { mirror: self, copy, bytes })
    }

    fn now(&self) -> Duration {
        self.began.elapsed()
    }

    /// Reads a copy no more.
    fn leave_out(&self, copy: usize, error: &ReadError) {
        let why = match std::error::Error::source(error) {
            Some(source) => format!("{error}: {source}"),
            None => error.to_string(),
        };
        self.copies[copy].left_out.get_or_init(|| {
            tracing::warn!(copy, why, "a copy is left out of the mirror");
            why
        });
    }

    /// The reads of `failed` copies failed where another one succeeded.
    fn leave_out_all(&self, failed: Vec<(usize, ReadError)>) {
        for (copy, error) in failed {
            self.leave_out(copy, &error);
            if error.kind() == ErrorKind::Corrupt
                && let Err(changed) = self.copies[copy].reader.check_unchanged()
            {
                self.owed.lock().get_or_insert(changed);
            }
        }
    }

    fn refusal(&self) -> Result<(), ReadError> {
        match self.refused.get() {
            Some(Difference { first, other, what }) => {
                Err(ReadError::copies_differ(first, other, what.as_str()))
            }
            None => Ok(()),
        }
    }

    /// Compares the first reads of a file with those of the other copies.
    fn compare(&self, extent: &Extent, buffer: &[u8], from: usize) -> Result<(), ReadError> {
        let Some(left) = self.to_compare.get(extent.file().index()) else { return Ok(()) };
        let less = |left: u8| left.checked_sub(1);
        if left.load(Ordering::Relaxed) == 0
            || left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, less).is_err()
        {
            return Ok(());
        }
        let mut other = Vec::new();
        for (i, copy) in self.in_use().filter(|(i, c)| *i != from && c.has(extent.file())) {
            other.resize(buffer.len(), 0);
            match copy.reader.read_exact_at(extent, &mut other) {
                Ok(()) => {
                    let pair = [&self.copies[from].reader, &copy.reader];
                    if let Some(what) = compare::difference(pair, extent, [buffer, &other]) {
                        self.refused.get_or_init(|| what);
                    }
                }
                Err(error) => self.leave_out_all(vec![(i, error)]),
            }
        }
        self.refusal()
    }
}

/// One bit for each of the copies.
fn mask<'a>(copies: impl Iterator<Item = (usize, &'a Copy)>) -> u64 {
    copies.fold(0, |mask, (i, _)| mask | 1 << i)
}

/// Whether another copy could not do better.
fn is_request(error: &ReadError) -> bool {
    matches!(error.kind(), ErrorKind::Bug | ErrorKind::Cancelled)
}

impl RecordReader for MirrorReader {
    fn read_exact_at(&self, extent: &Extent, buffer: &mut [u8]) -> Result<(), ReadError> {
        self.refusal()?;
        let mut tried = 0;
        let mut failed = Vec::new();
        while let Some(read) = self.begin(extent.file(), tried, buffer.len() as u64) {
            let copy = read.copy;
            tried |= 1 << copy;
            let result = self.copies[copy].reader.read_exact_at(extent, buffer);
            drop(read);
            match result {
                Ok(()) => {
                    self.copies[copy].bytes.fetch_add(buffer.len() as u64, Ordering::Relaxed);
                    self.leave_out_all(failed);
                    return self.compare(extent, buffer, copy);
                }
                Err(error) if is_request(&error) => return Err(error),
                Err(error) => failed.push((copy, error)),
            }
        }
        let first = failed.into_iter().next().map(|(_, error)| error);
        Err(first.unwrap_or_else(|| ReadError::other(extent, "no copy has the file")))
    }

    /// The largest of the copies in use: what suits all of them.
    fn alignment(&self) -> Alignment {
        self.in_use().map(|(_, copy)| copy.reader.alignment()).fold(Alignment::NONE, |a, b| {
            Alignment {
                memory: a.memory.max(b.memory),
                offset: a.offset.max(b.offset),
                length: a.length.max(b.length),
            }
        })
    }

    fn effective(&self) -> ReaderMode {
        let tell = |(i, copy): (usize, &Copy)| match copy.left_out.get() {
            Some(why) => format!("copy {i} left out: {why}"),
            None => {
                let ReaderMode { name, why, .. } = copy.reader.effective();
                format!("copy {i}: {name}, {why}")
            }
        };
        let copies: Vec<String> = self.copies.iter().enumerate().map(tell).collect();
        let mut why = format!("{} copies; {}", copies.len(), copies.join("; "));
        if let Some(Difference { other, what, .. }) = self.refused.get() {
            why = format!("refused: {} {what}; {why}", other.display());
        }
        ReaderMode::new("mirror", why)
    }

    /// The largest of the copies in use, one of which will be read.
    fn issued_len(&self, extent: &Extent) -> u64 {
        let issued = self.in_use().map(|(_, copy)| copy.reader.issued_len(extent));
        issued.max().unwrap_or(extent.len())
    }

    /// To every copy in use, except [`Advice::WillNeed`]: only one of them will be read.
    fn advise(&self, extent: &Extent, advice: Advice) {
        if advice != Advice::WillNeed {
            self.in_use().for_each(|(_, copy)| copy.reader.advise(extent, advice));
        }
    }

    fn check_unchanged(&self) -> Result<(), ReadError> {
        self.refusal()?;
        if let Some(owed) = self.owed.lock().take() {
            return Err(owed);
        }
        for (i, copy) in self.in_use() {
            if let Err(error) = copy.reader.check_unchanged() {
                // The last one stays: without it there is nothing.
                if self.in_use().count() > 1 {
                    self.leave_out(i, &error);
                }
                return Err(error);
            }
        }
        Ok(())
    }

    fn file_len(&self, file: FileId) -> Option<u64> {
        self.copies.iter().find_map(|copy| copy.reader.file_len(file))
    }

    /// All copies together.
    fn held_bytes(&self) -> u64 {
        self.copies.iter().fold(0, |sum, copy| sum.saturating_add(copy.reader.held_bytes()))
    }

    fn path(&self, file: FileId) -> Option<&Path> {
        self.copies.first().and_then(|copy| copy.reader.path(file))
    }
}
