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

/// One number for each of sixteen groups.
#[derive(Clone, Copy)]
#[repr(align(64))]
pub(super) struct Sixteen([f32; LANES]);

/// The scales of sixteen groups, for `N` rows with each of `T` rows of `x`.
pub(super) type Scales<const N: usize, const T: usize> = [[Sixteen; T]; N];

/// How the values of a word are multiplied with `x`.
pub(super) trait Words {
    /// Values of a word.
    const VALUES: usize;

    /// f32 of packed `x` in a block of sixteen words.
    const BLOCK: usize;

    /// Whether packed rows of `x` begin with a scale for each group, padded to whole sixteens.
    const SCALED: bool;

    /// Adds one block: `acc += scale * (sum of q * x)` for each word; `w` and `x` point to the
    /// block, whose groups of `words` words begin with number `first` of the sixteen.
    ///
    /// # Safety
    /// Those of [`Rows`]; the groups of the block are among the sixteen.
    unsafe fn add<V: Lanes, const N: usize, const T: usize>(
        w: [*const u8; N],
        x: [*const f32; T],
        scales: &Scales<N, T>,
        first: usize,
        words: usize,
        acc: &mut [[V::All; T]; N],
    );
}

/// Adds `sums * scale` of each word to the lanes of a part.
///
/// # Safety
/// Those of [`Words::add`].
#[inline(always)]
pub(super) unsafe fn add_scaled<V: Lanes>(
    sums: V,
    scales: &Sixteen,
    [first, words, part]: [usize; 3],
    acc: &mut V::All,
) {
    // SAFETY: the caller's promise.
    unsafe {
        let acc = &mut acc.as_mut()[part];
        *acc = sums.fma(V::spread(scales.0.as_ptr().add(first), part, words), *acc);
    }
}

/// Four values of 8 bits times f32, chained by fused multiply-adds.
pub(super) struct Bytes;

impl Words for Bytes {
    const VALUES: usize = 4;
    const BLOCK: usize = LANES * Self::VALUES;
    const SCALED: bool = false;

    #[inline(always)]
    unsafe fn add<V: Lanes, const N: usize, const T: usize>(
        w: [*const u8; N],
        x: [*const f32; T],
        scales: &Scales<N, T>,
        first: usize,
        words: usize,
        acc: &mut [[V::All; T]; N],
    ) {
        // SAFETY: the caller's promise; a packed block holds sixteen `x` for each value of a word.
        unsafe {
            for part in 0..V::PARTS {
                let mut packed = [V::words(w[0].add(4 * V::WIDTH * part)); N];
                for n in 1..N {
                    packed[n] = V::words(w[n].add(4 * V::WIDTH * part));
                }
                let mut chains = [[V::zero(); T]; N];
                macro_rules! value {
                    ($j:literal, $unpack:expr) => {
                        for n in 0..N {
                            let q = $unpack(packed[n]);
                            for t in 0..T {
                                let x = V::load(x[t].add($j * LANES + V::WIDTH * part));
                                chains[n][t] = q.fma(x, chains[n][t]);
                            }
                        }
                    };
                }
                value!(0, |words| V::field(words, 0x0000_00ff));
                value!(1, |words| V::field(words, 0x0000_ff00));
                value!(2, |words| V::field(words, 0x00ff_0000));
                value!(3, |words| V::top_byte(words));
                for n in 0..N {
                    for t in 0..T {
                        let at = [first, words, part];
                        add_scaled(chains[n][t], &scales[n][t], at, &mut acc[n][t]);
                    }
                }
            }
        }
    }
}

/// The rows of an affine matrix in groups of `GROUP`.
pub(super) struct Affine<'a, W, const GROUP: usize>(&'a AffineMatrix<'a>, PhantomData<W>);

impl<'a, W: Words, const GROUP: usize> Affine<'a, W, GROUP> {
    const GROUP_WORDS: usize = GROUP / W::VALUES;

    pub(super) fn new(w: &'a AffineMatrix<'a>) -> Self {
        Self(w, PhantomData)
    }

    fn groups(&self) -> usize {
        self.0.format().row_groups(self.0.cols())
    }

    /// The first block of packed `x`.
    #[inline(always)]
    unsafe fn blocks_of(&self, x: *const f32) -> *const f32 {
        let scales = if W::SCALED { self.groups().next_multiple_of(LANES) } else { 0 };
        // SAFETY: the caller vouches for a packed row, which begins with the scales.
        unsafe { x.add(scales) }
    }

    /// The scales of the sixteen groups from `group` on; 0 where there are fewer.
    ///
    /// # Safety
    /// Those of [`Rows`]; `group` is a group of the rows and a multiple of sixteen.
    #[inline(always)]
    unsafe fn scales<V: Lanes, const N: usize, const T: usize>(
        &self,
        row: usize,
        group: usize,
        x: [*const f32; T],
    ) -> Scales<N, T> {
        let mut all = [[Sixteen([0.0; LANES]); T]; N];
        for (n, all) in all.iter_mut().enumerate() {
            // SAFETY: the caller's promise; rows of `x` begin with whole sixteens of scales.
            unsafe {
                let mut padded = [0; 2 * LANES];
                let scales = &self.0.scales_from(row + n)[2 * group..];
                let (at, mask) = sixteen(scales, self.groups() - group, &mut padded);
                for part in 0..V::PARTS {
                    let lane = part * V::WIDTH;
                    let scale = V::bf16(at.add(2 * lane), mask.add(lane));
                    for t in 0..T {
                        let scale = if W::SCALED {
                            scale.fma(V::load(x[t].add(group + lane)), V::zero())
                        } else {
                            scale
                        };
                        scale.store(all[t].0.as_mut_ptr().add(lane));
                    }
                }
            }
        }
        all
    }
}

/// Where sixteen bf16 can be read, of which `count` are the next of `bytes`, and the masks that
/// keep those. Where too few bytes are left they are copied into `padded`.
#[inline(always)]
fn sixteen(bytes: &[u8], count: usize, padded: &mut [u8; 2 * LANES]) -> (*const u8, *const u32) {
    let masks = MASKS[LANES.saturating_sub(count)..].as_ptr();
    if bytes.len() >= padded.len() {
        return (bytes.as_ptr(), masks);
    }
    padded[..bytes.len()].copy_from_slice(bytes);
    (padded.as_ptr(), masks)
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
        let mut w = [std::ptr::null(); N];
        for n in 0..N {
            w[n] = self.0.weight_row(row + n).as_ptr();
        }
        // Sixteen groups are as many blocks as a group is words.
        let span = Self::GROUP_WORDS;
        let mut start = blocks.start;
        // SAFETY: the caller's promise; `blocks` are whole blocks of the rows, so their words,
        // scales and packed `x` are all there.
        unsafe {
            while start < blocks.end {
                let sixteen = start / span;
                let scales = self.scales::<V, N, T>(row, sixteen * LANES, x);
                let end = blocks.end.min((sixteen + 1) * span);
                for block in start..end {
                    let (mut here, mut x) = (w, x);
                    for n in 0..N {
                        here[n] = w[n].add(block * BLOCK_BYTES);
                        V::prefetch(w[0].wrapping_add(AHEAD + (block * N + n) * BLOCK_BYTES));
                    }
                    for x in &mut x {
                        *x = self.blocks_of(*x).add(block * W::BLOCK);
                    }
                    let first = block % span * LANES / span;
                    W::add::<V, N, T>(here, x, &scales, first, span, acc);
                }
                start = end;
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
        let (block, span) = (Rows::<V>::blocks(self), Self::GROUP_WORDS);
        let rest = &self.0.weight_row(row)[block * BLOCK_BYTES..];
        if rest.is_empty() {
            return;
        }
        let mut words = [0; BLOCK_BYTES];
        words[..rest.len()].copy_from_slice(rest);
        // SAFETY: the caller's promise; packed rows are whole blocks, padded with zeros.
        unsafe {
            let scales = self.scales::<V, 1, T>(row, block / span * LANES, x);
            let mut sums = [*acc];
            W::add::<V, 1, T>(
                [words.as_ptr()],
                x.map(|x| self.blocks_of(x).add(block * W::BLOCK)),
                &scales,
                block % span * LANES / span,
                span,
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
        let (groups, biases) = (self.groups(), self.0.biases_from(row));
        // SAFETY: the caller's promise; sixteen biases can be read; group sums are whole sixteens.
        unsafe {
            for group in (0..groups).step_by(LANES) {
                let mut padded = [0; 2 * LANES];
                let (at, mask) = sixteen(&biases[2 * group..], groups - group, &mut padded);
                for part in 0..V::PARTS {
                    let lane = part * V::WIDTH;
                    let bias = V::bf16(at.add(2 * lane), mask.add(lane));
                    for t in 0..T {
                        let acc = &mut acc[t].as_mut()[part];
                        *acc = bias.fma(V::load(sums[t].add(group + lane)), *acc);
                    }
                }
            }
        }
    }
}
