//! Reads the dense weights.

use candle_core::{Device, Tensor};
use slotstream_candle::{AffineWeight, Bf16Weight, CandleContext, HcWeight, MlpWeight};
use slotstream_checkpoint::{Checkpoint, NormForm, read_floats};
use slotstream_core::{CancelToken, Extent, Part, ReadError, RecordReader};

use crate::QwenError;

/// Bytes read between two looks at the cancel token and two progress reports.
const STEP: u64 = 16 << 20;

/// How far loading has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct LoadProgress {
    /// Bytes read so far.
    pub done: u64,
    /// Bytes to read.
    pub total: u64,
}

/// Reads dense weights of a checkpoint by canonical name.
pub(crate) struct Loader<'a> {
    pub(crate) checkpoint: &'a Checkpoint,
    pub(crate) reader: &'a dyn RecordReader,
    pub(crate) device: &'a Device,
    pub(crate) norms: NormForm,
    pub(crate) cancel: &'a CancelToken,
    pub(crate) progress: &'a mut dyn FnMut(LoadProgress),
    pub(crate) done: u64,
    pub(crate) total: u64,
}

/// An error on the way from file to tensor, before the tensor's name is added.
enum Fault {
    Read(ReadError),
    Place(slotstream_candle::Error),
    Cancelled,
}

impl From<slotstream_candle::Error> for Fault {
    fn from(source: slotstream_candle::Error) -> Self {
        Self::Place(source)
    }
}

impl Fault {
    fn named(self, tensor: &str) -> QwenError {
        let tensor = tensor.to_owned();
        match self {
            Self::Read(e) => QwenError::Load { tensor, source: Box::new(e) },
            Self::Place(e) => QwenError::Place { tensor, source: Box::new(e) },
            Self::Cancelled => QwenError::Cancelled { during: format!("while loading `{tensor}`") },
        }
    }
}

impl Loader<'_> {
    fn fill(&mut self, extent: &Extent, bytes: &mut [u8]) -> Result<(), Fault> {
        let mut at = 0;
        while at < extent.len() {
            if self.cancel.is_cancelled() {
                return Err(Fault::Cancelled);
            }
            let len = STEP.min(extent.len() - at);
            let part =
                extent.slice(at, len).map_err(|e| Fault::Read(ReadError::other(extent, e)))?;
            let (start, end) = (at as usize, (at + len) as usize);
            let Some(target) = bytes.get_mut(start..end) else {
                return Err(Fault::Read(ReadError::buffer_length(extent, bytes.len())));
            };
            self.reader.read_exact_at(&part, target).map_err(Fault::Read)?;
            at += len;
            self.done += len;
            (self.progress)(LoadProgress { done: self.done, total: self.total });
        }
        Ok(())
    }

    /// The affine-quantized module of this name.
    pub(crate) fn affine(&mut self, module: &str) -> Result<AffineWeight, QwenError> {
        let source = |e| QwenError::Checkpoint { source: Box::new(e) };
        let t = self.checkpoint.affine(module).map_err(source)?;
        AffineWeight::read(t.format, (t.rows, t.cols), self.device, |part, bytes| {
            let extent = match part {
                Part::Weight => t.weight,
                Part::Scales => t.scales,
                Part::Biases => t.biases,
            };
            self.fill(&extent, bytes)
        })
        .map_err(|fault: Fault| fault.named(module))
    }

    /// The bf16 matrix of this name.
    pub(crate) fn bf16(&mut self, name: &str) -> Result<Bf16Weight, QwenError> {
        let info = self
            .checkpoint
            .float(name)
            .map_err(|e| QwenError::Checkpoint { source: Box::new(e) })?;
        let (extent, rows) = (info.extent, info.shape.first().copied().unwrap_or(1));
        let values = extent.len() / 2;
        let cols = values.checked_div(rows).unwrap_or(0);
        Bf16Weight::read((rows as usize, cols as usize), self.device, |bytes| {
            self.fill(&extent, bytes)
        })
        .map_err(|fault: Fault| fault.named(name))
    }

    /// A small float tensor as f32, with 1 added where the checkpoint stores norms centred.
    pub(crate) fn floats(&mut self, name: &str, shape: &[usize]) -> Result<Tensor, QwenError> {
        let checkpoint = |e| QwenError::Checkpoint { source: Box::new(e) };
        let info = self.checkpoint.float(name).map_err(checkpoint)?;
        let mut values = read_floats(self.checkpoint, info, self.reader).map_err(checkpoint)?;
        if self.norms.adds_one(name) {
            values.iter_mut().for_each(|v| *v += 1.0);
        }
        self.done += info.extent.len();
        (self.progress)(LoadProgress { done: self.done, total: self.total });
        Tensor::from_vec(values, shape, self.device)
            .within("load")
            .map_err(|e| QwenError::Place { tensor: name.into(), source: Box::new(e) })
    }

    /// The mixer below `prefix`.
    pub(crate) fn mixer(&mut self, prefix: &str, inject: bool) -> Result<HcWeight, QwenError> {
        let config = self.checkpoint.config();
        let (streams, eps) = (config.hc_count, config.rms_norm_eps as f32);
        let width = streams * config.hidden_size;
        let inject_name = format!("{prefix}.block_inject_weight.weight");
        Ok(HcWeight {
            streams,
            norm: self.floats(&format!("{prefix}.hc_norm.weight"), &[width])?,
            down: self.affine(&format!("{prefix}.input_mix_weight_down"))?,
            up: self.affine(&format!("{prefix}.input_mix_weight_up"))?,
            inject: if inject { Some(self.bf16(&inject_name)?) } else { None },
            eps,
        })
    }

    /// The gated MLP below `prefix`.
    pub(crate) fn mlp(&mut self, prefix: &str) -> Result<MlpWeight, QwenError> {
        Ok(MlpWeight {
            gate: self.affine(&format!("{prefix}.gate_proj"))?,
            up: self.affine(&format!("{prefix}.up_proj"))?,
            down: self.affine(&format!("{prefix}.down_proj"))?,
        })
    }
}
