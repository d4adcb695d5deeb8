//! bf16 rows.

use std::ops::Range;

use super::lanes::{LANES, Lanes};
use super::tile::{AHEAD, Rows};
use crate::Bf16Matrix;

/// Bytes of a block of sixteen words.
const BLOCK_BYTES: usize = 4 * LANES;

/// Values of a block.
const BLOCK: usize = 2 * LANES;

/// The rows of a bf16 matrix.
pub(super) struct Bf16<'a>(pub(super) &'a Bf16Matrix<'a>);

/// Adds one block; all pointers point to the block.
///
/// # Safety
/// Those of [`Rows`].
#[inline(always)]
unsafe fn add_block<V: Lanes, const N: usize, const T: usize>(
    w: [*const u8; N],
    x: [*const f32; T],
    acc: &mut [[V::All; T]; N],
) {
    // SAFETY: the caller's promise; a packed block holds sixteen `x` for each value of a word.
    unsafe {
        for part in 0..V::PARTS {
            let lane = part * V::WIDTH;
            for n in 0..N {
                let words = V::words(w[n].add(4 * lane));
                let (low, high) = (V::low_bf16(words), V::high_bf16(words));
                for t in 0..T {
                    let acc = &mut acc[n][t].as_mut()[part];
                    *acc = low.fma(V::load(x[t].add(lane)), *acc);
                    *acc = high.fma(V::load(x[t].add(LANES + lane)), *acc);
                }
            }
        }
    }
}

impl<V: Lanes> Rows<V> for Bf16<'_> {
    const BLOCK: usize = BLOCK;

    #[inline(always)]
    fn blocks(&self) -> usize {
        self.0.cols() / BLOCK
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
        for (n, w) in w.iter_mut().enumerate() {
            *w = self.0.row(row + n).as_ptr();
        }
        // SAFETY: the caller's promise; `blocks` are whole blocks of the rows.
        unsafe {
            for block in blocks {
                let (mut here, mut x) = (w, x);
                for n in 0..N {
                    here[n] = w[n].add(block * BLOCK_BYTES);
                    V::prefetch(w[0].wrapping_add(AHEAD + (block * N + n) * BLOCK_BYTES));
                }
                for x in &mut x {
                    *x = x.add(block * BLOCK);
                }
                add_block::<V, N, T>(here, x, acc);
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
        let rest = &self.0.row(row)[block * BLOCK_BYTES..];
        if rest.is_empty() {
            return;
        }
        let mut words = [0; BLOCK_BYTES];
        words[..rest.len()].copy_from_slice(rest);
        // SAFETY: the caller's promise; packed rows are whole blocks, padded with zeros.
        unsafe {
            let mut sums = [*acc];
            let x = x.map(|x| x.add(block * BLOCK));
            add_block::<V, 1, T>([words.as_ptr()], x, &mut sums);
            *acc = sums[0];
        }
    }

    #[inline(always)]
    unsafe fn finish<const T: usize>(
        &self,
        _row: usize,
        _sums: [*const f32; T],
        _acc: &mut [V::All; T],
    ) {
    }
}
