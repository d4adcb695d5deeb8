//! The checkpoint as a record index.

use std::sync::Arc;

use slotstream_checkpoint::Checkpoint;
use slotstream_core::{ExpertKey, Extent};
use slotstream_experts::RecordIndex;

/// A checkpoint as the streaming experts see it.
#[derive(Clone, Debug)]
pub struct CheckpointIndex(Arc<Checkpoint>);

impl CheckpointIndex {
    /// Records of this checkpoint.
    #[must_use]
    pub const fn new(checkpoint: Arc<Checkpoint>) -> Self {
        Self(checkpoint)
    }
}

impl RecordIndex for CheckpointIndex {
    fn pieces(&self, key: ExpertKey) -> Option<[Extent; 9]> {
        self.0.expert_pieces(key)
    }

    fn tensor(&self, extent: &Extent) -> Option<String> {
        let found = self.0.locate(extent.file(), extent.offset())?;
        Some(found.tensor.name.clone())
    }
}
