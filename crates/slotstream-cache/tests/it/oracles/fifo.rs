//! FIFO.

use slotstream_core::*;

use super::keys::{Keys, first_slot, take};

/// The keys in the order in which they came.
#[derive(Debug, Default)]
pub(super) struct NaiveFifo {
    keys: Keys,
}

impl EvictionPolicy for NaiveFifo {
    fn on_insert(&mut self, _slot: SlotId, key: ExpertKey, _origin: Origin) {
        self.keys.push(key);
    }
    fn on_hit(&mut self, _slot: SlotId, _key: ExpertKey) {}
    fn choose_victim(&mut self, _incoming: &Incoming, view: &SlotView<'_>) -> Option<SlotId> {
        first_slot(&self.keys, view)
    }
    fn on_remove(&mut self, _slot: SlotId, key: ExpertKey, _cause: RemoveCause) {
        assert!(take(&mut self.keys, key));
    }
    fn reset(&mut self) {}
}
