//! LRU: a list of the slots by their last use.

use slotstream_core::{
    BindError, EvictionPolicy, ExpertKey, Geometry, Incoming, Origin, RemoveCause, SlotId, SlotView,
};

use super::lists::Lists;
use super::options::Options;

/// Least recently used: gives up the evictable slot whose last insert or hit is longest ago.
/// A doubly linked list through the slots, so every event takes constant time; the search skips
/// slots that cannot be evicted.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Lru {
    lists: Lists,
}

impl Lru {
    /// `lru`.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }
}

impl Options for Lru {}

impl EvictionPolicy for Lru {
    #[inline]
    fn on_insert(&mut self, slot: SlotId, _key: ExpertKey, _origin: Origin) {
        self.lists.push(0, slot.get());
    }

    #[inline]
    fn on_hit(&mut self, slot: SlotId, _key: ExpertKey) {
        self.lists.push(0, slot.get());
    }

    #[inline]
    fn choose_victim(&mut self, _incoming: &Incoming, view: &SlotView<'_>) -> Option<SlotId> {
        self.lists.oldest_evictable(0, view)
    }

    fn bind(&mut self, _geometry: &Geometry, slots: usize) -> Result<(), BindError> {
        self.lists = Lists::new(1, slots);
        Ok(())
    }

    fn on_resize(&mut self, slots: usize) {
        self.lists.resize(slots);
    }

    fn on_remove(&mut self, slot: SlotId, _key: ExpertKey, _cause: RemoveCause) {
        self.lists.remove(slot.get());
    }

    fn name(&self) -> String {
        "lru".into()
    }

    fn reset(&mut self) {
        self.lists.clear();
    }
}
