//! Where the pieces of a row lie.

use slotstream_checkpoint::{NgramPlan, NgramShard};
use slotstream_core::{AffineFormat, Extent, Part, dequantize_row};

use crate::NgramError;

/// The parts of a row in the order in which they lie in a packed row.
pub(crate) const PARTS: [Part; 3] = [Part::Weight, Part::Scales, Part::Biases];

/// The shape and the place of a table: from a row id to the extents of its bytes.
///
/// A *packed row* is the packed words, the bf16 scales and the bf16 biases, one after the other.
/// A checkpoint has them in three arrays a shard, a repacked container as packed rows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NgramTable {
    format: AffineFormat,
    row_width: usize,
    rows: u64,
    place: Place,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Place {
    Shards {
        rows_per_shard: u64,
        shards: Box<[NgramShard]>,
    },
    /// Packed rows, one every `stride` bytes.
    Packed {
        data: Extent,
        stride: u64,
    },
}

/// One read of a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct RowRead {
    /// `None` of a whole packed row.
    pub(crate) part: Option<Part>,
    /// Its first byte in the packed row.
    pub(crate) start: usize,
    pub(crate) extent: Extent,
}

impl NgramTable {
    /// The table of a checkpoint.
    ///
    /// # Errors
    /// As [`Self::from_shards`].
    pub fn new(plan: &NgramPlan) -> Result<Self, NgramError> {
        Self::from_shards(plan.format, plan.row_width, plan.rows_per_shard, &plan.shards)
    }

    /// A table of `row_width` values a row, quantized by `format`; global row `r` lies in shard
    /// `r / rows_per_shard`.
    ///
    /// # Errors
    /// [`NgramError::RowWidth`], [`NgramError::Rows`] for a table that is empty or too large, and
    /// [`NgramError::ShardLength`] when an extent is not as long as its rows.
    pub fn from_shards(
        format: AffineFormat,
        row_width: usize,
        rows_per_shard: u64,
        shards: &[NgramShard],
    ) -> Result<Self, NgramError> {
        if !format.divides(row_width) {
            return Err(NgramError::RowWidth { row_width, group_size: format.group_size() });
        }
        let rows = rows_per_shard.checked_mul(shards.len() as u64);
        let Some(rows) = rows.filter(|rows| *rows > 0 && i64::try_from(*rows).is_ok()) else {
            return Err(NgramError::Rows { shards: shards.len(), rows_per_shard });
        };
        let place = Place::Shards { rows_per_shard, shards: shards.into() };
        let table = Self { format, row_width, rows, place };
        for (shard, arrays) in shards.iter().enumerate() {
            for part in PARTS {
                // Saturated, a length exceeds every extent's.
                let expected = rows_per_shard.saturating_mul(table.piece_len(part) as u64);
                let found = array(arrays, part).len();
                if found != expected {
                    return Err(NgramError::ShardLength { shard, part, expected, found });
                }
            }
        }
        Ok(table)
    }

    /// A table of packed rows: row `r` begins at byte `r * stride` of `data`.
    ///
    /// # Errors
    /// [`NgramError::RowWidth`], [`NgramError::Rows`], and [`NgramError::PackedLength`] when a row
    /// is longer than the stride or `data` not as long as the rows.
    pub fn from_packed(
        format: AffineFormat,
        row_width: usize,
        rows: u64,
        stride: u64,
        data: Extent,
    ) -> Result<Self, NgramError> {
        if !format.divides(row_width) {
            return Err(NgramError::RowWidth { row_width, group_size: format.group_size() });
        }
        if rows == 0 || i64::try_from(rows).is_err() {
            return Err(NgramError::Rows { shards: 1, rows_per_shard: rows });
        }
        let table = Self { format, row_width, rows, place: Place::Packed { data, stride } };
        let (row_len, found) = (table.row_len(), data.len());
        if (row_len as u64) > stride || rows.checked_mul(stride) != Some(found) {
            return Err(NgramError::PackedLength { rows, row_len, stride, found });
        }
        Ok(table)
    }

    /// Rows of the table.
    #[must_use]
    pub const fn rows(&self) -> u64 {
        self.rows
    }

    /// Reads that a row takes: three of a checkpoint's, one of a packed one.
    #[must_use]
    pub const fn reads_per_row(&self) -> usize {
        match self.place {
            Place::Shards { .. } => PARTS.len(),
            Place::Packed { .. } => 1,
        }
    }

    /// Values of a row.
    #[must_use]
    pub const fn row_width(&self) -> usize {
        self.row_width
    }

    /// Bytes of a packed row: 100 for 160 values of 4 bits in groups of 32.
    #[must_use]
    pub const fn row_len(&self) -> usize {
        self.format.row_bytes(self.row_width) + 4 * self.format.row_groups(self.row_width)
    }

    /// The quantization of a row.
    #[must_use]
    pub const fn format(&self) -> AffineFormat {
        self.format
    }

    /// The extents of the packed words, scales and biases of `row`.
    ///
    /// # Errors
    /// [`NgramError::UnknownRow`] beyond the last row.
    pub fn pieces(&self, row: u64) -> Result<[Extent; 3], NgramError> {
        let unknown = || NgramError::UnknownRow { row, rows: self.rows };
        if row >= self.rows {
            return Err(unknown());
        }
        let piece = |part| {
            let len = self.piece_len(part) as u64;
            let (array, at) = match &self.place {
                Place::Packed { data, stride } => (data, row * stride + self.start(part)),
                Place::Shards { rows_per_shard, shards } => {
                    let shard = usize::try_from(row / rows_per_shard).ok();
                    let arrays = shard.and_then(|i| shards.get(i)).ok_or_else(unknown)?;
                    (array(arrays, part), row % rows_per_shard * len)
                }
            };
            array.slice(at, len).map_err(|_| unknown())
        };
        Ok([piece(Part::Weight)?, piece(Part::Scales)?, piece(Part::Biases)?])
    }

    /// The reads that bring a packed row together, [`reads_per_row`](Self::reads_per_row) of them.
    pub(crate) fn reads(&self, row: u64) -> Result<([RowRead; 3], usize), NgramError> {
        let pieces = self.pieces(row)?;
        let mut reads = std::array::from_fn(|i| RowRead {
            part: Some(PARTS[i]),
            start: self.piece_start(PARTS[i]),
            extent: pieces[i],
        });
        if let Place::Packed { data, stride } = &self.place {
            let extent = data.slice(row * stride, self.row_len() as u64);
            let extent = extent.map_err(|_| NgramError::UnknownRow { row, rows: self.rows })?;
            reads[0] = RowRead { part: None, start: 0, extent };
        }
        Ok((reads, self.reads_per_row()))
    }

    /// The shard of a row, 0 where there are none.
    pub(crate) const fn shard(&self, row: u64) -> u64 {
        match self.place {
            Place::Shards { rows_per_shard, .. } => row / rows_per_shard,
            Place::Packed { .. } => 0,
        }
    }

    fn start(&self, part: Part) -> u64 {
        self.piece_start(part) as u64
    }

    /// Bytes of one piece of a row.
    pub(crate) const fn piece_len(&self, part: Part) -> usize {
        match part {
            Part::Weight => self.format.row_bytes(self.row_width),
            Part::Scales | Part::Biases => 2 * self.format.row_groups(self.row_width),
        }
    }

    /// The first byte of a piece in a packed row.
    pub(crate) const fn piece_start(&self, part: Part) -> usize {
        match part {
            Part::Weight => 0,
            Part::Scales => self.piece_len(Part::Weight),
            Part::Biases => self.piece_len(Part::Weight) + self.piece_len(Part::Scales),
        }
    }

    /// Widens a packed row into `row_width` values, `scale * q + bias` in f32.
    pub(crate) fn dequantize(&self, packed: &[u8], out: &mut [f32]) {
        let (words, rest) = packed.split_at(self.piece_len(Part::Weight));
        let (scales, biases) = rest.split_at(self.piece_len(Part::Scales));
        dequantize_row(self.format, words, scales, biases, out);
    }
}

const fn array(shard: &NgramShard, part: Part) -> &Extent {
    match part {
        Part::Weight => &shard.weight,
        Part::Scales => &shard.scales,
        Part::Biases => &shard.biases,
    }
}
