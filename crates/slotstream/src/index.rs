//! The checkpoint, or its container, as a record index.

use std::sync::Arc;

use slotstream_checkpoint::Checkpoint;
use slotstream_checkpoint::container::Container;
use slotstream_core::{Alignment, ExpertKey, Extent};
use slotstream_experts::RecordIndex;

/// A checkpoint as the streaming experts see it.
#[derive(Clone, Debug)]
pub struct CheckpointIndex {
    checkpoint: Arc<Checkpoint>,
    container: Option<Arc<Container>>,
    /// What whole records are multiples of, in bytes.
    length: u64,
}

impl CheckpointIndex {
    /// Records of this checkpoint.
    #[must_use]
    pub const fn new(checkpoint: Arc<Checkpoint>) -> Self {
        Self { checkpoint, container: None, length: 1 }
    }

    /// Records of its container, where that has them, read whole. `alignment` is the reader's: a
    /// record that is no multiple of its length is read up to the stride.
    #[must_use]
    pub fn with_container(mut self, container: Arc<Container>, alignment: Alignment) -> Self {
        (self.container, self.length) = (Some(container), alignment.length.max(1));
        self
    }
}

impl RecordIndex for CheckpointIndex {
    fn pieces(&self, key: ExpertKey) -> Option<[Extent; 9]> {
        self.checkpoint.expert_pieces(key)
    }

    fn whole(&self, key: ExpertKey) -> Option<Extent> {
        let container = self.container.as_ref()?;
        let record = container.extent(key)?;
        let fits = record.len().is_multiple_of(self.length);
        if fits { Some(record) } else { container.padded_extent(key) }
    }

    fn tensor(&self, extent: &Extent) -> Option<String> {
        let found = self.checkpoint.locate(extent.file(), extent.offset())?;
        Some(found.tensor.name.clone())
    }
}
