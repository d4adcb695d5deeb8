//! Products with `x` rounded to signed bytes, for 4-bit weights.
//!
//! Each group of `x` has a scale: its largest magnitude over 127. The products of bytes and
//! nibbles are summed exactly, word by word, so that nothing but the scales is left to round; that
//! happens in the order of `tile.rs`, where the sum of a word takes the place of its chain.
//!
//! A group in which a number is not finite gives NaN.

use super::{
    affine::Words,
    lanes::{LANES, Lanes},
    vector::Task,
};

/// Values of a word.
const VALUES: usize = 8;

/// f32 of a block of packed `x`. The bits of the first sixteen are the bytes of the values with
/// even numbers, of the next those with odd ones; then each word has the scale of its group.
pub(super) const BLOCK: usize = 3 * LANES;

/// Groups consist of whole runs of this many values.
const RUN: usize = 32;

/// Below this magnitude all of a group is 0: the inverse of its scale would be infinite.
const SMALLEST: f32 = 1e-36;

/// Added to a small number, it leaves the nearest whole one in the low bits.
const ROUND: f32 = 12_582_912.0;

/// Words of nibbles times bytes; with `DOT` by the machine's dot product of bytes.
pub(super) struct Int8<const DOT: bool>;

impl<const DOT: bool> Words for Int8<DOT> {
    const VALUES: usize = VALUES;
    const BLOCK: usize = BLOCK;

    #[inline(always)]
    unsafe fn add<V: Lanes, const N: usize, const T: usize>(
        w: [*const u8; N],
        scales: [*const u8; N],
        group_words: usize,
        x: [*const f32; T],
        acc: &mut [[V::All; T]; N],
    ) {
        // SAFETY: the caller's promise; a packed block is three times sixteen f32.
        unsafe {
            for part in 0..V::PARTS {
                let lane = V::WIDTH * part;
                for n in 0..N {
                    let nibbles = V::nibbles(V::words(w[n].add(4 * lane)));
                    let scales = V::scales(scales[n], part, group_words);
                    for t in 0..T {
                        let x = x[t].add(lane);
                        let dots = V::dots::<DOT>(nibbles, [x, x.add(LANES)]);
                        let scales = scales.fma(V::load(x.add(2 * LANES)), V::zero());
                        let acc = &mut acc[n][t].as_mut()[part];
                        *acc = dots.fma(scales, *acc);
                    }
                }
            }
        }
    }
}

/// Packs one row of `x` in groups of `size`, with the sum of each group as the bytes have it.
pub(super) struct Quantize<'a> {
    pub(super) x: &'a [f32],
    pub(super) size: usize,
    pub(super) out: &'a mut [f32],
    pub(super) sums: &'a mut [f32],
}

impl Task for Quantize<'_> {
    #[inline(always)]
    fn run(self) {
        let Self { x, size, out, sums } = self;
        sums.fill(0.0);
        let mut sums = sums.iter_mut();
        for (x, out) in x.chunks(LANES * VALUES).zip(out.chunks_exact_mut(BLOCK)) {
            let mut bytes = [0; LANES * VALUES];
            let (words, scales) = out.split_at_mut(2 * LANES);
            scales.fill(0.0);
            let groups = x.chunks_exact(size).zip(bytes.chunks_exact_mut(size));
            let scales = scales.chunks_exact_mut(size / VALUES);
            for (((x, bytes), scales), sum) in groups.zip(scales).zip(&mut sums) {
                let (scale, total) = quantize(x, bytes);
                scales.fill(scale);
                *sum = scale * total as f32;
            }
            let (even, odd) = words.split_at_mut(LANES);
            interleave(&bytes, even, odd);
        }
    }
}

/// The bytes of a group, their scale and their sum.
#[inline(always)]
fn quantize(x: &[f32], bytes: &mut [i8]) -> (f32, i32) {
    let (x, bytes) = (x.as_chunks::<RUN>().0, bytes.as_chunks_mut::<RUN>().0);
    // The bits of magnitudes are in their order, infinity and NaN last.
    let mut largest = [0; RUN];
    for x in x {
        for i in 0..RUN {
            largest[i] = largest[i].max(x[i].to_bits() & 0x7fff_ffff);
        }
    }
    let largest = f32::from_bits(largest.into_iter().fold(0, u32::max));
    if !largest.is_finite() {
        return (f32::NAN, 0);
    }
    if largest < SMALLEST {
        return (0.0, 0);
    }
    let inverse = 127.0 / largest;
    let mut sums = [0; RUN];
    for (x, bytes) in x.iter().zip(bytes) {
        for i in 0..RUN {
            let byte = (x[i] * inverse + ROUND).to_bits() as i8;
            bytes[i] = byte;
            sums[i] += i32::from(byte);
        }
    }
    (largest / 127.0, sums.into_iter().sum())
}

/// The values with even numbers and those with odd ones, four to a word.
#[inline(always)]
fn interleave(bytes: &[i8; LANES * VALUES], even: &mut [f32], odd: &mut [f32]) {
    let words = even.iter_mut().zip(odd).zip(bytes.as_chunks::<VALUES>().0);
    for ((even, odd), bytes) in words {
        let b = bytes.map(|byte| byte as u8);
        *even = f32::from_bits(u32::from_le_bytes([b[0], b[2], b[4], b[6]]));
        *odd = f32::from_bits(u32::from_le_bytes([b[1], b[3], b[5], b[7]]));
    }
}

#[cfg(test)]
mod tests {
    use slotstream_core::{AffineFormat, f32_to_bf16};

    use crate::{AffineMatrix, Arithmetic, Cpu, InstructionSet, Kernels};

    /// Where a set has dot products of bytes they are not needed for its bits.
    #[test]
    fn dot_products_of_bytes_change_no_bit() {
        let (n, k, m) = (19, 704, 7);
        let weight: Vec<u8> = (0..n * k / 2).map(|i| (i * i % 251) as u8).collect();
        let halves: Vec<u8> =
            (0..n * k / 64).flat_map(|i| f32_to_bf16((i as f32).sin()).to_le_bytes()).collect();
        let w = AffineMatrix::new(AffineFormat::Q4_G64, n, k, &weight, &halves, &halves).unwrap();
        let x: Vec<f32> = (0..m * k).map(|i| (i as f32 * 0.37).cos()).collect();
        for set in InstructionSet::available() {
            let cpu = Cpu::with_instruction_set(1, set).unwrap();
            let mut cpu = cpu.with_arithmetic(Arithmetic::Fast);
            let results = [set.has_dots(), false].map(|dots| {
                cpu.dots = dots;
                let mut out = vec![f32::NAN; m * n];
                cpu.affine_matmul(&x, &w, &mut out);
                out.iter().map(|value| value.to_bits()).collect::<Vec<_>>()
            });
            assert_eq!(results[0], results[1], "{set}");
        }
    }
}
