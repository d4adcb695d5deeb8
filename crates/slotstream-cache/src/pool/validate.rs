//! Everything that must hold between two requests.

use slotstream_core::{EvictionPolicy, ExpertKey};

use super::{Place, SlotPool, slots};
use crate::CacheError;

/// `Ok` when `found` is as expected.
fn same(check: &'static str, at: usize, expected: u64, found: u64) -> Result<(), CacheError> {
    if expected == found {
        return Ok(());
    }
    Err(CacheError::Inconsistent { check, at, expected, found })
}

impl<P: EvictionPolicy> SlotPool<P> {
    /// Checks every table against every other: records and slots map to each other one to one,
    /// the free list is exactly the slots without a record or a claim, the evictable counts are
    /// right, nothing is pinned without a running call, and the counters add up. Takes time in
    /// the number of records.
    ///
    /// # Errors
    /// [`CacheError::Inconsistent`], which no sequence of requests should ever bring about;
    /// [`CacheError::Poisoned`].
    pub fn validate(&self) -> Result<(), CacheError> {
        if self.busy {
            return Err(CacheError::Poisoned);
        }
        self.validate_table()?;
        self.validate_slots()?;
        self.validate_counts()?;
        self.validate_pins()?;
        self.validate_counters()
    }

    fn validate_table(&self) -> Result<(), CacheError> {
        let (mut resident, mut claimed) = (0, 0);
        for index in 0..self.slots.geometry.records() {
            let key = self.slots.geometry.key(index);
            match self.slots.place(index) {
                Place::Absent => {}
                Place::Wanted => same("a record is marked as wanted", index, 0, 1)?,
                Place::Resident(slot) => {
                    resident += 1;
                    let back = self.slots.keys.get(slot.index()).copied().flatten();
                    same("the slot of a record holds it", index, 1, u64::from(back == key))?;
                }
                Place::Claimed(slot) => {
                    claimed += 1;
                    let cell = self.slots.cells.get(slot.index()).filter(|cell| cell.claimed);
                    let back = cell.map(|cell| cell.key);
                    same(
                        "the slot of a record is claimed for it",
                        index,
                        1,
                        u64::from(back == key),
                    )?;
                }
            }
        }
        let keys = self.slots.keys.iter().flatten().count() as u64;
        let cells = self.slots.cells.iter().filter(|cell| cell.claimed).count() as u64;
        same("records in the table and in slots", 0, keys, resident)?;
        same("claims in the table and on slots", 0, cells, claimed)?;
        same("open claims", 0, cells, self.slots.open as u64)
    }

    fn validate_slots(&self) -> Result<(), CacheError> {
        let mut listed = vec![0_u64; self.slots.len()];
        for slot in &self.slots.free {
            match listed.get_mut(slot.index()) {
                Some(count) => *count += 1,
                None => same("free slots in range", slot.index(), 0, 1)?,
            }
        }
        for (index, cell) in self.slots.cells.iter().enumerate() {
            let owned = self.slots.keys[index].is_some();
            same("record and claim on one slot", index, 0, u64::from(owned && cell.claimed))?;
            let free = u64::from(!owned && !cell.claimed);
            same("entries in the free list", index, free, listed[index])?;
            same(
                "pin of a claim without a claim",
                index,
                0,
                u64::from(cell.pinned && !cell.claimed),
            )?;
            let pinned = self.pins.contains(&slots::slot(index));
            let blocked = u64::from(pinned || cell.claimed);
            same("blocked flag", index, blocked, u64::from(self.slots.blocked[index]))?;
            let flag = u64::from(pinned && cell.claimed);
            same("pin of a claim", index, flag, u64::from(cell.pinned))?;
        }
        Ok(())
    }

    fn validate_counts(&self) -> Result<(), CacheError> {
        let mut evictable = vec![0_u64; self.slots.geometry.layers()];
        for (key, blocked) in self.slots.keys.iter().zip(&self.slots.blocked) {
            if let Some(key) = key
                && !blocked
            {
                evictable[key.layer().index()] += 1;
            }
        }
        for (layer, expected) in evictable.iter().enumerate() {
            let found = u64::from(self.slots.evictable[layer]);
            same("evictable slots of a layer", layer, *expected, found)?;
        }
        let total = evictable.iter().sum();
        same("evictable slots", 0, total, self.slots.evictable_total as u64)
    }

    fn validate_pins(&self) -> Result<(), CacheError> {
        if self.call.is_none() {
            same("pins without a call", 0, 0, self.pins.len() as u64)?;
        }
        for (at, slot) in self.pins.iter().enumerate() {
            let again = self.pins[..at].contains(slot);
            same("a slot is pinned twice", slot.index(), 0, u64::from(again))?;
            let key = self.slots.keys.get(slot.index()).copied().flatten();
            let cell = self.slots.cells.get(slot.index()).filter(|cell| cell.claimed);
            let layer = key.or(cell.map(|cell| cell.key)).map(ExpertKey::layer);
            same("a pin is of the call's layer", slot.index(), 1, u64::from(layer == self.call))?;
        }
        Ok(())
    }

    fn validate_counters(&self) -> Result<(), CacheError> {
        let counters = &self.counters;
        let (open, resident) = self.carried;
        let claims = counters.claims.total() + open;
        let ended =
            counters.published + counters.read_failed + counters.withdrawn + counters.discarded;
        same("claims ended or open", 0, claims, ended + self.slots.open as u64)?;
        let left = counters.evicted + counters.shrunk + counters.cleared;
        let arrived = counters.published + resident;
        same("records arrived or left", 0, arrived, left + self.slots.resident() as u64)?;
        for phase in [&counters.prefill, &counters.decode] {
            let most = phase.token_hits.min(phase.token_lookups);
            same("token hits", 0, most, phase.token_hits)?;
            let most = phase.adopted.min(phase.misses);
            same("adopted forecasts", 0, most, phase.adopted)?;
        }
        Ok(())
    }
}
