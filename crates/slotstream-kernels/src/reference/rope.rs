use super::norm::rms_norm;
use crate::{NormRopeArgs, Rope};

/// Rotates the first `rope.dims()` of `x` in place.
fn rotate(rope: &Rope, position: u64, x: &mut [f32]) {
    let half = rope.dims() / 2;
    let (low, high) = x[..2 * half].split_at_mut(half);
    for (i, (a, b)) in low.iter_mut().zip(high).enumerate() {
        let (cos, sin) = rope.cos_sin(position, i);
        (*a, *b) = (*a * cos - *b * sin, *b * cos + *a * sin);
    }
}

/// See [`Kernels::norm_rope`](crate::Kernels::norm_rope).
pub fn norm_rope(args: &NormRopeArgs<'_>, out: &mut [f32]) {
    let dim = args.head_dim;
    assert_eq!(args.weight.len(), dim, "weight is [head_dim]");
    assert!(out.len().is_multiple_of(args.heads * dim), "out is [m, heads, head_dim]");
    for (i, out) in out.chunks_exact_mut(dim).enumerate() {
        let (t, head) = (i / args.heads, i % args.heads);
        let x = &args.x[t * args.row_stride + args.offset + head * args.head_stride..][..dim];
        rms_norm(x, args.weight, args.eps, out);
        rotate(args.rope, args.position + t as u64, out);
    }
}

/// See [`Kernels::block_key`](crate::Kernels::block_key). The mean is summed in f32, first key
/// first.
pub fn block_key(
    raw: &[f32],
    weight: &[f32],
    eps: f32,
    rope: &Rope,
    position: u64,
    out: &mut [f32],
) {
    let dim = weight.len();
    let ratio = raw.len() / dim;
    assert!(ratio > 0 && raw.len() == ratio * dim, "raw is [ratio, dim]");
    let mut mean = vec![0.0; dim];
    for raw in raw.chunks_exact(dim) {
        for (mean, raw) in mean.iter_mut().zip(raw) {
            *mean += raw;
        }
    }
    for mean in &mut mean {
        *mean /= ratio as f32;
    }
    rms_norm(&mean, weight, eps, out);
    rotate(rope, position, out);
}
