//! S3-FIFO.

use std::collections::BTreeMap;

use slotstream_core::*;

use super::keys::{Keys, first, part, renew, take, trim};

/// Three lists of keys, and the hits of those with a slot.
#[derive(Debug)]
pub(super) struct NaiveS3Fifo {
    shares: (f64, f64),
    threshold: u32,
    slots: usize,
    small: Keys,
    main: Keys,
    ghost: Keys,
    hits: BTreeMap<ExpertKey, u32>,
    comes_back: Option<ExpertKey>,
    filling: bool,
}

impl NaiveS3Fifo {
    pub(super) fn new(small: f64, ghost: f64, threshold: u32) -> Self {
        Self {
            shares: (small, ghost),
            threshold,
            slots: 0,
            small: Keys::new(),
            main: Keys::new(),
            ghost: Keys::new(),
            hits: BTreeMap::new(),
            comes_back: None,
            filling: true,
        }
    }

    fn most_small(&self) -> usize {
        part(self.slots, self.shares.0).max(1)
    }

    fn main_victim(&mut self, view: &SlotView<'_>) -> Option<SlotId> {
        loop {
            let (key, slot) = first(&self.main, view)?;
            let hits = self.hits.get_mut(&key).unwrap();
            if *hits == 0 {
                return Some(slot);
            }
            *hits = (*hits).min(3) - 1;
            renew(&mut self.main, key);
        }
    }

    fn small_victim(&mut self, view: &SlotView<'_>) -> Option<SlotId> {
        loop {
            let (key, slot) = first(&self.small, view)?;
            if self.hits[&key] < self.threshold {
                return Some(slot);
            }
            take(&mut self.small, key);
            self.main.push(key);
            self.hits.insert(key, 0);
        }
    }
}

impl EvictionPolicy for NaiveS3Fifo {
    fn on_insert(&mut self, _slot: SlotId, key: ExpertKey, _origin: Origin) {
        let known = take(&mut self.ghost, key) || self.comes_back == Some(key);
        self.comes_back = None;
        self.hits.insert(key, 0);
        if known || (self.filling && self.small.len() >= self.most_small()) {
            self.main.push(key);
        } else {
            self.small.push(key);
        }
    }
    fn on_hit(&mut self, _slot: SlotId, key: ExpertKey) {
        *self.hits.get_mut(&key).unwrap() += 1;
    }
    fn choose_victim(&mut self, _incoming: &Incoming, view: &SlotView<'_>) -> Option<SlotId> {
        if self.main.len() + self.most_small() > self.slots {
            let victim = self.main_victim(view);
            if victim.is_some() {
                return victim;
            }
        }
        self.small_victim(view).or_else(|| self.main_victim(view))
    }
    fn bind(&mut self, _geometry: &Geometry, slots: usize) -> Result<(), BindError> {
        self.slots = slots;
        Ok(())
    }
    fn on_resize(&mut self, slots: usize) {
        self.slots = slots;
        trim(&mut self.ghost, part(slots, self.shares.1));
    }
    fn on_miss(&mut self, key: ExpertKey) {
        self.comes_back = take(&mut self.ghost, key).then_some(key);
    }
    fn on_remove(&mut self, _slot: SlotId, key: ExpertKey, cause: RemoveCause) {
        let was_small = take(&mut self.small, key);
        assert!(was_small || take(&mut self.main, key));
        self.hits.remove(&key);
        if cause == RemoveCause::Evicted {
            self.filling = false;
            if was_small {
                self.ghost.push(key);
                trim(&mut self.ghost, part(self.slots, self.shares.1));
            }
        }
        self.filling |= cause == RemoveCause::Cleared;
    }
    fn reset(&mut self) {}
}
