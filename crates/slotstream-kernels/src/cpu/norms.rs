//! Norms, rotation, convolution and sums of a row: small enough for one thread.

use super::Cpu;
use super::tile::Out;
use super::vector::{Task, rms_norm, silu};
use crate::{ConvArgs, NormRopeArgs, Rope};

/// Multiply-adds that an element of a convolution is worth, besides one a tap: the SiLU.
const SILU_WORK: usize = 16;

struct GroupedNorm<'a> {
    x: &'a [f32],
    weight: &'a [f32],
    width: usize,
    eps: f32,
    out: &'a mut [f32],
}

impl Task for GroupedNorm<'_> {
    #[inline(always)]
    fn run(self) {
        let Self { x, weight, width, eps, out } = self;
        for (x, out) in x.chunks_exact(weight.len()).zip(out.chunks_exact_mut(weight.len())) {
            let groups = x.chunks_exact(width).zip(weight.chunks_exact(width));
            for ((x, weight), out) in groups.zip(out.chunks_exact_mut(width)) {
                rms_norm(x, weight, eps, out);
            }
        }
    }
}

struct NormRope<'a, 'b> {
    args: &'a NormRopeArgs<'b>,
    /// Cosine and sine of each pair, of one row.
    angles: &'a mut Vec<(f32, f32)>,
    out: &'a mut [f32],
}

impl Task for NormRope<'_, '_> {
    #[inline(always)]
    fn run(self) {
        let args = self.args;
        let dim = args.head_dim;
        for (t, out) in self.out.chunks_exact_mut(args.heads * dim).enumerate() {
            set_angles(args.rope, args.position + t as u64, self.angles);
            for (head, out) in out.chunks_exact_mut(dim).enumerate() {
                let at = t * args.row_stride + args.offset + head * args.head_stride;
                rms_norm(&args.x[at..at + dim], args.weight, args.eps, out);
                rotate(self.angles, out);
            }
        }
    }
}

fn set_angles(rope: &Rope, position: u64, angles: &mut Vec<(f32, f32)>) {
    angles.clear();
    angles.extend((0..rope.dims() / 2).map(|i| rope.cos_sin(position, i)));
}

/// Rotates the first `2 * angles` values of `x`, pairing `i` with `i + angles`.
#[inline(always)]
fn rotate(angles: &[(f32, f32)], x: &mut [f32]) {
    let (low, high) = x[..2 * angles.len()].split_at_mut(angles.len());
    for ((a, b), (cos, sin)) in low.iter_mut().zip(high).zip(angles) {
        (*a, *b) = (*a * cos - *b * sin, *b * cos + *a * sin);
    }
}

/// Some rows of a convolution.
struct Conv<'a, 'b> {
    args: &'a ConvArgs<'b>,
    first: usize,
    out: &'a mut [f32],
}

impl Task for Conv<'_, '_> {
    #[inline(always)]
    fn run(self) {
        let &ConvArgs { window, channels, dilation, kernel, .. } = self.args;
        for (t, out) in (self.first..).zip(self.out.chunks_exact_mut(channels)) {
            let row = |tap: usize| &window[(t + tap * dilation) * channels..][..channels];
            if kernel == 4 {
                taps_of_4(self.args.weight, [row(0), row(1), row(2), row(3)], out);
            } else {
                out.fill(0.0);
                for tap in 0..kernel {
                    add_tap(self.args, tap, row(tap), out);
                }
            }
            for out in out {
                *out = silu(*out);
            }
        }
    }
}

/// The published kernel size, in one go over the channels.
#[inline(always)]
fn taps_of_4(weight: &[f32], rows: [&[f32]; 4], out: &mut [f32]) {
    let weights = weight.as_chunks::<4>().0;
    let n = out.len();
    let [a, b, c, d] = rows.map(|row| &row[..n]);
    for (i, (out, w)) in out.iter_mut().zip(weights).enumerate() {
        *out = w[0] * a[i] + w[1] * b[i] + w[2] * c[i] + w[3] * d[i];
    }
}

#[inline(always)]
fn add_tap(args: &ConvArgs<'_>, tap: usize, row: &[f32], out: &mut [f32]) {
    for ((out, x), weight) in out.iter_mut().zip(row).zip(args.weight.chunks_exact(args.kernel)) {
        *out += weight[tap] * x;
    }
}

struct RankSum<'a> {
    y: &'a [f32],
    weights: &'a [f32],
    hidden: usize,
    out: &'a mut [f32],
}

impl Task for RankSum<'_> {
    #[inline(always)]
    fn run(self) {
        let Self { y, weights, hidden, out } = self;
        let top_k = weights.len() * hidden / out.len();
        for (t, out) in out.chunks_exact_mut(hidden).enumerate() {
            out.fill(0.0);
            for rank in t * top_k..(t + 1) * top_k {
                let weight = weights[rank];
                for (out, y) in out.iter_mut().zip(&y[rank * hidden..][..hidden]) {
                    *out += weight * y;
                }
            }
        }
    }
}

/// The mean of rows, summed first row first.
struct Mean<'a> {
    rows: &'a [f32],
    out: &'a mut [f32],
}

impl Task for Mean<'_> {
    #[inline(always)]
    fn run(self) {
        let Self { rows, out } = self;
        let count = rows.len() / out.len();
        out.fill(0.0);
        for row in rows.chunks_exact(out.len()) {
            for (out, row) in out.iter_mut().zip(row) {
                *out += row;
            }
        }
        for out in out {
            *out /= count as f32;
        }
    }
}

impl Cpu {
    /// Runs a task on this thread.
    pub(super) fn run(&self, task: impl Task) {
        // SAFETY: `with_instruction_set` checked that the machine has the set.
        unsafe { self.isa.run(task) };
    }

    /// Runs `task(first, rows)` on some of the `rows` rows of `out` at a time, each row once, on
    /// all threads where `work`, in multiply-adds, is worth it.
    pub(super) fn rows_apart(
        &self,
        out: &mut [f32],
        work: usize,
        rows: usize,
        task: impl Fn(usize, &mut [f32]) + Sync,
    ) {
        if rows == 0 {
            return;
        }
        let width = out.len() / rows;
        assert_eq!(out.len(), rows * width, "whole rows");
        let chunk = rows.div_ceil(4 * self.threads.count());
        let out = Out::new(out);
        self.threads.run(rows.div_ceil(chunk), work, |i| {
            let rows = i * chunk..((i + 1) * chunk).min(rows);
            // SAFETY: each task has its own rows of `out`, which is borrowed exclusively.
            task(rows.start, unsafe { out.slice(rows.start * width..rows.end * width) });
        });
    }

    /// See [`Kernels::grouped_rms_norm`](crate::Kernels::grouped_rms_norm).
    pub(super) fn norm(&self, x: &[f32], weight: &[f32], width: usize, eps: f32, out: &mut [f32]) {
        assert_eq!(x.len(), out.len(), "x and out are [m, cols]");
        assert!(weight.len().is_multiple_of(width), "cols are whole groups");
        self.run(GroupedNorm { x, weight, width, eps, out });
    }

    /// See [`Kernels::norm_rope`](crate::Kernels::norm_rope).
    pub(super) fn heads(
        &self,
        angles: &mut Vec<(f32, f32)>,
        args: &NormRopeArgs<'_>,
        out: &mut [f32],
    ) {
        assert_eq!(args.weight.len(), args.head_dim, "weight is [head_dim]");
        assert!(out.len().is_multiple_of(args.heads * args.head_dim), "out is [m, heads, dim]");
        self.run(NormRope { args, angles, out });
    }

    /// See [`Kernels::block_key`](crate::Kernels::block_key): the head of `args`, whose `x` is not
    /// looked at, is the mean of the rows of `raw`.
    pub(super) fn mean_key(
        &self,
        mean: &mut Vec<f32>,
        angles: &mut Vec<(f32, f32)>,
        raw: &[f32],
        args: &NormRopeArgs<'_>,
        out: &mut [f32],
    ) {
        let dim = args.head_dim;
        assert!(!raw.is_empty() && raw.len().is_multiple_of(dim), "raw is [ratio, dim]");
        mean.resize(mean.len().max(dim), 0.0);
        let mean = &mut mean[..dim];
        self.run(Mean { rows: raw, out: mean });
        self.heads(angles, &NormRopeArgs { x: mean, ..*args }, out);
    }

    /// See [`Kernels::conv_silu`](crate::Kernels::conv_silu).
    pub(super) fn conv(&self, args: &ConvArgs<'_>, out: &mut [f32]) {
        let &ConvArgs { window, weight, channels, kernel, dilation } = args;
        assert_eq!(weight.len(), channels * kernel, "weight is [channels, kernel]");
        let history = (kernel - 1) * dilation * channels;
        assert_eq!(window.len(), history + out.len(), "window holds the history and the pass");
        let (rows, work) = (out.len() / channels.max(1), out.len() * (kernel + SILU_WORK));
        self.rows_apart(out, work, rows, |first, out| {
            self.run(Conv { args, first, out });
        });
    }

    /// See [`Kernels::rank_sum`](crate::Kernels::rank_sum).
    pub(super) fn ranks(&self, y: &[f32], weights: &[f32], hidden: usize, out: &mut [f32]) {
        assert_eq!(y.len(), weights.len() * hidden, "y is [m, k, hidden]");
        assert!(out.len().is_multiple_of(hidden), "out is [m, hidden]");
        if out.is_empty() {
            return;
        }
        assert!(weights.len().is_multiple_of(out.len() / hidden), "weights are [m, k]");
        self.run(RankSum { y, weights, hidden, out });
    }
}
