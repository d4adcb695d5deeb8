//! Gated delta net (spec section 4).

use candle_core::Tensor;
use slotstream_candle::{
    AffineWeight, Bf16Weight, DeltaInputs, DeltaRecord, DeltaWeight, Error, Ops,
};
use slotstream_checkpoint::OutputGate;

use crate::QwenError;
use crate::load::Loader;
use crate::window::Window;

/// `model.layers.L.linear_attn`.
#[derive(Debug)]
pub(crate) struct DeltaNet {
    qkv: AffineWeight,
    z: AffineWeight,
    a: Bf16Weight,
    b: Bf16Weight,
    conv: Tensor,
    small: DeltaWeight,
    out: AffineWeight,
}

impl DeltaNet {
    pub(crate) fn load(loader: &mut Loader<'_>, prefix: &str) -> Result<Self, QwenError> {
        let config = loader.checkpoint.config();
        let name = |part: &str| format!("{prefix}.linear_attn.{part}");
        let (heads, dim) = (config.linear_num_value_heads, config.linear_value_head_dim);
        let conv_shape = [crate::state::conv_channels(config), config.linear_conv_kernel_dim];
        Ok(Self {
            qkv: loader.affine(&name("in_proj_qkv"))?,
            z: loader.affine(&name("in_proj_z"))?,
            a: loader.bf16(&name("in_proj_a.weight"))?,
            b: loader.bf16(&name("in_proj_b.weight"))?,
            conv: loader.floats(&name("conv1d.weight"), &conv_shape)?,
            small: DeltaWeight {
                a_log: loader.floats(&name("A_log"), &[heads])?,
                dt_bias: loader.floats(&name("dt_bias"), &[heads])?,
                norm: loader.floats(&name("norm.weight"), &[dim])?,
                key_heads: config.linear_num_key_heads,
                value_heads: heads,
                key_dim: config.linear_key_head_dim,
                value_dim: dim,
                sigmoid_gate: config.output_gate == OutputGate::Sigmoid,
                eps: config.rms_norm_eps as f32,
            },
            out: loader.affine(&name("out_proj"))?,
        })
    }

    pub(crate) fn forward(
        &self,
        ops: &dyn Ops,
        x: &Tensor,
        window: &mut Window,
        recurrent: &Tensor,
        record: Option<DeltaRecord<'_>>,
    ) -> Result<Tensor, Error> {
        let raw = ops.affine_matmul(x, &self.qkv)?;
        let qkv = ops.conv_silu(&window.with(&raw)?, &self.conv, 1)?;
        window.push(&raw)?;
        let (a, b) = (ops.bf16_matmul(x, &self.a)?, ops.bf16_matmul(x, &self.b)?);
        let z = ops.affine_matmul(x, &self.z)?;
        let inputs = DeltaInputs { qkv: &qkv, a: &a, b: &b, z: &z };
        let y = ops.gated_delta(&inputs, &self.small, recurrent, record)?;
        let out = ops.affine_matmul(&y, &self.out)?;
        [raw, qkv, a, b, z, y].into_iter().for_each(|done| ops.recycle(done));
        Ok(out)
    }
}
