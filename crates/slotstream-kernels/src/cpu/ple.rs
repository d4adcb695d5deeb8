//! The gate of the n-gram embedding.

use super::Cpu;
use super::tile::Out;
use super::vector::{Task, dot, inverse_rms, rms_norm, sigmoid};
use crate::PleGateArgs;

/// Multiply-adds that an element is worth: three norms, a dot product and the gate.
const WORK: usize = 16;

/// Some streams of some rows, numbered row by row.
struct Gate<'a, 'b> {
    args: &'a PleGateArgs<'b>,
    first: usize,
    values: &'a mut [f32],
    conv_in: &'a mut [f32],
}

impl Task for Gate<'_, '_> {
    #[inline(always)]
    fn run(self) {
        let args = self.args;
        let hidden = args.norm_key.len() / args.streams;
        let outs = self.values.chunks_exact_mut(hidden).zip(self.conv_in.chunks_exact_mut(hidden));
        for (i, (values, conv_in)) in (self.first..).zip(outs) {
            let (t, s) = (i / args.streams, i % args.streams);
            let (row, column) = (i * hidden..(i + 1) * hidden, s * hidden..(s + 1) * hidden);
            // The outputs hold the two norms until they are needed for themselves.
            rms_norm(&args.key[row.clone()], &args.norm_key[column.clone()], args.eps, values);
            rms_norm(&args.h[row], &args.norm_query[column.clone()], args.eps, conv_in);
            let agreement = dot(values, conv_in) / (hidden as f64).sqrt();
            let gate = sigmoid(signed_sqrt(agreement as f32));
            for (out, value) in values.iter_mut().zip(&args.value[t * hidden..][..hidden]) {
                *out = gate * value;
            }
            let scale = inverse_rms(values, args.eps);
            let weights = &args.norm_conv[column];
            for ((out, x), weight) in conv_in.iter_mut().zip(&*values).zip(weights) {
                *out = x * scale * weight;
            }
        }
    }
}

/// `sign(a) * sqrt(max(|a|, 1e-6))` with `sign(0) = 0`. `signum` carries a NaN through.
#[inline(always)]
fn signed_sqrt(a: f32) -> f32 {
    if a == 0.0 { 0.0 } else { a.signum() * a.abs().max(1e-6).sqrt() }
}

impl Cpu {
    /// See [`Kernels::ple_gate`](crate::Kernels::ple_gate).
    pub(super) fn gate(&self, args: &PleGateArgs<'_>, values: &mut [f32], conv_in: &mut [f32]) {
        let width = args.norm_key.len();
        let hidden = width / args.streams;
        let m = args.h.len() / width;
        assert_eq!(width, hidden * args.streams, "norms are [streams * hidden]");
        assert!(args.norm_query.len() == width && args.norm_conv.len() == width, "norms");
        assert_eq!(args.h.len(), m * width, "h is [m, streams * hidden]");
        assert_eq!(args.key.len(), args.h.len(), "key is [m, streams * hidden]");
        assert_eq!(args.value.len(), m * hidden, "value is [m, hidden]");
        assert_eq!(values.len(), args.h.len(), "value_out is [m, streams * hidden]");
        assert_eq!(conv_in.len(), args.h.len(), "conv_in is [m, streams * hidden]");
        let conv_in = Out::new(conv_in);
        let work = values.len() * WORK;
        self.rows_apart(values, work, m * args.streams, |first, values| {
            let at = first * hidden..first * hidden + values.len();
            // SAFETY: as for the rows of `values`: each task has its own, and `conv_in` is
            // borrowed exclusively.
            let conv_in = unsafe { conv_in.slice(at) };
            self.run(Gate { args, first, values, conv_in });
        });
    }
}
