//! The n-gram embedding's injection (PLE, spec section 6).

use candle_core::Tensor;
use slotstream_candle::{AffineWeight, Error, Ops, PleGateWeight};

use crate::QwenError;
use crate::load::Loader;
use crate::window::Window;

/// `model.layers.L.ple` without the table.
#[derive(Debug)]
pub(crate) struct Ple {
    key: AffineWeight,
    value: AffineWeight,
    gate: PleGateWeight,
    conv: Tensor,
    dilation: usize,
}

impl Ple {
    pub(crate) fn load(loader: &mut Loader<'_>, prefix: &str) -> Result<Option<Self>, QwenError> {
        let config = loader.checkpoint.config();
        let Some(ple) = config.ple.clone() else { return Ok(None) };
        let name = |part: &str| format!("{prefix}.ple.{part}");
        let width = config.hc_count * config.hidden_size;
        let (streams, eps) = (config.hc_count, config.rms_norm_eps as f32);
        Ok(Some(Self {
            key: loader.affine(&name("key_proj"))?,
            value: loader.affine(&name("value_proj"))?,
            gate: PleGateWeight {
                norm_key: loader.floats(&name("norm_key.weight"), &[width])?,
                norm_query: loader.floats(&name("norm_query.weight"), &[width])?,
                norm_conv: loader.floats(&name("norm_conv.weight"), &[width])?,
                streams,
                eps,
            },
            conv: loader.floats(&name("conv1d.weight"), &[width, ple.ple_conv_kernel_size])?,
            dilation: ple.ngram_size,
        }))
    }

    /// What the layer adds to the streams `h`, and the rows that enter its convolution's window.
    /// `embedding` is `[m, ple_embed_dim]`. Nothing is advanced.
    pub(crate) fn output(
        &self,
        ops: &dyn Ops,
        h: &Tensor,
        embedding: &Tensor,
        window: &Window,
    ) -> Result<(Tensor, Tensor), Error> {
        let key = ops.affine_matmul(embedding, &self.key)?;
        let value = ops.affine_matmul(embedding, &self.value)?;
        let (gated, normed) = ops.ple_gate(h, &key, &value, &self.gate)?;
        let conv = ops.conv_silu(&window.with(&normed)?, &self.conv, self.dilation)?;
        ops.add(&gated, &conv)?;
        [key, value, conv].into_iter().for_each(|done| ops.recycle(done));
        Ok((gated, normed))
    }
}
