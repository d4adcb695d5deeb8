//! A pool of another size, and an empty one.

use slotstream_core::{EvictionPolicy, RemoveCause, SlotId};

use super::{SlotPool, check_floor, slots};
use crate::CacheError;

impl<P: EvictionPolicy> SlotPool<P> {
    /// Makes the pool `slots` slots large, or as large as there are records where that is less.
    ///
    /// Growing appends free slots and moves nothing. Shrinking removes the slots with the
    /// highest numbers: for each resident record among them, in slot order, the policy hears
    /// [`RemoveCause::Shrunk`]. Then it hears `on_resize`.
    ///
    /// # Errors
    /// No change after [`CacheError::BelowFloor`], [`CacheError::NoSlots`],
    /// [`CacheError::CallRunning`], [`CacheError::SlotClaimed`] (a slot to be removed is
    /// claimed) and [`CacheError::Poisoned`].
    pub fn resize(&mut self, slots: usize) -> Result<(), CacheError> {
        self.check_sane()?;
        if let Some(layer) = self.call {
            return Err(CacheError::CallRunning { layer });
        }
        check_floor(&self.slots.geometry, slots, self.floor)?;
        let slots = slots.min(self.slots.geometry.records());
        self.guarded(|pool| match slots.cmp(&pool.slots.len()) {
            std::cmp::Ordering::Equal => Ok(()),
            std::cmp::Ordering::Greater => {
                pool.slots.grow(slots);
                pool.pins.reserve(slots);
                pool.misses.reserve(slots);
                pool.shielded.reserve(slots);
                pool.policy.on_resize(slots);
                Ok(())
            }
            std::cmp::Ordering::Less => pool.shrink(slots),
        })
    }

    fn shrink(&mut self, slots: usize) -> Result<(), CacheError> {
        let removed = || (slots..self.slots.len()).map(slots::slot);
        let claimed = |slot: &SlotId| self.slots.cells[slot.index()].claimed;
        if let Some(slot) = removed().find(claimed) {
            let key = self.slots.cells[slot.index()].key;
            return Err(CacheError::SlotClaimed { slot, key });
        }
        for slot in (slots..self.slots.len()).map(slots::slot) {
            if let Some(key) = self.slots.evict(slot) {
                self.counters.shrunk += 1;
                self.policy.on_remove(slot, key, RemoveCause::Shrunk);
            }
        }
        self.slots.shrink(slots);
        self.policy.on_resize(slots);
        Ok(())
    }

    /// Empties the pool: the running call ends, every slot is free, every open claim is stale
    /// (publishing or aborting it then gives [`CacheError::StaleClaim`]). The policy hears
    /// [`RemoveCause::Cleared`] for every record it was told of, in slot order. Counters stay.
    ///
    /// The caller first joins the reads of open claims: their slots are given to others from
    /// now on.
    ///
    /// A poisoned pool is usable again; its policy, whose state is unknown, is
    /// [`reset`](EvictionPolicy::reset) and told the number of slots. If it panics even then,
    /// the pool stays poisoned.
    pub fn clear(&mut self) {
        let poisoned = std::mem::replace(&mut self.busy, true);
        if !poisoned {
            for index in 0..self.slots.len() {
                let slot = slots::slot(index);
                if let Some(key) = self.slots.announced(slot) {
                    self.policy.on_remove(slot, key, RemoveCause::Cleared);
                }
            }
        }
        self.counters.discarded += self.slots.open as u64;
        self.counters.cleared += self.slots.keys.iter().flatten().count() as u64;
        self.call = None;
        self.pins.clear();
        self.expected.clear();
        self.shielded.clear();
        self.slots.empty();
        if poisoned {
            self.policy.reset();
            self.policy.on_resize(self.slots.len());
        }
        self.busy = false;
    }
}
