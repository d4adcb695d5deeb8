use super::ROWS;
use super::scalar::{sigmoid, silu};
use crate::{HcWeights, Kernels};

/// See [`Kernels::hc_mix`].
pub fn hc_mix<K: Kernels + ?Sized>(
    kernels: &K,
    h: &[f32],
    w: &HcWeights<'_>,
    mixed: &mut [f32],
    mut inject: Option<&mut [f32]>,
) {
    let (width, streams) = (w.norm.len(), w.streams);
    let hidden = width / streams;
    assert_eq!(width, hidden * streams, "hc_norm is [streams * hidden]");
    assert_eq!(h.len(), mixed.len() * streams, "h is [m, streams * hidden]");
    assert_eq!(w.inject.is_some(), inject.is_some(), "inject is asked for where it exists");
    let blocks = h.chunks(ROWS * width).zip(mixed.chunks_mut(ROWS * hidden));
    for (block, (h, mixed)) in blocks.enumerate() {
        let mut normed = vec![0.0; h.len()];
        kernels.grouped_rms_norm(h, w.norm, hidden, w.eps, &mut normed);
        mix(kernels, &normed, w, mixed);
        if let (Some(weight), Some(inject)) = (&w.inject, inject.as_deref_mut()) {
            let gates = &mut inject[block * ROWS * streams..][..h.len() / hidden];
            kernels.bf16_matmul(&normed, weight, gates);
            for gate in gates {
                *gate = 2.0 * sigmoid(*gate / streams as f32);
            }
        }
    }
}

/// The read half: `mixed = mean over streams of sigmoid(up . silu(down . n / streams)) * n`.
fn mix<K: Kernels + ?Sized>(kernels: &K, normed: &[f32], w: &HcWeights<'_>, mixed: &mut [f32]) {
    let (width, streams) = (w.norm.len(), w.streams);
    let hidden = width / streams;
    let mut low = vec![0.0; normed.len() / width * w.down.rows()];
    kernels.affine_matmul(normed, &w.down, &mut low);
    for low in &mut low {
        *low = silu(*low / streams as f32);
    }
    let mut gates = vec![0.0; normed.len()];
    kernels.affine_matmul(&low, &w.up, &mut gates);
    let rows = normed.chunks_exact(width).zip(gates.chunks_exact(width));
    for ((normed, gates), mixed) in rows.zip(mixed.chunks_exact_mut(hidden)) {
        mixed.fill(0.0);
        for (normed, gates) in normed.chunks_exact(hidden).zip(gates.chunks_exact(hidden)) {
            for ((mixed, normed), gate) in mixed.iter_mut().zip(normed).zip(gates) {
                *mixed += sigmoid(*gate) * normed;
            }
        }
        for mixed in mixed {
            *mixed /= streams as f32;
        }
    }
}

/// See [`Kernels::hc_inject`].
pub fn hc_inject(h: &mut [f32], inject: &[f32], y: &[f32], hidden: usize) {
    assert_eq!(h.len(), inject.len() * hidden, "h is [m, streams * hidden]");
    let m = y.len() / hidden;
    assert_eq!(y.len(), m * hidden, "y is [m, hidden]");
    if m == 0 {
        return;
    }
    let streams = inject.len() / m;
    assert_eq!(inject.len(), m * streams, "inject is [m, streams]");
    for (i, h) in h.chunks_exact_mut(hidden).enumerate() {
        let y = &y[i / streams * hidden..][..hidden];
        for (h, y) in h.iter_mut().zip(y) {
            *h += inject[i] * y;
        }
    }
}
