use slotstream_core::dequantize_row;

use super::scalar::dot;
use crate::AffineMatrix;

/// See [`Kernels::affine_matmul`](crate::Kernels::affine_matmul). Dequantizes each weight row in
/// f32, then sums in f64.
pub fn affine_matmul(x: &[f32], w: &AffineMatrix<'_>, out: &mut [f32]) {
    let (n, k) = (w.rows(), w.cols());
    assert!(x.len().is_multiple_of(k) && x.len() / k * n == out.len(), "x is [m, k], out [m, n]");
    let mut row = vec![0.0; k];
    for r in 0..n {
        dequantize_row(w.format(), w.weight_row(r), w.scales_row(r), w.biases_row(r), &mut row);
        for (x, out) in x.chunks_exact(k).zip(out.chunks_exact_mut(n)) {
            out[r] = dot(x, &row) as f32;
        }
    }
}

/// See [`Kernels::affine_rows`](crate::Kernels::affine_rows).
pub fn affine_rows(w: &AffineMatrix<'_>, ids: &[u32], out: &mut [f32]) {
    assert_eq!(out.len(), ids.len() * w.cols(), "out is [ids, k]");
    for (id, out) in ids.iter().zip(out.chunks_exact_mut(w.cols())) {
        let r = *id as usize;
        dequantize_row(w.format(), w.weight_row(r), w.scales_row(r), w.biases_row(r), out);
    }
}
