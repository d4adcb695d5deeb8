//! The gated delta rule, head by head.

use super::tile::Out;
use super::vector::{LANES, Task, dot, inverse_rms, sigmoid, silu};
use super::{Cpu, kept};
use crate::{GatedDeltaArgs, reference};

/// Added to the sum of squares by which queries and keys are normalised.
const L2_EPS: f64 = 1e-6;

/// Multiply-adds that an element of the state is worth a row: it is decayed and read, then
/// written and read.
const WORK: usize = 4;

/// Columns of the state whose sums are held together: the published width, so that the state is
/// walked through from its first byte to its last.
const COLUMNS: usize = 8 * LANES;

thread_local! {
    static HEAD: std::cell::RefCell<Head> = std::cell::RefCell::default();
}

/// Vectors of one head and row, kept between calls.
#[derive(Debug, Default)]
struct Head {
    q: Vec<f32>,
    k: Vec<f32>,
    delta: Vec<f32>,
}

/// All rows of one value head.
struct Advance<'a, 'b> {
    args: &'a GatedDeltaArgs<'b>,
    head: usize,
    vectors: &'a mut Head,
    /// `[key_dim, value_dim]`.
    state: &'a mut [f32],
    /// Where the state after each row goes, all heads of it.
    record: &'a [Option<Out>],
    /// `[m, value_heads * value_dim]`, of which this head writes its own columns.
    out: Out,
}

impl Task for Advance<'_, '_> {
    #[inline(always)]
    fn run(self) {
        let Self { args, head, vectors, state, record, out } = self;
        let (dim, size) = (args.value_dim, args.key_dim * args.value_dim);
        let (keys, values) = (args.key_heads * args.key_dim, args.value_heads * dim);
        let key = head * args.key_heads / args.value_heads * args.key_dim;
        let Head { q, k, delta } = vectors;
        q.resize(args.key_dim, 0.0);
        k.resize(args.key_dim, 0.0);
        delta.resize(dim, 0.0);
        for (t, row) in args.qkv.chunks_exact(2 * keys + values).enumerate() {
            unit(&row[key..key + args.key_dim], (args.key_dim as f64).powf(-0.5), q);
            unit(&row[keys + key..keys + key + args.key_dim], 1.0, k);
            let span = t * values + head * dim..t * values + (head + 1) * dim;
            // SAFETY: every head has its own columns of `out`.
            let out = unsafe { out.slice(span.clone()) };
            let value = &row[2 * keys + head * dim..][..dim];
            let beta = reference::sigmoid(args.b[t * args.value_heads + head]);
            step(state, [q, k, value], decay(args, t, head), beta, delta, out);
            gate(args, &args.z[span], out);
            if let Some(Some(record)) = record.get(t) {
                // SAFETY: every head has its own part of the recorded state.
                let record = unsafe { record.slice(head * size..(head + 1) * size) };
                record.copy_from_slice(state);
            }
        }
    }
}

/// `e^g` with `g = -e^A_log * softplus(a + dt_bias)`.
fn decay(args: &GatedDeltaArgs<'_>, t: usize, head: usize) -> f32 {
    let a = args.a[t * args.value_heads + head] + args.dt_bias[head];
    (-args.a_log[head].exp() * reference::softplus(a)).exp()
}

/// `x * scale / sqrt(sum of squares + 1e-6)`.
#[inline(always)]
fn unit(x: &[f32], scale: f64, out: &mut [f32]) {
    let scale = (scale / (dot(x, x) + L2_EPS).sqrt()) as f32;
    for (out, x) in out.iter_mut().zip(x) {
        *out = x * scale;
    }
}

/// `S <- decay S; r = S^T k; S <- S + k (x) beta (v - r); out = S^T q`, a few columns at a time.
#[inline(always)]
fn step(
    state: &mut [f32],
    [q, k, v]: [&[f32]; 3],
    decay: f32,
    beta: f32,
    delta: &mut [f32],
    out: &mut [f32],
) {
    let dim = out.len();
    let mut at = 0;
    while at + COLUMNS <= dim {
        columns::<COLUMNS>(state, [q, k, v], decay, beta, at, delta, out);
        at += COLUMNS;
    }
    while at + LANES <= dim {
        columns::<LANES>(state, [q, k, v], decay, beta, at, delta, out);
        at += LANES;
    }
    while at < dim {
        columns::<1>(state, [q, k, v], decay, beta, at, delta, out);
        at += 1;
    }
}

/// `N` columns from `at` on. Each column has a sum of its own over the rows of the state, first
/// row first, by fused multiply-adds.
#[inline(always)]
fn columns<const N: usize>(
    state: &mut [f32],
    [q, k, v]: [&[f32]; 3],
    decay: f32,
    beta: f32,
    at: usize,
    delta: &mut [f32],
    out: &mut [f32],
) {
    let dim = out.len();
    let mut sums = [0.0_f32; N];
    for (row, k) in state.chunks_exact(dim).zip(k) {
        for (sum, s) in sums.iter_mut().zip(part::<N>(row, at)) {
            *sum = (s * decay).mul_add(*k, *sum);
        }
    }
    let delta = part_mut::<N>(delta, at);
    for ((delta, v), sum) in delta.iter_mut().zip(part::<N>(v, at)).zip(sums) {
        *delta = beta * (v - sum);
    }
    let mut sums = [0.0_f32; N];
    for ((row, k), q) in state.chunks_exact_mut(dim).zip(k).zip(q) {
        let row = part_mut::<N>(row, at);
        for ((sum, s), delta) in sums.iter_mut().zip(row).zip(&*delta) {
            *s = k.mul_add(*delta, *s * decay);
            *sum = s.mul_add(*q, *sum);
        }
    }
    *part_mut::<N>(out, at) = sums;
}

#[inline(always)]
fn part<const N: usize>(x: &[f32], at: usize) -> &[f32; N] {
    x[at..].first_chunk().expect("within the row")
}

#[inline(always)]
fn part_mut<const N: usize>(x: &mut [f32], at: usize) -> &mut [f32; N] {
    x[at..].first_chunk_mut().expect("within the row")
}

/// `out <- rms_norm(out) * norm * gate(z)` for one head.
#[inline(always)]
fn gate(args: &GatedDeltaArgs<'_>, z: &[f32], out: &mut [f32]) {
    let scale = inverse_rms(out, args.eps);
    if args.sigmoid_gate {
        for ((out, weight), z) in out.iter_mut().zip(args.norm).zip(z) {
            *out = *out * scale * weight * sigmoid(*z);
        }
    } else {
        for ((out, weight), z) in out.iter_mut().zip(args.norm).zip(z) {
            *out = *out * scale * weight * silu(*z);
        }
    }
}

impl Cpu {
    /// See [`Kernels::gated_delta`](crate::Kernels::gated_delta).
    pub(super) fn delta(
        &self,
        args: &GatedDeltaArgs<'_>,
        state: &mut [f32],
        record: &mut [Option<&mut [f32]>],
        out: &mut [f32],
    ) {
        let heads = args.value_heads;
        let m = args.a.len() / heads;
        let (keys, values) = (args.key_heads * args.key_dim, heads * args.value_dim);
        let size = args.key_dim * args.value_dim;
        assert!(heads.is_multiple_of(args.key_heads), "value heads share key heads evenly");
        assert_eq!(state.len(), heads * size, "state is [heads, k, v]");
        assert_eq!(args.qkv.len(), m * (2 * keys + values), "qkv is [m, q | k | v]");
        assert!(args.a.len() == m * heads && args.b.len() == m * heads, "a, b are [m, heads]");
        assert!(args.z.len() == m * values && out.len() == m * values, "z, out are [m, values]");
        assert!(args.norm.len() == args.value_dim, "norm is [value_dim]");
        for record in record.iter().flatten() {
            assert_eq!(record.len(), state.len(), "a record has the size of the state");
        }
        let record: Vec<Option<Out>> =
            record.iter_mut().map(|record| record.as_deref_mut().map(Out::new)).collect();
        let (state, out) = (Out::new(state), Out::new(out));
        self.threads.run(heads, m * heads * size * WORK, |head| {
            // SAFETY: each task has its own head of `state`, which is borrowed exclusively.
            let state = unsafe { state.slice(head * size..(head + 1) * size) };
            kept(&HEAD, |vectors| {
                self.run(Advance { args, head, vectors, state, record: &record, out });
            });
        });
    }
}
