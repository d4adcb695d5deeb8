//! A victim drawn by lot.

use slotstream_core::{
    BindError, EvictionPolicy, ExpertKey, Geometry, Incoming, Origin, SlotId, SlotView,
};

use super::options::{EXPECTED_SEED, Options, SEED, Setting, check, spelled};

/// Gives up a slot drawn uniformly from the evictable ones: what a policy must beat to know
/// anything.
///
/// A draw among all slots is repeated until it meets an evictable one; where few are, one is
/// drawn by counting them. So a choice takes constant time on average while at least a share of
/// the slots can be evicted, and two sweeps otherwise.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Random {
    seed: u64,
    state: u64,
}

/// Draws that may miss before the evictable slots are counted.
const TRIES: usize = 16;

impl Random {
    /// `random`, with seed 1.
    #[must_use]
    pub const fn new() -> Self {
        Self::seeded(1)
    }

    /// `random:seed=...`.
    #[must_use]
    pub const fn seeded(seed: u64) -> Self {
        Self { seed, state: seed }
    }

    /// A number below `n`, which is not 0: `SplitMix64` (Steele, Lea and Flood 2014), brought
    /// into range by a multiplication.
    fn below(&mut self, n: u32) -> u32 {
        self.state = self.state.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut bits = self.state;
        bits = (bits ^ (bits >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        bits = (bits ^ (bits >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        bits ^= bits >> 31;
        // The high half of a product of two 32-bit numbers is below the second.
        (((bits >> 32) * u64::from(n)) >> 32) as u32
    }
}

impl Default for Random {
    fn default() -> Self {
        Self::new()
    }
}

impl Options for Random {
    const SETTINGS: &'static [Setting<Self>] = &[Setting::count(
        ("seed", "of the numbers drawn"),
        (SEED, EXPECTED_SEED),
        |random| random.seed,
        |random, seed| *random = Self::seeded(seed),
    )];
}

impl EvictionPolicy for Random {
    fn on_insert(&mut self, _slot: SlotId, _key: ExpertKey, _origin: Origin) {}

    fn on_hit(&mut self, _slot: SlotId, _key: ExpertKey) {}

    fn choose_victim(&mut self, _incoming: &Incoming, view: &SlotView<'_>) -> Option<SlotId> {
        let slots = u32::try_from(view.len()).ok().filter(|slots| *slots > 0)?;
        for _ in 0..TRIES {
            let slot = SlotId::new(self.below(slots));
            if view.is_evictable(slot) {
                return Some(slot);
            }
        }
        let evictable = || (0..slots).map(SlotId::new).filter(|slot| view.is_evictable(*slot));
        match u32::try_from(evictable().count()).ok()? {
            0 => None,
            count => evictable().nth(self.below(count) as usize),
        }
    }

    fn bind(&mut self, _geometry: &Geometry, _slots: usize) -> Result<(), BindError> {
        check(self)
    }

    fn name(&self) -> String {
        spelled("random", self)
    }

    fn reset(&mut self) {
        self.state = self.seed;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use slotstream_core::{ExpertIdx, LayerIdx, PassId};

    fn drawn(random: &mut Random, blocked: &[bool], draws: usize) -> Vec<usize> {
        let key = |expert| ExpertKey::new(LayerIdx::new(0), ExpertIdx::new(expert));
        let keys: Vec<_> = (0..blocked.len() as u16).map(|expert| Some(key(expert))).collect();
        let incoming = Incoming { key: key(999), origin: Origin::Demand, pass: PassId::new(0) };
        let view = SlotView::new(&keys, blocked, &[1], 0);
        let mut times = vec![0; blocked.len()];
        for _ in 0..draws {
            if let Some(slot) = random.choose_victim(&incoming, &view) {
                times[slot.index()] += 1;
            }
        }
        times
    }

    #[test]
    fn every_evictable_slot_has_its_chance() {
        let mut random = Random::new();
        let times = drawn(&mut random, &[false, true, false, false], 3000);
        assert_eq!(times[1], 0);
        for slot in [0, 2, 3] {
            assert!((900..1100).contains(&times[slot]), "{times:?}");
        }
        // Two of 400: found by counting.
        let mut blocked = [true; 400];
        (blocked[7], blocked[399]) = (false, false);
        let times = drawn(&mut random, &blocked, 1000);
        assert_eq!(times[7] + times[399], 1000);
        assert!((400..600).contains(&times[7]), "{}", times[7]);
        assert_eq!(drawn(&mut random, &[true; 3], 9), [0; 3]);
    }

    #[test]
    fn the_seed_decides() {
        let draws = |mut random: Random| drawn(&mut random, &[false; 50], 60);
        assert_eq!(draws(Random::new()), draws(Random::seeded(1)));
        assert_ne!(draws(Random::new()), draws(Random::seeded(2)));
        let mut used = Random::seeded(0);
        let first = drawn(&mut used, &[false; 50], 60);
        used.reset();
        assert_eq!(drawn(&mut used, &[false; 50], 60), first);
    }
}
