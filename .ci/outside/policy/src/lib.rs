//! Sampled LRU, as in Redis: of a few slots drawn at random, the one that was used longest ago
//! goes. It keeps one number a slot and no list.

use slotstream_core::{
    BindError, EvictionPolicy, ExpertKey, Geometry, Incoming, Origin, SlotId, SlotView,
};

/// Gives up the least recently used of `samples` slots.
#[derive(Clone, Debug)]
pub struct SampledLru {
    samples: u32,
    seed: u64,
    draws: u64,
    now: u64,
    /// When each slot was last used.
    used: Vec<u64>,
}

impl SampledLru {
    /// Looks at `samples` slots a choice. The same `seed` gives the same choices.
    pub fn new(samples: u32, seed: u64) -> Self {
        Self { samples, seed, draws: seed, now: 0, used: Vec::new() }
    }

    fn touch(&mut self, slot: SlotId) {
        self.now += 1;
        self.used[slot.index()] = self.now;
    }

    /// A slot at random, by splitmix64 (Steele, Lea and Flood, 2014).
    fn draw(&mut self, slots: u32) -> u32 {
        self.draws = self.draws.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.draws;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        ((z ^ (z >> 31)) % u64::from(slots)) as u32
    }
}

impl EvictionPolicy for SampledLru {
    fn bind(&mut self, _geometry: &Geometry, slots: usize) -> Result<(), BindError> {
        if self.samples == 0 {
            return Err(BindError::parameter("samples", self.samples, "at least 1"));
        }
        self.used = vec![0; slots];
        Ok(())
    }

    fn on_resize(&mut self, slots: usize) {
        self.used.resize(slots, 0);
    }

    fn on_insert(&mut self, slot: SlotId, _key: ExpertKey, _origin: Origin) {
        self.touch(slot);
    }

    fn on_hit(&mut self, slot: SlotId, _key: ExpertKey) {
        self.touch(slot);
    }

    fn choose_victim(&mut self, _incoming: &Incoming, view: &SlotView<'_>) -> Option<SlotId> {
        let slots = view.len() as u32;
        let drawn: Vec<SlotId> = (0..self.samples).map(|_| SlotId::new(self.draw(slots))).collect();
        let oldest = drawn
            .iter()
            .filter(|slot| view.is_evictable(**slot))
            .min_by_key(|slot| self.used[slot.index()]);
        // All of them may be pinned: then the first after a random one that is not.
        oldest.copied().or_else(|| {
            let start = self.draw(slots);
            let all = (start..slots).chain(0..start).map(SlotId::new);
            all.into_iter().find(|slot| view.is_evictable(*slot))
        })
    }

    fn name(&self) -> String {
        format!("sampled-lru:samples={}+seed={}", self.samples, self.seed)
    }

    fn reset(&mut self) {
        self.draws = self.seed;
        self.now = 0;
        self.used.fill(0);
    }
}
