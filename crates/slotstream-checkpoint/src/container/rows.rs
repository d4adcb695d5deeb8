//! How a row of the n-gram table lies in `ngram.rows`.

use slotstream_core::AffineFormat;

/// Padded rows start at multiples of this many bytes: none crosses a page of 4 KiB when it is no
/// longer than that.
const ROW_PADDING: usize = 128;

/// Rows that share a checksum have at most this many bytes together.
const BLOCK_BYTES: usize = 1 << 20;

/// The longest row that is described, in values.
const WIDTH_LIMIT: usize = 1 << 20;

/// One of the three parts of a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[expect(clippy::exhaustive_structs, reason = "a part is a stretch of bytes")]
pub struct RowPart {
    /// First byte within the row.
    pub offset: usize,
    /// Length in bytes.
    pub len: usize,
}

/// Where weight, scales and biases lie within a row, and how far rows are apart.
///
/// In the real model 80 + 10 + 10 bytes (160 values of 4 bits in groups of 32), 100 or, padded,
/// 128 bytes apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct RowLayout {
    width: usize,
    format: AffineFormat,
    padded: bool,
}

impl RowLayout {
    /// Rows of `width` values; `padded` puts them at multiples of 128 bytes. `None` unless the
    /// width is a whole number of groups and at most 2^20.
    #[must_use]
    pub fn new(width: usize, format: AffineFormat, padded: bool) -> Option<Self> {
        let legal = width <= WIDTH_LIMIT && format.divides(width);
        legal.then_some(Self { width, format, padded })
    }

    /// Values of a row.
    #[must_use]
    pub const fn width(&self) -> usize {
        self.width
    }

    /// Quantization of a row.
    #[must_use]
    pub const fn format(&self) -> AffineFormat {
        self.format
    }

    /// Weight, scales and biases, one directly after the other.
    #[must_use]
    pub const fn parts(&self) -> [RowPart; 3] {
        let weight = self.format.row_bytes(self.width);
        let groups = self.format.row_groups(self.width) * 2;
        [
            RowPart { offset: 0, len: weight },
            RowPart { offset: weight, len: groups },
            RowPart { offset: weight + groups, len: groups },
        ]
    }

    /// Bytes of a row.
    #[must_use]
    pub const fn row_len(&self) -> usize {
        let [.., last] = self.parts();
        last.offset + last.len
    }

    /// Bytes from row to row.
    #[must_use]
    pub const fn stride(&self) -> usize {
        if self.padded { self.row_len().next_multiple_of(ROW_PADDING) } else { self.row_len() }
    }

    /// Rows that share a checksum; the last block may have fewer.
    #[must_use]
    pub const fn rows_per_block(&self) -> usize {
        let rows = BLOCK_BYTES / self.stride();
        if rows == 0 { 1 } else { rows }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_real_row() {
        let row = RowLayout::new(160, AffineFormat::Q4_G32, false).expect("legal");
        assert_eq!(row.parts().map(|part| part.len), [80, 10, 10]);
        assert_eq!((row.row_len(), row.stride()), (100, 100));
        let padded = RowLayout::new(160, AffineFormat::Q4_G32, true).expect("legal");
        assert_eq!((padded.row_len(), padded.stride()), (100, 128));
        assert_eq!(padded.rows_per_block() * padded.stride(), 1 << 20);
        assert!(RowLayout::new(0, AffineFormat::Q4_G32, true).is_none());
        assert!(RowLayout::new(161, AffineFormat::Q4_G32, true).is_none());
        assert!(RowLayout::new(usize::MAX - 31, AffineFormat::Q4_G32, true).is_none());
    }
}
