//! A call without a reader: every record arrives at once.

use slotstream_core::{EvictionPolicy, ExpertIdx, ExpertKey, LayerIdx, Origin, Phase, RemoveCause};

use super::SlotPool;
use crate::{CacheError, Ensured, Found};

impl<P: EvictionPolicy> SlotPool<P> {
    /// What [`ensure_counted`](Self::ensure_counted), [`publish_all`](Self::publish_all) and
    /// [`release`](Self::release) do one after another, without making claims: for simulators.
    /// The policy is told the same in the same order and sees the same slots, and the counters
    /// end the same. `out` has the entries and no claims.
    ///
    /// # Errors
    /// As [`ensure_counted`](Self::ensure_counted).
    pub fn ensure_arrived(
        &mut self,
        layer: LayerIdx,
        experts: &[ExpertIdx],
        counts: &[u32],
        phase: Phase,
        out: &mut Ensured,
    ) -> Result<(), CacheError> {
        if self.slots.open > 0 {
            // Somebody reads: forecasts may be adopted, so this is a call like any other.
            self.ensure_counted(layer, experts, counts, phase, out)?;
            self.publish_all(out)?;
            self.release();
            return Ok(());
        }
        self.begin_call(layer, experts, counts, out)?;
        self.guarded(|pool| {
            let result = pool.look_up_all(layer, experts, out);
            let result = result.and_then(|tally| {
                let returned = pool.fill_misses(layer, out)?;
                pool.count(layer, counts, phase, &tally, returned, out);
                Ok(())
            });
            match result {
                Ok(()) => pool.arrive(layer, out),
                Err(_) => pool.empty_misses(layer, out),
            }
            result
        })
    }

    /// [`claim_misses`](Self::claim_misses) without claims: the slots are the call's, and their
    /// records enter them in [`arrive`](Self::arrive).
    #[inline]
    fn fill_misses(&mut self, layer: LayerIdx, out: &mut Ensured) -> Result<u64, CacheError> {
        let base = layer.index() * self.slots.geometry.experts();
        let mut returned = 0;
        for at in 0..self.misses.len() {
            let entry = &mut out.entries[self.misses[at]];
            let key = ExpertKey::new(layer, entry.expert);
            self.policy.on_miss(key);
            returned += u64::from(self.left[base + entry.expert.index()] == self.visit);
            let slot = self.take_slot(key, Origin::Demand)?;
            self.policy.on_insert(slot, key, Origin::Demand);
            self.counters.claims.demand += 1;
            self.slots.hold(slot);
            entry.slot = slot;
        }
        Ok(returned)
    }

    /// Ends the call: every missing record is in its slot.
    #[inline]
    fn arrive(&mut self, layer: LayerIdx, out: &Ensured) {
        let base = layer.index() * self.slots.geometry.experts();
        for at in &self.misses {
            let entry = &out.entries[*at];
            let key = ExpertKey::new(layer, entry.expert);
            self.slots.fill(entry.slot, base + entry.expert.index(), key);
        }
        self.slots.freed(layer, self.misses.len());
        self.counters.published += self.misses.len() as u64;
        self.end_call(layer, None);
    }

    /// Ends a call that failed, as [`undo`](Self::undo) does.
    #[cold]
    fn empty_misses(&mut self, layer: LayerIdx, out: &mut Ensured) {
        self.end_call(layer, None);
        let base = layer.index() * self.slots.geometry.experts();
        for entry in out.entries.iter().filter(|entry| entry.found == Found::Miss) {
            self.slots.unwant(base + entry.expert.index());
        }
        for entry in out.entries.iter().rev().filter(|entry| entry.found == Found::Miss) {
            if self.slots.let_go(entry.slot) {
                self.counters.withdrawn += 1;
                let key = ExpertKey::new(layer, entry.expert);
                self.policy.on_remove(entry.slot, key, RemoveCause::ReadFailed);
            }
        }
        out.entries.clear();
    }
}
