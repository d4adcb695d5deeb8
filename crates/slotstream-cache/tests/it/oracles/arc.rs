//! ARC.

use slotstream_core::*;

use super::keys::{Keys, first_slot, renew, take};

/// The paper's four lists and its p.
#[derive(Debug, Default)]
pub(super) struct NaiveArc {
    c: usize,
    p: f64,
    t1: Keys,
    t2: Keys,
    b1: Keys,
    b2: Keys,
}

impl NaiveArc {
    fn bound(&mut self) {
        while self.t1.len() + self.b1.len() > self.c && !self.b1.is_empty() {
            self.b1.remove(0);
        }
        while self.t1.len() + self.t2.len() + self.b1.len() + self.b2.len() > 2 * self.c
            && !self.b2.is_empty()
        {
            self.b2.remove(0);
        }
    }
}

impl EvictionPolicy for NaiveArc {
    fn on_insert(&mut self, _slot: SlotId, key: ExpertKey, _origin: Origin) {
        if take(&mut self.b1, key) || take(&mut self.b2, key) {
            self.t2.push(key);
        } else {
            self.t1.push(key);
        }
        self.bound();
    }
    fn on_hit(&mut self, _slot: SlotId, key: ExpertKey) {
        take(&mut self.t1, key);
        renew(&mut self.t2, key);
    }
    fn choose_victim(&mut self, incoming: &Incoming, view: &SlotView<'_>) -> Option<SlotId> {
        let t1 = self.t1.len() as f64;
        if t1 > self.p || (self.b2.contains(&incoming.key) && t1 - self.p == 0.0) {
            first_slot(&self.t1, view).or_else(|| first_slot(&self.t2, view))
        } else {
            first_slot(&self.t2, view).or_else(|| first_slot(&self.t1, view))
        }
    }
    fn bind(&mut self, _geometry: &Geometry, slots: usize) -> Result<(), BindError> {
        self.c = slots;
        Ok(())
    }
    fn on_resize(&mut self, slots: usize) {
        self.c = slots;
        self.p = self.p.min(slots as f64);
        self.bound();
    }
    fn on_miss(&mut self, key: ExpertKey) {
        let (b1, b2) = (self.b1.len() as f64, self.b2.len() as f64);
        if self.b1.contains(&key) {
            self.p = (self.p + f64::max(1.0, b2 / b1)).min(self.c as f64);
        } else if self.b2.contains(&key) {
            self.p = (self.p - f64::max(1.0, b1 / b2)).max(0.0);
        }
    }
    fn on_remove(&mut self, _slot: SlotId, key: ExpertKey, cause: RemoveCause) {
        let ghosts = if take(&mut self.t1, key) {
            &mut self.b1
        } else {
            assert!(take(&mut self.t2, key));
            &mut self.b2
        };
        if cause == RemoveCause::Evicted {
            ghosts.push(key);
        }
    }
    fn reset(&mut self) {}
}
