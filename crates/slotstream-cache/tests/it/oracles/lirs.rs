//! LIRS.

use slotstream_core::*;

use super::keys::{Keys, evictable, first_slot, part, renew, take};

/// The stack, bottom first, as keys; which of them are LIR; the queue.
#[derive(Debug)]
pub(super) struct NaiveLirs {
    shares: (f64, f64),
    slots: usize,
    stack: Keys,
    lir: Keys,
    queue: Keys,
    /// Records of the stack without a slot, the longest without first.
    lost: Keys,
}

impl NaiveLirs {
    pub(super) fn new(hir: f64, stack: f64) -> Self {
        let (lir, queue, lost) = (Keys::new(), Keys::new(), Keys::new());
        Self { shares: (hir, stack), slots: 0, stack: Keys::new(), lir, queue, lost }
    }

    fn most_lir(&self) -> usize {
        self.slots - part(self.slots, self.shares.0).max(1)
    }

    /// Nothing but a LIR record is at the bottom.
    fn prune(&mut self) {
        let is_lir = |key: &ExpertKey| self.lir.contains(key);
        let keep = self.stack.iter().position(is_lir).unwrap_or(self.stack.len());
        self.stack.drain(..keep);
        self.lost.retain(|key| self.stack.contains(key));
    }

    fn bound(&mut self) {
        self.prune();
        while self.lir.len() > self.most_lir() {
            let bottom = self.stack.remove(0);
            take(&mut self.lir, bottom);
            self.queue.push(bottom);
            self.prune();
        }
        while self.stack.len() > part(self.slots, self.shares.1) && !self.lost.is_empty() {
            let key = self.lost.remove(0);
            take(&mut self.stack, key);
        }
    }
}

impl EvictionPolicy for NaiveLirs {
    fn on_insert(&mut self, _slot: SlotId, key: ExpertKey, _origin: Origin) {
        if take(&mut self.lost, key) || self.lir.len() < self.most_lir() {
            self.lir.push(key);
        } else {
            self.queue.push(key);
        }
        renew(&mut self.stack, key);
        self.bound();
    }
    fn on_hit(&mut self, _slot: SlotId, key: ExpertKey) {
        if !self.lir.contains(&key) {
            if self.stack.contains(&key) {
                assert!(take(&mut self.queue, key));
                self.lir.push(key);
            } else {
                renew(&mut self.queue, key);
            }
        }
        renew(&mut self.stack, key);
        self.bound();
    }
    fn choose_victim(&mut self, _incoming: &Incoming, view: &SlotView<'_>) -> Option<SlotId> {
        let lowest = || self.stack.iter().find_map(|key| evictable(view, *key));
        first_slot(&self.queue, view).or_else(lowest)
    }
    fn bind(&mut self, _geometry: &Geometry, slots: usize) -> Result<(), BindError> {
        self.slots = slots;
        Ok(())
    }
    fn on_resize(&mut self, slots: usize) {
        self.slots = slots;
        self.bound();
    }
    fn on_remove(&mut self, _slot: SlotId, key: ExpertKey, cause: RemoveCause) {
        assert!(take(&mut self.queue, key) || take(&mut self.lir, key));
        if cause != RemoveCause::Evicted {
            take(&mut self.stack, key);
        } else if self.stack.contains(&key) {
            self.lost.push(key);
        }
        self.prune();
    }
    fn reset(&mut self) {}
}
