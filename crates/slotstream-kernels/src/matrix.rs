//! Weight matrices as they lie in the checkpoint.

use slotstream_core::{AffineFormat, ExpertShape, Matrix, Part, RecordLayout};

/// Bytes that are not a matrix of the stated shape.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum MatrixError {
    /// The columns do not consist of whole groups.
    #[error("{cols} columns do not consist of whole groups of {group_size}")]
    #[non_exhaustive]
    Groups {
        /// Columns of the matrix.
        cols: usize,
        /// Group size of the format.
        group_size: usize,
    },
    /// An array has the wrong length.
    #[error("{part} of a {rows} x {cols} matrix hold {got} bytes, expected {wanted}")]
    #[non_exhaustive]
    Length {
        /// `weight`, `scales` or `biases`.
        part: &'static str,
        /// Rows of the matrix.
        rows: usize,
        /// Columns of the matrix.
        cols: usize,
        /// Bytes given.
        got: usize,
        /// Bytes wanted.
        wanted: usize,
    },
}

impl MatrixError {
    /// What the caller can do about it.
    #[must_use]
    pub const fn kind(&self) -> slotstream_core::ErrorKind {
        slotstream_core::ErrorKind::Bug
    }
}

fn check(
    part: &'static str,
    (rows, cols): (usize, usize),
    got: usize,
    row_bytes: usize,
) -> Result<(), MatrixError> {
    let wanted = rows * row_bytes;
    if got == wanted { Ok(()) } else { Err(MatrixError::Length { part, rows, cols, got, wanted }) }
}

/// An affine-quantized matrix `[rows, cols]`: packed words, bf16 scales and biases, little-endian
/// and at any alignment.
#[derive(Clone, Copy, Debug)]
pub struct AffineMatrix<'a> {
    format: AffineFormat,
    rows: usize,
    cols: usize,
    weight: &'a [u8],
    scales: &'a [u8],
    biases: &'a [u8],
}

impl<'a> AffineMatrix<'a> {
    /// Checked construction.
    ///
    /// # Errors
    /// [`MatrixError`] when a length does not fit `rows` x `cols`.
    pub fn new(
        format: AffineFormat,
        rows: usize,
        cols: usize,
        weight: &'a [u8],
        scales: &'a [u8],
        biases: &'a [u8],
    ) -> Result<Self, MatrixError> {
        if !format.divides(cols) {
            return Err(MatrixError::Groups { cols, group_size: format.group_size() });
        }
        check("weight", (rows, cols), weight.len(), format.row_bytes(cols))?;
        check("scales", (rows, cols), scales.len(), 2 * format.row_groups(cols))?;
        check("biases", (rows, cols), biases.len(), 2 * format.row_groups(cols))?;
        Ok(Self { format, rows, cols, weight, scales, biases })
    }

    /// One of the three matrices of a record that lies in a slot.
    ///
    /// # Panics
    /// When `record` is shorter than the layout's `record_len`.
    #[must_use]
    pub fn of_record(layout: &RecordLayout, record: &'a [u8], matrix: Matrix) -> Self {
        let shape: ExpertShape = layout.shape();
        let (rows, cols) = shape.dims(matrix);
        let bytes = |part| {
            let piece = layout.piece(matrix, part);
            &record[piece.offset..piece.offset + piece.len]
        };
        Self {
            format: shape.format(),
            rows,
            cols,
            weight: bytes(Part::Weight),
            scales: bytes(Part::Scales),
            biases: bytes(Part::Biases),
        }
    }

    /// Bits and group size.
    #[must_use]
    pub const fn format(&self) -> AffineFormat {
        self.format
    }

    /// Output features.
    #[must_use]
    pub const fn rows(&self) -> usize {
        self.rows
    }

    /// Input features.
    #[must_use]
    pub const fn cols(&self) -> usize {
        self.cols
    }

    /// Packed words of one row.
    #[must_use]
    pub fn weight_row(&self, row: usize) -> &'a [u8] {
        let len = self.format.row_bytes(self.cols);
        &self.weight[row * len..(row + 1) * len]
    }

    /// bf16 scales of one row.
    #[must_use]
    pub fn scales_row(&self, row: usize) -> &'a [u8] {
        let len = 2 * self.format.row_groups(self.cols);
        &self.scales[row * len..(row + 1) * len]
    }

    /// bf16 biases of one row.
    #[must_use]
    pub fn biases_row(&self, row: usize) -> &'a [u8] {
        let len = 2 * self.format.row_groups(self.cols);
        &self.biases[row * len..(row + 1) * len]
    }
}

impl<'a> AffineMatrix<'a> {
    /// Packed words, bf16 scales and biases of all rows.
    pub(crate) fn arrays(&self) -> (&'a [u8], &'a [u8], &'a [u8]) {
        (self.weight, self.scales, self.biases)
    }
}

/// A bf16 matrix `[rows, cols]`, little-endian and at any alignment.
#[derive(Clone, Copy, Debug)]
pub struct Bf16Matrix<'a> {
    rows: usize,
    cols: usize,
    bytes: &'a [u8],
}

impl<'a> Bf16Matrix<'a> {
    /// Checked construction.
    ///
    /// # Errors
    /// [`MatrixError`] when the length does not fit `rows` x `cols`.
    pub fn new(rows: usize, cols: usize, bytes: &'a [u8]) -> Result<Self, MatrixError> {
        check("weight", (rows, cols), bytes.len(), 2 * cols)?;
        Ok(Self { rows, cols, bytes })
    }

    /// Output features.
    #[must_use]
    pub const fn rows(&self) -> usize {
        self.rows
    }

    /// Input features.
    #[must_use]
    pub const fn cols(&self) -> usize {
        self.cols
    }

    /// All rows.
    pub(crate) fn bytes(&self) -> &'a [u8] {
        self.bytes
    }

    /// One row.
    #[must_use]
    pub fn row(&self, row: usize) -> &'a [u8] {
        &self.bytes[2 * row * self.cols..2 * (row + 1) * self.cols]
    }
}
