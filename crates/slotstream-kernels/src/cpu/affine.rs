//! Affine-quantized rows.

use std::marker::PhantomData;
use std::ops::Range;

use super::lanes::{LANES, Lanes};
use super::tile::{AHEAD, Rows};
use crate::AffineMatrix;

/// Bytes of a block of sixteen words.
const BLOCK_BYTES: usize = 4 * LANES;

/// From element `16 - n` on: masks that keep the first `n` of sixteen lanes.
static MASKS: [u32; 2 * LANES] = {
    let mut masks = [0; 2 * LANES];
    let mut i = 0;
    while i < LANES {
        masks[i] = u32::MAX;
        i += 1;
    }
    masks
};

/// How the values of a word are multiplied with `x`.
pub(super) trait Words {
    /// Values of a word.
    const VALUES: usize;

    /// f32 of packed `x` in a block of sixteen words.
    const BLOCK: usize;

    /// Adds one block: `acc += scale * (sum of q * x)` for each word; all pointers point to the
    /// block.
    ///
    /// # Safety
    /// Those of [`Rows`].
    unsafe fn add<V: Lanes, const N: usize, const T: usize>(
        w: [*const u8; N],
        scales: [*const u8; N],
        group_words: usize,
        x: [*const f32; T],
        acc: &mut [[V::All; T]; N],
    );
}

/// The rows of an affine matrix in groups of `GROUP`.
pub(super) struct Affine<'a, W, const GROUP: usize>(&'a AffineMatrix<'a>, PhantomData<W>);

impl<'a, W: Words, const GROUP: usize> Affine<'a, W, GROUP> {
    const GROUP_WORDS: usize = GROUP / W::VALUES;

    pub(super) fn new(w: &'a AffineMatrix<'a>) -> Self {
        Self(w, PhantomData)
    }
}

/// Words of `BITS` bits a value times f32, chained by fused multiply-adds.
pub(super) struct Exact<const BITS: usize>;

impl<const BITS: usize> Words for Exact<BITS> {
    const VALUES: usize = 32 / BITS;
    const BLOCK: usize = LANES * Self::VALUES;

    #[inline(always)]
    unsafe fn add<V: Lanes, const N: usize, const T: usize>(
        w: [*const u8; N],
        scales: [*const u8; N],
        group_words: usize,
        x: [*const f32; T],
        acc: &mut [[V::All; T]; N],
    ) {
        // SAFETY: the caller's promise; a packed block holds sixteen `x` for each value of a word.
        unsafe {
            for part in 0..V::PARTS {
                let mut words = [V::words(w[0].add(4 * V::WIDTH * part)); N];
                for n in 1..N {
                    words[n] = V::words(w[n].add(4 * V::WIDTH * part));
                }
                let mut chains = [[V::zero(); T]; N];
                macro_rules! value {
                    ($j:literal, $unpack:expr) => {
                        for n in 0..N {
                            let q = $unpack(words[n]);
                            for t in 0..T {
                                let x = V::load(x[t].add($j * LANES + V::WIDTH * part));
                                chains[n][t] = q.fma(x, chains[n][t]);
                            }
                        }
                    };
                }
                macro_rules! field {
                    ($j:literal, $mask:literal) => {
                        value!($j, |words| V::field(words, $mask))
                    };
                }
                if BITS == 4 {
                    field!(0, 0x0000_000f);
                    field!(1, 0x0000_00f0);
                    field!(2, 0x0000_0f00);
                    field!(3, 0x0000_f000);
                    field!(4, 0x000f_0000);
                    field!(5, 0x00f0_0000);
                    field!(6, 0x0f00_0000);
                    value!(7, V::top_nibble);
                } else {
                    field!(0, 0x0000_00ff);
                    field!(1, 0x0000_ff00);
                    field!(2, 0x00ff_0000);
                    value!(3, V::top_byte);
                }
                for n in 0..N {
                    let scales = V::scales(scales[n], part, group_words);
                    for t in 0..T {
                        let acc = &mut acc[n][t].as_mut()[part];
                        *acc = chains[n][t].fma(scales, *acc);
                    }
                }
            }
        }
    }
}

impl<V: Lanes, W: Words, const GROUP: usize> Rows<V> for Affine<'_, W, GROUP> {
    const BLOCK: usize = W::BLOCK;

    #[inline(always)]
    fn blocks(&self) -> usize {
        self.0.cols() / (LANES * W::VALUES)
    }

    #[inline(always)]
    unsafe fn add<const N: usize, const T: usize>(
        &self,
        row: usize,
        x: [*const f32; T],
        blocks: Range<usize>,
        acc: &mut [[V::All; T]; N],
    ) {
        let (mut w, mut s) = ([std::ptr::null(); N], [std::ptr::null(); N]);
        for n in 0..N {
            w[n] = self.0.weight_row(row + n).as_ptr();
            s[n] = self.0.scales_row(row + n).as_ptr();
        }
        // SAFETY: the caller's promise; `blocks` are whole blocks of the rows, so their words,
        // scales and packed `x` are all there.
        unsafe {
            for block in blocks {
                let group = LANES * block / Self::GROUP_WORDS;
                let (mut here, mut scales, mut x) = (w, s, x);
                for n in 0..N {
                    here[n] = w[n].add(block * BLOCK_BYTES);
                    scales[n] = s[n].add(2 * group);
                    V::prefetch(w[0].wrapping_add(AHEAD + (block * N + n) * BLOCK_BYTES));
                }
                for x in &mut x {
                    *x = x.add(block * W::BLOCK);
                }
                W::add::<V, N, T>(here, scales, Self::GROUP_WORDS, x, acc);
            }
        }
    }

    #[inline(always)]
    unsafe fn add_rest<const T: usize>(
        &self,
        row: usize,
        x: [*const f32; T],
        acc: &mut [V::All; T],
    ) {
        let block = Rows::<V>::blocks(self);
        let rest = &self.0.weight_row(row)[block * BLOCK_BYTES..];
        if rest.is_empty() {
            return;
        }
        let (mut words, mut scales) = ([0; BLOCK_BYTES], [0; 2 * LANES]);
        words[..rest.len()].copy_from_slice(rest);
        let known = &self.0.scales_row(row)[2 * (LANES * block / Self::GROUP_WORDS)..];
        let known = &known[..known.len().min(2 * LANES)];
        scales[..known.len()].copy_from_slice(known);
        // SAFETY: the caller's promise; packed rows are whole blocks, padded with zeros.
        unsafe {
            let mut sums = [*acc];
            W::add::<V, 1, T>(
                [words.as_ptr()],
                [scales.as_ptr()],
                Self::GROUP_WORDS,
                x.map(|x| x.add(block * W::BLOCK)),
                &mut sums,
            );
            *acc = sums[0];
        }
    }

    #[inline(always)]
    unsafe fn finish<const T: usize>(
        &self,
        row: usize,
        sums: [*const f32; T],
        acc: &mut [V::All; T],
    ) {
        let (groups, biases) = (self.0.format().row_groups(self.0.cols()), self.0.biases_from(row));
        // SAFETY: the caller's promise; sixteen biases are read where the matrix has as many
        // bytes left and from a padded copy elsewhere; group sums are whole sixteens.
        unsafe {
            let mut group = 0;
            while group < groups {
                let here = &biases[2 * group..];
                let mask = MASKS.as_ptr().add(LANES.saturating_sub(groups - group));
                let mut padded = [0; 2 * LANES];
                let here = if here.len() >= 2 * LANES {
                    here.as_ptr()
                } else {
                    padded[..here.len()].copy_from_slice(here);
                    padded.as_ptr()
                };
                for part in 0..V::PARTS {
                    let lane = part * V::WIDTH;
                    let bias = V::bf16(here.add(2 * lane), mask.add(lane));
                    for t in 0..T {
                        let acc = &mut acc[t].as_mut()[part];
                        *acc = bias.fma(V::load(sums[t].add(group + lane)), *acc);
                    }
                }
                group += LANES;
            }
        }
    }
}
