//! Which model it is, wherever it lies.

use sha2::{Digest as _, Sha256};
use slotstream_checkpoint::Checkpoint;
use slotstream_checkpoint::container::{ContainerError, ContainerKind, Digest, SourceIdentity};

/// A digest of the config, of the headers of all shards that hold experts, with their names and sizes,
/// and of a few of the scales: the same for copies of a model, another for other weights.
pub(crate) fn model_identity(checkpoint: &Checkpoint) -> Result<Digest, ContainerError> {
    let source = SourceIdentity::of(checkpoint, ContainerKind::Experts)?;
    let mut hasher = Sha256::new();
    hasher.update(b"slotstream model 1");
    hasher.update(source.config.bytes());
    hasher.update(source.sample.bytes());
    for shard in &source.shards {
        hasher.update((shard.name.len() as u64).to_le_bytes());
        hasher.update(&shard.name);
        hasher.update(shard.size.to_le_bytes());
        hasher.update(shard.header.bytes());
    }
    Ok(Digest::new(hasher.finalize().into()))
}
