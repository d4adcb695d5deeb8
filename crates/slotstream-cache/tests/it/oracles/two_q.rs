//! 2Q.

use slotstream_core::*;

use super::keys::{Keys, first_slot, part, renew, take, trim};

/// A1in, A1out and Am as lists of keys.
#[derive(Debug)]
pub(super) struct NaiveTwoQ {
    kin: f64,
    kout: f64,
    slots: usize,
    a1in: Keys,
    a1out: Keys,
    am: Keys,
    comes_back: Option<ExpertKey>,
}

impl NaiveTwoQ {
    pub(super) fn new(kin: f64, kout: f64) -> Self {
        let (a1in, a1out, am) = (Keys::new(), Keys::new(), Keys::new());
        Self { kin, kout, slots: 0, a1in, a1out, am, comes_back: None }
    }
}

impl EvictionPolicy for NaiveTwoQ {
    fn on_insert(&mut self, _slot: SlotId, key: ExpertKey, _origin: Origin) {
        if take(&mut self.a1out, key) || self.comes_back == Some(key) {
            self.am.push(key);
        } else {
            self.a1in.push(key);
        }
        self.comes_back = None;
    }
    fn on_hit(&mut self, _slot: SlotId, key: ExpertKey) {
        if self.am.contains(&key) {
            renew(&mut self.am, key);
        }
    }
    fn choose_victim(&mut self, _incoming: &Incoming, view: &SlotView<'_>) -> Option<SlotId> {
        let (first, other) = if self.a1in.len() > part(self.slots, self.kin).max(1) {
            (&self.a1in, &self.am)
        } else {
            (&self.am, &self.a1in)
        };
        first_slot(first, view).or_else(|| first_slot(other, view))
    }
    fn bind(&mut self, _geometry: &Geometry, slots: usize) -> Result<(), BindError> {
        self.slots = slots;
        Ok(())
    }
    fn on_resize(&mut self, slots: usize) {
        self.slots = slots;
        trim(&mut self.a1out, part(slots, self.kout).max(1));
    }
    fn on_miss(&mut self, key: ExpertKey) {
        self.comes_back = take(&mut self.a1out, key).then_some(key);
    }
    fn on_remove(&mut self, _slot: SlotId, key: ExpertKey, cause: RemoveCause) {
        if take(&mut self.a1in, key) {
            if cause == RemoveCause::Evicted {
                self.a1out.push(key);
                trim(&mut self.a1out, part(self.slots, self.kout).max(1));
            }
        } else {
            assert!(take(&mut self.am, key));
        }
    }
    fn reset(&mut self) {}
}
