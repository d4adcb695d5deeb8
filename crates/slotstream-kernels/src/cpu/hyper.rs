//! Hyper-connections and the shared expert: matrix products with small work around them.

use super::Cpu;
use super::pack::ROWS;
use super::vector::{Task, sigmoid, silu};
use crate::{Bf16Matrix, HcWeights, Kernels, MlpWeights};

/// Multiply-adds that an element of a mix is worth: a sigmoid.
const MIX_WORK: usize = 16;

/// Arrays between the parts of a composed operation, kept between calls.
#[derive(Debug, Default)]
pub(super) struct Between {
    a: Vec<f32>,
    b: Vec<f32>,
    c: Vec<f32>,
}

/// The first `len` values; contents are unspecified.
fn room(values: &mut Vec<f32>, len: usize) -> &mut [f32] {
    values.resize(values.len().max(len), 0.0);
    &mut values[..len]
}

/// `x <- silu(x / divisor)`.
struct SiluOver<'a> {
    x: &'a mut [f32],
    divisor: f32,
}

impl Task for SiluOver<'_> {
    #[inline(always)]
    fn run(self) {
        for x in self.x {
            *x = silu(*x / self.divisor);
        }
    }
}

/// `mixed = mean over streams of sigmoid(gates) * normed`.
struct Mix<'a> {
    normed: &'a [f32],
    gates: &'a [f32],
    streams: usize,
    hidden: usize,
    mixed: &'a mut [f32],
}

impl Task for Mix<'_> {
    #[inline(always)]
    fn run(self) {
        let Self { normed, gates, streams, hidden, mixed } = self;
        let width = streams * hidden;
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
}

/// `h[m, s, hidden] += inject[m, s] * y[m, hidden]`.
struct Inject<'a> {
    h: &'a mut [f32],
    inject: &'a [f32],
    y: &'a [f32],
    streams: usize,
    hidden: usize,
}

impl Task for Inject<'_> {
    #[inline(always)]
    fn run(self) {
        let Self { h, inject, y, streams, hidden } = self;
        for ((i, h), inject) in h.chunks_exact_mut(hidden).enumerate().zip(inject) {
            for (h, y) in h.iter_mut().zip(&y[i / streams * hidden..][..hidden]) {
                *h += inject * y;
            }
        }
    }
}

/// `gate <- silu(gate) * up`.
pub(super) struct GateUp<'a> {
    pub(super) gate: &'a mut [f32],
    pub(super) up: &'a [f32],
}

impl Task for GateUp<'_> {
    #[inline(always)]
    fn run(self) {
        for (gate, up) in self.gate.iter_mut().zip(self.up) {
            *gate = silu(*gate) * up;
        }
    }
}

/// `y[m, hidden] <- sigmoid(gates[m]) * y[m, hidden]`.
struct GateRows<'a> {
    y: &'a mut [f32],
    gates: &'a [f32],
    hidden: usize,
}

impl Task for GateRows<'_> {
    #[inline(always)]
    fn run(self) {
        for (y, gate) in self.y.chunks_exact_mut(self.hidden).zip(self.gates) {
            let gate = sigmoid(*gate);
            for y in y {
                *y *= gate;
            }
        }
    }
}

impl Cpu {
    /// See [`Kernels::hc_mix`].
    pub(super) fn hc_read(
        &self,
        between: &mut Between,
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
            let rows = h.len() / width;
            let normed = room(&mut between.a, h.len());
            self.norm(h, w.norm, hidden, w.eps, normed);
            if let (Some(weight), Some(inject)) = (&w.inject, inject.as_deref_mut()) {
                let gates = &mut inject[block * ROWS * streams..][..rows * streams];
                self.bf16_matmul(normed, weight, gates);
                for gate in gates {
                    *gate = 2.0 * sigmoid(*gate / streams as f32);
                }
            }
            let low = room(&mut between.b, rows * w.down.rows());
            self.affine_matmul(normed, &w.down, low);
            self.run(SiluOver { x: low, divisor: streams as f32 });
            let gates = room(&mut between.c, h.len());
            self.affine_matmul(low, &w.up, gates);
            let (normed, gates) = (&*normed, &*gates);
            self.rows_apart(mixed, h.len() * MIX_WORK, rows, |first, mixed| {
                let at = first * width..(first + mixed.len() / hidden) * width;
                let (normed, gates) = (&normed[at.clone()], &gates[at]);
                self.run(Mix { normed, gates, streams, hidden, mixed });
            });
        }
    }

    /// See [`Kernels::hc_inject`].
    pub(super) fn hc_write(&self, h: &mut [f32], inject: &[f32], y: &[f32], hidden: usize) {
        assert_eq!(h.len(), inject.len() * hidden, "h is [m, streams * hidden]");
        assert!(y.len().is_multiple_of(hidden), "y is [m, hidden]");
        let m = y.len() / hidden;
        if m == 0 {
            return;
        }
        let streams = inject.len() / m;
        assert_eq!(inject.len(), m * streams, "inject is [m, streams]");
        self.run(Inject { h, inject, y, streams, hidden });
    }

    /// See [`Kernels::shared_expert`].
    pub(super) fn shared(
        &self,
        between: &mut Between,
        x: &[f32],
        w: &MlpWeights<'_>,
        gate: &Bf16Matrix<'_>,
        out: &mut [f32],
    ) {
        let (hidden, inner) = (gate.cols(), w.gate.rows());
        assert_eq!(x.len(), out.len(), "x and out are [m, hidden]");
        for (x, out) in x.chunks(ROWS * hidden).zip(out.chunks_mut(ROWS * hidden)) {
            let rows = x.len() / hidden;
            let gates = room(&mut between.a, rows);
            self.bf16_matmul(x, gate, gates);
            let (inner_gate, up) =
                (room(&mut between.b, rows * inner), room(&mut between.c, rows * inner));
            self.affine_matmul(x, &w.gate, inner_gate);
            self.affine_matmul(x, &w.up, up);
            self.run(GateUp { gate: inner_gate, up });
            self.affine_matmul(inner_gate, &w.down, out);
            self.run(GateRows { y: out, gates, hidden });
        }
    }
}
