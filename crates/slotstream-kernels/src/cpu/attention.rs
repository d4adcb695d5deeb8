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

/// Columns of a value whose sums are held in registers together.
const COLUMNS: usize = 4 * LANES;

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
        if heads.len() == GROUP {
            scores::<GROUP>(&args.keys, spans, start, queries, tokens, weights);
        } else {
            for (query, weights) in queries.chunks_exact(dim).zip(weights.chunks_exact_mut(tokens))
            {
                scores::<1>(&args.keys, spans, start, query, tokens, weights);
            }
        }
        for (weights, out) in weights.chunks_exact_mut(tokens).zip(out.chunks_exact_mut(dim)) {
            softmax(weights, (dim as f32).sqrt().recip());
            sum_values(&args.values, spans, start, weights, out);
        }
        for (head, out) in heads.zip(out.chunks_exact_mut(dim)) {
            let at = row * args.gate_row_stride + args.gate_offset + head * args.gate_head_stride;
            for (out, gate) in out.iter_mut().zip(&args.gate[at..at + dim]) {
                *out *= sigmoid(*gate);
            }
        }
    }
}

/// `q . k` of `N` queries with every key: sixteen running sums, one for each `i % 16`.
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
    let mut number = 0;
    for span in spans {
        let page = rows(keys, span);
        for key in page.chunks_exact(keys.width) {
            let key = &key[start..start + dim];
            let (whole, rest) = key.as_chunks::<LANES>();
            let mut sums = [[0.0_f32; LANES]; N];
            for (i, key) in whole.iter().enumerate() {
                for (n, sums) in sums.iter_mut().enumerate() {
                    let query = &queries[n * dim + i * LANES..][..LANES];
                    if let Some(query) = query.first_chunk() {
                        multiply_add(sums, query, key);
                    }
                }
            }
            for (n, sums) in sums.iter_mut().enumerate() {
                let query = &queries[n * dim + whole.len() * LANES..][..rest.len()];
                for ((sum, query), key) in sums.iter_mut().zip(query).zip(rest) {
                    *sum = query.mul_add(*key, *sum);
                }
                weights[n * tokens + number] = tree(*sums);
            }
            number += 1;
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

/// `out = sum over tokens of weight * value`, oldest first, by fused multiply-adds.
#[inline(always)]
fn sum_values(
    values: &Paged<'_>,
    spans: &[Range<usize>],
    start: usize,
    weights: &[f32],
    out: &mut [f32],
) {
    let (wide, rest) = out.as_chunks_mut::<COLUMNS>();
    let mut at = start;
    for out in wide {
        *out = sum_columns(values, spans, at, weights);
        at += COLUMNS;
    }
    let (narrow, rest) = rest.as_chunks_mut::<LANES>();
    for out in narrow {
        *out = sum_columns(values, spans, at, weights);
        at += LANES;
    }
    for out in rest {
        [*out] = sum_columns::<1>(values, spans, at, weights);
        at += 1;
    }
}

#[inline(always)]
fn sum_columns<const N: usize>(
    values: &Paged<'_>,
    spans: &[Range<usize>],
    at: usize,
    mut weights: &[f32],
) -> [f32; N] {
    let mut sums = [0.0_f32; N];
    for span in spans {
        let (own, later) = weights.split_at(span.len());
        for (weight, value) in own.iter().zip(rows(values, span).chunks_exact(values.width)) {
            if let Some(value) = value[at..].first_chunk::<N>() {
                for (sum, value) in sums.iter_mut().zip(value) {
                    *sum = weight.mul_add(*value, *sum);
                }
            }
        }
        weights = later;
    }
    sums
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
