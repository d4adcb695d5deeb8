//! How a record lies in a slot.

use crate::{AffineFormat, CoreError};

/// Slots start at multiples of this many bytes, on every platform (Apple's page size).
pub const SLOT_ALIGNMENT: usize = 16 * 1024;

/// Pieces start at multiples of this many bytes within a slot (a cache line).
pub const PIECE_ALIGNMENT: usize = 64;

/// One of the three matrices of an expert.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[expect(clippy::exhaustive_enums, reason = "a gated MLP has exactly these matrices")]
pub enum Matrix {
    /// `gate_proj`, `[intermediate, hidden]`.
    Gate,
    /// `up_proj`, `[intermediate, hidden]`.
    Up,
    /// `down_proj`, `[hidden, intermediate]`.
    Down,
}

/// One of the three arrays of an affine-quantized matrix.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[expect(clippy::exhaustive_enums, reason = "affine quantization has exactly these arrays")]
pub enum Part {
    /// Packed words (`.weight`).
    Weight,
    /// bf16 scales (`.scales`).
    Scales,
    /// bf16 biases (`.biases`).
    Biases,
}

/// The nine pieces of a record in the order in which they lie in a slot.
pub const PIECE_ORDER: [(Matrix, Part); 9] = [
    (Matrix::Gate, Part::Weight),
    (Matrix::Gate, Part::Scales),
    (Matrix::Gate, Part::Biases),
    (Matrix::Up, Part::Weight),
    (Matrix::Up, Part::Scales),
    (Matrix::Up, Part::Biases),
    (Matrix::Down, Part::Weight),
    (Matrix::Down, Part::Scales),
    (Matrix::Down, Part::Biases),
];

/// The shape of one expert: a gated MLP with affine-quantized matrices.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ExpertShape {
    hidden: u32,
    intermediate: u32,
    format: AffineFormat,
}

impl ExpertShape {
    /// `hidden` is `hidden_size`, `intermediate` is `moe_intermediate_size`.
    ///
    /// # Errors
    /// [`CoreError::ExpertShape`] unless both are whole numbers of groups and at most 2^20.
    pub fn new(
        hidden: usize,
        intermediate: usize,
        format: AffineFormat,
    ) -> Result<Self, CoreError> {
        let error =
            CoreError::ExpertShape { hidden, intermediate, group_size: format.group_size() };
        if !format.divides(hidden) || !format.divides(intermediate) {
            return Err(error);
        }
        match (u32::try_from(hidden), u32::try_from(intermediate)) {
            (Ok(h), Ok(i)) if h <= 1 << 20 && i <= 1 << 20 => {
                Ok(Self { hidden: h, intermediate: i, format })
            }
            _ => Err(error),
        }
    }

    /// Width of the model (`hidden_size`).
    #[must_use]
    pub const fn hidden(&self) -> usize {
        self.hidden as usize
    }

    /// Width of the expert (`moe_intermediate_size`).
    #[must_use]
    pub const fn intermediate(&self) -> usize {
        self.intermediate as usize
    }

    /// Quantization of all three matrices.
    #[must_use]
    pub const fn format(&self) -> AffineFormat {
        self.format
    }

    /// Rows and columns of a matrix.
    #[must_use]
    pub const fn dims(&self, matrix: Matrix) -> (usize, usize) {
        match matrix {
            Matrix::Gate | Matrix::Up => (self.intermediate(), self.hidden()),
            Matrix::Down => (self.hidden(), self.intermediate()),
        }
    }

    /// Bytes of one piece.
    #[must_use]
    pub const fn piece_len(&self, matrix: Matrix, part: Part) -> usize {
        let (rows, cols) = self.dims(matrix);
        match part {
            Part::Weight => rows * self.format.row_bytes(cols),
            Part::Scales | Part::Biases => rows * self.format.row_groups(cols) * 2,
        }
    }
}

/// One piece of a record: where its bytes lie within the slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Piece {
    /// Which matrix.
    pub matrix: Matrix,
    /// Which array of it.
    pub part: Part,
    /// First byte within the slot, a multiple of [`PIECE_ALIGNMENT`].
    pub offset: usize,
    /// Length in bytes.
    pub len: usize,
}

/// Where the nine pieces of a record lie within a slot.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct RecordLayout {
    shape: ExpertShape,
    pieces: [Piece; 9],
    record_len: usize,
    payload_len: usize,
    stride: usize,
}

impl RecordLayout {
    /// The layout of records of this shape: gate, up, down; of each weight, scales, biases.
    #[must_use]
    pub fn new(shape: ExpertShape) -> Self {
        let (mut at, mut payload_len) = (0_usize, 0);
        let pieces = PIECE_ORDER.map(|(matrix, part)| {
            let offset = at.next_multiple_of(PIECE_ALIGNMENT);
            let len = shape.piece_len(matrix, part);
            at = offset + len;
            payload_len += len;
            Piece { matrix, part, offset, len }
        });
        let stride = at.next_multiple_of(SLOT_ALIGNMENT);
        Self { shape, pieces, record_len: at, payload_len, stride }
    }

    /// The expert's shape.
    #[must_use]
    pub const fn shape(&self) -> ExpertShape {
        self.shape
    }

    /// The nine pieces, in [`PIECE_ORDER`].
    #[must_use]
    pub const fn pieces(&self) -> &[Piece; 9] {
        &self.pieces
    }

    /// The piece of one array of one matrix.
    #[must_use]
    pub const fn piece(&self, matrix: Matrix, part: Part) -> Piece {
        self.pieces[3 * matrix as usize + part as usize]
    }

    /// Bytes from the first piece to the end of the last, padding between pieces included.
    #[must_use]
    pub const fn record_len(&self) -> usize {
        self.record_len
    }

    /// Bytes of the pieces alone: what a read of the record asks for.
    #[must_use]
    pub const fn payload_len(&self) -> usize {
        self.payload_len
    }

    /// Distance between slots: `record_len` rounded up to [`SLOT_ALIGNMENT`].
    #[must_use]
    pub const fn stride(&self) -> usize {
        self.stride
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn real_record() {
        let shape = ExpertShape::new(2560, 640, AffineFormat::Q4_G64).expect("legal");
        let layout = RecordLayout::new(shape);
        assert_eq!(layout.payload_len(), 2_764_800);
        assert_eq!(layout.record_len(), 2_764_800);
        assert_eq!(layout.stride(), 2_768_896);
        assert_eq!(layout.piece(Matrix::Down, Part::Scales).offset, 2 * 921_600 + 819_200);
    }

    #[test]
    fn pieces_are_in_order_aligned_and_disjoint() {
        let shape = ExpertShape::new(64, 64, AffineFormat::Q4_G64).expect("legal");
        let layout = RecordLayout::new(shape);
        let mut end = 0;
        for (piece, want) in layout.pieces().iter().zip(PIECE_ORDER) {
            assert_eq!((piece.matrix, piece.part), want);
            assert_eq!(layout.piece(piece.matrix, piece.part), *piece);
            assert!(piece.offset >= end && piece.offset.is_multiple_of(PIECE_ALIGNMENT));
            end = piece.offset + piece.len;
        }
        assert_eq!(end, layout.record_len());
        assert!(layout.stride() >= layout.record_len());
    }

    #[test]
    fn illegal_shapes() {
        assert!(ExpertShape::new(100, 64, AffineFormat::Q4_G64).is_err());
        assert!(ExpertShape::new(0, 64, AffineFormat::Q4_G64).is_err());
        assert!(ExpertShape::new(64 << 20, 64, AffineFormat::Q4_G64).is_err());
    }
}
