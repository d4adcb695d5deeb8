use super::scalar::{best_first, dot};
use crate::BlockSelectArgs;

/// See [`Kernels::block_select`](crate::Kernels::block_select). A block whose score is NaN comes
/// after all others.
pub fn block_select(args: &BlockSelectArgs<'_>, out: &mut [u32]) {
    let (budget, width) = (args.budget_blocks, args.heads * args.dim);
    assert_eq!(out.len() * width, args.queries.len() * budget, "out is [m, budget_blocks]");
    if budget == 0 {
        return;
    }
    let mut scores = Vec::new();
    let mut order = Vec::new();
    let rows = args.queries.chunks_exact(width).zip(out.chunks_exact_mut(budget));
    for (t, (queries, out)) in rows.enumerate() {
        let blocks = (args.position as usize + t + 1) / args.ratio;
        order.clear();
        order.extend(0..blocks as u32);
        if blocks > budget {
            scores.clear();
            scores.extend((0..blocks).map(|block| score(args, queries, block)));
            order.select_nth_unstable_by(budget, |a, b| best_first(&scores, *a, *b));
            order.truncate(budget);
            order.sort_unstable();
        }
        out.fill(u32::MAX);
        out[..order.len()].copy_from_slice(&order);
    }
}

/// `sum over heads of max(0, q . k) / sqrt(dim)`.
fn score(args: &BlockSelectArgs<'_>, queries: &[f32], block: usize) -> f32 {
    let key = args.keys.row(block);
    let mut sum = 0.0;
    for query in queries.chunks_exact(args.dim) {
        let product = dot(query, key) as f32;
        // Not `max`, which would turn NaN into 0.
        sum += if product < 0.0 { 0.0 } else { product };
    }
    sum * (args.dim as f32).sqrt().recip()
}
