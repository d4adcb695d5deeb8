//! Rewrites a checkpoint into the raw norm form.

use std::fs;
use std::io::{Read, Seek, SeekFrom};
use std::path::Path;

use slotstream_checkpoint::{Checkpoint, Dtype, Header, HeaderTensor, is_centred_norm};
use slotstream_core::{bf16_at, f32_to_bf16};

use super::WriteError;
use super::shard::{Entry, write_shard};

/// Copies a checkpoint whose norm weights hold `1 + w` into a new folder where they hold `w`:
/// one is subtracted from every centred norm (all but `linear_attn.norm`). A tensor stays BF16
/// where that is exact for all its values and becomes F32 otherwise, so one plus the new weight
/// is the old one (up to 2^-24 for weights below 2^-16, which no norm has).
///
/// `keep` names tensors to leave as they are, to make a checkpoint of mixed form; for a proper
/// one it is `|_| false`. Names are given without `language_model.`.
///
/// # Errors
/// [`WriteError::Source`] when `from` is not a legal checkpoint, [`WriteError::NormDtype`],
/// [`WriteError::Io`].
pub fn rewrite_raw_norms(
    from: &Path,
    to: &Path,
    keep: impl Fn(&str) -> bool,
) -> Result<(), WriteError> {
    let checkpoint = Checkpoint::open(from).map_err(|e| WriteError::source_of(from, e))?;
    super::edit::copy_folder(from, to)?;
    for path in checkpoint.files() {
        let header = Header::read(path).map_err(|e| WriteError::source_of(path, e))?;
        let Some(name) = path.file_name() else { continue };
        rewrite_file(path, &header, &to.join(name), &keep)?;
    }
    Ok(())
}

fn rewrite_file(
    path: &Path,
    header: &Header,
    target: &Path,
    keep: &dyn Fn(&str) -> bool,
) -> Result<(), WriteError> {
    let mut tensors = Vec::with_capacity(header.tensors.len());
    for tensor in &header.tensors {
        let bytes = read_tensor(path, header, tensor)?;
        let canonical = tensor.name.strip_prefix("language_model.").unwrap_or(&tensor.name);
        if !is_centred_norm(canonical) || keep(canonical) {
            tensors.push((tensor.dtype, bytes));
            continue;
        }
        tensors.push(match tensor.dtype {
            Dtype::BF16 => subtract_bf16(&bytes),
            Dtype::F32 => (Dtype::F32, subtract_f32(&bytes)),
            other => {
                let (path, tensor) = (path.into(), tensor.name.clone());
                return Err(WriteError::NormDtype { path, tensor, found: other.name() });
            }
        });
    }
    let entries: Vec<_> = header
        .tensors
        .iter()
        .zip(&tensors)
        .map(|(HeaderTensor { name, shape, .. }, (dtype, bytes))| Entry {
            name,
            dtype: *dtype,
            shape,
            len: bytes.len() as u64,
        })
        .collect();
    write_shard(target, &entries, false, |i, out| out.write_all(&tensors[i].1))
}

fn read_tensor(path: &Path, header: &Header, tensor: &HeaderTensor) -> Result<Vec<u8>, WriteError> {
    let fail = |e| WriteError::io(path, "read", e);
    let mut file = fs::File::open(path).map_err(fail)?;
    file.seek(SeekFrom::Start(header.data_start + tensor.begin)).map_err(fail)?;
    let mut bytes = Vec::new();
    file.take(tensor.end - tensor.begin).read_to_end(&mut bytes).map_err(fail)?;
    Ok(bytes)
}

fn subtract_bf16(bytes: &[u8]) -> (Dtype, Vec<u8>) {
    let values: Vec<f32> = (0..bytes.len() / 2).map(|i| bf16_at(bytes, i) - 1.0).collect();
    let exact = |value: &f32| value.to_bits() & 0xFFFF == 0;
    if values.iter().all(exact) {
        let narrow = values.iter().flat_map(|value| f32_to_bf16(*value).to_le_bytes());
        (Dtype::BF16, narrow.collect())
    } else {
        (Dtype::F32, values.iter().flat_map(|value| value.to_le_bytes()).collect())
    }
}

fn subtract_f32(bytes: &[u8]) -> Vec<u8> {
    bytes
        .chunks_exact(4)
        .flat_map(|b| (f32::from_le_bytes([b[0], b[1], b[2], b[3]]) - 1.0).to_le_bytes())
        .collect()
}
