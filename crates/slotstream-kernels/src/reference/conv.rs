use super::scalar::silu;
use crate::ConvArgs;

/// See [`Kernels::conv_silu`](crate::Kernels::conv_silu). Sums in f32, oldest tap first.
pub fn conv_silu(args: &ConvArgs<'_>, out: &mut [f32]) {
    let &ConvArgs { window, weight, channels, kernel, dilation } = args;
    assert_eq!(weight.len(), channels * kernel, "weight is [channels, kernel]");
    let history = (kernel - 1) * dilation * channels;
    assert_eq!(window.len(), history + out.len(), "window holds the history and the pass");
    for (t, out) in out.chunks_exact_mut(channels).enumerate() {
        out.fill(0.0);
        for tap in 0..kernel {
            let row = &window[(t + tap * dilation) * channels..][..channels];
            for (c, (out, x)) in out.iter_mut().zip(row).enumerate() {
                *out += weight[c * kernel + tap] * x;
            }
        }
        for out in out {
            *out = silu(*out);
        }
    }
}
