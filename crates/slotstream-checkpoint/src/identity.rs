//! Telling checkpoints apart by a few of their bytes.

use std::fs::File;
use std::os::unix::fs::FileExt;

use sha2::{Digest as _, Sha256};

use crate::config::CONFIG_LIMIT;
use crate::container::Digest;
use crate::{Checkpoint, CheckpointError, TensorClass, json};

/// Bytes of each end of a tensor that are looked at.
const SAMPLE: u64 = 256;

impl Checkpoint {
    /// SHA-256 of `config.json` as it is now.
    ///
    /// # Errors
    /// [`CheckpointError::Io`], [`CheckpointError::FileTooLarge`].
    pub fn config_digest(&self) -> Result<Digest, CheckpointError> {
        let bytes = json::read_file(&self.config().path, CONFIG_LIMIT)?;
        Ok(Digest::of(Sha256::new_with_prefix(bytes)))
    }

    /// SHA-256 of a sample of all tensors that the text model uses: name, type, shape, and the first
    /// and last 256 bytes of each, in the order of their names. It does not depend on how they are
    /// spread over files, and not on a vision tower or a draft head. Weights that differ in the
    /// middle of tensors only are not told apart.
    ///
    /// # Errors
    /// [`CheckpointError::Io`].
    pub fn weights_digest(&self) -> Result<Digest, CheckpointError> {
        let failed = |at: usize, action| {
            let path = self.files()[at].clone();
            move |source| CheckpointError::Io { path, action, source }
        };
        let open = |(at, path)| File::open(path).map_err(failed(at, "open"));
        let files = self.files().iter().enumerate().map(open).collect::<Result<Vec<_>, _>>()?;
        let loaded = |class| !matches!(class, TensorClass::VisionTower | TensorClass::DraftHead);
        let mut tensors: Vec<_> = self.tensors().iter().filter(|t| loaded(t.class)).collect();
        tensors.sort_by_key(|tensor| tensor.canonical_name());
        let mut digest = Sha256::new();
        let mut bytes = [0; SAMPLE as usize];
        for tensor in tensors {
            let name = tensor.canonical_name();
            digest.update((name.len() as u64).to_le_bytes());
            digest.update(name);
            digest.update(format!("{:?} {:?}", tensor.dtype, tensor.shape));
            let (file, extent) = (tensor.extent.file().index(), tensor.extent);
            let count = extent.len().min(SAMPLE);
            for at in [extent.offset(), extent.offset() + extent.len() - count] {
                let sample = &mut bytes[..count as usize];
                files[file].read_exact_at(sample, at).map_err(failed(file, "read"))?;
                digest.update(sample);
            }
        }
        Ok(Digest::of(digest))
    }
}
