//! Attention over selected tokens.

use std::cell::RefCell;
use std::ops::Range;

use super::dispatch::LanesTask;
use super::lanes::{LANES, Lanes};
use super::matmul::IDENTITY;
use super::tile::{self, Job, Out, Rows};
use super::vector::{exp, sigmoid, tree};
use super::{Cpu, kept};
use crate::{AttentionArgs, Paged};

/// Query heads that share a look at a key and a value.
const GROUP: usize = 4;

/// Multiply-adds with keys and values, which are read in turn by several heads, to one with weights
/// from memory. A few hundred tokens are not worth the waking of a thread on a busy machine.
const CHEAP: usize = 4;

/// How far ahead keys are asked for, in rows.
const AHEAD: usize = 32;

/// Values that are walked through before the next columns of them; those after them are asked for
/// meanwhile.
const NEAR: usize = 32;

thread_local! {
    static WEIGHTS: RefCell<Vec<f32>> = RefCell::default();
    static SPANS: RefCell<Vec<Range<usize>>> = RefCell::default();
}

/// Some query heads of one row, all of one KV head.
struct Heads<'a, 'b> {
    args: &'a AttentionArgs<'b>,
    row: usize,
    heads: Range<usize>,
    /// The tokens that the row sees: ascending, none of them across a page.
    spans: &'a [Range<usize>],
    tokens: usize,
    /// `[heads, tokens]`.
    weights: &'a mut [f32],
    /// `[heads, head_dim]`.
    out: &'a mut [f32],
}

impl LanesTask for Heads<'_, '_> {
    #[inline(always)]
    unsafe fn run<V: Lanes>(self) {
        let Self { args, row, heads, spans, tokens, weights, out } = self;
        let dim = args.head_dim;
        let start = heads.start * args.kv_heads / args.heads * dim;
        let queries = &args.queries[(row * args.heads + heads.start) * dim..][..out.len()];
        // SAFETY: the caller's promise.
        unsafe {
            scores::<V>(&args.keys, spans, start, queries, dim, tokens, weights);
            for weights in weights.chunks_exact_mut(tokens) {
                softmax(weights, (dim as f32).sqrt().recip());
            }
            if heads.len() == GROUP {
                sum_values::<V, GROUP>(&args.values, spans, start, tokens, weights, out);
            } else {
                let heads = weights.chunks_exact(tokens).zip(out.chunks_exact_mut(dim));
                for (weights, out) in heads {
                    sum_values::<V, 1>(&args.values, spans, start, tokens, weights, out);
                }
            }
        }
        for (head, out) in heads.zip(out.chunks_exact_mut(dim)) {
            let at = row * args.gate_row_stride + args.gate_offset + head * args.gate_head_stride;
            for (out, gate) in out.iter_mut().zip(&args.gate[at..at + dim]) {
                *out *= sigmoid(*gate);
            }
        }
    }
}

/// `q . k` of the queries, `dim` wide each, with every key.
///
/// # Safety
/// Those of [`LanesTask::run`].
#[inline(always)]
unsafe fn scores<V: Lanes>(
    keys: &Paged<'_>,
    spans: &[Range<usize>],
    start: usize,
    queries: &[f32],
    dim: usize,
    tokens: usize,
    weights: &mut [f32],
) {
    let heads = &IDENTITY[..queries.len() / dim];
    let mut number = 0;
    for span in spans {
        let keys = Keys { rows: rows(keys, span), width: keys.width, start, dim };
        let out = Out::new(&mut weights[number..]);
        let job = Job {
            x: queries,
            width: dim,
            sums: &[],
            groups: 0,
            from: heads,
            to: heads,
            out,
            stride: tokens,
        };
        // SAFETY: the caller's promise; the rows are those of the span, and the job's queries are
        // as wide as they are. `weights` is borrowed exclusively.
        unsafe { tile::rows::<V, _>(&keys, &job, 0..span.len()) };
        number += span.len();
    }
}

/// Rows of f32, `width` apart, of which `dim` columns from `start` on count. A product has sixteen
/// running sums, one for each `i % 16`.
struct Keys<'a> {
    rows: &'a [f32],
    width: usize,
    start: usize,
    dim: usize,
}

impl<V: Lanes> Rows<V> for Keys<'_> {
    /// What is beyond the columns may be infinite, so this is for whole sixteens.
    fn readable(&self) -> usize {
        if self.dim.is_multiple_of(LANES) { self.rows.len() / self.width } else { 0 }
    }

    #[inline(always)]
    unsafe fn add<const N: usize, const T: usize, const END: bool>(
        &self,
        row: usize,
        x: [*const f32; T],
        _sums: [*const f32; T],
        acc: &mut [[V::All; T]; N],
    ) {
        let Self { rows, width, start, dim } = *self;
        let key: [&[f32]; N] = std::array::from_fn(|n| &rows[(row + n) * width + start..][..dim]);
        for at in (0..dim).step_by(LANES) {
            let mut padded = [[0.0_f32; LANES]; 2];
            // SAFETY: the caller's promise: `dim` values at each of `x`; up to the end of a row
            // there are whole sixteens, or copies of what there is.
            unsafe {
                let (mut key, mut x) = (key.map(|key| key[at..].as_ptr()), x.map(|x| x.add(at)));
                if END {
                    let len = LANES.min(dim - at);
                    for (padded, from) in padded.iter_mut().zip([&mut key[0], &mut x[0]]) {
                        std::ptr::copy_nonoverlapping(*from, padded.as_mut_ptr(), len);
                        *from = padded.as_ptr();
                    }
                }
                for key in key {
                    V::prefetch(key.wrapping_add(AHEAD * width).cast());
                }
                for part in 0..V::PARTS {
                    let lane = part * V::WIDTH;
                    for n in 0..N {
                        let key = V::load(key[n].add(lane));
                        for t in 0..T {
                            let acc = &mut acc[n][t].as_mut()[part];
                            *acc = key.fma(V::load(x[t].add(lane)), *acc);
                        }
                    }
                }
            }
        }
    }
}

/// The rows of `span`, which lie in one page.
#[inline(always)]
fn rows<'a>(paged: &Paged<'a>, span: &Range<usize>) -> &'a [f32] {
    let first = span.start % paged.page_rows * paged.width;
    &paged.pages[span.start / paged.page_rows][first..first + span.len() * paged.width]
}

/// Replaces lane `i % 16` and value `i` by what `step` makes of them, for every `i` in order.
#[inline(always)]
fn by_lane(values: &mut [f32], lanes: &mut [f32; LANES], step: impl Fn(f32, f32) -> (f32, f32)) {
    let (whole, rest) = values.as_chunks_mut::<LANES>();
    for values in whole {
        for i in 0..LANES {
            (lanes[i], values[i]) = step(lanes[i], values[i]);
        }
    }
    for (lane, value) in lanes.iter_mut().zip(rest) {
        (*lane, *value) = step(*lane, *value);
    }
}

/// Softmax of `scale * weights`, in place: sixteen running sums, one for each `i % 16`.
#[inline(always)]
fn softmax(weights: &mut [f32], scale: f32) {
    let mut lanes = [f32::NEG_INFINITY; LANES];
    // A NaN that this skips is still there when the exponentials are taken.
    by_lane(weights, &mut lanes, |max, weight| {
        let scaled = weight * scale;
        (if scaled > max { scaled } else { max }, scaled)
    });
    let max = lanes.into_iter().fold(f32::NEG_INFINITY, f32::max);
    let mut sums = [0.0_f32; LANES];
    by_lane(weights, &mut sums, |sum, weight| {
        let weight = exp(weight - max);
        (sum + weight, weight)
    });
    let sum = tree(sums);
    for weight in weights {
        *weight /= sum;
    }
}

/// `out = sum over tokens of weight * value` of `N` heads, oldest first, by fused multiply-adds.
///
/// # Safety
/// Those of [`LanesTask::run`].
#[inline(always)]
unsafe fn sum_values<V: Lanes, const N: usize>(
    values: &Paged<'_>,
    spans: &[Range<usize>],
    start: usize,
    tokens: usize,
    weights: &[f32],
    out: &mut [f32],
) {
    let dim = out.len() / N;
    out.fill(0.0);
    let mut number = 0;
    for span in spans {
        // A few at a time: they are still in the cache for the next columns.
        for some in rows(values, span).chunks(NEAR * values.width) {
            let count = some.len() / values.width;
            let weights: [&[f32]; N] =
                std::array::from_fn(|n| &weights[n * tokens + number..][..count]);
            let mut at = 0;
            // SAFETY: the caller's promise.
            unsafe {
                // Two at once where there are registers for the sums of both.
                while V::REGISTERS > 16 && at + 2 * LANES <= dim {
                    add_columns::<V, N, 2>(some, values.width, start + at, weights, at, out);
                    at += 2 * LANES;
                }
                while at + LANES <= dim {
                    add_columns::<V, N, 1>(some, values.width, start + at, weights, at, out);
                    at += LANES;
                }
            }
            for (n, weights) in weights.into_iter().enumerate() {
                for column in at..dim {
                    let sum = &mut out[n * dim + column];
                    for (value, weight) in
                        some[start + column..].iter().step_by(values.width).zip(weights)
                    {
                        *sum = weight.mul_add(*value, *sum);
                    }
                }
            }
            number += count;
        }
    }
}

/// `C` times sixteen columns of the values from `from` on, to those of each head from `at` on.
///
/// # Safety
/// Those of [`Lanes`].
#[inline(always)]
unsafe fn add_columns<V: Lanes, const N: usize, const C: usize>(
    values: &[f32],
    width: usize,
    from: usize,
    weights: [&[f32]; N],
    at: usize,
    out: &mut [f32],
) {
    let dim = out.len() / N;
    // SAFETY: the caller's promise; a slice vouches for each sixteen of columns.
    unsafe {
        let mut sums = [[V::zeros(); N]; C];
        for (c, sums) in sums.iter_mut().enumerate() {
            for (n, sums) in sums.iter_mut().enumerate() {
                let out = out[n * dim + at + c * LANES..][..LANES].as_ptr();
                for part in 0..V::PARTS {
                    sums.as_mut()[part] = V::load(out.add(part * V::WIDTH));
                }
            }
        }
        for (i, value) in values.chunks_exact(width).enumerate() {
            let value = value[from..][..C * LANES].as_ptr();
            for (c, sums) in sums.iter_mut().enumerate() {
                V::prefetch(value.wrapping_add(NEAR * width + c * LANES).cast());
                for part in 0..V::PARTS {
                    let value = V::load(value.add(c * LANES + part * V::WIDTH));
                    for (sums, weights) in sums.iter_mut().zip(weights) {
                        let sum = &mut sums.as_mut()[part];
                        *sum = V::spread(&raw const weights[i], part, LANES).fma(value, *sum);
                    }
                }
            }
        }
        for (c, sums) in sums.iter().enumerate() {
            for (n, sums) in sums.iter().enumerate() {
                let out = out[n * dim + at + c * LANES..][..LANES].as_mut_ptr();
                for part in 0..V::PARTS {
                    sums.as_ref()[part].store(out.add(part * V::WIDTH));
                }
            }
        }
    }
}

impl Cpu {
    /// See [`Kernels::indexed_attention`](crate::Kernels::indexed_attention).
    pub(super) fn attention(&self, args: &AttentionArgs<'_>, out: &mut [f32]) {
        let (heads, dim) = (args.heads, args.head_dim);
        let m = args.queries.len() / (heads * dim);
        assert!(args.queries.len() == m * heads * dim && out.len() == args.queries.len(), "heads");
        assert!(args.selection.is_none_or(|s| s.len().is_multiple_of(m.max(1))), "selection");
        assert_eq!(args.keys.page_rows, args.values.page_rows, "pages of equal size");
        let groups = heads.div_ceil(args.kv_heads).div_ceil(GROUP);
        let out = Out::new(out);
        let longest = args.position as usize + m;
        let seen = args
            .selection
            .map_or(longest, |s| (s.len() / m.max(1) * args.ratio + args.ratio).min(longest));
        let work = m * heads * dim * seen / CHEAP;
        self.threads.run(m * args.kv_heads * groups, work, |i| {
            let (row, kv, group) =
                (i / groups / args.kv_heads, i / groups % args.kv_heads, i % groups);
            // The heads of a KV head: those with `head * kv_heads / heads == kv`.
            let [start, end] = [kv, kv + 1].map(|kv| (kv * args.heads).div_ceil(args.kv_heads));
            let heads = (start + group * GROUP).min(end)..(start + (group + 1) * GROUP).min(end);
            let at = (row * args.heads + heads.start) * dim;
            // SAFETY: each task has its own heads of its own row of `out`, which is borrowed
            // exclusively.
            let out = unsafe { out.slice(at..at + heads.len() * dim) };
            self.attend(args, m, row, heads, out);
        });
    }

    fn attend(
        &self,
        args: &AttentionArgs<'_>,
        m: usize,
        row: usize,
        heads: Range<usize>,
        out: &mut [f32],
    ) {
        kept(&SPANS, |spans| {
            visible(args, m, row, spans);
            let tokens: usize = spans.iter().map(ExactSizeIterator::len).sum();
            if tokens == 0 {
                // A query that ends a block and whose selection is empty.
                out.fill(0.0);
                return;
            }
            kept(&WEIGHTS, |weights| {
                weights.resize(weights.len().max(heads.len() * tokens), 0.0);
                let weights = &mut weights[..heads.len() * tokens];
                // SAFETY: `new` checked the instruction set.
                unsafe {
                    self.isa.run_lanes(Heads { args, row, heads, spans, tokens, weights, out });
                };
            });
        });
    }
}

/// The tokens that row `t` of `m` sees, ascending.
fn visible(args: &AttentionArgs<'_>, m: usize, t: usize, spans: &mut Vec<Range<usize>>) {
    let n = args.position as usize + t + 1;
    spans.clear();
    let mut push = |mut span: Range<usize>| {
        while !span.is_empty() {
            let page = (span.start / args.keys.page_rows + 1) * args.keys.page_rows;
            let end = span.end.min(page);
            match spans.last_mut() {
                // Blocks that follow each other in one page are walked through as one.
                Some(last)
                    if last.end == span.start && !last.end.is_multiple_of(args.keys.page_rows) =>
                {
                    last.end = end;
                }
                _ => spans.push(span.start..end),
            }
            span.start = end;
        }
    };
    let Some(selection) = args.selection else {
        push(0..n);
        return;
    };
    let budget = selection.len() / m;
    for block in selection[t * budget..(t + 1) * budget].iter().filter(|b| **b != u32::MAX) {
        let block = *block as usize;
        assert!((block + 1) * args.ratio <= n, "block {block} is not complete at {n} tokens");
        push(block * args.ratio..(block + 1) * args.ratio);
    }
    push(n / args.ratio * args.ratio..n);
}
