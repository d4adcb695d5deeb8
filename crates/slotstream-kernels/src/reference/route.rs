use super::scalar::best_first;

/// See [`Kernels::route`](crate::Kernels::route). A NaN that has to be chosen, for want of
/// numbers, makes all weights of its row NaN.
///
/// # Panics
/// When `top_k` exceeds `experts`.
pub fn route(logits: &[f32], experts: usize, top_k: usize, ids: &mut [u32], weights: &mut [f32]) {
    assert!(top_k <= experts, "top-{top_k} of {experts} experts");
    let m = logits.len() / experts;
    assert!(logits.len() == m * experts, "logits are [m, experts]");
    assert!(ids.len() == m * top_k && weights.len() == ids.len(), "ids, weights are [m, top_k]");
    let mut order: Vec<u32> = Vec::with_capacity(experts);
    for (t, logits) in logits.chunks_exact(experts).enumerate() {
        order.clear();
        order.extend(0..experts as u32);
        order.sort_unstable_by(|a, b| best_first(logits, *a, *b));
        let row = t * top_k..(t + 1) * top_k;
        ids[row.clone()].copy_from_slice(&order[..top_k]);
        softmax(logits, &order[..top_k], &mut weights[row]);
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
