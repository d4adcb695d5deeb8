//! Telling models apart by their routers.

use std::fs::File;
use std::io::{Read, Seek, SeekFrom};

use sha2::{Digest as _, Sha256};

use crate::container::Digest;
use crate::{Checkpoint, CheckpointError, TensorClass};

/// Bytes that are read at once.
const PART: usize = 1 << 20;

impl Checkpoint {
    /// SHA-256 over the routers' weights (`mlp.gate`), in the order of the shards: what was learnt
    /// of one model's routes is of no use to another. Reads them all: 126 MB of the published
    /// model.
    ///
    /// # Errors
    /// [`CheckpointError::Io`].
    pub fn router_digest(&self) -> Result<Digest, CheckpointError> {
        let mut digest = Sha256::new();
        let mut bytes = vec![0; PART];
        let routers = self.tensors().iter().filter(|t| t.class == TensorClass::Router);
        for extent in routers.map(|tensor| tensor.extent) {
            let path = &self.files()[extent.file().index()];
            let failed =
                |action| move |source| CheckpointError::Io { path: path.clone(), action, source };
            let mut file = File::open(path).map_err(failed("open"))?;
            file.seek(SeekFrom::Start(extent.offset())).map_err(failed("read"))?;
            let mut left = extent.len();
            while left > 0 {
                let part = usize::try_from(left).unwrap_or(PART).min(PART);
                file.read_exact(&mut bytes[..part]).map_err(failed("read"))?;
                digest.update(&bytes[..part]);
                left -= part as u64;
            }
        }
        Ok(Digest::of(digest))
    }
}
