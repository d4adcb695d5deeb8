//! What a file of a container holds, and the places that follow from it.

use slotstream_core::{Geometry, LayerIdx, RecordLayout};

use super::RowLayout;
use super::source::ContainerKind;
use crate::Checkpoint;

/// Regions of a file start at multiples of this many bytes, as slots do.
pub(super) const PAGE: u64 = slotstream_core::SLOT_ALIGNMENT as u64;

/// What a file of a container holds.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
#[expect(clippy::large_enum_variant, reason = "there is one a file")]
pub enum Content {
    /// `experts.slots`: records in the order of layer and expert, each the image of a slot.
    #[non_exhaustive]
    Experts {
        /// How many records there are.
        geometry: Geometry,
        /// How a record lies at its stride.
        layout: RecordLayout,
    },
    /// `ngram.rows`: the rows of the n-gram table in order.
    #[non_exhaustive]
    Ngram {
        /// The layer that the rows are for.
        layer: LayerIdx,
        /// Rows of the table, the padding of its last shard included.
        rows: u64,
        /// How a row lies at its stride.
        layout: RowLayout,
    },
}

impl Content {
    /// What a container of this checkpoint holds; `None` when there is no n-gram table to hold.
    pub(super) fn of(checkpoint: &Checkpoint, kind: ContainerKind, pad_rows: bool) -> Option<Self> {
        match kind {
            ContainerKind::Experts => Some(Self::Experts {
                geometry: checkpoint.geometry(),
                layout: checkpoint.record_layout().clone(),
            }),
            ContainerKind::Ngram => {
                let plan = checkpoint.ngram()?;
                let layout = RowLayout::new(plan.row_width, plan.format, pad_rows)?;
                let rows = plan.rows_per_shard.checked_mul(plan.shards.len() as u64)?;
                Some(Self::Ngram { layer: plan.layer, rows, layout })
            }
        }
    }

    /// Which file it is.
    #[must_use]
    pub const fn kind(&self) -> ContainerKind {
        match self {
            Self::Experts { .. } => ContainerKind::Experts,
            Self::Ngram { .. } => ContainerKind::Ngram,
        }
    }

    /// Entries of the checksum table: records, or blocks of rows.
    #[must_use]
    pub fn blocks(&self) -> u64 {
        match self {
            Self::Experts { geometry, .. } => geometry.records() as u64,
            Self::Ngram { rows, layout, .. } => rows.div_ceil(layout.rows_per_block() as u64),
        }
    }

    /// Bytes from block to block.
    pub(super) const fn block_stride(&self) -> usize {
        match self {
            Self::Experts { layout, .. } => layout.stride(),
            Self::Ngram { layout, .. } => layout.rows_per_block() * layout.stride(),
        }
    }

    /// Bytes of the data area before its padding to a page; `None` beyond 64 bits.
    fn data_bytes(&self) -> Option<u64> {
        let (units, stride) = match self {
            Self::Experts { layout, .. } => (self.blocks(), layout.stride()),
            Self::Ngram { rows, layout, .. } => (*rows, layout.stride()),
        };
        units.checked_mul(stride as u64)
    }

    /// Where the bytes of a block lie in the data area, and how many of them are under its
    /// checksum: those of a record without the padding to its stride, and whole rows.
    pub(super) fn block(&self, block: u64) -> Block {
        let stride = self.block_stride();
        let start = block * stride as u64;
        let (len, checked) = match self {
            Self::Experts { layout, .. } => (stride, layout.record_len()),
            Self::Ngram { .. } => {
                let left = self.data_bytes().unwrap_or(0).saturating_sub(start);
                let len = usize::try_from(left).map_or(stride, |left| left.min(stride));
                (len, len)
            }
        };
        Block { start, len, checked }
    }

    /// The places of a file whose header takes `header_len` bytes; `None` when they do not fit a
    /// file position.
    pub(super) fn places(&self, header_len: u64) -> Option<Places> {
        let table = self.blocks().checked_mul(4)?.checked_add(4)?;
        let page = |bytes: u64| bytes.checked_next_multiple_of(PAGE);
        let data_offset = page(header_len.checked_add(table)?)?;
        let file_len = page(data_offset.checked_add(self.data_bytes()?)?)?;
        i64::try_from(file_len).ok()?;
        Some(Places { table_offset: header_len, data_offset, file_len })
    }
}

/// A stretch of the data area with one checksum.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Block {
    /// First byte, from the start of the data area.
    pub(super) start: u64,
    /// Bytes, padding included.
    pub(super) len: usize,
    /// Bytes under the checksum; what follows them is zero.
    pub(super) checked: usize,
}

/// Where the regions of a file begin.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Places {
    pub(super) table_offset: u64,
    pub(super) data_offset: u64,
    pub(super) file_len: u64,
}

#[cfg(test)]
mod tests {
    use slotstream_core::{AffineFormat, ExpertShape};

    use super::*;

    /// The published model; numbers worked out by hand from its config.
    #[test]
    fn the_real_files() {
        let geometry = Geometry::new(48, 512, 10).expect("legal");
        let shape = ExpertShape::new(2560, 640, AffineFormat::Q4_G64).expect("legal");
        let experts = Content::Experts { geometry, layout: RecordLayout::new(shape) };
        let places = experts.places(PAGE).expect("fits");
        assert_eq!((experts.blocks(), places.data_offset), (24_576, 131_072));
        assert_eq!(places.file_len, 131_072 + 24_576 * 2_768_896);
        let last = experts.block(24_575);
        assert_eq!((last.len, last.checked), (2_768_896, 2_764_800));
        assert_eq!(places.data_offset + last.start + last.len as u64, places.file_len);
        for (padded, blocks, data_offset, file_len) in
            [(false, 30_520, 147_456, 32_000_311_296), (true, 39_063, 180_224, 40_960_376_832)]
        {
            let layout = RowLayout::new(160, AffineFormat::Q4_G32, padded).expect("legal");
            let ngram = Content::Ngram { layer: LayerIdx::new(1), rows: 128 * 2_500_012, layout };
            let places = ngram.places(PAGE).expect("fits");
            assert_eq!((ngram.blocks(), places.data_offset), (blocks, data_offset));
            assert_eq!(places.file_len, file_len);
        }
    }

    #[test]
    fn what_fits_no_file() {
        let layout = RowLayout::new(160, AffineFormat::Q4_G32, false).expect("legal");
        for rows in [u64::MAX, u64::MAX / 100, i64::MAX as u64 / 100] {
            let ngram = Content::Ngram { layer: LayerIdx::new(1), rows, layout };
            assert_eq!(ngram.places(PAGE), None, "{rows}");
        }
    }
}
