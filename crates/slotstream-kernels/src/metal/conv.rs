//! Causal convolutions.

use super::dispatch::count;
use super::library::{Constants, constants};
use super::{Dispatch, Library, PRELUDE, PlanError, View};

constants!(ConvArgs { channels: u32, taps: u32, dilation: u32 });

/// Kernels of this file.
pub static CONV: Library =
    Library::new("conv", &[PRELUDE, ConvArgs::MSL, include_str!("conv.metal")]);

/// Shape of a causal depthwise convolution.
#[derive(Clone, Copy, Debug)]
#[expect(clippy::exhaustive_structs, reason = "an argument list")]
pub struct ConvShape {
    /// Channels.
    pub channels: usize,
    /// Taps.
    pub kernel: usize,
    /// Rows between taps.
    pub dilation: usize,
}

/// `out[m, channels]`: the convolution of `window`, which is the `(kernel - 1) * dilation` rows
/// before the pass and its `m` rows, with `weight[channels, kernel]`, then SiLU.
///
/// # Errors
/// [`PlanError`].
pub fn conv_silu<B>(
    m: usize,
    shape: ConvShape,
    window: View<B>,
    weight: View<B>,
    out: View<B>,
) -> Result<Dispatch<B>, PlanError> {
    let ConvShape { channels, kernel, dilation } = shape;
    let rows = kernel.saturating_sub(1).saturating_mul(dilation).saturating_add(m);
    count("rows", rows)?;
    let args = ConvArgs {
        channels: count("channels", channels)?,
        taps: count("taps", kernel)?,
        dilation: count("rows", dilation)?,
    };
    Dispatch::new(&CONV, "conv_silu")
        .input(window.floats("window", rows.saturating_mul(channels))?)
        .input(weight.floats("weight", channels.saturating_mul(kernel))?)
        .output(out.floats("out", m.saturating_mul(channels))?)
        .with_constants(args.bytes())
        .launch([channels.div_ceil(256), m, 1], 256)
}
