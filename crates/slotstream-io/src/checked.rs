//! Reads that are compared with checksums.

use std::path::Path;
use std::sync::Arc;

use slotstream_core::{Extent, FileId, ReadError, ReaderMode, RecordReader};

use crate::decorator::hand_on;

/// CRC-32 (IEEE) of blocks of one file that lie a fixed stride apart.
#[derive(Clone, Debug)]
pub struct ChecksumTable {
    file: FileId,
    first: u64,
    stride: u64,
    len: u64,
    sums: Vec<u32>,
}

impl ChecksumTable {
    /// Block `i` has `len` bytes from byte `first + i * stride` of `file` on, and the checksum
    /// `sums[i]`. `None` unless blocks have bytes, do not overlap and end below 2^63.
    #[must_use]
    pub fn new(file: FileId, first: u64, stride: u64, len: u64, sums: Vec<u32>) -> Option<Self> {
        let end = stride.checked_mul(sums.len() as u64)?.checked_add(first)?;
        let legal = len > 0 && len <= stride && i64::try_from(end).is_ok();
        legal.then_some(Self { file, first, stride, len, sums })
    }

    /// Memory of the checksums.
    #[must_use]
    pub const fn bytes(&self) -> u64 {
        4 * self.sums.len() as u64
    }

    /// The blocks that lie wholly in an extent, with their checksums.
    fn within(&self, extent: &Extent) -> impl Iterator<Item = (Extent, u32)> {
        let skipped = extent.offset().saturating_sub(self.first).div_ceil(self.stride);
        let (file, own) = (self.file, extent.file() == self.file);
        let start = if own { usize::try_from(skipped).unwrap_or(usize::MAX) } else { usize::MAX };
        let (end, stride, len) = (extent.end(), self.stride, self.len);
        let at = move |i: u64| self.first + i * stride;
        let sums = self.sums.get(start..).unwrap_or_default();
        (skipped..)
            .zip(sums)
            .take_while(move |(i, _)| at(*i) + len <= end)
            .filter_map(move |(i, sum)| Some((Extent::new(file, at(i), len).ok()?, *sum)))
    }
}

/// Compares what another reader brings with checksums: of each read, every block of the table that
/// lies wholly in it. What lies in no block is handed on unseen.
///
/// A block that differs is [`ReadError::Checksum`], and is not read again: put a `Checked` around
/// each copy of a [`MirrorReader`](crate::MirrorReader), and another copy brings it.
///
/// ```
/// use slotstream_core::{Extent, FileId, ReadError, RecordReader};
/// use slotstream_io::{Checked, ChecksumTable, MemReader};
/// let file = FileId::new(0);
/// let bytes = b"123456789 123456780 ".to_vec();
/// // CRC-32 of the text "123456789".
/// let table = ChecksumTable::new(file, 0, 10, 9, vec![0xCBF4_3926; 2]).unwrap();
/// let reader = Checked::new(MemReader::from_bytes(vec![bytes])?, table);
/// let mut buffer = [0; 10];
/// reader.read_exact_at(&Extent::new(file, 0, 10)?, &mut buffer)?;
/// let damaged = reader.read_exact_at(&Extent::new(file, 10, 10)?, &mut buffer);
/// assert!(matches!(damaged, Err(ReadError::Checksum { offset: 10, .. })));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct Checked<R> {
    inner: R,
    table: ChecksumTable,
}

impl<R: RecordReader> Checked<R> {
    /// Compares the reads of `inner` with `table`.
    pub const fn new(inner: R, table: ChecksumTable) -> Self {
        Self { inner, table }
    }

    /// The reader behind it.
    pub const fn inner(&self) -> &R {
        &self.inner
    }
}

impl Checked<Arc<dyn RecordReader>> {
    /// `reader`, and around it what compares its reads with `table` when there is one.
    #[must_use]
    pub fn when(
        reader: Arc<dyn RecordReader>,
        table: Option<&ChecksumTable>,
    ) -> Arc<dyn RecordReader> {
        match table {
            Some(table) => Arc::new(Self::new(reader, table.clone())),
            None => reader,
        }
    }
}

impl<R: RecordReader> RecordReader for Checked<R> {
    fn read_exact_at(&self, extent: &Extent, buffer: &mut [u8]) -> Result<(), ReadError> {
        self.inner.read_exact_at(extent, buffer)?;
        for (block, expected) in self.table.within(extent) {
            // Within the extent, which the buffer is as long as.
            let skip = (block.offset() - extent.offset()) as usize;
            let bytes = buffer.get(skip..skip + block.len() as usize).unwrap_or_default();
            let found = crc32fast::hash(bytes);
            if found != expected {
                let path = self.inner.path(block.file()).unwrap_or(Path::new("a file in memory"));
                return Err(ReadError::checksum(path, &block, expected, found));
            }
        }
        Ok(())
    }

    fn effective(&self) -> ReaderMode {
        let ReaderMode { name, why, .. } = self.inner.effective();
        let blocks = self.table.sums.len();
        ReaderMode::new(name, format!("{why}; {blocks} blocks are compared with their checksums"))
    }

    hand_on!();
}
