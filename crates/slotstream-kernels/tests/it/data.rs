//! Random weights, and products in f64 to compare with.

use slotstream_core::{AffineFormat, bf16_at, dequantize_row, f32_to_bf16};
use slotstream_kernels::{AffineMatrix, Bf16Matrix, Cpu, InstructionSet};

/// Xorshift.
pub(crate) struct Random(u64);

impl Random {
    pub(crate) fn new(seed: u64) -> Self {
        Self(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1)
    }

    pub(crate) fn bits(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    /// In `-1..1`.
    pub(crate) fn value(&mut self) -> f32 {
        (self.bits() >> 40) as f32 / (1_u64 << 23) as f32 - 1.0
    }

    pub(crate) fn values(&mut self, len: usize) -> Vec<f32> {
        (0..len).map(|_| self.value()).collect()
    }

    pub(crate) fn bytes(&mut self, len: usize) -> Vec<u8> {
        (0..len).map(|_| (self.bits() >> 32) as u8).collect()
    }

    pub(crate) fn bf16(&mut self, len: usize, scale: f32) -> Vec<u8> {
        (0..len).flat_map(|_| f32_to_bf16(scale * self.value()).to_le_bytes()).collect()
    }
}

/// Every legal format.
pub(crate) fn formats() -> Vec<AffineFormat> {
    let pairs = [(4, 32), (4, 64), (4, 128), (8, 32), (8, 64), (8, 128)];
    pairs.into_iter().map(|(bits, group)| AffineFormat::new(bits, group).expect("legal")).collect()
}

/// Every instruction set of this machine with each of these numbers of threads.
pub(crate) fn cpus(threads: &[usize]) -> Vec<Cpu> {
    InstructionSet::available()
        .into_iter()
        .flat_map(|set| {
            threads.iter().map(move |n| Cpu::with_instruction_set(*n, set).expect("available"))
        })
        .collect()
}

/// A random affine matrix whose arrays start `shift` bytes into their allocations.
pub(crate) struct Affine {
    pub(crate) format: AffineFormat,
    pub(crate) rows: usize,
    pub(crate) cols: usize,
    shift: usize,
    weight: Vec<u8>,
    scales: Vec<u8>,
    biases: Vec<u8>,
}

impl Affine {
    pub(crate) fn random(format: AffineFormat, rows: usize, cols: usize, shift: usize) -> Self {
        let mut random = Random::new((rows * 31 + cols) as u64);
        let groups = rows * format.row_groups(cols);
        let half = (1 << format.bits()) as f32 / 2.0;
        let shifted = |bytes: Vec<u8>| [vec![0xff; shift], bytes].concat();
        let weight = shifted(random.bytes(rows * format.row_bytes(cols)));
        let scales = shifted(random.bf16(groups, 1.0 / half));
        let biases = shifted(random.bf16(groups, 1.0));
        Self { format, rows, cols, shift, weight, scales, biases }
    }

    pub(crate) fn matrix(&self) -> AffineMatrix<'_> {
        self.head(self.rows)
    }

    /// The first `rows` rows.
    pub(crate) fn head(&self, rows: usize) -> AffineMatrix<'_> {
        let (words, groups) = (self.format.row_bytes(self.cols), self.format.row_groups(self.cols));
        let cut = |bytes: usize| self.shift..self.shift + rows * bytes;
        AffineMatrix::new(
            self.format,
            rows,
            self.cols,
            &self.weight[cut(words)],
            &self.scales[cut(2 * groups)],
            &self.biases[cut(2 * groups)],
        )
        .expect("lengths fit")
    }

    /// All weights, dequantized.
    pub(crate) fn dequantized(&self) -> Vec<f32> {
        let w = self.matrix();
        let mut all = vec![0.0; self.rows * self.cols];
        for (r, out) in all.chunks_exact_mut(self.cols).enumerate() {
            dequantize_row(self.format, w.weight_row(r), w.scales_row(r), w.biases_row(r), out);
        }
        all
    }
}

/// A random bf16 matrix whose bytes start `shift` bytes into their allocation.
pub(crate) struct Bf16 {
    pub(crate) rows: usize,
    pub(crate) cols: usize,
    shift: usize,
    bytes: Vec<u8>,
}

impl Bf16 {
    pub(crate) fn random(rows: usize, cols: usize, shift: usize) -> Self {
        let mut random = Random::new((rows * 37 + cols) as u64);
        let bytes = [vec![0xff; shift], random.bf16(rows * cols, 1.0)].concat();
        Self { rows, cols, shift, bytes }
    }

    pub(crate) fn matrix(&self) -> Bf16Matrix<'_> {
        self.head(self.rows)
    }

    pub(crate) fn head(&self, rows: usize) -> Bf16Matrix<'_> {
        let bytes = &self.bytes[self.shift..self.shift + 2 * rows * self.cols];
        Bf16Matrix::new(rows, self.cols, bytes).expect("lengths fit")
    }

    pub(crate) fn widened(&self) -> Vec<f32> {
        (0..self.rows * self.cols).map(|i| bf16_at(&self.bytes[self.shift..], i)).collect()
    }
}

/// `x . w^T` in f64, `[m, n]`: each product with the root of its sum of squared terms, which is
/// the size that a product of random numbers has.
pub(crate) fn product(x: &[f32], w: &[f32], k: usize) -> Vec<(f64, f64)> {
    let mut out = Vec::new();
    for x in x.chunks_exact(k) {
        for w in w.chunks_exact(k) {
            let (mut sum, mut squares) = (0.0, 0.0);
            for (x, w) in x.iter().zip(w) {
                let term = f64::from(*x) * f64::from(*w);
                sum += term;
                squares += term * term;
            }
            out.push((sum, squares.sqrt()));
        }
    }
    out
}

/// The bits, so that equality means the same number; a NaN equals a NaN.
pub(crate) fn bits(values: &[f32]) -> Vec<u32> {
    values.iter().map(|v| if v.is_nan() { f32::NAN.to_bits() } else { v.to_bits() }).collect()
}

/// Asserts that all values are within `tolerance` of the wanted ones.
#[track_caller]
pub(crate) fn assert_close(got: &[f32], want: &[f32], tolerance: f32) {
    assert_eq!(got.len(), want.len());
    for (i, (got, want)) in got.iter().zip(want).enumerate() {
        let difference = (got - want).abs();
        assert!(difference <= tolerance * want.abs().max(1.0), "{i}: got {got}, want {want}");
    }
}
