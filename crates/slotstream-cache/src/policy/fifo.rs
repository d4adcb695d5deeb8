//! First in, first out.

use slotstream_core::{
    BindError, EvictionPolicy, ExpertKey, Geometry, Incoming, Origin, RemoveCause, SlotId, SlotView,
};

use super::lists::Lists;
use super::options::Options;

/// First in, first out: gives up the evictable record that came first. Hits change nothing.
///
/// An event takes constant time; the search skips slots that cannot be evicted.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Fifo {
    lists: Lists,
}

impl Fifo {
    /// `fifo`.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }
}

impl Options for Fifo {}

impl EvictionPolicy for Fifo {
    #[inline]
    fn on_insert(&mut self, slot: SlotId, _key: ExpertKey, _origin: Origin) {
        self.lists.push(0, slot.get());
    }

    #[inline]
    fn on_hit(&mut self, _slot: SlotId, _key: ExpertKey) {}

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
        "fifo".into()
    }

    fn reset(&mut self) {
        self.lists.clear();
    }
}
