use super::norm::{grouped_rms_norm, rms_norm};
use super::scalar::{dot, sigmoid};
use crate::PleGateArgs;

/// See [`Kernels::ple_gate`](crate::Kernels::ple_gate).
pub fn ple_gate(args: &PleGateArgs<'_>, value_out: &mut [f32], conv_in: &mut [f32]) {
    let width = args.norm_key.len();
    let hidden = width / args.streams;
    let m = args.h.len() / width;
    assert_eq!(args.h.len(), m * width, "h is [m, streams * hidden]");
    assert_eq!(args.key.len(), args.h.len(), "key is [m, streams * hidden]");
    assert_eq!(args.value.len(), m * hidden, "value is [m, hidden]");
    assert_eq!(value_out.len(), args.h.len(), "value_out is [m, streams * hidden]");
    let (mut key, mut query) = (vec![0.0; hidden], vec![0.0; hidden]);
    for (i, out) in value_out.chunks_exact_mut(hidden).enumerate() {
        let (t, s) = (i / args.streams, i % args.streams);
        let (row, column) = (i * hidden..(i + 1) * hidden, s * hidden..(s + 1) * hidden);
        rms_norm(&args.key[row.clone()], &args.norm_key[column.clone()], args.eps, &mut key);
        rms_norm(&args.h[row], &args.norm_query[column], args.eps, &mut query);
        let gate = sigmoid(signed_sqrt((dot(&key, &query) / (hidden as f64).sqrt()) as f32));
        for (out, value) in out.iter_mut().zip(&args.value[t * hidden..][..hidden]) {
            *out = gate * value;
        }
    }
    grouped_rms_norm(value_out, args.norm_conv, hidden, args.eps, conv_in);
}

/// `sign(a) * sqrt(max(|a|, 1e-6))` with `sign(0) = 0`. `signum` carries a NaN through.
fn signed_sqrt(a: f32) -> f32 {
    if a == 0.0 { 0.0 } else { a.signum() * a.abs().max(1e-6).sqrt() }
}
