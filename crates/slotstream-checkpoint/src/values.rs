//! Looks at every float of the model: a value that is not finite ruins all tokens after it.

use slotstream_core::{CancelToken, ReadError, RecordReader};

use crate::checkpoint::TensorInfo;
use crate::payload::{floats, path_of};
use crate::{Checkpoint, CheckpointError, Dtype, TensorClass};

/// Bytes that are read at once. A multiple of every value's size.
const STEP: u64 = 1 << 20;

/// What was looked at.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct CheckedValues {
    /// Tensors.
    pub tensors: usize,
    /// Values in them.
    pub values: u64,
    /// Bytes in them.
    pub bytes: u64,
}

/// Reads every scale, bias and float tensor that the model uses, file by file, and refuses the
/// first value that is NaN or infinite. Packed words cannot be either; the optional parts are not
/// looked at. Holds 1 MiB at a time, whatever the size of the model; `progress` is told how many
/// bytes of how many are done.
///
/// # Errors
/// [`CheckpointError::NotFinite`] names file, tensor and place; [`CheckpointError::Read`], also
/// when `cancel` was set.
pub fn check_values(
    checkpoint: &Checkpoint,
    reader: &dyn RecordReader,
    cancel: &CancelToken,
    mut progress: impl FnMut(u64, u64),
) -> Result<CheckedValues, CheckpointError> {
    let used = |t: &&TensorInfo| {
        let optional = matches!(t.class, TensorClass::VisionTower | TensorClass::DraftHead);
        !optional && matches!(t.dtype, Dtype::BF16 | Dtype::F16 | Dtype::F32)
    };
    let tensors = || checkpoint.tensors().iter().filter(used);
    let total = tensors().map(|t| t.extent.len()).sum();
    let mut checked = CheckedValues::default();
    let mut buffer = Vec::new();
    for tensor in tensors() {
        check_tensor(checkpoint, tensor, reader, cancel, &mut buffer, |bytes| {
            progress(checked.bytes + bytes, total);
        })?;
        checked.tensors += 1;
        checked.values += tensor.extent.len() / size_of_value(tensor.dtype);
        checked.bytes += tensor.extent.len();
    }
    Ok(checked)
}

const fn size_of_value(dtype: Dtype) -> u64 {
    if matches!(dtype, Dtype::F32) { 4 } else { 2 }
}

fn check_tensor(
    checkpoint: &Checkpoint,
    tensor: &TensorInfo,
    reader: &dyn RecordReader,
    cancel: &CancelToken,
    buffer: &mut Vec<u8>,
    mut progress: impl FnMut(u64),
) -> Result<(), CheckpointError> {
    let extent = tensor.extent;
    let failed = |source| CheckpointError::Read { tensor: tensor.name.clone(), source };
    let mut at = 0;
    while at < extent.len() {
        if cancel.is_cancelled() {
            return Err(failed(ReadError::cancelled(&extent)));
        }
        let len = STEP.min(extent.len() - at);
        let part = extent.slice(at, len).map_err(|e| failed(ReadError::other(&extent, e)))?;
        buffer.resize(len as usize, 0);
        reader.read_exact_at(&part, buffer).map_err(failed)?;
        if let Some((i, value)) = not_finite(tensor.dtype, buffer) {
            let index = at / size_of_value(tensor.dtype) + i as u64;
            return Err(CheckpointError::NotFinite {
                path: path_of(checkpoint, tensor),
                tensor: tensor.name.clone(),
                index,
                offset: extent.offset() + index * size_of_value(tensor.dtype),
                value,
            });
        }
        at += len;
        progress(at);
    }
    Ok(())
}

/// The first value that is not finite.
fn not_finite(dtype: Dtype, bytes: &[u8]) -> Option<(usize, f32)> {
    // Nearly all values are BF16, and gigabytes of them: first whether there is one at all.
    let bad = |b: &[u8]| b[1] & 0x7F == 0x7F && b[0] & 0x80 != 0;
    if dtype == Dtype::BF16 && !bytes.chunks_exact(2).any(bad) {
        return None;
    }
    floats(dtype, bytes).enumerate().find(|(_, value)| !value.is_finite())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_dtype_has_its_own_infinity() {
        let bf16 = [0x3F80_u16, 0xFF80].map(u16::to_le_bytes).concat();
        assert_eq!(not_finite(Dtype::BF16, &bf16), Some((1, f32::NEG_INFINITY)));
        let f16 = [0x3C00_u16, 0x7BFF, 0x7C00].map(u16::to_le_bytes).concat();
        assert_eq!(not_finite(Dtype::F16, &f16), Some((2, f32::INFINITY)));
        let f32 = [1.0_f32, f32::MAX, f32::NAN].map(f32::to_le_bytes).concat();
        assert!(matches!(not_finite(Dtype::F32, &f32), Some((2, value)) if value.is_nan()));
        assert_eq!(not_finite(Dtype::F32, &f32[..8]), None);
    }
}
