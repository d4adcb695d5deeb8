//! SLRU.

use slotstream_core::*;

use super::keys::{Keys, first_slot, part, renew, take};

/// Two lists of keys by last use.
#[derive(Debug)]
pub(super) struct NaiveSlru {
    share: f64,
    slots: usize,
    probation: Keys,
    protected: Keys,
}

impl NaiveSlru {
    pub(super) fn new(share: f64) -> Self {
        Self { share, slots: 0, probation: Keys::new(), protected: Keys::new() }
    }

    /// A model of `slots` slots with these lists: the main part of W-TinyLFU.
    pub(super) fn settle(&mut self, slots: usize) {
        self.slots = slots;
        while self.protected.len() > part(self.slots, self.share) {
            let key = self.protected.remove(0);
            self.probation.push(key);
        }
    }

    pub(super) fn hit(&mut self, key: ExpertKey) {
        take(&mut self.probation, key);
        renew(&mut self.protected, key);
        self.settle(self.slots);
    }

    pub(super) fn on_probation(&mut self, key: ExpertKey) {
        self.probation.push(key);
    }

    pub(super) fn len(&self) -> usize {
        self.probation.len() + self.protected.len()
    }

    pub(super) fn victim(&self, view: &SlotView<'_>) -> Option<SlotId> {
        first_slot(&self.probation, view).or_else(|| first_slot(&self.protected, view))
    }

    pub(super) fn remove(&mut self, key: ExpertKey) -> bool {
        take(&mut self.probation, key) || take(&mut self.protected, key)
    }
}

impl EvictionPolicy for NaiveSlru {
    fn on_insert(&mut self, _slot: SlotId, key: ExpertKey, _origin: Origin) {
        let most = part(self.slots, self.share);
        if self.probation.len() + 1 > self.slots - most && self.protected.len() < most {
            self.protected.push(key);
        } else {
            self.probation.push(key);
        }
    }
    fn on_hit(&mut self, _slot: SlotId, key: ExpertKey) {
        self.hit(key);
    }
    fn choose_victim(&mut self, _incoming: &Incoming, view: &SlotView<'_>) -> Option<SlotId> {
        self.victim(view)
    }
    fn bind(&mut self, _geometry: &Geometry, slots: usize) -> Result<(), BindError> {
        self.slots = slots;
        Ok(())
    }
    fn on_resize(&mut self, slots: usize) {
        self.settle(slots);
    }
    fn on_remove(&mut self, _slot: SlotId, key: ExpertKey, _cause: RemoveCause) {
        assert!(self.remove(key));
    }
    fn reset(&mut self) {}
}
