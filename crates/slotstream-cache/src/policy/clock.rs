//! CLOCK: a hand, and a reference bit a slot.

use slotstream_core::{
    BindError, EvictionPolicy, ExpertKey, Geometry, Incoming, Origin, RemoveCause, SlotId, SlotView,
};

use super::options::Options;

/// CLOCK (Corbató 1969): a hand sweeps the slots. A slot whose reference bit is set loses the
/// bit and stays; the first one without it is the victim, and the hand stops behind it. A hit
/// sets the bit. Slots that cannot be evicted are passed over and keep their bit.
///
/// [`Clock::new`] is the article's variant, in which a new record starts with its bit set and so
/// survives one sweep; with [`Clock::cold`] it starts clear.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Clock {
    referenced: Vec<bool>,
    hand: usize,
    cold: bool,
}

impl Clock {
    /// `clock`: a new record starts referenced.
    #[must_use]
    pub const fn new() -> Self {
        Self { referenced: Vec::new(), hand: 0, cold: false }
    }

    /// `clock-cold`: a new record starts unreferenced.
    #[must_use]
    pub const fn cold() -> Self {
        Self { referenced: Vec::new(), hand: 0, cold: true }
    }

    /// The slot at which the next search begins; for displays.
    #[must_use]
    pub const fn hand(&self) -> usize {
        self.hand
    }

    /// The reference bits, one a slot; for displays.
    #[must_use]
    pub fn referenced(&self) -> &[bool] {
        &self.referenced
    }

    fn set(&mut self, slot: SlotId, bit: bool) {
        if let Some(referenced) = self.referenced.get_mut(slot.index()) {
            *referenced = bit;
        }
    }
}

impl Default for Clock {
    fn default() -> Self {
        Self::new()
    }
}

impl Options for Clock {}

impl EvictionPolicy for Clock {
    #[inline]
    fn on_insert(&mut self, slot: SlotId, _key: ExpertKey, _origin: Origin) {
        self.set(slot, !self.cold);
    }

    #[inline]
    fn on_hit(&mut self, slot: SlotId, _key: ExpertKey) {
        self.set(slot, true);
    }

    #[inline]
    fn choose_victim(&mut self, _incoming: &Incoming, view: &SlotView<'_>) -> Option<SlotId> {
        let slots = self.referenced.len().min(view.len());
        // The first sweep may clear every bit, the second finds the victim.
        for _ in 0..2 * slots {
            let at = self.hand;
            self.hand = if at + 1 < slots { at + 1 } else { 0 };
            let slot = SlotId::new(u32::try_from(at).ok()?);
            if !view.is_evictable(slot) {
                continue;
            }
            if !std::mem::replace(&mut self.referenced[at], false) {
                return Some(slot);
            }
        }
        None
    }

    fn bind(&mut self, _geometry: &Geometry, slots: usize) -> Result<(), BindError> {
        self.on_resize(slots);
        Ok(())
    }

    fn on_resize(&mut self, slots: usize) {
        self.referenced.resize(slots, false);
        if self.hand >= slots {
            self.hand = 0;
        }
    }

    fn on_remove(&mut self, slot: SlotId, _key: ExpertKey, _cause: RemoveCause) {
        self.set(slot, false);
    }

    fn name(&self) -> String {
        if self.cold { "clock-cold" } else { "clock" }.into()
    }

    fn reset(&mut self) {
        self.referenced.fill(false);
        self.hand = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use slotstream_core::{ExpertIdx, LayerIdx, PassId};

    fn key(expert: u16) -> ExpertKey {
        ExpertKey::new(LayerIdx::new(0), ExpertIdx::new(expert))
    }

    fn full(mut clock: Clock, slots: u16) -> (Clock, Vec<Option<ExpertKey>>) {
        let geometry = Geometry::new(1, 64, 2).expect("legal");
        clock.bind(&geometry, usize::from(slots)).expect("any size");
        for i in 0..slots {
            clock.on_insert(SlotId::new(u32::from(i)), key(i), Origin::Demand);
        }
        (clock, (0..slots).map(|i| Some(key(i))).collect())
    }

    fn victim(clock: &mut Clock, keys: &[Option<ExpertKey>], blocked: &[bool]) -> Option<u32> {
        let incoming = Incoming { key: key(60), origin: Origin::Demand, pass: PassId::new(0) };
        let count = blocked.iter().filter(|blocked| !**blocked).count();
        let evictable = [u32::try_from(count).expect("few")];
        clock
            .choose_victim(&incoming, &SlotView::new(keys, blocked, &evictable, 0))
            .map(SlotId::get)
    }

    #[test]
    fn a_blocked_slot_keeps_its_bit() {
        let (mut clock, keys) = full(Clock::new(), 3);
        // The first sweep clears 1 and 2, the second takes 1; 0 was passed over.
        assert_eq!(victim(&mut clock, &keys, &[true, false, false]), Some(1));
        assert_eq!((clock.referenced(), clock.hand()), (&[true, false, false][..], 2));
        // From 2 on: 2 has no bit.
        assert_eq!(victim(&mut clock, &keys, &[false; 3]), Some(2));
        assert_eq!(clock.referenced(), [true, false, false]);
    }

    #[test]
    fn a_cold_record_goes_at_the_first_sweep() {
        let (mut clock, keys) = full(Clock::cold(), 3);
        clock.on_hit(SlotId::new(0), key(0));
        assert_eq!(victim(&mut clock, &keys, &[false; 3]), Some(1));
        assert_eq!(victim(&mut clock, &keys, &[true; 3]), None);
    }

    #[test]
    fn the_hand_returns_into_a_smaller_pool() {
        let (mut clock, keys) = full(Clock::cold(), 4);
        for expected in 0..3 {
            assert_eq!(victim(&mut clock, &keys, &[false; 4]), Some(expected));
        }
        clock.on_resize(2);
        assert_eq!(clock.hand(), 0);
        assert_eq!(victim(&mut clock, &keys[..2], &[false; 2]), Some(0));
    }
}
