//! What a reader was asked for.

use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};

use slotstream_core::{Extent, ReadError, ReadRequest, ReaderMode, RecordReader};

use crate::decorator::hand_on;

/// Lengths 0, 1, 2 to 3, 4 to 7, ... up to 2^63.
const SIZES: usize = 65;

/// Counts the reads of another reader. Costs a few atomic additions a read.
///
/// ```
/// use slotstream_core::{Extent, FileId, RecordReader};
/// use slotstream_io::{Counted, MemReader};
/// let reader = Counted::new(MemReader::from_bytes(vec![vec![7; 100]])?);
/// reader.read_exact_at(&Extent::new(FileId::new(0), 2, 50)?, &mut [0; 50])?;
/// let counts = reader.counts();
/// assert_eq!((counts.reads, counts.bytes_asked, counts.max_depth), (1, 50, 1));
/// assert_eq!(counts.sizes().collect::<Vec<_>>(), [(32, 1)]);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct Counted<R> {
    inner: R,
    books: Books,
}

#[derive(Debug)]
struct Books {
    reads: AtomicU64,
    failures: AtomicU64,
    bytes_asked: AtomicU64,
    bytes_read: AtomicU64,
    bytes_issued: AtomicU64,
    depth: AtomicU64,
    max_depth: AtomicU64,
    sizes: [AtomicU64; SIZES],
}

/// What a [`Counted`] has seen. Each number is exact; together they may be of moments that differ
/// by the reads in flight.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct ReadCounts {
    /// Reads that have begun, those that failed included. Each request of a batch is one.
    pub reads: u64,
    /// Reads that failed.
    pub failures: u64,
    /// Bytes of the reads that have begun.
    pub bytes_asked: u64,
    /// Bytes of the reads that succeeded.
    pub bytes_read: u64,
    /// Bytes that those moved, with widening: see [`RecordReader::issued_len`].
    pub bytes_issued: u64,
    /// The largest number of reads in progress at once; a batch is in progress with all its
    /// requests until each has landed.
    pub max_depth: u64,
    sizes: [u64; SIZES],
}

impl ReadCounts {
    /// How many reads asked for how many bytes: the lower end of each class that has reads (0, 1,
    /// 2, 4, 8, ...) and their number, ascending.
    pub fn sizes(&self) -> impl Iterator<Item = (u64, u64)> {
        let lower = |class: usize| class.checked_sub(1).map_or(0, |power| 1 << power);
        self.sizes
            .iter()
            .enumerate()
            .filter(|(_, reads)| **reads > 0)
            .map(move |(class, reads)| (lower(class), *reads))
    }
}

impl<R: RecordReader> Counted<R> {
    /// Counts the reads of `inner`.
    pub const fn new(inner: R) -> Self {
        let books = Books {
            reads: AtomicU64::new(0),
            failures: AtomicU64::new(0),
            bytes_asked: AtomicU64::new(0),
            bytes_read: AtomicU64::new(0),
            bytes_issued: AtomicU64::new(0),
            depth: AtomicU64::new(0),
            max_depth: AtomicU64::new(0),
            sizes: [const { AtomicU64::new(0) }; SIZES],
        };
        Self { inner, books }
    }

    /// The numbers so far.
    pub fn counts(&self) -> ReadCounts {
        let get = |number: &AtomicU64| number.load(Ordering::Relaxed);
        let books = &self.books;
        ReadCounts {
            reads: get(&books.reads),
            failures: get(&books.failures),
            bytes_asked: get(&books.bytes_asked),
            bytes_read: get(&books.bytes_read),
            bytes_issued: get(&books.bytes_issued),
            max_depth: get(&books.max_depth),
            sizes: std::array::from_fn(|class| get(&books.sizes[class])),
        }
    }

    /// The reader behind it.
    pub const fn inner(&self) -> &R {
        &self.inner
    }

    fn landed(&self, extent: &Extent, result: &Result<(), ReadError>) {
        let books = &self.books;
        match result {
            Ok(()) => {
                books.bytes_read.fetch_add(extent.len(), Ordering::Relaxed);
                let issued = self.inner.issued_len(extent);
                books.bytes_issued.fetch_add(issued, Ordering::Relaxed);
            }
            Err(_) => {
                books.failures.fetch_add(1, Ordering::Relaxed);
            }
        }
    }
}

/// Reads in progress; those that are left when it is dropped never landed: something panicked.
struct Depth<'a> {
    books: &'a Books,
    left: u64,
}

impl<'a> Depth<'a> {
    fn begin<'e>(books: &'a Books, extents: impl Iterator<Item = &'e Extent>) -> Self {
        let mut left = 0;
        for extent in extents {
            left += 1;
            books.bytes_asked.fetch_add(extent.len(), Ordering::Relaxed);
            let class = (u64::BITS - extent.len().leading_zeros()) as usize;
            books.sizes[class].fetch_add(1, Ordering::Relaxed);
        }
        books.reads.fetch_add(left, Ordering::Relaxed);
        let depth = books.depth.fetch_add(left, Ordering::Relaxed) + left;
        books.max_depth.fetch_max(depth, Ordering::Relaxed);
        Self { books, left }
    }

    fn end(&mut self) {
        if self.left > 0 {
            self.left -= 1;
            self.books.depth.fetch_sub(1, Ordering::Relaxed);
        }
    }
}

impl Drop for Depth<'_> {
    fn drop(&mut self) {
        self.books.depth.fetch_sub(self.left, Ordering::Relaxed);
    }
}

impl<R: RecordReader> RecordReader for Counted<R> {
    fn read_exact_at(&self, extent: &Extent, buffer: &mut [u8]) -> Result<(), ReadError> {
        let _depth = Depth::begin(&self.books, std::iter::once(extent));
        let result = self.inner.read_exact_at(extent, buffer);
        self.landed(extent, &result);
        result
    }

    fn read_batch(
        &self,
        requests: &mut [ReadRequest<'_>],
        landed: &mut dyn FnMut(usize, Result<(), ReadError>),
    ) {
        let extents: Vec<Extent> = requests.iter().map(|request| request.extent).collect();
        let mut depth = Depth::begin(&self.books, extents.iter());
        self.inner.read_batch(requests, &mut |i, result| {
            if let Some(extent) = extents.get(i) {
                depth.end();
                self.landed(extent, &result);
            }
            landed(i, result);
        });
    }

    fn effective(&self) -> ReaderMode {
        let mut mode = self.inner.effective();
        mode.why.push_str(" (counted)");
        mode
    }

    hand_on!();
}

impl fmt::Display for ReadCounts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { reads, failures, bytes_asked, bytes_issued, max_depth, .. } = self;
        write!(
            f,
            "{reads} reads of {bytes_asked} bytes ({bytes_issued} issued), {failures} failed, \
             {max_depth} at once"
        )
    }
}

#[cfg(test)]
mod tests {
    use slotstream_core::FileId;

    use super::*;
    use crate::MemReader;

    fn extent(offset: u64, len: u64) -> Extent {
        Extent::new(FileId::new(0), offset, len).unwrap()
    }

    #[test]
    fn counts_what_was_asked_and_what_came() {
        let reader = Counted::new(MemReader::from_bytes(vec![vec![1; 1000]]).unwrap());
        for (offset, len, good) in [(0, 0, true), (5, 1, true), (9, 512, true), (999, 2, false)] {
            let result = reader.read_exact_at(&extent(offset, len), &mut vec![0; len as usize]);
            assert_eq!(result.is_ok(), good);
        }
        let mut buffers = [[0; 3]; 4];
        let mut requests: Vec<ReadRequest<'_>> =
            buffers.iter_mut().map(|buffer| ReadRequest { extent: extent(4, 3), buffer }).collect();
        reader.read_batch(&mut requests, &mut |_, result| result.unwrap());
        let counts = reader.counts();
        assert_eq!((counts.reads, counts.failures), (8, 1));
        assert_eq!((counts.bytes_asked, counts.bytes_read), (527, 525));
        assert_eq!((counts.bytes_issued, counts.max_depth), (525, 4));
        assert_eq!(counts.sizes().collect::<Vec<_>>(), [(0, 1), (1, 1), (2, 5), (512, 1)]);
        assert!(counts.to_string().starts_with("8 reads of 527 bytes"), "{counts}");
        assert_eq!(reader.books.depth.load(Ordering::Relaxed), 0);
    }

    #[test]
    fn a_panic_leaves_no_read_in_progress() {
        let reader = Counted::new(MemReader::from_bytes(vec![vec![1; 10]]).unwrap());
        let run = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            let (mut a, mut b) = ([0; 1], [0; 1]);
            let mut requests = [
                ReadRequest { extent: extent(0, 1), buffer: &mut a },
                ReadRequest { extent: extent(1, 1), buffer: &mut b },
            ];
            reader.read_batch(&mut requests, &mut |_, _| panic!("on purpose"));
        }));
        assert!(run.is_err());
        assert_eq!(reader.books.depth.load(Ordering::Relaxed), 0);
        let largest = Extent::new(FileId::new(0), 0, i64::MAX as u64).unwrap();
        assert!(reader.read_exact_at(&largest, &mut []).is_err());
        assert_eq!(reader.counts().sizes().last(), Some((1 << 62, 1)));
    }
}
