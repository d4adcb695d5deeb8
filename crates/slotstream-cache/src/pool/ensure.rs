//! The demand of a layer: one call, all or nothing.

use slotstream_core::{
    EvictionPolicy, ExpertIdx, ExpertKey, LayerIdx, Origin, Phase, RemoveCause, SlotId, Tick,
};

use super::{Place, SlotPool};
use crate::{CacheError, Claim, Ensured, Entry, Found};

/// The slot of a miss that has none yet.
const NOWHERE: SlotId = SlotId::new(u32::MAX);

/// What the lookups of one call found.
#[derive(Default)]
pub(super) struct Tally {
    /// Resident records.
    pinned: usize,
    /// Records that somebody else's claim is reading.
    pending: usize,
    /// Records that a forecast reserved a slot for.
    adopted: usize,
    /// Records that need a slot.
    needed: usize,
}

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
        self.begin_call(layer, experts, counts, out)?;
        self.guarded(|pool| {
            let result = pool.run_call(layer, experts, counts, phase, out);
            if result.is_err() {
                pool.undo(layer, out);
            }
            result
        })
    }

    /// Checks what a call is made of and begins it; no change after an error.
    #[inline]
    pub(super) fn begin_call(
        &mut self,
        layer: LayerIdx,
        experts: &[ExpertIdx],
        counts: &[u32],
        out: &mut Ensured,
    ) -> Result<(), CacheError> {
        self.check_sane()?;
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
        self.expected.retain(|key| key.layer() != layer);
        self.call = Some(layer);
        Ok(())
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
        let tally = self.look_up_all(layer, experts, out)?;
        let returned = self.claim_misses(layer, out)?;
        self.count(layer, counts, phase, &tally, returned, out);
        Ok(())
    }

    /// Finds every expert, makes sure that there is room for the others, and tells the policy the
    /// hits.
    #[inline(always)]
    pub(super) fn look_up_all(
        &mut self,
        layer: LayerIdx,
        experts: &[ExpertIdx],
        out: &mut Ensured,
    ) -> Result<Tally, CacheError> {
        let mut tally = Tally::default();
        let looked_up = self.look_up(layer, experts, &mut tally, out);
        self.slots.pinned(layer, tally.pinned);
        looked_up?;
        self.check_room(tally.needed)?;
        if self.visited != Some(layer) {
            self.visited = Some(layer);
            self.visit += 1;
        }
        for slot in &self.pins {
            // None: a forecast that is about to be adopted.
            if let Some(key) = self.slots.announced(*slot) {
                self.policy.on_hit(*slot, key);
            }
        }
        Ok(tally)
    }

    /// Enters every expert into `out`, pins what has a slot and lists the others in `misses`;
    /// tells the policy nothing.
    #[inline(always)]
    fn look_up(
        &mut self,
        layer: LayerIdx,
        experts: &[ExpertIdx],
        tally: &mut Tally,
        out: &mut Ensured,
    ) -> Result<(), CacheError> {
        let per_layer = self.slots.geometry.experts();
        let base = layer.index() * per_layer;
        self.misses.clear();
        for (at, &expert) in experts.iter().enumerate() {
            if expert.index() >= per_layer {
                return Err(CacheError::UnknownExpert { layer, expert, experts: per_layer });
            }
            let index = base + expert.index();
            let (slot, found) = match self.slots.place(index) {
                Place::Absent => {
                    self.slots.want(index);
                    tally.needed += 1;
                    self.misses.push(at);
                    out.entries.push(Entry { expert, slot: NOWHERE, found: Found::Miss });
                    continue;
                }
                Place::Resident(slot) if self.slots.pin(slot) => {
                    tally.pinned += 1;
                    (slot, Found::Hit)
                }
                Place::Claimed(slot) if self.slots.pin_claimed(slot) => {
                    if self.slots.cells[slot.index()].told {
                        tally.pending += 1;
                        (slot, Found::Pending)
                    } else {
                        tally.adopted += 1;
                        self.misses.push(at);
                        (slot, Found::Adopted)
                    }
                }
                _ => return Err(CacheError::Duplicate { key: ExpertKey::new(layer, expert) }),
            };
            self.pins.push(slot);
            out.entries.push(Entry { expert, slot, found });
        }
        Ok(())
    }

    /// Per miss in route order: `on_miss`, a slot, `on_insert`. Returns how many of the misses
    /// were resident when the pass reached the layer.
    #[inline]
    fn claim_misses(&mut self, layer: LayerIdx, out: &mut Ensured) -> Result<u64, CacheError> {
        let base = layer.index() * self.slots.geometry.experts();
        let mut returned = 0;
        for at in 0..self.misses.len() {
            let entry = &mut out.entries[self.misses[at]];
            let key = ExpertKey::new(layer, entry.expert);
            self.policy.on_miss(key);
            if entry.found == Found::Adopted {
                self.policy.on_insert(entry.slot, key, Origin::Prefetch);
                self.slots.cells[entry.slot.index()].told = true;
                continue;
            }
            let index = base + entry.expert.index();
            returned += u64::from(self.left[index] == self.visit);
            let slot = self.take_slot(key, Origin::Demand)?;
            self.policy.on_insert(slot, key, Origin::Demand);
            self.counters.claims.demand += 1;
            out.claims.push(self.slots.open(slot, index, key, Origin::Demand, true));
            self.pins.push(slot);
            entry.slot = slot;
        }
        Ok(returned)
    }

    #[inline(always)]
    pub(super) fn count(
        &mut self,
        layer: LayerIdx,
        counts: &[u32],
        phase: Phase,
        tally: &Tally,
        returned: u64,
        out: &Ensured,
    ) {
        let hits = (tally.pinned + tally.pending) as u64;
        let tokens = if counts.is_empty() {
            (out.entries.len() as u64, hits + returned)
        } else {
            self.count_tokens(layer, counts, out)
        };
        let counters = self.counters.phase_mut(phase);
        counters.hits += hits;
        counters.pending += tally.pending as u64;
        counters.misses += (tally.needed + tally.adopted) as u64;
        counters.adopted += tally.adopted as u64;
        counters.token_lookups += tokens.0;
        counters.token_hits += tokens.1;
    }

    /// (position, rank) lookups of a call, and those whose record was resident when the pass
    /// reached the layer.
    fn count_tokens(&self, layer: LayerIdx, counts: &[u32], out: &Ensured) -> (u64, u64) {
        let base = layer.index() * self.slots.geometry.experts();
        let mut tokens = (0, 0);
        for (entry, count) in out.entries.iter().zip(counts) {
            let was_there = match entry.found {
                Found::Hit | Found::Pending => true,
                Found::Adopted => false,
                Found::Miss => self.left[base + entry.expert.index()] == self.visit,
            };
            tokens.0 += u64::from(*count);
            tokens.1 += if was_there { u64::from(*count) } else { 0 };
        }
        tokens
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

    #[inline(always)]
    pub(super) fn end_call(&mut self, layer: LayerIdx, tick: Option<Tick>) {
        if let Some(tick) = tick {
            for slot in &self.pins {
                self.slots.read_until(*slot, tick);
            }
        }
        self.slots.unpin(&self.pins, layer);
        self.pins.clear();
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
