use super::scalar::{dot, sigmoid};
use crate::AttentionArgs;

/// See [`Kernels::indexed_attention`](crate::Kernels::indexed_attention). Scores are summed in
/// f64 and rounded; softmax and the sum of values are f32, oldest token first.
///
/// A query that sees no token (it ends a block, and its selection is empty) gets zeros.
///
/// # Panics
/// When a chosen block is not complete at its query's position.
pub fn indexed_attention(args: &AttentionArgs<'_>, out: &mut [f32]) {
    let (heads, dim) = (args.heads, args.head_dim);
    let m = args.queries.len() / (heads * dim);
    assert!(args.queries.len() == m * heads * dim && out.len() == args.queries.len());
    assert!(args.selection.is_none_or(|s| s.len().is_multiple_of(m.max(1))));
    let (mut tokens, mut weights) = (Vec::new(), Vec::new());
    for t in 0..m {
        visible(args, m, t, &mut tokens);
        for head in 0..heads {
            let at = (t * heads + head) * dim;
            let out = &mut out[at..at + dim];
            attend(args, head, &args.queries[at..at + dim], &tokens, &mut weights, out);
            let gate = t * args.gate_row_stride + args.gate_offset + head * args.gate_head_stride;
            for (out, gate) in out.iter_mut().zip(&args.gate[gate..gate + dim]) {
                *out *= sigmoid(*gate);
            }
        }
    }
}

/// The tokens that row `t` of `m` sees, ascending.
fn visible(args: &AttentionArgs<'_>, m: usize, t: usize, tokens: &mut Vec<usize>) {
    let n = args.position as usize + t + 1;
    tokens.clear();
    let Some(selection) = args.selection else {
        tokens.extend(0..n);
        return;
    };
    let budget = selection.len() / m;
    for block in selection[t * budget..(t + 1) * budget].iter().filter(|b| **b != u32::MAX) {
        let block = *block as usize;
        assert!((block + 1) * args.ratio <= n, "block {block} is not complete at {n} tokens");
        tokens.extend(block * args.ratio..(block + 1) * args.ratio);
    }
    tokens.extend(n / args.ratio * args.ratio..n);
}

/// Softmax attention of one query head over `tokens`.
fn attend(
    args: &AttentionArgs<'_>,
    head: usize,
    query: &[f32],
    tokens: &[usize],
    weights: &mut Vec<f32>,
    out: &mut [f32],
) {
    let dim = args.head_dim;
    let start = head * args.kv_heads / args.heads * dim;
    let scale = (dim as f32).sqrt().recip();
    weights.clear();
    weights.extend(tokens.iter().map(|token| {
        let key = &args.keys.row(*token)[start..start + dim];
        dot(query, key) as f32 * scale
    }));
    // A NaN that `max` skips is still there when the exponentials are taken.
    let max = weights.iter().copied().fold(f32::NEG_INFINITY, f32::max);
    let mut sum = 0.0;
    for weight in &mut *weights {
        *weight = (*weight - max).exp();
        sum += *weight;
    }
    out.fill(0.0);
    for (token, weight) in tokens.iter().zip(&*weights) {
        let (weight, value) = (weight / sum, &args.values.row(*token)[start..start + dim]);
        for (out, value) in out.iter_mut().zip(value) {
            *out += weight * value;
        }
    }
}
