//! CLOCK.

use slotstream_core::*;

/// CLOCK as the article writes it: a bit a slot, a loop.
#[derive(Debug)]
pub(super) struct NaiveClock {
    bits: Vec<bool>,
    hand: usize,
    fresh: bool,
}

impl NaiveClock {
    pub(super) fn new(fresh: bool) -> Self {
        Self { bits: Vec::new(), hand: 0, fresh }
    }
}

impl EvictionPolicy for NaiveClock {
    fn on_insert(&mut self, slot: SlotId, _key: ExpertKey, _origin: Origin) {
        self.bits[slot.index()] = self.fresh;
    }
    fn on_hit(&mut self, slot: SlotId, _key: ExpertKey) {
        self.bits[slot.index()] = true;
    }
    fn choose_victim(&mut self, _incoming: &Incoming, view: &SlotView<'_>) -> Option<SlotId> {
        let slots = (0..view.len() as u32).map(SlotId::new);
        if !slots.clone().any(|slot| view.is_evictable(slot)) {
            return None;
        }
        loop {
            let slot = SlotId::new(self.hand as u32);
            self.hand = (self.hand + 1) % view.len();
            if !view.is_evictable(slot) {
                continue;
            }
            if self.bits[slot.index()] {
                self.bits[slot.index()] = false;
                continue;
            }
            return Some(slot);
        }
    }
    fn bind(&mut self, _geometry: &Geometry, slots: usize) -> Result<(), BindError> {
        self.on_resize(slots);
        Ok(())
    }
    fn on_resize(&mut self, slots: usize) {
        self.bits.resize(slots, false);
        self.hand = if self.hand < slots { self.hand } else { 0 };
    }
    fn reset(&mut self) {}
}
