//! The demand of a layer: one call, all or nothing.

use slotstream_core::{
    EvictionPolicy, ExpertIdx, ExpertKey, LayerIdx, Origin, Phase, RemoveCause, SlotId, Tick,
};

use super::{Place, SlotPool};
use crate::{CacheError, Claim, Ensured, Entry, Found};

impl<P: EvictionPolicy> SlotPool<P> {
    /// Begins a call: finds or makes a slot for every expert that `layer` needs, and pins them
    /// until [`release`](Self::release).
    ///
    /// `experts` are distinct, in route order (of a wave: in id order). `out` then has an entry
    /// for each and a [`Claim`] for each miss; `out` must hold no claims of an earlier call.
    /// Allocates nothing once `out` has grown to the size of the calls.
    ///
    /// # Errors
    /// Nothing is changed after [`CacheError::CallRunning`], [`CacheError::BufferInUse`],
    /// [`CacheError::UnknownLayer`], [`CacheError::UnknownExpert`], [`CacheError::Duplicate`],
    /// [`CacheError::Poisoned`] and [`CacheError::Exhausted`]: a layer that does not fit runs in
    /// [`waves`](Self::waves).
    ///
    /// After [`CacheError::PolicyViolation`] the call has ended: its pins are dropped, its
    /// claims withdrawn (the policy hears [`RemoveCause::ReadFailed`]), and what was evicted for
    /// them stays evicted. Adopted forecasts stay adopted: whoever holds their claims publishes
    /// or aborts them.
    #[inline]
    pub fn ensure(
        &mut self,
        layer: LayerIdx,
        experts: &[ExpertIdx],
        phase: Phase,
        out: &mut Ensured,
    ) -> Result<(), CacheError> {
        self.ensure_counted(layer, experts, &[], phase, out)
    }

    /// [`ensure`](Self::ensure) for a pass of several rows: `counts[i]` says how many
    /// (position, rank) lookups chose `experts[i]`; without counts each was chosen once.
    ///
    /// # Errors
    /// As [`ensure`](Self::ensure); [`CacheError::CountMismatch`].
    pub fn ensure_counted(
        &mut self,
        layer: LayerIdx,
        experts: &[ExpertIdx],
        counts: &[u32],
        phase: Phase,
        out: &mut Ensured,
    ) -> Result<(), CacheError> {
        if let Some(layer) = self.call {
            return Err(CacheError::CallRunning { layer });
        }
        if !out.claims.is_empty() {
            return Err(CacheError::BufferInUse { claims: out.claims.len() });
        }
        self.check_layer(layer)?;
        if !counts.is_empty() && counts.len() != experts.len() {
            return Err(CacheError::CountMismatch { experts: experts.len(), counts: counts.len() });
        }
        out.entries.clear();
        self.guarded(|pool| {
            pool.call = Some(layer);
            let result = pool.run_call(layer, experts, counts, phase, out);
            if result.is_err() {
                pool.undo(layer, out);
            }
            result
        })
    }

    #[inline]
    fn run_call(
        &mut self,
        layer: LayerIdx,
        experts: &[ExpertIdx],
        counts: &[u32],
        phase: Phase,
        out: &mut Ensured,
    ) -> Result<(), CacheError> {
        let [hits, needed] = self.look_up(layer, experts, out)?;
        self.check_room(needed)?;
        if self.visited != Some(layer) {
            self.visited = Some(layer);
            self.visit += 1;
        }
        if hits > 0 {
            for entry in &out.entries {
                if matches!(entry.found, Found::Hit | Found::Pending) {
                    self.policy.on_hit(entry.slot, ExpertKey::new(layer, entry.expert));
                }
            }
        }
        if hits < experts.len() {
            self.claim_misses(layer, out)?;
        }
        self.count(layer, counts, phase, out);
        Ok(())
    }

    /// Enters every expert into `out` and pins what has a slot; tells the policy nothing.
    /// Returns the hits (pending ones included) and the slots that are needed.
    #[inline]
    fn look_up(
        &mut self,
        layer: LayerIdx,
        experts: &[ExpertIdx],
        out: &mut Ensured,
    ) -> Result<[usize; 2], CacheError> {
        let per_layer = self.slots.geometry.experts();
        let base = layer.index() * per_layer;
        let (mut hits, mut needed) = (0, 0);
        for &expert in experts {
            if expert.index() >= per_layer {
                return Err(CacheError::UnknownExpert { layer, expert, experts: per_layer });
            }
            let index = base + expert.index();
            let key = ExpertKey::new(layer, expert);
            let (slot, found) = match self.slots.place(index) {
                Place::Absent => {
                    self.slots.want(index);
                    needed += 1;
                    out.entries.push(Entry {
                        expert,
                        slot: SlotId::new(u32::MAX),
                        found: Found::Miss,
                    });
                    continue;
                }
                Place::Resident(slot) if self.slots.pin(slot, layer) => (slot, Found::Hit),
                Place::Claimed(slot) => {
                    let cell = &mut self.slots.cells[slot.index()];
                    if std::mem::replace(&mut cell.pinned, true) {
                        return Err(CacheError::Duplicate { key });
                    }
                    (slot, if cell.told { Found::Pending } else { Found::Adopted })
                }
                Place::Wanted | Place::Resident(_) => return Err(CacheError::Duplicate { key }),
            };
            hits += usize::from(found != Found::Adopted);
            self.pins.push(slot);
            out.entries.push(Entry { expert, slot, found });
        }
        Ok([hits, needed])
    }

    /// Per miss in route order: `on_miss`, a slot, `on_insert`.
    #[inline]
    fn claim_misses(&mut self, layer: LayerIdx, out: &mut Ensured) -> Result<(), CacheError> {
        let base = layer.index() * self.slots.geometry.experts();
        for entry in &mut out.entries {
            let key = ExpertKey::new(layer, entry.expert);
            match entry.found {
                Found::Hit | Found::Pending => {}
                Found::Adopted => {
                    self.policy.on_miss(key);
                    self.policy.on_insert(entry.slot, key, Origin::Prefetch);
                    self.slots.cells[entry.slot.index()].told = true;
                }
                Found::Miss => {
                    self.policy.on_miss(key);
                    let slot = self.take_slot(key, Origin::Demand)?;
                    self.policy.on_insert(slot, key, Origin::Demand);
                    self.counters.claims.add(Origin::Demand);
                    let index = base + entry.expert.index();
                    out.claims.push(self.slots.open(slot, index, key, Origin::Demand, true));
                    self.pins.push(slot);
                    entry.slot = slot;
                }
            }
        }
        Ok(())
    }

    #[inline]
    fn count(&mut self, layer: LayerIdx, counts: &[u32], phase: Phase, out: &Ensured) {
        let base = layer.index() * self.slots.geometry.experts();
        let counters = self.counters.phase_mut(phase);
        for (i, entry) in out.entries.iter().enumerate() {
            let lookups = u64::from(counts.get(i).copied().unwrap_or(1));
            counters.token_lookups += lookups;
            let was_there = match entry.found {
                Found::Hit => {
                    counters.hits += 1;
                    true
                }
                Found::Pending => {
                    counters.hits += 1;
                    counters.pending += 1;
                    true
                }
                Found::Adopted => {
                    counters.misses += 1;
                    counters.adopted += 1;
                    false
                }
                Found::Miss => {
                    counters.misses += 1;
                    self.left[base + entry.expert.index()] == self.visit
                }
            };
            if was_there {
                counters.token_hits += lookups;
            }
        }
    }

    /// Ends a call that failed: no pins, no claims, no marks.
    #[cold]
    fn undo(&mut self, layer: LayerIdx, out: &mut Ensured) {
        self.end_call(layer, None);
        let base = layer.index() * self.slots.geometry.experts();
        for entry in out.entries.iter().filter(|entry| entry.found == Found::Miss) {
            self.slots.unwant(base + entry.expert.index());
        }
        // Last claim first, so that the free list hands the slots out in the same order again.
        while let Some(Claim { slot, key, .. }) = out.claims.pop() {
            self.slots.vacate(slot);
            self.counters.withdrawn += 1;
            self.policy.on_remove(slot, key, RemoveCause::ReadFailed);
        }
        out.entries.clear();
    }

    /// Ends the running call: its records may be evicted again. Its open claims stay open.
    #[inline]
    pub fn release(&mut self) {
        if let Some(layer) = self.call
            && !self.busy
        {
            self.end_call(layer, None);
        }
    }

    /// [`release`](Self::release) while the device still reads the call's slots: whoever claims
    /// one of them next is told to wait for `tick`.
    pub fn release_after(&mut self, tick: Tick) {
        if let Some(layer) = self.call
            && !self.busy
        {
            self.end_call(layer, Some(tick));
        }
    }

    #[inline]
    fn end_call(&mut self, layer: LayerIdx, tick: Option<Tick>) {
        for slot in self.pins.drain(..) {
            if let Some(tick) = tick {
                self.slots.read_until(slot, tick);
            }
            self.slots.unpin(slot, layer);
        }
        self.call = None;
    }

    /// The layer of the running call.
    #[must_use]
    pub const fn running(&self) -> Option<LayerIdx> {
        self.call
    }

    /// Publishes every claim in `out`: for callers that read at once, such as simulators.
    ///
    /// # Errors
    /// As [`publish`](Self::publish); claims that were not reached stay in `out`.
    #[inline]
    pub fn publish_all(&mut self, out: &mut Ensured) -> Result<(), CacheError> {
        while let Some(claim) = out.claims.pop() {
            self.publish(claim)?;
        }
        Ok(())
    }

    /// Number of slots that a call may use when none is running: all that are not claimed.
    #[must_use]
    pub const fn capacity(&self) -> usize {
        self.slots.len() - self.slots.open
    }

    /// Splits the distinct experts of a layer, ascending by id, into waves of as many as fit.
    /// Each wave is one call of [`ensure`](Self::ensure), released before the next.
    ///
    /// A layer that fits in one call runs in route order instead; see
    /// [`capacity`](Self::capacity).
    ///
    /// # Errors
    /// [`CacheError::NotAscending`]; [`CacheError::Exhausted`] when every slot is claimed.
    pub fn waves<'k>(
        &self,
        experts: &'k [ExpertIdx],
    ) -> Result<std::slice::Chunks<'k, ExpertIdx>, CacheError> {
        if let Some(at) = experts.windows(2).position(|pair| pair[0] >= pair[1]) {
            return Err(CacheError::NotAscending { at: at + 1 });
        }
        let capacity = self.capacity();
        if capacity == 0 {
            let slots = self.slots.len();
            return Err(CacheError::Exhausted { needed: 1, available: 0, slots });
        }
        Ok(experts.chunks(capacity))
    }
}
