//! Checks that need a few bytes of payload, read through a [`RecordReader`].

use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;

use half::f16;
use serde::Serialize;
use slotstream_core::{RecordReader, bf16_at};

use crate::checkpoint::TensorInfo;
use crate::{Checkpoint, CheckpointError, Dtype};

/// Means of norm weights below this are raw (real ones: about 0.22), others folded (about 1.15).
const THRESHOLD: f64 = 0.6;
/// A layer this far on the other side of the threshold is no accident.
const MARGIN: f64 = 0.15;

/// How centred norm weights are stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "lowercase")]
#[expect(clippy::exhaustive_enums, reason = "one is added or it is not")]
pub enum NormForm {
    /// `w`: the reader multiplies by `1 + w`.
    Raw,
    /// `1 + w`: the reader multiplies by the stored value.
    Folded,
}

impl fmt::Display for NormForm {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Raw => "raw",
            Self::Folded => "folded",
        })
    }
}

impl FromStr for NormForm {
    type Err = CheckpointError;

    fn from_str(text: &str) -> Result<Self, CheckpointError> {
        match text {
            "raw" => Ok(Self::Raw),
            "folded" => Ok(Self::Folded),
            _ => Err(CheckpointError::NormFormName { found: text.chars().take(40).collect() }),
        }
    }
}

impl NormForm {
    /// Whether one has to be added to a norm weight of this canonical name. The gated delta net's
    /// `linear_attn.norm` was never centred.
    #[must_use]
    pub fn adds_one(self, tensor: &str) -> bool {
        self == Self::Raw && is_centred_norm(tensor)
    }

    /// Decides the form from the means of the `hc_norm` weights of all layers' hyper-connections
    /// (the final mixer's is left out); names and shapes do not tell. With an override nothing is
    /// read.
    ///
    /// # Errors
    /// [`CheckpointError::MixedNorms`] when layers lie clearly on both sides,
    /// [`CheckpointError::NormNotFinite`], [`CheckpointError::Read`].
    pub fn detect(
        checkpoint: &Checkpoint,
        reader: &dyn RecordReader,
        force: Option<Self>,
    ) -> Result<Self, CheckpointError> {
        if let Some(form) = force {
            return Ok(form);
        }
        Self::decide(checkpoint, norm_means(checkpoint, reader)?)
    }

    fn decide(
        checkpoint: &Checkpoint,
        mut means: Vec<(f64, String)>,
    ) -> Result<Self, CheckpointError> {
        means.sort_by(|a, b| a.0.total_cmp(&b.0));
        let middle = means.len() / 2;
        let (Some(low), Some(high), Some(upper)) = (means.first(), means.last(), means.get(middle))
        else {
            return Ok(Self::Folded);
        };
        if low.0 < THRESHOLD - MARGIN && high.0 > THRESHOLD + MARGIN {
            return Err(CheckpointError::MixedNorms {
                folder: checkpoint.folder().into(),
                low: low.1.clone(),
                low_mean: low.0,
                high: high.1.clone(),
                high_mean: high.0,
            });
        }
        // There are two norms a layer, so the number is even.
        let lower = means.get(middle.saturating_sub(1)).unwrap_or(upper);
        let median = f64::midpoint(lower.0, upper.0);
        Ok(if median < THRESHOLD { Self::Raw } else { Self::Folded })
    }
}

/// The means of the `hc_norm` weights of all layers' hyper-connections with the tensors' names:
/// what [`NormForm::detect`] decides by. The final mixer's is left out.
///
/// # Errors
/// [`CheckpointError::NormNotFinite`], [`CheckpointError::Read`].
pub fn norm_means(
    checkpoint: &Checkpoint,
    reader: &dyn RecordReader,
) -> Result<Vec<(f64, String)>, CheckpointError> {
    let mut means = Vec::new();
    for layer in 0..checkpoint.config().num_hidden_layers {
        for block in ["attn", "mlp"] {
            let name = format!("model.layers.{layer}.{block}_hyper_connection.hc_norm.weight");
            let info = checkpoint.float(&name)?;
            let values = read_floats(checkpoint, info, reader)?;
            let sum: f64 = values.iter().map(|value| f64::from(*value)).sum();
            let mean = sum / values.len().max(1) as f64;
            if !mean.is_finite() {
                let folder = checkpoint.folder().into();
                return Err(CheckpointError::NormNotFinite { folder, tensor: name });
            }
            means.push((mean, name));
        }
    }
    Ok(means)
}

/// Whether a canonical tensor name is that of a norm weight that the model applies as `1 + w`.
#[must_use]
pub fn is_centred_norm(tensor: &str) -> bool {
    const ENDINGS: [&str; 8] = [
        ".hc_norm.weight",
        ".q_norm.weight",
        ".k_norm.weight",
        ".q_layernorm.weight",
        ".k_layernorm.weight",
        ".norm_key.weight",
        ".norm_query.weight",
        ".norm_conv.weight",
    ];
    tensor.starts_with("model.") && ENDINGS.iter().any(|ending| tensor.ends_with(ending))
}

/// Reads a small float tensor (BF16, F16 or F32) as f32. The length is that of the extent, which
/// was checked against the config.
///
/// # Errors
/// [`CheckpointError::TensorDtype`] for other types, [`CheckpointError::Read`].
pub fn read_floats(
    checkpoint: &Checkpoint,
    info: &TensorInfo,
    reader: &dyn RecordReader,
) -> Result<Vec<f32>, CheckpointError> {
    let wrong = || CheckpointError::TensorDtype {
        path: path_of(checkpoint, info),
        tensor: info.name.clone(),
        found: info.dtype.name(),
        expected: "BF16, F16 or F32",
    };
    if !matches!(info.dtype, Dtype::BF16 | Dtype::F16 | Dtype::F32) {
        return Err(wrong());
    }
    Ok(floats(info.dtype, &read_bytes(info, reader)?).collect())
}

/// The values of a float tensor's bytes; those of another dtype are taken for BF16.
pub(crate) fn floats(dtype: Dtype, bytes: &[u8]) -> Box<dyn Iterator<Item = f32> + '_> {
    match dtype {
        Dtype::F32 => {
            Box::new(bytes.chunks_exact(4).map(|b| f32::from_le_bytes([b[0], b[1], b[2], b[3]])))
        }
        Dtype::F16 => {
            Box::new(bytes.chunks_exact(2).map(|b| f16::from_le_bytes([b[0], b[1]]).to_f32()))
        }
        _ => Box::new((0..bytes.len() / 2).map(|i| bf16_at(bytes, i))),
    }
}

/// The file that a tensor lies in; empty for a tensor of another checkpoint.
pub(crate) fn path_of(checkpoint: &Checkpoint, info: &TensorInfo) -> PathBuf {
    checkpoint.files().get(info.extent.file().index()).cloned().unwrap_or_default()
}

fn read_bytes(info: &TensorInfo, reader: &dyn RecordReader) -> Result<Vec<u8>, CheckpointError> {
    // Extents lie within their files, so a length fits memory only as far as the file is real.
    let len = usize::try_from(info.extent.len()).unwrap_or(usize::MAX);
    let mut bytes = vec![0; len];
    reader
        .read_exact_at(&info.extent, &mut bytes)
        .map_err(|source| CheckpointError::Read { tensor: info.name.clone(), source })?;
    Ok(bytes)
}

/// Compares the hash constants that the config gives with those in the files. A wrong seed would
/// not fail anywhere else: it only makes the output worse.
///
/// # Errors
/// [`CheckpointError::NgramConstant`] names the first difference; [`CheckpointError::Read`].
pub fn verify_ngram_constants(
    checkpoint: &Checkpoint,
    reader: &dyn RecordReader,
) -> Result<(), CheckpointError> {
    let Some(plan) = checkpoint.ngram() else { return Ok(()) };
    let base = format!("model.layers.{}.ple.ple_embedding", plan.layer.get());
    for (part, values) in [
        ("layer_multipliers", &plan.multipliers),
        ("ngram_heads_offsets", &plan.head_offsets),
        ("ngram_heads_vocab_sizes", &plan.head_sizes),
    ] {
        let info = checkpoint.float(&format!("{base}.{part}"))?;
        let bytes = read_bytes(info, reader)?;
        let found = bytes
            .chunks_exact(8)
            .map(|b| i64::from_le_bytes([b[0], b[1], b[2], b[3], b[4], b[5], b[6], b[7]]));
        for (index, (expected, found)) in values.iter().zip(found).enumerate() {
            if *expected != found {
                return Err(CheckpointError::NgramConstant {
                    path: path_of(checkpoint, info),
                    tensor: info.name.clone(),
                    index,
                    expected: *expected,
                    found,
                });
            }
        }
    }
    Ok(())
}
