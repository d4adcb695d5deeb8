//! Affine-quantized rows.

use std::marker::PhantomData;

use super::lanes::{LANES, Lanes};
use super::tile::{Rows, ahead};
use crate::AffineMatrix;

/// Bytes of a block of sixteen words.
pub(super) const BLOCK_BYTES: usize = 4 * LANES;

/// How far ahead of the scales that are read others are asked for, in bytes.
const AHEAD_SCALES: usize = 1024;

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
pub(super) struct Sixteen(pub(super) [f32; LANES]);

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

    /// Adds the products of sixteen groups with what belongs to their biases; `at` is the first row
    /// and the block with which the first group begins.
    ///
    /// # Safety
    /// Those of [`Rows::add`]; the block is one of the rows and a multiple of the words of a group.
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
    ) where
        Self: Sized;
}

/// Those whose words are scaled one by one.
pub(super) trait ByWord: Words {
    /// Adds one block: `acc += scale * (sum of q * x)` for each word; `w` and `x` point to the
    /// block, whose groups of `words` words begin with number `first` of the sixteen.
    ///
    /// # Safety
    /// Those of [`Rows`]; the groups of the block that exist are among the sixteen.
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
/// Those of [`ByWord::add`].
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

impl ByWord for Bytes {
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
pub(super) struct Affine<'a, W, const GROUP: usize> {
    weight: &'a [u8],
    scales: &'a [u8],
    biases: &'a [u8],
    /// Bytes of a row of `weight`.
    row_bytes: usize,
    /// Groups of a row.
    groups: usize,
    /// Blocks of a row, the last of which may be a part of one.
    blocks: usize,
    rows: usize,
    words: PhantomData<W>,
}

impl<'a, W: Words, const GROUP: usize> Affine<'a, W, GROUP> {
    /// Words of a group, and blocks of sixteen groups.
    pub(super) const GROUP_WORDS: usize = GROUP / W::VALUES;

    /// Blocks of a row, the last of which may be a part of one.
    pub(super) fn blocks(&self) -> usize {
        self.blocks
    }

    pub(super) fn new(w: &AffineMatrix<'a>) -> Self {
        let (weight, scales, biases) = w.arrays();
        let (row_bytes, groups) = (w.format().row_bytes(w.cols()), w.cols() / GROUP);
        Self {
            weight,
            scales,
            biases,
            row_bytes,
            groups,
            blocks: row_bytes.div_ceil(BLOCK_BYTES),
            rows: w.rows(),
            words: PhantomData,
        }
    }

    /// The scales of the sixteen groups from `group` on, 0 where there are fewer; adds what belongs
    /// to the biases of these groups.
    ///
    /// # Safety
    /// Those of [`Rows`]; `group` is a group of the rows and a multiple of sixteen.
    #[inline(always)]
    pub(super) unsafe fn groups_of<V: Lanes, const N: usize, const T: usize, const END: bool>(
        &self,
        (row, group): (usize, usize),
        x: [*const f32; T],
        sums: [*const f32; T],
        acc: &mut [[V::All; T]; N],
    ) -> Scales<N, T> {
        let mut all = [[Sixteen([0.0; LANES]); T]; N];
        // SAFETY: the caller's promise: these are groups of the rows, and sixteen of them can be
        // read unless the end is near. Scales and sums of `x` are whole sixteens, and there are as
        // many masks from each place on.
        unsafe {
            let mask = MASKS.as_ptr().add(LANES.saturating_sub(self.groups - group));
            for n in 0..N {
                let at = 2 * ((row + n) * self.groups + group);
                let mut scale = self.scales.as_ptr().add(at);
                let mut bias = self.biases.as_ptr().add(at);
                V::prefetch(scale.wrapping_add(AHEAD_SCALES));
                V::prefetch(bias.wrapping_add(AHEAD_SCALES));
                let padded: [[u8; 2 * LANES]; 2];
                if END {
                    padded = [start_of(&self.scales[at..]), start_of(&self.biases[at..])];
                    (scale, bias) = (padded[0].as_ptr(), padded[1].as_ptr());
                }
                for part in 0..V::PARTS {
                    let lane = part * V::WIDTH;
                    let scale = V::bf16(scale.add(2 * lane)).masked(mask.add(lane));
                    let bias = V::bf16(bias.add(2 * lane)).masked(mask.add(lane));
                    for t in 0..T {
                        let sum = &mut acc[n][t].as_mut()[part];
                        *sum = bias.fma(V::load(sums[t].add(group + lane)), *sum);
                        let scale = if W::SCALED {
                            scale.fma(V::load(x[t].add(group + lane)), V::zero())
                        } else {
                            scale
                        };
                        scale.store(all[n][t].0.as_mut_ptr().add(lane));
                    }
                }
            }
        }
        all
    }

    /// Block `block` of `N` rows, or a copy of it near the `END`; asks for the weights [`ahead`].
    ///
    /// # Safety
    /// Those of [`Rows::add`]; `block` is a block of the rows.
    #[inline(always)]
    pub(super) unsafe fn block<V: Lanes, const N: usize, const END: bool>(
        &self,
        (row, block): (usize, usize),
        copy: &mut [[u8; BLOCK_BYTES]; N],
    ) -> [*const u8; N] {
        let w = self.weight.as_ptr().wrapping_add(row * self.row_bytes);
        let mut here = [w; N];
        for n in 0..N {
            let at = n * self.row_bytes + block * BLOCK_BYTES;
            // SAFETY: the caller's promise: the block is within the weights, or its start is.
            unsafe {
                here[n] = w.add(at);
                V::prefetch(
                    w.wrapping_add(ahead(N * self.row_bytes) + (block * N + n) * BLOCK_BYTES),
                );
            }
            if END {
                copy[n] = start_of(&self.weight[row * self.row_bytes + at..]);
                here[n] = copy[n].as_ptr();
            }
        }
        here
    }

    /// See [`Words::sixteen`].
    ///
    /// # Safety
    /// Those of [`Words::sixteen`].
    #[inline(always)]
    pub(super) unsafe fn by_word<V: Lanes, const N: usize, const T: usize, const END: bool>(
        &self,
        (row, start): (usize, usize),
        x: [*const f32; T],
        sums: [*const f32; T],
        acc: &mut [[V::All; T]; N],
    ) where
        W: ByWord,
    {
        let span = Self::GROUP_WORDS;
        // SAFETY: the caller's promise; packed rows of `x` are whole blocks, padded with zeros.
        unsafe {
            let blocks_of = self.blocks_of(x);
            let group = start / span * LANES;
            let scales = self.groups_of::<V, N, T, END>((row, group), x, sums, acc);
            for i in 0..span.min(self.blocks - start) {
                let mut copy = [[0; BLOCK_BYTES]; N];
                let here = self.block::<V, N, END>((row, start + i), &mut copy);
                let x = blocks_of.map(|x| x.add((start + i) * W::BLOCK));
                W::add::<V, N, T>(here, x, &scales, i * LANES / span, span, acc);
            }
        }
    }

    /// Where the blocks of packed rows of `x` begin.
    ///
    /// # Safety
    /// They are packed rows.
    #[inline(always)]
    pub(super) unsafe fn blocks_of<const T: usize>(&self, x: [*const f32; T]) -> [*const f32; T] {
        let head = if W::SCALED { self.groups.next_multiple_of(LANES) } else { 0 };
        // SAFETY: the caller's promise.
        x.map(|x| unsafe { x.add(head) })
    }
}

/// The first `LEN` bytes, with zeros where there are fewer.
#[inline(always)]
pub(super) fn start_of<const LEN: usize>(bytes: &[u8]) -> [u8; LEN] {
    let (mut padded, len) = ([0; LEN], bytes.len().min(LEN));
    padded[..len].copy_from_slice(&bytes[..len]);
    padded
}

impl<V: Lanes, W: Words, const GROUP: usize> Rows<V> for Affine<'_, W, GROUP> {
    /// Past a row the words of the next are read with it, where `x` is 0, and groups to be masked.
    fn readable(&self) -> usize {
        let rows = |len: usize, row: usize, read: usize| (len + row).saturating_sub(read) / row;
        let sixteens = 2 * self.groups.next_multiple_of(LANES);
        rows(self.weight.len(), self.row_bytes, self.blocks * BLOCK_BYTES)
            .min(rows(self.scales.len(), 2 * self.groups, sixteens))
            .min(self.rows)
    }

    #[inline(always)]
    unsafe fn add<const N: usize, const T: usize, const END: bool>(
        &self,
        row: usize,
        x: [*const f32; T],
        sums: [*const f32; T],
        acc: &mut [[V::All; T]; N],
    ) {
        // Sixteen groups are as many blocks as a group is words.
        for start in (0..self.blocks).step_by(Self::GROUP_WORDS) {
            // SAFETY: the caller's promise.
            unsafe { W::sixteen::<V, GROUP, N, T, END>(self, (row, start), x, sums, acc) };
        }
    }
}
