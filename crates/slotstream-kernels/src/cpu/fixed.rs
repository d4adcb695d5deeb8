//! Products of 4-bit weights with `x` in fixed point.
//!
//! Each group of `x` has a scale, and its values are whole multiples of that, written with one or
//! three signed bytes (digits to the base 256). The products of bytes and nibbles are summed
//! exactly, with three digits word by word, with one group by group, so that nothing but the scales
//! is left to round; that happens in the order of `tile.rs`.
//!
//! The scale is the largest magnitude of the group over 127, or for three digits over what 23 bits
//! hold: a value is then off by less than a unit in the last place of the largest one, as an f32.
//!
//! A group in which a number is not finite gives NaN.

use std::mem::MaybeUninit;

use super::{
    affine::{Affine, BLOCK_BYTES, ByWord, Scales, Words, add_scaled},
    lanes::{LANES, Lanes},
    vector::Task,
};

/// Values of a word.
const VALUES: usize = 8;

/// Below this magnitude all of a group is 0 in one digit: the inverse of its scale would be
/// infinite.
const SMALLEST: f32 = 1e-36;

/// The largest multiple in three digits: even a little above it the first is at most 127.
const MOST: f32 = 8_355_600.0;

/// Groups that are smaller than this have its scale in three digits: a smaller scale would have
/// fewer bits.
const LEAST: f32 = 1e-31;

/// Added to a small number, it leaves the nearest whole one in the low bits.
const ROUND: f32 = 12_582_912.0;

/// f32 of a block of packed `x` with so many digits. For each digit, the last first, the bits of
/// sixteen are the digits of the values with even numbers, four to a word, and of the next sixteen
/// those with odd ones.
pub(super) const fn block(digits: usize) -> usize {
    2 * digits * LANES
}

/// Digits of exact products.
pub(super) const DIGITS: usize = 3;

/// Words of nibbles times `x` in three digits; with `DOT` by the machine's dot product of bytes.
pub(super) struct Exact<const DOT: bool>;

impl<const DOT: bool> Words for Exact<DOT> {
    const VALUES: usize = VALUES;
    const BLOCK: usize = block(DIGITS);
    const SCALED: bool = true;

    #[inline(always)]
    unsafe fn sixteen<
        V: Lanes,
        const GROUP: usize,
        const N: usize,
        const T: usize,
        const END: bool,
    >(
        w: &Affine<'_, Self, GROUP>,
        at: (usize, usize),
        x: [*const f32; T],
        sums: [*const f32; T],
        acc: &mut [[V::All; T]; N],
    ) {
        // SAFETY: the caller's promise.
        unsafe { w.by_word::<V, N, T, END>(at, x, sums, acc) };
    }
}

impl<const DOT: bool> ByWord for Exact<DOT> {
    #[inline(always)]
    unsafe fn add<V: Lanes, const N: usize, const T: usize>(
        w: [*const u8; N],
        x: [*const f32; T],
        scales: &Scales<N, T>,
        first: usize,
        words: usize,
        acc: &mut [[V::All; T]; N],
    ) {
        // SAFETY: the caller's promise; a packed block is twice sixteen f32 for each digit.
        unsafe {
            for part in 0..V::PARTS {
                let lane = V::WIDTH * part;
                for n in 0..N {
                    let nibbles = V::nibbles(V::words(w[n].add(4 * lane)));
                    for t in 0..T {
                        let x = x[t].add(lane);
                        let mut sums = V::nothing();
                        for digit in (0..DIGITS).rev() {
                            let x = x.add(2 * digit * LANES);
                            if digit + 1 < DIGITS {
                                sums = V::times_256(sums);
                            }
                            sums = V::dots::<DOT>(sums, nibbles, [x, x.add(LANES)]);
                        }
                        let at = [first, words, part];
                        add_scaled(V::whole(sums), &scales[n][t], at, &mut acc[n][t]);
                    }
                }
            }
        }
    }
}

/// Words of nibbles times `x` in one digit, summed by groups.
pub(super) struct Fast<const DOT: bool>;

/// Registers of sums of four words each, for sixteen groups: of the largest groups, in the smallest
/// registers.
const FOURS: usize = 16;

impl<const DOT: bool> Words for Fast<DOT> {
    const VALUES: usize = VALUES;
    const BLOCK: usize = block(1);
    const SCALED: bool = true;

    #[inline(always)]
    unsafe fn sixteen<
        V: Lanes,
        const GROUP: usize,
        const N: usize,
        const T: usize,
        const END: bool,
    >(
        w: &Affine<'_, Self, GROUP>,
        (row, start): (usize, usize),
        x: [*const f32; T],
        sums: [*const f32; T],
        acc: &mut [[V::All; T]; N],
    ) {
        let words = GROUP / VALUES;
        // Registers of sixteen groups, four of which become one.
        let registers = words * V::PARTS / 4;
        let mut fours = [const { MaybeUninit::<[[V::Words; T]; N]>::uninit() }; FOURS];
        // SAFETY: the caller's promise; a packed block is twice sixteen f32.
        unsafe {
            let blocks_of = w.blocks_of(x);
            let scales = w.groups_of::<V, N, T, END>((row, start / words * LANES), x, sums, acc);
            for (i, fours) in fours[..registers].iter_mut().enumerate() {
                let at = |j: usize| (row, start + (4 * i + j) / V::PARTS, (4 * i + j) % V::PARTS);
                let a = register::<V, GROUP, DOT, N, T, END>(w, at(0), blocks_of);
                let b = register::<V, GROUP, DOT, N, T, END>(w, at(1), blocks_of);
                let c = register::<V, GROUP, DOT, N, T, END>(w, at(2), blocks_of);
                let d = register::<V, GROUP, DOT, N, T, END>(w, at(3), blocks_of);
                let mut sums = a;
                for n in 0..N {
                    for t in 0..T {
                        sums[n][t] = V::fours([a[n][t], b[n][t], c[n][t], d[n][t]]);
                    }
                }
                fours.write(sums);
            }
            for n in 0..N {
                for t in 0..T {
                    let mut of = [V::nothing(); FOURS];
                    for (of, fours) in of[..registers].iter_mut().zip(&fours) {
                        *of = fours.assume_init_ref()[n][t];
                    }
                    let dots = V::groups(&of[..registers], words);
                    for part in 0..V::PARTS {
                        let scale = V::load(scales[n][t].0.as_ptr().add(V::WIDTH * part));
                        let acc = &mut acc[n][t].as_mut()[part];
                        *acc = dots.as_ref()[part].fma(scale, *acc);
                    }
                }
            }
        }
    }
}

/// The sums of the words of part `part` of block `block`, 0 where there is no such block.
///
/// # Safety
/// Those of [`Words::sixteen`]; `x` are the blocks of packed rows.
#[inline(always)]
unsafe fn register<
    V: Lanes,
    const GROUP: usize,
    const DOT: bool,
    const N: usize,
    const T: usize,
    const END: bool,
>(
    w: &Affine<'_, Fast<DOT>, GROUP>,
    (row, block, part): (usize, usize, usize),
    x: [*const f32; T],
) -> [[V::Words; T]; N] {
    // SAFETY: the caller's promise.
    unsafe {
        let mut dots = [[V::nothing(); T]; N];
        if block < w.blocks() {
            let mut copy = [[0; BLOCK_BYTES]; N];
            let here = w.block::<V, N, END>((row, block), &mut copy);
            for n in 0..N {
                let nibbles = V::nibbles(V::words(here[n].add(4 * V::WIDTH * part)));
                for t in 0..T {
                    let x = x[t].add(block * self::block(1) + V::WIDTH * part);
                    dots[n][t] = V::dots::<DOT>(dots[n][t], nibbles, [x, x.add(LANES)]);
                }
            }
        }
        dots
    }
}

/// Packs whole blocks of a row of `x` in groups of `size`, the last of which may be a part of one:
/// the scales of the groups, the blocks, and the sum of each group as the digits have it.
pub(super) struct Quantize<'a, const DIGITS: usize> {
    pub(super) x: &'a [f32],
    pub(super) size: usize,
    pub(super) scales: &'a mut [f32],
    pub(super) blocks: &'a mut [f32],
    pub(super) sums: &'a mut [f32],
}

impl<const DIGITS: usize> Task for Quantize<'_, DIGITS> {
    #[inline(always)]
    fn run(self) {
        let Self { x, size, scales, blocks, sums } = self;
        scales.fill(0.0);
        sums.fill(0.0);
        let mut groups = scales.iter_mut().zip(sums);
        let blocks = blocks.chunks_exact_mut(block(DIGITS));
        for (x, out) in x.chunks(LANES * VALUES).zip(blocks) {
            let mut whole = [0; LANES * VALUES];
            let parts = x.chunks_exact(size).zip(whole.chunks_exact_mut(size));
            for ((x, whole), (scale, sum)) in parts.zip(&mut groups) {
                let total;
                (*scale, total) = quantize::<DIGITS>(x, whole);
                *sum = *scale * total as f32;
            }
            for out in out.chunks_exact_mut(2 * LANES) {
                let (even, odd) = out.split_at_mut(LANES);
                split(&mut whole, even, odd);
            }
        }
    }
}

/// The values of a group as multiples of a scale, the scale, and their sum.
#[inline(always)]
fn quantize<const DIGITS: usize>(x: &[f32], whole: &mut [i32]) -> (f32, i32) {
    // The bits of magnitudes are in their order, infinity and NaN last.
    let largest = x.iter().fold(0, |largest, x| largest.max(x.to_bits() & 0x7fff_ffff));
    let largest = f32::from_bits(largest);
    if !largest.is_finite() {
        return (f32::NAN, 0);
    }
    let (most, largest) = match DIGITS {
        1 if largest < SMALLEST => return (0.0, 0),
        1 => (127.0, largest),
        _ => (MOST, largest.max(LEAST)),
    };
    let (scale, inverse) = (largest / most, most / largest);
    let mut sum = 0;
    for (x, whole) in x.iter().zip(whole) {
        let scaled = x * inverse;
        *whole = if DIGITS == 1 { nearest(scaled).0 } else { nearest_wide(scaled) };
        sum += *whole;
    }
    (scale, sum)
}

/// The nearest whole number, below 2^22 in magnitude.
#[inline(always)]
fn nearest(x: f32) -> (i32, f32) {
    let shifted = x + ROUND;
    (shifted.to_bits().wrapping_sub(ROUND.to_bits()) as i32, shifted - ROUND)
}

/// The nearest whole number, below 2^24 in magnitude: its multiple of 256 and the rest, which is
/// exact.
#[inline(always)]
fn nearest_wide(x: f32) -> i32 {
    let (high, multiple) = nearest(x * (1.0 / 256.0));
    256 * high + nearest(x - 256.0 * multiple).0
}

/// Takes the last digits: those of the values with even numbers and those with odd ones.
#[inline(always)]
fn split(whole: &mut [i32; LANES * VALUES], even: &mut [f32], odd: &mut [f32]) {
    let mut bytes = [0; LANES * VALUES];
    for (byte, whole) in bytes.iter_mut().zip(whole) {
        *byte = *whole as u8;
        *whole = (*whole + 128) >> 8;
    }
    let words = even.iter_mut().zip(odd).zip(bytes.as_chunks::<VALUES>().0);
    for ((even, odd), bytes) in words {
        let bytes = u64::from_le_bytes(*bytes);
        *even = f32::from_bits(every_other(bytes));
        *odd = f32::from_bits(every_other(bytes >> 8));
    }
}

/// Bytes 0, 2, 4 and 6.
#[inline(always)]
const fn every_other(bytes: u64) -> u32 {
    let bytes = bytes & 0x00ff_00ff_00ff_00ff;
    let pairs = (bytes | bytes >> 8) & 0x0000_ffff_0000_ffff;
    (pairs | pairs >> 16) as u32
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
        let sets = InstructionSet::available().into_iter();
        for (set, arithmetic) in
            sets.flat_map(|set| [Arithmetic::Exact, Arithmetic::Fast].map(|a| (set, a)))
        {
            let mut cpu = Cpu::with_instruction_set(1, set).unwrap().with_arithmetic(arithmetic);
            let results = [set.has_dots(), false].map(|dots| {
                cpu.dots = dots;
                let mut out = vec![f32::NAN; m * n];
                cpu.affine_matmul(&x, &w, &mut out);
                out.iter().map(|value| value.to_bits()).collect::<Vec<_>>()
            });
            assert_eq!(results[0], results[1], "{set} {arithmetic:?}");
        }
    }
}
