use super::scalar::dot;

/// `1 / sqrt(mean(x^2) + eps)`.
pub(super) fn inverse_rms(x: &[f32], eps: f32) -> f32 {
    (1.0 / (dot(x, x) / x.len() as f64 + f64::from(eps)).sqrt()) as f32
}

/// `x * inverse_rms(x) * weight`.
pub(super) fn rms_norm(x: &[f32], weight: &[f32], eps: f32, out: &mut [f32]) {
    assert!(x.len() == weight.len() && x.len() == out.len(), "all are [width]");
    let scale = inverse_rms(x, eps);
    for ((out, x), weight) in out.iter_mut().zip(x).zip(weight) {
        *out = x * scale * weight;
    }
}

/// See [`Kernels::grouped_rms_norm`](crate::Kernels::grouped_rms_norm).
pub fn grouped_rms_norm(x: &[f32], weight: &[f32], width: usize, eps: f32, out: &mut [f32]) {
    assert_eq!(x.len(), out.len(), "x and out are [m, cols]");
    assert!(weight.len().is_multiple_of(width), "cols are whole groups");
    for (x, out) in x.chunks_exact(weight.len()).zip(out.chunks_exact_mut(weight.len())) {
        let groups = x.chunks_exact(width).zip(weight.chunks_exact(width));
        for ((x, weight), out) in groups.zip(out.chunks_exact_mut(width)) {
            rms_norm(x, weight, eps, out);
        }
    }
}
