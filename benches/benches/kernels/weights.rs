//! Many times a last level cache of weights, in huge pages.

use std::rc::Rc;

use memmap2::{MmapMut, MmapOptions};
use slotstream_core::{AffineFormat, f32_to_bf16};
use slotstream_kernels::{AffineMatrix, Bf16Matrix};

/// Bytes of a set of weights.
pub(crate) const SET: usize = 512 << 20;

/// Random bytes in huge pages, where the system has them.
pub(crate) fn random(len: usize) -> MmapMut {
    let mut memory = MmapOptions::new().len(len).map_anon().expect("memory");
    // Without huge pages the figures are lower and still right.
    #[cfg(target_os = "linux")]
    let _ = memory.advise(memmap2::Advice::HugePage);
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    for word in memory.as_chunks_mut::<8>().0 {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        *word = state.to_le_bytes();
    }
    memory
}

/// `len` bytes of bf16 that are all `value`.
pub(crate) fn bf16(value: f32, len: usize) -> Vec<u8> {
    f32_to_bf16(value).to_le_bytes().repeat(len / 2)
}

pub(crate) fn values(len: usize) -> Vec<f32> {
    (0..len).map(|i| (i as f32 * 0.37).sin()).collect()
}

/// Normally distributed numbers.
pub(crate) fn normal(len: usize) -> Vec<f32> {
    let mut state = 1_u64;
    let mut uniform = || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        (state >> 40) as f32 / (1 << 24) as f32
    };
    let mut one = || {
        let (radius, angle) = ((-2.0 * (1.0 - uniform()).ln()).sqrt(), uniform());
        radius * (std::f32::consts::TAU * angle).cos()
    };
    (0..len).map(|_| one()).collect()
}

/// The sum of all words: as fast as one thread reads.
pub(crate) fn sum(bytes: &[u8]) -> u64 {
    let mut sums = [0_u64; 16];
    for words in bytes.as_chunks::<8>().0.as_chunks::<16>().0 {
        for (sum, word) in sums.iter_mut().zip(words) {
            *sum = sum.wrapping_add(u64::from_le_bytes(*word));
        }
    }
    sums.iter().fold(0, |a, b| a.wrapping_add(*b))
}

/// A set of affine matrices `[n, k]`, one after the other, each with its scales and biases.
#[derive(Clone)]
pub(crate) struct Affines {
    bytes: Rc<MmapMut>,
    format: AffineFormat,
    pub(crate) n: usize,
    pub(crate) k: usize,
}

impl Affines {
    pub(crate) fn new(format: AffineFormat, n: usize, k: usize) -> Self {
        let mut set = Self { bytes: Rc::new(random(SET)), format, n, k };
        let (words, groups, len) = (n * format.row_bytes(k), set.groups(), set.len());
        let bytes = Rc::get_mut(&mut set.bytes).expect("not shared yet");
        for matrix in bytes.chunks_exact_mut(len) {
            matrix[words..words + groups].copy_from_slice(&bf16(0.01, groups));
            matrix[words + groups..].copy_from_slice(&bf16(-0.08, groups));
        }
        set
    }

    fn groups(&self) -> usize {
        2 * self.n * self.format.row_groups(self.k)
    }

    /// Bytes of a matrix.
    pub(crate) fn len(&self) -> usize {
        self.n * self.format.row_bytes(self.k) + 2 * self.groups()
    }

    /// The bytes of matrix `i`, counted round.
    pub(crate) fn bytes(&self, i: usize) -> &[u8] {
        let at = i % (self.bytes.len() / self.len()) * self.len();
        &self.bytes[at..at + self.len()]
    }

    /// Matrix `i`, counted round.
    pub(crate) fn matrix(&self, i: usize) -> AffineMatrix<'_> {
        let (weight, rest) = self.bytes(i).split_at(self.n * self.format.row_bytes(self.k));
        let (scales, biases) = rest.split_at(self.groups());
        AffineMatrix::new(self.format, self.n, self.k, weight, scales, biases).expect("fits")
    }
}

/// A set of bf16 matrices `[n, k]`.
#[derive(Clone)]
pub(crate) struct Wides {
    bytes: Rc<MmapMut>,
    n: usize,
    k: usize,
}

impl Wides {
    pub(crate) fn new(n: usize, k: usize) -> Self {
        let mut bytes = random(SET);
        // No number is large, infinite or none at all.
        for word in bytes.as_chunks_mut::<2>().0 {
            word[1] = word[1] & 0x80 | 0x3e;
        }
        Self { bytes: Rc::new(bytes), n, k }
    }

    /// Matrix `i`, counted round.
    pub(crate) fn matrix(&self, i: usize) -> Bf16Matrix<'_> {
        let len = 2 * self.n * self.k;
        let at = i % (self.bytes.len() / len) * len;
        Bf16Matrix::new(self.n, self.k, &self.bytes[at..at + len]).expect("fits")
    }
}
