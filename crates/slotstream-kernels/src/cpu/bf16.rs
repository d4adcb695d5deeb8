//! bf16 rows.

use super::affine::start_of;
use super::lanes::{LANES, Lanes};
use super::tile::{Rows, ahead};
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
    /// Past a row the values of the next would be read with it: they may be infinite, so this is
    /// for rows of whole blocks.
    fn readable(&self) -> usize {
        if self.0.cols().is_multiple_of(BLOCK) { self.0.rows() } else { 0 }
    }

    #[inline(always)]
    unsafe fn add<const N: usize, const T: usize, const END: bool>(
        &self,
        row: usize,
        x: [*const f32; T],
        _sums: [*const f32; T],
        acc: &mut [[V::All; T]; N],
    ) {
        let row_bytes = 2 * self.0.cols();
        let w = self.0.bytes().as_ptr().wrapping_add(row * row_bytes);
        for block in 0..row_bytes.div_ceil(BLOCK_BYTES) {
            let (at, mut here) = (block * BLOCK_BYTES, [w; N]);
            let mut padded = [[0; BLOCK_BYTES]; N];
            // SAFETY: the caller's promise; packed rows are whole blocks, padded with zeros.
            unsafe {
                for n in 0..N {
                    here[n] = w.add(n * row_bytes + at);
                    V::prefetch(w.wrapping_add(ahead(N * row_bytes) + at * N + n * BLOCK_BYTES));
                    if END {
                        padded[n] = start_of(&self.0.row(row + n)[at..]);
                        here[n] = padded[n].as_ptr();
                    }
                }
                add_block::<V, N, T>(here, x.map(|x| x.add(block * BLOCK)), acc);
            }
        }
    }
}
