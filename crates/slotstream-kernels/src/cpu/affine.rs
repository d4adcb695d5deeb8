//! Affine-quantized rows.

use std::ops::Range;

use slotstream_core::bf16_at;

use super::lanes::{LANES, Lanes};
use super::tile::Rows;
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

/// The rows of an affine matrix of `BITS` bits in groups of `GROUP`.
pub(super) struct Affine<'a, const BITS: usize, const GROUP: usize>(
    pub(super) &'a AffineMatrix<'a>,
);

impl<const BITS: usize, const GROUP: usize> Affine<'_, BITS, GROUP> {
    const VALUES: usize = 32 / BITS;
    const GROUP_WORDS: usize = GROUP / Self::VALUES;
}

/// Adds one block: `acc += scale * (chain of q * x)`; `x` point to the block.
///
/// # Safety
/// Those of [`Rows`].
#[inline(always)]
unsafe fn add_block<V: Lanes, const BITS: usize, const N: usize, const T: usize>(
    words: [V::Words; N],
    scales: [V; N],
    x: [*const f32; T],
    acc: &mut [[V; T]; N],
) {
    // SAFETY: the caller's promise; a packed block holds sixteen `x` for each value of a word.
    unsafe {
        let mut chains = [[V::zero(); T]; N];
        macro_rules! value {
            ($j:literal, $unpack:expr) => {
                for n in 0..N {
                    let q = $unpack(words[n]);
                    for t in 0..T {
                        let x = V::load(x[t].add($j * LANES));
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
            for t in 0..T {
                acc[n][t] = chains[n][t].fma(scales[n], acc[n][t]);
            }
        }
    }
}

impl<V: Lanes, const BITS: usize, const GROUP: usize> Rows<V> for Affine<'_, BITS, GROUP> {
    const BLOCK: usize = LANES * Self::VALUES;

    #[inline(always)]
    fn blocks(&self) -> usize {
        self.0.cols() / (LANES * Self::VALUES)
    }

    #[inline(always)]
    unsafe fn add<const N: usize, const T: usize>(
        &self,
        row: usize,
        x: [*const f32; T],
        blocks: Range<usize>,
        out: &mut [[V; T]],
    ) {
        let (mut w, mut s) = ([std::ptr::null(); N], [std::ptr::null(); N]);
        for n in 0..N {
            w[n] = self.0.weight_row(row + n).as_ptr();
            s[n] = self.0.scales_row(row + n).as_ptr();
        }
        let ahead = N * self.0.format().row_bytes(self.0.cols());
        // SAFETY: the caller's promise; `blocks` are whole blocks of the rows, so their words,
        // scales and packed `x` are all there.
        unsafe {
            let mut acc = [[V::zero(); T]; N];
            acc.copy_from_slice(out);
            for block in blocks {
                let (mut words, mut scales) =
                    ([V::words(w[0].add(block * BLOCK_BYTES)); N], [V::zero(); N]);
                for n in 0..N {
                    let at = w[n].add(block * BLOCK_BYTES);
                    V::prefetch(at.wrapping_add(ahead));
                    words[n] = V::words(at);
                    scales[n] = V::scales(s[n], block, Self::GROUP_WORDS);
                }
                let mut here = x;
                for t in 0..T {
                    here[t] = x[t].add(block * LANES * Self::VALUES);
                }
                add_block::<V, BITS, N, T>(words, scales, here, &mut acc);
            }
            out.copy_from_slice(&acc);
        }
    }

    #[inline(always)]
    unsafe fn add_rest<const T: usize>(&self, row: usize, x: [*const f32; T], acc: &mut [V; T]) {
        let block = Rows::<V>::blocks(self);
        let rest = &self.0.weight_row(row)[block * BLOCK_BYTES..];
        if rest.is_empty() {
            return;
        }
        let (mut words, mut scales) = ([0; BLOCK_BYTES], [0.0; LANES]);
        words[..rest.len()].copy_from_slice(rest);
        for (lane, scale) in scales.iter_mut().enumerate().take(rest.len() / 4) {
            *scale = bf16_at(self.0.scales_row(row), (LANES * block + lane) / Self::GROUP_WORDS);
        }
        let mut here = x;
        // SAFETY: the caller's promise; packed rows are whole blocks, padded with zeros.
        unsafe {
            for t in 0..T {
                here[t] = x[t].add(block * LANES * Self::VALUES);
            }
            let (words, scales) = (V::words(words.as_ptr()), V::load(scales.as_ptr()));
            let mut sums = [*acc];
            add_block::<V, BITS, 1, T>([words], [scales], here, &mut sums);
            *acc = sums[0];
        }
    }

    #[inline(always)]
    unsafe fn finish<const T: usize>(
        &self,
        row: usize,
        sums: [*const f32; T],
        acc: [V; T],
    ) -> [f32; T] {
        let (groups, biases) = (self.0.format().row_groups(self.0.cols()), self.0.biases_from(row));
        // SAFETY: the caller's promise; sixteen biases are read where the matrix has as many
        // bytes left and from a padded copy elsewhere; group sums are whole sixteens.
        unsafe {
            let mut rest = [V::zero(); T];
            let mut group = 0;
            while group < groups {
                let here = &biases[2 * group..];
                let mask = MASKS.as_ptr().add(LANES.saturating_sub(groups - group));
                let bias = if here.len() >= 2 * LANES {
                    V::bf16(here.as_ptr(), mask)
                } else {
                    let mut padded = [0; 2 * LANES];
                    padded[..here.len()].copy_from_slice(here);
                    V::bf16(padded.as_ptr(), mask)
                };
                for t in 0..T {
                    rest[t] = bias.fma(V::load(sums[t].add(group)), rest[t]);
                }
                group += LANES;
            }
            let mut results = [0.0; T];
            for t in 0..T {
                results[t] = acc[t].sum() + rest[t].sum();
            }
            results
        }
    }
}
