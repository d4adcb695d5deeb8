//! Choosing the best: experts of a row, blocks of a query.

use std::cell::RefCell;

use super::vector::{Task, dot, rank};
use super::{Cpu, kept};
use crate::BlockSelectArgs;

thread_local! {
    static RANKS: RefCell<Vec<u64>> = RefCell::default();
    static SCORES: RefCell<Vec<f32>> = RefCell::default();
}

/// Scores of some blocks for one query, from block `first` on.
struct Scores<'a, 'b> {
    args: &'a BlockSelectArgs<'b>,
    query: &'a [f32],
    first: usize,
    scores: &'a mut [f32],
}

impl Task for Scores<'_, '_> {
    /// `sum over heads of max(0, q . k) / sqrt(dim)`.
    #[inline(always)]
    fn run(self) {
        let scale = (self.args.dim as f32).sqrt().recip();
        for (block, out) in (self.first..).zip(self.scores) {
            let key = self.args.keys.row(block);
            let mut sum = 0.0;
            for query in self.query.chunks_exact(self.args.dim) {
                let product = dot(query, key) as f32;
                // Not `max`, which would turn NaN into 0.
                sum += if product < 0.0 { 0.0 } else { product };
            }
            *out = sum * scale;
        }
    }
}

/// The `count` best of `scores`, best first, at the start of `ranks`.
fn best<'a>(ranks: &'a mut Vec<u64>, scores: &[f32], count: usize) -> &'a mut [u64] {
    ranks.clear();
    ranks.extend((0..).zip(scores).map(|(index, score)| rank(*score, index)));
    if count < ranks.len() {
        ranks.select_nth_unstable(count);
    }
    let best = &mut ranks[..count];
    best.sort_unstable();
    best
}

impl Cpu {
    /// See [`Kernels::route`](crate::Kernels::route).
    pub(super) fn choose(
        &self,
        logits: &[f32],
        experts: usize,
        top_k: usize,
        ids: &mut [u32],
        weights: &mut [f32],
    ) {
        assert!(top_k <= experts, "top-{top_k} of {experts} experts");
        let m = logits.len() / experts;
        assert!(logits.len() == m * experts, "logits are [m, experts]");
        assert!(ids.len() == m * top_k && weights.len() == ids.len(), "both are [m, top_k]");
        if top_k == 0 {
            return;
        }
        let rows = ids.chunks_exact_mut(top_k).zip(weights.chunks_exact_mut(top_k));
        kept(&RANKS, |ranks| {
            for (logits, (ids, weights)) in logits.chunks_exact(experts).zip(rows) {
                for (id, rank) in ids.iter_mut().zip(best(ranks, logits, top_k)) {
                    *id = *rank as u32;
                }
                softmax(logits, ids, weights);
            }
        });
    }

    /// See [`Kernels::block_select`](crate::Kernels::block_select).
    pub(super) fn blocks(&self, args: &BlockSelectArgs<'_>, out: &mut [u32]) {
        let (budget, width) = (args.budget_blocks, args.heads * args.dim);
        assert_eq!(out.len() * width, args.queries.len() * budget, "out is [m, budget_blocks]");
        if budget == 0 {
            return;
        }
        let rows = args.queries.chunks_exact(width).zip(out.chunks_exact_mut(budget));
        for (t, (query, out)) in rows.enumerate() {
            let blocks = (args.position as usize + t + 1) / args.ratio;
            out.fill(u32::MAX);
            if blocks <= budget {
                out.iter_mut().zip(0..blocks as u32).for_each(|(out, block)| *out = block);
                continue;
            }
            kept(&SCORES, |scores| {
                scores.resize(scores.len().max(blocks), 0.0);
                let scores = &mut scores[..blocks];
                self.score(args, query, scores);
                kept(&RANKS, |ranks| {
                    let chosen = best(ranks, scores, budget);
                    out.iter_mut().zip(chosen).for_each(|(out, rank)| *out = *rank as u32);
                });
            });
            out.sort_unstable();
        }
    }

    /// Scores of all blocks for one query, over the threads where there are many.
    fn score(&self, args: &BlockSelectArgs<'_>, query: &[f32], scores: &mut [f32]) {
        let work = scores.len() * query.len();
        let blocks = scores.len();
        self.rows_apart(scores, work, blocks, |first, scores| {
            self.run(Scores { args, query, first, scores });
        });
    }
}

/// Softmax over the chosen logits, the largest of which comes first.
fn softmax(logits: &[f32], chosen: &[u32], weights: &mut [f32]) {
    let mut sum = 0.0;
    for (weight, id) in weights.iter_mut().zip(chosen) {
        *weight = (logits[*id as usize] - logits[chosen[0] as usize]).exp();
        sum += *weight;
    }
    for weight in weights {
        *weight /= sum;
    }
}
