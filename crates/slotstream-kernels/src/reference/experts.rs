use slotstream_core::{Matrix, RecordLayout};

use super::ROWS;
use super::scalar::{sigmoid, silu};
use crate::{AffineMatrix, Bf16Matrix, ExpertRows, Kernels, MlpWeights};

/// The three matrices of a record.
pub(crate) fn record_mlp<'a>(layout: &RecordLayout, record: &'a [u8]) -> MlpWeights<'a> {
    MlpWeights {
        gate: AffineMatrix::of_record(layout, record, Matrix::Gate),
        up: AffineMatrix::of_record(layout, record, Matrix::Up),
        down: AffineMatrix::of_record(layout, record, Matrix::Down),
    }
}

/// `out = down . (silu(gate . x) * (up . x))` for the rows of `x`.
fn mlp<K: Kernels + ?Sized>(kernels: &K, x: &[f32], w: &MlpWeights<'_>, out: &mut [f32]) {
    let rows = x.len() / w.gate.cols();
    let mut gate = vec![0.0; rows * w.gate.rows()];
    let mut up = vec![0.0; rows * w.up.rows()];
    kernels.affine_matmul(x, &w.gate, &mut gate);
    kernels.affine_matmul(x, &w.up, &mut up);
    for (gate, up) in gate.iter_mut().zip(&up) {
        *gate = silu(*gate) * up;
    }
    kernels.affine_matmul(&gate, &w.down, out);
}

/// See [`Kernels::expert_mlp`].
pub fn expert_mlp<K: Kernels + ?Sized>(
    kernels: &K,
    layout: &RecordLayout,
    x: &[f32],
    experts: &[ExpertRows<'_>],
    out: &mut [f32],
) {
    let hidden = layout.shape().hidden();
    for expert in experts {
        assert_eq!(expert.rows.len(), expert.places.len(), "one place a row");
        let weights = record_mlp(layout, expert.record);
        for (rows, places) in expert.rows.chunks(ROWS).zip(expert.places.chunks(ROWS)) {
            let gathered: Vec<f32> = rows
                .iter()
                .flat_map(|row| &x[*row as usize * hidden..][..hidden])
                .copied()
                .collect();
            let mut y = vec![0.0; rows.len() * hidden];
            mlp(kernels, &gathered, &weights, &mut y);
            for (place, y) in places.iter().zip(y.chunks_exact(hidden)) {
                out[*place as usize * hidden..][..hidden].copy_from_slice(y);
            }
        }
    }
}

/// See [`Kernels::rank_sum`].
pub fn rank_sum(y: &[f32], weights: &[f32], hidden: usize, out: &mut [f32]) {
    assert_eq!(y.len(), weights.len() * hidden, "y is [m, k, hidden]");
    let m = out.len() / hidden;
    assert_eq!(out.len(), m * hidden, "out is [m, hidden]");
    out.fill(0.0);
    if m == 0 {
        return;
    }
    let top_k = weights.len() / m;
    assert_eq!(weights.len(), m * top_k, "weights are [m, k]");
    for (t, out) in out.chunks_exact_mut(hidden).enumerate() {
        for rank in t * top_k..(t + 1) * top_k {
            for (out, y) in out.iter_mut().zip(&y[rank * hidden..][..hidden]) {
                *out += weights[rank] * y;
            }
        }
    }
}

/// See [`Kernels::shared_expert`].
pub fn shared_expert<K: Kernels + ?Sized>(
    kernels: &K,
    x: &[f32],
    weights: &MlpWeights<'_>,
    gate: &Bf16Matrix<'_>,
    out: &mut [f32],
) {
    let hidden = gate.cols();
    assert_eq!(x.len(), out.len(), "x and out are [m, hidden]");
    for (x, out) in x.chunks(ROWS * hidden).zip(out.chunks_mut(ROWS * hidden)) {
        let mut gates = vec![0.0; x.len() / hidden];
        kernels.bf16_matmul(x, gate, &mut gates);
        let mut y = vec![0.0; x.len()];
        mlp(kernels, x, weights, &mut y);
        let rows = out.chunks_exact_mut(hidden).zip(y.chunks_exact(hidden));
        for ((out, y), gate) in rows.zip(gates) {
            let gate = sigmoid(gate);
            for (out, y) in out.iter_mut().zip(y) {
                *out = gate * y;
            }
        }
    }
}
