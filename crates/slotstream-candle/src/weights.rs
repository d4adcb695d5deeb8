//! Weights as candle tensors, packed as they lie in the checkpoint.

use candle_core::{Device, Tensor};
use half::bf16;
use slotstream_core::{AffineFormat, Part};

use crate::{CandleContext, Error, huge};

/// An affine-quantized matrix `[rows, cols]`: packed words, scales and biases.
#[derive(Clone, Debug)]
pub struct AffineWeight {
    format: AffineFormat,
    rows: usize,
    cols: usize,
    weight: Tensor,
    scales: Tensor,
    biases: Tensor,
}

impl AffineWeight {
    /// Takes the little-endian bytes of the three arrays of a `[rows, cols]` matrix.
    ///
    /// # Errors
    /// [`Error::Shape`] when a length does not fit, [`Error::Candle`] when the device refuses.
    pub fn new(
        format: AffineFormat,
        dims: (usize, usize),
        [weight, scales, biases]: [Vec<u8>; 3],
        device: &Device,
    ) -> Result<Self, Error> {
        Self::read(format, dims, device, |part, bytes: &mut [u8]| {
            let (name, given) = match part {
                Part::Weight => ("weight", &weight),
                Part::Scales => ("scales", &scales),
                Part::Biases => ("biases", &biases),
            };
            if given.len() != bytes.len() {
                let (expected, found) = (vec![bytes.len()], vec![given.len()]);
                return Err(Error::Shape { op: "load", tensor: name, expected, found });
            }
            bytes.copy_from_slice(given);
            Ok(())
        })
    }

    /// Lets `fill` write the little-endian bytes of each of the three arrays of a `[rows, cols]`
    /// matrix straight into the tensor's memory.
    ///
    /// # Errors
    /// Whatever `fill` answers, or [`Error::Candle`] when the device refuses.
    pub fn read<E: From<Error>>(
        format: AffineFormat,
        (rows, cols): (usize, usize),
        device: &Device,
        mut fill: impl FnMut(Part, &mut [u8]) -> Result<(), E>,
    ) -> Result<Self, E> {
        let mut words = huge::filled(rows * (format.row_bytes(cols) / 4), 0_u32);
        fill(Part::Weight, bytemuck::cast_slice_mut(&mut words))?;
        let weight =
            Tensor::from_vec(words, (rows, format.row_bytes(cols) / 4), device).within("load")?;
        let mut halves = |part| {
            let mut values = huge::filled(rows * format.row_groups(cols), bf16::ZERO);
            fill(part, bytemuck::cast_slice_mut(&mut values))?;
            let tensor = Tensor::from_vec(values, (rows, format.row_groups(cols)), device);
            Ok::<_, E>(tensor.within("load")?)
        };
        let (scales, biases) = (halves(Part::Scales)?, halves(Part::Biases)?);
        Ok(Self { format, rows, cols, weight, scales, biases })
    }

    /// Bits and group size.
    #[must_use]
    pub const fn format(&self) -> AffineFormat {
        self.format
    }

    /// Output features.
    #[must_use]
    pub const fn rows(&self) -> usize {
        self.rows
    }

    /// Input features.
    #[must_use]
    pub const fn cols(&self) -> usize {
        self.cols
    }

    /// Packed words, `[rows, cols * bits / 32]` u32; scales and biases,
    /// `[rows, cols / group_size]` bf16.
    #[must_use]
    pub const fn tensors(&self) -> [&Tensor; 3] {
        [&self.weight, &self.scales, &self.biases]
    }
}

/// A bf16 matrix `[rows, cols]`.
#[derive(Clone, Debug)]
pub struct Bf16Weight {
    rows: usize,
    cols: usize,
    tensor: Tensor,
}

impl Bf16Weight {
    /// Lets `fill` write the little-endian bytes of a `[rows, cols]` matrix straight into the
    /// tensor's memory.
    ///
    /// # Errors
    /// Whatever `fill` answers, or [`Error::Candle`] when the device refuses.
    pub fn read<E: From<Error>>(
        (rows, cols): (usize, usize),
        device: &Device,
        fill: impl FnOnce(&mut [u8]) -> Result<(), E>,
    ) -> Result<Self, E> {
        let mut values = huge::filled(rows * cols, bf16::ZERO);
        fill(bytemuck::cast_slice_mut(&mut values))?;
        let tensor = Tensor::from_vec(values, (rows, cols), device).within("load")?;
        Ok(Self { rows, cols, tensor })
    }

    /// Output features.
    #[must_use]
    pub const fn rows(&self) -> usize {
        self.rows
    }

    /// Input features.
    #[must_use]
    pub const fn cols(&self) -> usize {
        self.cols
    }

    /// `[rows, cols]` bf16.
    #[must_use]
    pub const fn tensor(&self) -> &Tensor {
        &self.tensor
    }
}

/// Weights of a hyper-connection mixer.
#[derive(Clone, Debug)]
#[expect(clippy::exhaustive_structs, reason = "the mixer has exactly these weights")]
pub struct HcWeight {
    /// Residual streams (`hc_count`).
    pub streams: usize,
    /// `hc_norm.weight`, `[streams * hidden]` f32.
    pub norm: Tensor,
    /// `input_mix_weight_down`, `[rank, streams * hidden]`.
    pub down: AffineWeight,
    /// `input_mix_weight_up`, `[streams * hidden, rank]`.
    pub up: AffineWeight,
    /// `block_inject_weight`, `[streams, streams * hidden]`; absent in the final mixer.
    pub inject: Option<Bf16Weight>,
    /// `rms_norm_eps`.
    pub eps: f32,
}

/// A gated MLP.
#[derive(Clone, Debug)]
#[expect(clippy::exhaustive_structs, reason = "a gated MLP has exactly these weights")]
pub struct MlpWeight {
    /// `gate_proj`, `[intermediate, hidden]`.
    pub gate: AffineWeight,
    /// `up_proj`, `[intermediate, hidden]`.
    pub up: AffineWeight,
    /// `down_proj`, `[hidden, intermediate]`.
    pub down: AffineWeight,
}

/// The small weights of a gated delta net.
#[derive(Clone, Debug)]
#[expect(clippy::exhaustive_structs, reason = "the delta net has exactly these weights")]
pub struct DeltaWeight {
    /// `A_log`, `[value_heads]` f32.
    pub a_log: Tensor,
    /// `dt_bias`, `[value_heads]` f32.
    pub dt_bias: Tensor,
    /// `norm.weight`, `[value_dim]` f32.
    pub norm: Tensor,
    /// `linear_num_key_heads`.
    pub key_heads: usize,
    /// `linear_num_value_heads`.
    pub value_heads: usize,
    /// `linear_key_head_dim`.
    pub key_dim: usize,
    /// `linear_value_head_dim`.
    pub value_dim: usize,
    /// `output_gate_type` is `sigmoid`; else SiLU.
    pub sigmoid_gate: bool,
    /// `rms_norm_eps`.
    pub eps: f32,
}

/// Norms of the n-gram embedding's gate, each `[streams * hidden]` f32.
#[derive(Clone, Debug)]
#[expect(clippy::exhaustive_structs, reason = "the gate has exactly these weights")]
pub struct PleGateWeight {
    /// `norm_key.weight`.
    pub norm_key: Tensor,
    /// `norm_query.weight`.
    pub norm_query: Tensor,
    /// `norm_conv.weight`.
    pub norm_conv: Tensor,
    /// Residual streams (`hc_count`).
    pub streams: usize,
    /// `rms_norm_eps`.
    pub eps: f32,
}
