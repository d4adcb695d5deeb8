//! Each policy against its naive model, and against what no policy can beat.

use proptest::prelude::*;
use slotstream_cache::{Clock, LayerLocal, Lru, parse_policy};
use slotstream_core::*;

use crate::play::{Twins, events, play};
use crate::support::{misses, optimum};
use crate::telling::every_policy;

/// CLOCK as the article writes it: a bit a slot, a loop.
#[derive(Debug)]
struct NaiveClock {
    bits: Vec<bool>,
    hand: usize,
    fresh: bool,
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

/// LRU by the time of the last use of each slot.
#[derive(Debug, Default)]
struct NaiveLru {
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
struct NaiveLocalLru {
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

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    #[test]
    fn policies_equal_their_naive_models(events in events()) {
        let naive = |fresh| NaiveClock { bits: Vec::new(), hand: 0, fresh };
        play(&events, Twins(Clock::new(), naive(true)));
        play(&events, Twins(Clock::cold(), naive(false)));
        play(&events, Twins(Lru::new(), NaiveLru::default()));
        play(&events, Twins(LayerLocal::new(Lru::new()), NaiveLocalLru::default()));
    }

    #[test]
    fn no_policy_beats_the_optimum(
        keys in proptest::collection::vec(0..20_usize, 1..300),
        slots in 1..20_usize,
    ) {
        let best = optimum(&keys, slots);
        for name in every_policy() {
            let found = misses(&keys, slots, parse_policy(&name).unwrap());
            prop_assert!(found >= best, "{name} {found} < {best}");
        }
    }
}

/// The optimum itself, against all ways to choose victims.
#[test]
fn the_optimum_is_the_least_of_all() {
    fn least(keys: &[usize], resident: &mut Vec<usize>, slots: usize) -> u64 {
        let Some((key, rest)) = keys.split_first() else { return 0 };
        if resident.contains(key) {
            return least(rest, resident, slots);
        }
        if resident.len() < slots {
            resident.push(*key);
            let found = 1 + least(rest, resident, slots);
            resident.pop();
            return found;
        }
        (0..slots)
            .map(|at| {
                let old = std::mem::replace(&mut resident[at], *key);
                let found = 1 + least(rest, resident, slots);
                resident[at] = old;
                found
            })
            .min()
            .unwrap()
    }
    let mut state = 7_u32;
    for slots in 1..4 {
        for _ in 0..40 {
            let keys: Vec<usize> = (0..11)
                .map(|_| {
                    state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
                    (state >> 24) as usize % 5
                })
                .collect();
            assert_eq!(optimum(&keys, slots), least(&keys, &mut Vec::new(), slots), "{keys:?}");
        }
    }
}
