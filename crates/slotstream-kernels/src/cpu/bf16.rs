//! bf16 rows.

use std::ops::Range;

use super::lanes::{LANES, Lanes};
use super::tile::Rows;
use crate::Bf16Matrix;

/// Bytes of a block of sixteen words.
const BLOCK_BYTES: usize = 4 * LANES;

/// Values of a block.
const BLOCK: usize = 2 * LANES;

/// The rows of a bf16 matrix.
pub(super) struct Bf16<'a>(pub(super) &'a Bf16Matrix<'a>);

/// Adds one block; `x` point to the block.
///
/// # Safety
/// Those of [`Rows`].
#[inline(always)]
unsafe fn add_block<V: Lanes, const T: usize>(
    words: V::Words,
    x: [*const f32; T],
    acc: &mut [V; T],
) {
    // SAFETY: the caller's promise; a packed block holds sixteen `x` for each value of a word.
    unsafe {
        let (low, high) = (V::low_bf16(words), V::high_bf16(words));
        for t in 0..T {
            acc[t] = low.fma(V::load(x[t]), acc[t]);
            acc[t] = high.fma(V::load(x[t].add(LANES)), acc[t]);
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
        out: &mut [[V; T]],
    ) {
        let mut w = [std::ptr::null(); N];
        for (n, w) in w.iter_mut().enumerate() {
            *w = self.0.row(row + n).as_ptr();
        }
        let ahead = N * 2 * self.0.cols();
        // SAFETY: the caller's promise; `blocks` are whole blocks of the rows.
        unsafe {
            let mut acc = [[V::zero(); T]; N];
            acc.copy_from_slice(out);
            for block in blocks {
                let mut here = x;
                for t in 0..T {
                    here[t] = x[t].add(block * BLOCK);
                }
                for n in 0..N {
                    let at = w[n].add(block * BLOCK_BYTES);
                    V::prefetch(at.wrapping_add(ahead));
                    add_block::<V, T>(V::words(at), here, &mut acc[n]);
                }
            }
            out.copy_from_slice(&acc);
        }
    }

    #[inline(always)]
    unsafe fn add_rest<const T: usize>(&self, row: usize, x: [*const f32; T], acc: &mut [V; T]) {
        let block = Rows::<V>::blocks(self);
        let rest = &self.0.row(row)[block * BLOCK_BYTES..];
        if rest.is_empty() {
            return;
        }
        let mut words = [0; BLOCK_BYTES];
        words[..rest.len()].copy_from_slice(rest);
        let mut here = x;
        // SAFETY: the caller's promise; packed rows are whole blocks, padded with zeros.
        unsafe {
            for t in 0..T {
                here[t] = x[t].add(block * BLOCK);
            }
            add_block::<V, T>(V::words(words.as_ptr()), here, acc);
        }
    }

    #[inline(always)]
    unsafe fn finish<const T: usize>(
        &self,
        _row: usize,
        _sums: [*const f32; T],
        acc: [V; T],
    ) -> [f32; T] {
        let mut results = [0.0; T];
        for t in 0..T {
            // SAFETY: the caller's promise.
            results[t] = unsafe { acc[t].sum() };
        }
        results
    }
}
