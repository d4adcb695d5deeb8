//! Random inputs, and the numbers that make trouble.

use slotstream_core::{AffineFormat, bf16_to_f32, f32_to_bf16};
use slotstream_kernels::{AffineMatrix, Bf16Matrix};

/// Xorshift.
pub(crate) struct Random(u64);

impl Random {
    pub(crate) fn new(seed: u64) -> Self {
        Self(seed.wrapping_add(1).wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1)
    }

    pub(crate) fn bits(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    /// In `-1..1`, a bf16.
    pub(crate) fn value(&mut self) -> f32 {
        bf16_to_f32(f32_to_bf16((self.bits() >> 40) as f32 / (1_u64 << 23) as f32 - 1.0))
    }

    pub(crate) fn values(&mut self, len: usize) -> Vec<f32> {
        (0..len).map(|_| self.value()).collect()
    }

    pub(crate) fn scaled(&mut self, len: usize, scale: f32) -> Vec<f32> {
        (0..len).map(|_| scale * self.value()).collect()
    }

    pub(crate) fn bytes(&mut self, len: usize) -> Vec<u8> {
        (0..len).map(|_| (self.bits() >> 32) as u8).collect()
    }
}

/// The bits of bf16 values.
pub(crate) fn narrow(values: &[f32]) -> Vec<u8> {
    values.iter().flat_map(|v| f32_to_bf16(*v).to_le_bytes()).collect()
}

/// A random affine matrix.
pub(crate) struct Affine {
    pub(crate) format: AffineFormat,
    pub(crate) rows: usize,
    pub(crate) cols: usize,
    pub(crate) weight: Vec<u8>,
    pub(crate) scales: Vec<u8>,
    pub(crate) biases: Vec<u8>,
}

impl Affine {
    pub(crate) fn random(format: AffineFormat, rows: usize, cols: usize) -> Self {
        let mut random = Random::new((rows * 31 + cols) as u64);
        let groups = rows * format.row_groups(cols);
        let weight = random.bytes(rows * format.row_bytes(cols));
        let scales = narrow(&random.scaled(groups, 0.125));
        let biases = narrow(&random.values(groups));
        Self { format, rows, cols, weight, scales, biases }
    }

    pub(crate) fn matrix(&self) -> AffineMatrix<'_> {
        let (w, s, b) = (&self.weight, &self.scales, &self.biases);
        AffineMatrix::new(self.format, self.rows, self.cols, w, s, b).expect("lengths fit")
    }
}

/// A random bf16 matrix.
pub(crate) struct Bf16 {
    pub(crate) rows: usize,
    pub(crate) cols: usize,
    pub(crate) bytes: Vec<u8>,
}

impl Bf16 {
    pub(crate) fn random(rows: usize, cols: usize) -> Self {
        let values = Random::new((rows * 37 + cols) as u64).values(rows * cols);
        Self { rows, cols, bytes: narrow(&values) }
    }

    pub(crate) fn matrix(&self) -> Bf16Matrix<'_> {
        Bf16Matrix::new(self.rows, self.cols, &self.bytes).expect("lengths fit")
    }
}

/// How far a sum of `k` products may be off, relative to its size: the errors of f32 additions one
/// after the other grow with the root of their number.
pub(crate) fn sum_tolerance(k: usize) -> f32 {
    2e-7 * (k as f32).sqrt().max(10.0)
}
