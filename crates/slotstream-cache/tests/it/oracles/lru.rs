//! LRU, plain and under the floor rule.

use slotstream_core::*;

/// LRU by the time of the last use of each slot.
#[derive(Debug, Default)]
pub(super) struct NaiveLru {
    now: u64,
    used: Vec<u64>,
}

impl EvictionPolicy for NaiveLru {
    fn on_insert(&mut self, slot: SlotId, _key: ExpertKey, _origin: Origin) {
        self.now += 1;
        self.used[slot.index()] = self.now;
    }
    fn on_hit(&mut self, slot: SlotId, key: ExpertKey) {
        self.on_insert(slot, key, Origin::Demand);
    }
    fn choose_victim(&mut self, _incoming: &Incoming, view: &SlotView<'_>) -> Option<SlotId> {
        let slots = (0..view.len() as u32).map(SlotId::new);
        slots.filter(|slot| view.is_evictable(*slot)).min_by_key(|slot| self.used[slot.index()])
    }
    fn bind(&mut self, _geometry: &Geometry, slots: usize) -> Result<(), BindError> {
        self.used.resize(slots, 0);
        Ok(())
    }
    fn on_resize(&mut self, slots: usize) {
        self.used.resize(slots, 0);
    }
    fn reset(&mut self) {}
}

/// The floor rule by a list of the layer's evictable slots; only for LRU.
#[derive(Debug, Default)]
pub(super) struct NaiveLocalLru {
    lru: NaiveLru,
    floor: usize,
}

impl EvictionPolicy for NaiveLocalLru {
    fn on_insert(&mut self, slot: SlotId, key: ExpertKey, origin: Origin) {
        self.lru.on_insert(slot, key, origin);
    }
    fn on_hit(&mut self, slot: SlotId, key: ExpertKey) {
        self.lru.on_hit(slot, key);
    }
    fn choose_victim(&mut self, incoming: &Incoming, view: &SlotView<'_>) -> Option<SlotId> {
        let evictable: Vec<SlotId> = (0..view.len() as u32)
            .map(SlotId::new)
            .filter(|slot| view.is_evictable(*slot))
            .collect();
        let mut own: Vec<SlotId> = evictable
            .iter()
            .copied()
            .filter(|slot| view.key(*slot).unwrap().layer() == incoming.key.layer())
            .collect();
        if own.is_empty() || view.len() > self.floor || incoming.origin != Origin::Demand {
            own = evictable;
        }
        own.into_iter().min_by_key(|slot| self.lru.used[slot.index()])
    }
    fn bind(&mut self, geometry: &Geometry, slots: usize) -> Result<(), BindError> {
        self.floor = geometry.floor_slots();
        self.lru.bind(geometry, slots)
    }
    fn on_resize(&mut self, slots: usize) {
        self.lru.on_resize(slots);
    }
    fn reset(&mut self) {}
}
