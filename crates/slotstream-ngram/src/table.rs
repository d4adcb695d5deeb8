//! Where the pieces of a row lie.

use slotstream_checkpoint::{NgramPlan, NgramShard};
use slotstream_core::{AffineFormat, Extent, Part, dequantize_row};

use crate::NgramError;

/// The parts of a row in the order in which they lie in a packed row.
pub(crate) const PARTS: [Part; 3] = [Part::Weight, Part::Scales, Part::Biases];

/// The shape and the shards of a table: from a row id to the extents of its three pieces.
///
/// A *packed row* is the packed words, the bf16 scales and the bf16 biases, one after the other.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NgramTable {
    format: AffineFormat,
    row_width: usize,
    rows_per_shard: u64,
    shards: Box<[NgramShard]>,
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
        if rows.is_none_or(|rows| rows == 0 || i64::try_from(rows).is_err()) {
            return Err(NgramError::Rows { shards: shards.len(), rows_per_shard });
        }
        let table = Self { format, row_width, rows_per_shard, shards: shards.into() };
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

    /// Rows of all shards together.
    #[must_use]
    pub const fn rows(&self) -> u64 {
        self.rows_per_shard * self.shards.len() as u64
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
        let unknown = || NgramError::UnknownRow { row, rows: self.rows() };
        let shard = usize::try_from(self.shard(row)).ok().and_then(|i| self.shards.get(i));
        let arrays = shard.ok_or_else(unknown)?;
        let piece = |part| {
            let len = self.piece_len(part) as u64;
            array(arrays, part).slice(row % self.rows_per_shard * len, len).map_err(|_| unknown())
        };
        Ok([piece(Part::Weight)?, piece(Part::Scales)?, piece(Part::Biases)?])
    }

    /// The shard of a row.
    pub(crate) const fn shard(&self, row: u64) -> u64 {
        row / self.rows_per_shard
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
