use slotstream_core::bf16_at;

use super::scalar::dot;
use crate::Bf16Matrix;

/// See [`Kernels::bf16_matmul`](crate::Kernels::bf16_matmul). Sums in f64.
pub fn bf16_matmul(x: &[f32], w: &Bf16Matrix<'_>, out: &mut [f32]) {
    let (n, k) = (w.rows(), w.cols());
    assert!(x.len().is_multiple_of(k) && x.len() / k * n == out.len(), "x is [m, k], out [m, n]");
    let mut row = vec![0.0; k];
    for r in 0..n {
        let bytes = w.row(r);
        for (i, value) in row.iter_mut().enumerate() {
            *value = bf16_at(bytes, i);
        }
        for (x, out) in x.chunks_exact(k).zip(out.chunks_exact_mut(n)) {
            out[r] = dot(x, &row) as f32;
        }
    }
}
