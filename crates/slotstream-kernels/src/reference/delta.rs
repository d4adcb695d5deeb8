use super::norm::inverse_rms;
use super::scalar::{dot, sigmoid, silu, softplus};
use crate::GatedDeltaArgs;

/// Added to the sum of squares by which queries and keys are normalised.
const L2_EPS: f64 = 1e-6;

/// See [`Kernels::gated_delta`](crate::Kernels::gated_delta). Advances row by row in f32.
///
/// `record` may be shorter than the pass: the rows after its end are not recorded.
pub fn gated_delta(
    args: &GatedDeltaArgs<'_>,
    state: &mut [f32],
    record: &mut [Option<&mut [f32]>],
    out: &mut [f32],
) {
    let heads = args.value_heads;
    let m = args.a.len() / heads;
    let keys = args.key_heads * args.key_dim;
    let values = heads * args.value_dim;
    assert!(heads.is_multiple_of(args.key_heads), "value heads share key heads evenly");
    assert_eq!(state.len(), heads * args.key_dim * args.value_dim, "state is [heads, k, v]");
    assert_eq!(args.qkv.len(), m * (2 * keys + values), "qkv is [m, q | k | v]");
    assert!(args.a.len() == m * heads && args.b.len() == m * heads, "a and b are [m, heads]");
    assert!(args.z.len() == m * values && out.len() == m * values, "z and out are [m, values]");

    let (mut q, mut k) = (vec![0.0; keys], vec![0.0; keys]);
    let mut delta = vec![0.0; args.value_dim];
    for t in 0..m {
        let row = &args.qkv[t * (2 * keys + values)..][..2 * keys + values];
        unit_heads(&row[..keys], args.key_dim, (args.key_dim as f64).powf(-0.5), &mut q);
        unit_heads(&row[keys..2 * keys], args.key_dim, 1.0, &mut k);
        for head in 0..heads {
            let key = head * args.key_heads / heads * args.key_dim;
            let span = t * values + head * args.value_dim;
            let step = Step {
                q: &q[key..key + args.key_dim],
                k: &k[key..key + args.key_dim],
                v: &row[2 * keys + head * args.value_dim..][..args.value_dim],
                decay: decay(args, t, head),
                beta: sigmoid(args.b[t * heads + head]),
            };
            let size = args.key_dim * args.value_dim;
            let out = &mut out[span..span + args.value_dim];
            step.advance(&mut state[head * size..(head + 1) * size], &mut delta, out);
            gate(args, &args.z[span..span + args.value_dim], out);
        }
        if let Some(Some(record)) = record.get_mut(t) {
            record.copy_from_slice(state);
        }
    }
}

/// `e^g` with `g = -e^A_log * softplus(a + dt_bias)`.
fn decay(args: &GatedDeltaArgs<'_>, t: usize, head: usize) -> f32 {
    let a = args.a[t * args.value_heads + head] + args.dt_bias[head];
    (-args.a_log[head].exp() * softplus(a)).exp()
}

/// Each head times `scale / sqrt(sum of squares + 1e-6)`.
fn unit_heads(x: &[f32], dim: usize, scale: f64, out: &mut [f32]) {
    for (x, out) in x.chunks_exact(dim).zip(out.chunks_exact_mut(dim)) {
        let scale = (scale / (dot(x, x) + L2_EPS).sqrt()) as f32;
        for (out, x) in out.iter_mut().zip(x) {
            *out = x * scale;
        }
    }
}

/// One row of one value head.
struct Step<'a> {
    q: &'a [f32],
    k: &'a [f32],
    v: &'a [f32],
    decay: f32,
    beta: f32,
}

impl Step<'_> {
    /// `S <- decay S; r = S^T k; S <- S + k (x) beta (v - r); out = S^T q`.
    fn advance(&self, state: &mut [f32], delta: &mut [f32], out: &mut [f32]) {
        let dim = out.len();
        delta.fill(0.0);
        for (row, k) in state.chunks_exact_mut(dim).zip(self.k) {
            for (s, r) in row.iter_mut().zip(&mut *delta) {
                *s *= self.decay;
                *r += *s * k;
            }
        }
        for (r, v) in delta.iter_mut().zip(self.v) {
            *r = self.beta * (v - *r);
        }
        out.fill(0.0);
        for ((row, k), q) in state.chunks_exact_mut(dim).zip(self.k).zip(self.q) {
            for ((s, delta), out) in row.iter_mut().zip(&*delta).zip(&mut *out) {
                *s += k * delta;
                *out += *s * q;
            }
        }
    }
}

/// `out <- rms_norm(out) * norm * gate(z)` for one head.
fn gate(args: &GatedDeltaArgs<'_>, z: &[f32], out: &mut [f32]) {
    let scale = inverse_rms(out, args.eps);
    for ((out, weight), z) in out.iter_mut().zip(args.norm).zip(z) {
        let gate = if args.sigmoid_gate { sigmoid(*z) } else { silu(*z) };
        *out = *out * scale * weight * gate;
    }
}
