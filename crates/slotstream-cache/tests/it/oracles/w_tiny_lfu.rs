//! W-TinyLFU.

use std::collections::BTreeMap;

use slotstream_core::*;

use super::keys::{Keys, first, part, renew, take};
use super::slru::NaiveSlru;

/// A window of keys before a model of SLRU; every demand is counted.
#[derive(Debug)]
pub(super) struct NaiveWTinyLfu {
    window_share: f64,
    sample: u64,
    slots: usize,
    window: Keys,
    main: NaiveSlru,
    counts: BTreeMap<ExpertKey, u32>,
    demands: u64,
    evicted: bool,
}

impl NaiveWTinyLfu {
    pub(super) fn new(window: f64, protected: f64, sample: u64) -> Self {
        Self {
            window_share: window,
            sample,
            slots: 0,
            window: Keys::new(),
            main: NaiveSlru::new(protected),
            counts: BTreeMap::new(),
            demands: 0,
            evicted: false,
        }
    }

    fn most(&self) -> usize {
        part(self.slots, self.window_share).max(1)
    }

    fn count(&self, key: ExpertKey) -> u32 {
        self.counts.get(&key).copied().unwrap_or(0)
    }

    fn demanded(&mut self, key: ExpertKey) {
        self.counts.insert(key, (self.count(key) + 1).min(15));
        self.demands += 1;
        if self.demands >= self.sample * self.slots as u64 {
            self.demands = 0;
            self.counts.values_mut().for_each(|count| *count /= 2);
        }
    }

    fn main_is_full(&self) -> bool {
        self.main.len() >= self.slots - self.most()
    }
}

impl EvictionPolicy for NaiveWTinyLfu {
    fn on_insert(&mut self, _slot: SlotId, key: ExpertKey, _origin: Origin) {
        self.window.push(key);
        while !self.evicted && self.window.len() > self.most() && !self.main_is_full() {
            let key = self.window.remove(0);
            self.main.on_probation(key);
        }
        self.evicted = false;
    }
    fn on_hit(&mut self, _slot: SlotId, key: ExpertKey) {
        self.demanded(key);
        if self.window.contains(&key) {
            renew(&mut self.window, key);
        } else {
            self.main.hit(key);
        }
    }
    fn choose_victim(&mut self, _incoming: &Incoming, view: &SlotView<'_>) -> Option<SlotId> {
        let Some(victim) = self.main.victim(view) else {
            return first(&self.window, view).map(|(_, slot)| slot);
        };
        while self.window.len() >= self.most()
            && let Some((key, slot)) = first(&self.window, view)
        {
            if self.count(key) <= self.count(view.key(victim).unwrap()) {
                return Some(slot);
            }
            let was_full = self.main_is_full();
            take(&mut self.window, key);
            self.main.on_probation(key);
            if was_full {
                break;
            }
        }
        Some(victim)
    }
    fn bind(&mut self, _geometry: &Geometry, slots: usize) -> Result<(), BindError> {
        self.on_resize(slots);
        Ok(())
    }
    fn on_resize(&mut self, slots: usize) {
        self.slots = slots;
        self.main.settle(slots - self.most());
    }
    fn on_miss(&mut self, key: ExpertKey) {
        self.demanded(key);
    }
    fn on_remove(&mut self, _slot: SlotId, key: ExpertKey, cause: RemoveCause) {
        self.evicted = cause == RemoveCause::Evicted;
        assert!(take(&mut self.window, key) || self.main.remove(key));
    }
    fn reset(&mut self) {}
}
