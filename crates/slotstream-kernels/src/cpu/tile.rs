//! Products of a few weight rows with a few rows of `x`, in the one order of additions.
//!
//! # The order
//! Word `w` of a weight row belongs to lane `w % 16`. Within a word of 4-bit values, their products
//! with `x` in three digits (`fixed.rs`) are summed exactly and that is rounded once; 8-bit values
//! times their `x` are chained by fused multiply-adds, first value first, from 0. That sum times
//! the scale of the word's group, which was multiplied with the scale of `x` where that has one, is
//! added to the lane by a fused multiply-add, first word first. Group `g` belongs to lane `g % 16`,
//! to which its bias times the sum of its `x` is added in the same manner; sixteen groups at a
//! time, before their words. With `x` in one digit a group of 4-bit values is summed as a whole,
//! exactly, and added to the lane of the group like a word, after its bias. Words and groups are
//! padded with zeros to whole sixteens. The lanes are added up as a tree (lane `i` and `i + 8`, then
//! 4, 2, 1). For bf16 rows the chain runs in the lane itself and there are no groups.
//!
//! Nothing in this depends on how many rows are worked on together.

use std::ops::Range;

use super::lanes::Lanes;

/// Weight rows that share a look at rows of `x`.
const GROUP: usize = 16;

/// How far ahead weights are asked for, in bytes, where rows of so many bytes are worked on
/// together. They lie one after the other and so do those after them, and the lines are asked for
/// in that order: that is what the machine's own prefetchers follow. Those rows are read side by
/// side, so nothing less than all of them is early enough for the last one.
pub(super) const fn ahead(together: usize) -> usize {
    if together > 8192 { together } else { 8192 }
}

/// Where to find the rows of `x` and where the results go.
#[derive(Clone, Copy)]
pub(super) struct Job<'a> {
    /// Packed rows, each `width` long.
    pub(super) x: &'a [f32],
    /// See [`Packing::width`](super::pack::Packing::width).
    pub(super) width: usize,
    /// Group sums, for each packed row `groups`.
    pub(super) sums: &'a [f32],
    /// See [`Packing::groups`](super::pack::Packing::groups).
    pub(super) groups: usize,
    /// The packed rows to use.
    pub(super) from: &'a [u32],
    /// For each of them its row of `out`.
    pub(super) to: &'a [u32],
    /// The results, `[.., stride]`.
    pub(super) out: Out,
    /// Columns of `out`: the rows of the weights.
    pub(super) stride: usize,
}

/// An array of which several threads write different elements.
#[derive(Clone, Copy)]
pub(super) struct Out {
    at: *mut f32,
    len: usize,
}

// SAFETY: it is a pointer to plain numbers. Writing through it is unsafe, and whoever does so
// vouches that no two threads touch the same element.
unsafe impl Send for Out {}
// SAFETY: as above.
unsafe impl Sync for Out {}

impl Out {
    pub(super) fn new(out: &mut [f32]) -> Self {
        Self { at: out.as_mut_ptr(), len: out.len() }
    }

    /// The elements of `range`.
    ///
    /// # Safety
    /// The array outlives the result, and nobody else touches these elements meanwhile.
    pub(super) unsafe fn slice<'a>(self, range: Range<usize>) -> &'a mut [f32] {
        assert!(range.start <= range.end && range.end <= self.len, "within the array");
        // SAFETY: in bounds as just checked; exclusive by the caller's promise.
        unsafe { std::slice::from_raw_parts_mut(self.at.add(range.start), range.len()) }
    }
}

/// The rows of a weight matrix.
pub(super) trait Rows<V: Lanes> {
    /// How many rows can be read in whole blocks, up to the end of the last block.
    fn readable(&self) -> usize;

    /// Adds `N` rows times `T` rows of `x`, and asks for the weights [`ahead`] of them. Near the
    /// `END`, where a row is not among the [`readable`](Self::readable), blocks are copied before
    /// they are read.
    ///
    /// # Safety
    /// Those of [`Lanes`]; `row..row + N` are rows of the matrix, `x` are packed rows of its width
    /// and `sums` their group sums.
    unsafe fn add<const N: usize, const T: usize, const END: bool>(
        &self,
        row: usize,
        x: [*const f32; T],
        sums: [*const f32; T],
        acc: &mut [[V::All; T]; N],
    );
}

/// Computes rows `rows` of `w` for all rows of the job.
///
/// # Safety
/// Those of [`Rows::add`]; nobody else touches the columns `rows` of the job's `out` rows.
#[inline(always)]
pub(super) unsafe fn rows<V: Lanes, R: Rows<V>>(w: &R, job: &Job<'_>, rows: Range<usize>) {
    let m = job.from.len();
    let mut start = rows.start;
    while start < rows.end {
        let group = start..(start + GROUP).min(rows.end);
        let mut t = 0;
        while t < m {
            // SAFETY: the caller's promise; `t` and the rows after it are rows of the job.
            t += unsafe {
                if V::SEVERAL {
                    match m - t {
                        2.. => tile::<V, R, 4, 2>(w, job, group.clone(), t),
                        _ => tile::<V, R, 4, 1>(w, job, group.clone(), t),
                    }
                } else {
                    tile::<V, R, 1, 1>(w, job, group.clone(), t)
                }
            };
        }
        start = group.end;
    }
}

/// At most [`GROUP`] weight rows, `N` at a time, times `T` rows of `x`, from row `t` of the job;
/// returns `T`.
#[inline(always)]
unsafe fn tile<V: Lanes, R: Rows<V>, const N: usize, const T: usize>(
    w: &R,
    job: &Job<'_>,
    rows: Range<usize>,
    t: usize,
) -> usize {
    let (mut x, mut sums) = ([job.x.as_ptr(); T], [job.sums.as_ptr(); T]);
    let mut out = [0; T];
    for i in 0..T {
        let from = job.from[t + i] as usize;
        x[i] = job.x[from * job.width..(from + 1) * job.width].as_ptr();
        sums[i] = job.sums[from * job.groups..(from + 1) * job.groups].as_ptr();
        out[i] = job.to[t + i] as usize * job.stride;
    }
    let (mut row, readable) = (rows.start, w.readable());
    // SAFETY: the caller's promise; `x` and `sums` are rows of the job.
    unsafe {
        while row + N <= rows.end.min(readable) {
            products::<V, R, N, T, false>(w, row, x, sums, out, job.out);
            row += N;
        }
        while row < rows.end {
            products::<V, R, 1, T, true>(w, row, x, sums, out, job.out);
            row += 1;
        }
    }
    T
}

/// The products of `N` rows with `T` rows of `x`, of which row `row` goes to the elements
/// `to + row` of `out`.
///
/// # Safety
/// Those of [`Rows::add`]; nobody else touches these elements.
#[inline(always)]
unsafe fn products<V: Lanes, R: Rows<V>, const N: usize, const T: usize, const END: bool>(
    w: &R,
    row: usize,
    x: [*const f32; T],
    sums: [*const f32; T],
    to: [usize; T],
    out: Out,
) {
    // SAFETY: the caller's promise.
    unsafe {
        let mut acc = [[V::zeros(); T]; N];
        w.add::<N, T, END>(row, x, sums, &mut acc);
        for t in 0..T {
            let mut all = [acc[0][t]; N];
            for n in 1..N {
                all[n] = acc[n][t];
            }
            let results = V::sums(all);
            out.slice(to[t] + row..to[t] + row + N).copy_from_slice(&results);
        }
    }
}
