//! Attention over selected tokens.

use std::cell::RefCell;
use std::ops::Range;

use super::tile::Out;
use super::vector::{LANES, Task, exp, multiply_add, sigmoid, tree};
use super::{Cpu, kept};
use crate::{AttentionArgs, Paged};

/// Query heads that share a look at a key and a value.
const GROUP: usize = 4;

/// Multiply-adds with keys and values, which are read in turn by several heads, to one with weights
/// from memory. A few hundred tokens are not worth the waking of a thread on a busy machine.
const CHEAP: usize = 4;

/// Columns of a value whose sums are held in registers together, for each head of a group.
const COLUMNS: usize = 2 * LANES;

/// Values that are walked through before the next columns of them.
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

impl Task for Heads<'_, '_> {
    #[inline(always)]
    fn run(self) {
        let Self { args, row, heads, spans, tokens, weights, out } = self;
        let dim = args.head_dim;
        let start = heads.start * args.kv_heads / args.heads * dim;
        let queries = &args.queries[(row * args.heads + heads.start) * dim..][..out.len()];
        let together = if heads.len() == GROUP { GROUP } else { 1 };
        let parts = weights.chunks_exact_mut(together * tokens);
        let parts = parts.zip(queries.chunks_exact(together * dim));
        for ((weights, queries), out) in parts.zip(out.chunks_exact_mut(together * dim)) {
            if together == GROUP {
                scores::<GROUP>(&args.keys, spans, start, queries, tokens, weights);
            } else {
                scores::<1>(&args.keys, spans, start, queries, tokens, weights);
            }
            for weights in weights.chunks_exact_mut(tokens) {
                softmax(weights, (dim as f32).sqrt().recip());
            }
            if together == GROUP {
                sum_values::<GROUP>(&args.values, spans, start, tokens, weights, out);
            } else {
                sum_values::<1>(&args.values, spans, start, tokens, weights, out);
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

/// `q . k` of `N` queries with every key.
#[inline(always)]
fn scores<const N: usize>(
    keys: &Paged<'_>,
    spans: &[Range<usize>],
    start: usize,
    queries: &[f32],
    tokens: usize,
    weights: &mut [f32],
) {
    let dim = queries.len() / N;
    let queries: [&[f32]; N] = std::array::from_fn(|n| &queries[n * dim..(n + 1) * dim]);
    let mut number = 0;
    for span in spans {
        for key in rows(keys, span).chunks_exact(keys.width) {
            let key = &key[start..start + dim];
            for (n, query) in queries.iter().enumerate() {
                weights[n * tokens + number] = product(query, key);
            }
            number += 1;
        }
    }
}

/// `q . k`: sixteen running sums, one for each `i % 16`.
#[inline(always)]
fn product(query: &[f32], key: &[f32]) -> f32 {
    let mut sums = [0.0_f32; LANES];
    let ((whole_query, rest_query), (whole_key, rest_key)) =
        (query.as_chunks::<LANES>(), key.as_chunks::<LANES>());
    for (query, key) in whole_query.iter().zip(whole_key) {
        multiply_add(&mut sums, query, key);
    }
    for ((sum, query), key) in sums.iter_mut().zip(rest_query).zip(rest_key) {
        *sum = query.mul_add(*key, *sum);
    }
    tree(sums)
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
#[inline(always)]
fn sum_values<const N: usize>(
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
            while at + COLUMNS <= dim {
                add_columns::<N, COLUMNS>(some, values.width, start + at, weights, at, out);
                at += COLUMNS;
            }
            while at < dim {
                add_columns::<N, 1>(some, values.width, start + at, weights, at, out);
                at += 1;
            }
            number += count;
        }
    }
}

/// `C` columns of the values from `from` on, to those of each head from `at` on.
#[inline(always)]
fn add_columns<const N: usize, const C: usize>(
    values: &[f32],
    width: usize,
    from: usize,
    weights: [&[f32]; N],
    at: usize,
    out: &mut [f32],
) {
    let dim = out.len() / N;
    let mut sums = [[0.0_f32; C]; N];
    for (n, sums) in sums.iter_mut().enumerate() {
        sums.copy_from_slice(&out[n * dim + at..][..C]);
    }
    for (i, value) in values.chunks_exact(width).enumerate() {
        if let Some(value) = value[from..].first_chunk::<C>() {
            for (sums, weights) in sums.iter_mut().zip(weights) {
                for (sum, value) in sums.iter_mut().zip(value) {
                    *sum = weights[i].mul_add(*value, *sum);
                }
            }
        }
    }
    for (n, sums) in sums.iter().enumerate() {
        out[n * dim + at..][..C].copy_from_slice(sums);
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
                self.run(Heads { args, row, heads, spans, tokens, weights, out });
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
