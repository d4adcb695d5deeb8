//! The pool: what it is asked and what it tells its policy.

mod arrive;
mod ensure;
mod resize;
mod slots;
mod validate;

use std::fmt;

use slotstream_core::{
    EvictionPolicy, ExpertKey, Geometry, Incoming, LayerIdx, Origin, PassId, Prediction,
    RemoveCause, Routing, SlotId, Step,
};

use crate::{Abort, CacheError, Claim, PoolCounters, Unlawful};
use slots::{Place, Slots};

/// Most records that a pool keeps a table for; the 48 x 512 model has 24,576.
pub const MAX_RECORDS: usize = 1 << 24;

/// Decides which record holds which slot. It never touches a byte of a record and has no lock:
/// whoever shares a pool puts it behind one.
///
/// # Calls
/// [`ensure`](Self::ensure) begins a call: the records that a layer needs are pinned until
/// [`release`](Self::release) ends it. Each miss gets a [`Claim`], which its reader ends with
/// [`publish`](Self::publish) or [`abort`](Self::abort). [`claim`](Self::claim) makes a claim
/// outside of any call: a forecast ([`Origin::Prefetch`]), hot admission, a warm start.
///
/// # What the policy is told
/// Exactly the order of [`EvictionPolicy`]. Arrival tells nothing. A read that failed, and a
/// claim that was withdrawn after its record was announced by `on_insert`, is
/// [`RemoveCause::ReadFailed`]. A forecast's `on_insert` comes when a call adopts it.
///
/// # Faults
/// Every answer of the policy is verified. After an error the pool is consistent and the next
/// request works. When the policy panics, later calls answer [`CacheError::Poisoned`] until
/// [`clear`](Self::clear).
pub struct SlotPool<P: EvictionPolicy = Box<dyn EvictionPolicy>> {
    slots: Slots,
    policy: P,
    floor: usize,
    pass: PassId,
    /// The layer of the running call.
    call: Option<LayerIdx>,
    /// Slots that the running call counts on.
    pins: Vec<SlotId>,
    /// Scratch: which entries of the call need something from the policy.
    misses: Vec<usize>,
    /// Number of the running pass's visit of a layer; waves of one layer share it.
    visit: u64,
    /// The layer of that visit; none once a new pass has begun.
    visited: Option<LayerIdx>,
    /// By dense record number: the visit in which the record was last evicted.
    left: Vec<u64>,
    /// Records that the last forecasts named, until their layer is demanded or a pass begins.
    expected: Vec<ExpertKey>,
    /// Slots that a forecast may not take: those of expected records, while it is reserved.
    shielded: Vec<SlotId>,
    counters: PoolCounters,
    /// Claims open and records resident when the counters were last reset.
    carried: (u64, u64),
    /// The policy is being called, or panicked when it was.
    busy: bool,
}

/// What a slot holds, for displays.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum SlotState {
    /// Nobody owns it.
    Free,
    /// A record is on its way into it.
    Claimed {
        /// The record.
        key: ExpertKey,
        /// Why it is read.
        origin: Origin,
    },
    /// It holds a record.
    Resident {
        /// The record.
        key: ExpertKey,
        /// The running call uses it.
        pinned: bool,
    },
}

impl<P: EvictionPolicy> SlotPool<P> {
    /// A pool of `slots` slots, or of one a record where that is fewer, all free.
    ///
    /// # Errors
    /// [`CacheError::BelowFloor`] with the arithmetic of
    /// [`Geometry::floor_slots`], [`CacheError::TooManyRecords`], [`CacheError::Bind`].
    pub fn new(geometry: Geometry, slots: usize, policy: P) -> Result<Self, CacheError> {
        Self::with_floor(geometry, slots, geometry.floor_slots(), policy)
    }

    /// A pool of any size from one slot: for the laboratory, where plain key traces have no
    /// floor.
    ///
    /// # Errors
    /// [`CacheError::NoSlots`], [`CacheError::TooManyRecords`], [`CacheError::Bind`].
    pub fn unfloored(geometry: Geometry, slots: usize, policy: P) -> Result<Self, CacheError> {
        Self::with_floor(geometry, slots, 1, policy)
    }

    fn with_floor(
        geometry: Geometry,
        slots: usize,
        floor: usize,
        mut policy: P,
    ) -> Result<Self, CacheError> {
        let records = geometry.records();
        if records > MAX_RECORDS {
            return Err(CacheError::TooManyRecords { records, most: MAX_RECORDS });
        }
        check_floor(&geometry, slots, floor)?;
        let slots = slots.min(records);
        if let Err(source) = policy.bind(&geometry, slots) {
            return Err(CacheError::Bind { policy: policy.name(), slots, source });
        }
        Ok(Self {
            slots: Slots::new(geometry, slots),
            policy,
            floor,
            pass: PassId::new(0),
            call: None,
            pins: Vec::with_capacity(slots),
            misses: Vec::with_capacity(slots),
            visit: 1,
            visited: None,
            left: vec![0; records],
            expected: Vec::with_capacity(records),
            shielded: Vec::with_capacity(slots),
            counters: PoolCounters::default(),
            carried: (0, 0),
            busy: false,
        })
    }

    /// A pass begins: tells the policy. The pass's number goes with every later [`Incoming`].
    ///
    /// # Errors
    /// [`CacheError::Poisoned`].
    #[inline]
    pub fn begin_step(&mut self, step: &Step<'_>) -> Result<(), CacheError> {
        self.guarded(|pool| {
            pool.pass = step.pass;
            pool.visited = None;
            pool.expected.clear();
            pool.policy.on_step(step);
            Ok(())
        })
    }

    /// The router decided: tells the policy. Comes before the layer's [`ensure`](Self::ensure).
    ///
    /// # Errors
    /// [`CacheError::UnknownLayer`] or [`CacheError::UnknownExpert`] when the routing is not of
    /// this geometry (the policy is not told), [`CacheError::Poisoned`].
    #[inline]
    pub fn routing(&mut self, routing: &Routing<'_>) -> Result<(), CacheError> {
        self.check_sane()?;
        self.check_layer(routing.layer())?;
        let experts = self.slots.geometry.experts();
        if let Some(unknown) = routing.ids().iter().find(|expert| expert.index() >= experts) {
            self.index(routing.key(*unknown))?;
        }
        self.guarded(|pool| {
            pool.policy.on_routing(routing);
            Ok(())
        })
    }

    /// The forecaster guessed: tells the policy, and remembers the records in place of those that
    /// an earlier forecast named of the same layers. Until their layer is demanded, or a pass
    /// begins, no other forecast displaces one of them; a demand may.
    ///
    /// # Errors
    /// [`CacheError::UnknownLayer`] or [`CacheError::UnknownExpert`] when a prediction is not of
    /// this geometry (the policy is not told), [`CacheError::Poisoned`].
    pub fn forecast(&mut self, predictions: &[Prediction]) -> Result<(), CacheError> {
        self.check_sane()?;
        for prediction in predictions {
            self.index(prediction.key)?;
            self.check_layer(prediction.needed_by.layer)?;
        }
        self.guarded(|pool| {
            let again = |key: &ExpertKey| {
                predictions.iter().any(|prediction| prediction.key.layer() == key.layer())
            };
            pool.expected.retain(|key| !again(key));
            // A lawful forecast names a record once: no more than there are.
            let room = pool.slots.geometry.records() - pool.expected.len();
            pool.expected.extend(predictions.iter().take(room).map(|prediction| prediction.key));
            pool.policy.on_forecast(predictions);
            Ok(())
        })
    }

    /// Claims a slot for one record outside of any call; a claim like that is never pinned, so
    /// once published its record can be evicted.
    ///
    /// A demand is announced by `on_miss`; the others are first put to the policy's `admit`. A
    /// forecast ([`Origin::Prefetch`]) reserves the slot without telling the policy about the
    /// record: [`ensure`](Self::ensure) adopts the reservation when a layer demands it; one that
    /// expires is given back by [`abort`](Self::abort). A forecast takes no slot of a record that
    /// [`forecast`](Self::forecast) named.
    ///
    /// # Errors
    /// [`CacheError::Resident`], [`CacheError::Claimed`], [`CacheError::NotAdmitted`] and
    /// [`CacheError::Exhausted`] are ordinary answers that change nothing. Also
    /// [`CacheError::UnknownLayer`], [`CacheError::UnknownExpert`],
    /// [`CacheError::PolicyViolation`] (the running call goes on), [`CacheError::Poisoned`].
    pub fn claim(&mut self, key: ExpertKey, origin: Origin) -> Result<Claim, CacheError> {
        self.check_sane()?;
        let index = self.index(key)?;
        match self.slots.place(index) {
            Place::Resident(slot) => return Err(CacheError::Resident { key, slot }),
            Place::Claimed(slot) => return Err(CacheError::Claimed { key, slot }),
            Place::Absent | Place::Wanted => {}
        }
        self.guarded(|pool| {
            if origin != Origin::Prefetch {
                return pool.make_claim(key, index, origin);
            }
            pool.shield();
            let claim = pool.make_claim(key, index, origin);
            pool.unshield();
            claim
        })
    }

    fn make_claim(
        &mut self,
        key: ExpertKey,
        index: usize,
        origin: Origin,
    ) -> Result<Claim, CacheError> {
        self.check_room(1)?;
        if origin == Origin::Demand {
            self.policy.on_miss(key);
        } else if !self.policy.admit(key, origin) {
            return Err(CacheError::NotAdmitted { key, origin });
        }
        let slot = self.take_slot(key, origin)?;
        if origin != Origin::Prefetch {
            self.policy.on_insert(slot, key, origin);
        }
        self.counters.claims.add(origin);
        Ok(self.slots.open(slot, index, key, origin, false))
    }

    /// Takes the expected records out of what may be evicted.
    fn shield(&mut self) {
        for key in &self.expected {
            let place = self.slots.geometry.index(*key).map(|index| self.slots.place(index));
            if let Some(Place::Resident(slot)) = place
                && self.slots.pin(slot)
            {
                self.slots.pinned(key.layer(), 1);
                self.shielded.push(slot);
            }
        }
    }

    /// Takes back [`shield`](Self::shield).
    fn unshield(&mut self) {
        for slot in self.shielded.drain(..) {
            if let Some(key) = self.slots.keys[slot.index()] {
                self.slots.unpin(&[slot], key.layer());
            }
        }
    }

    /// The record of `claim` has all its bytes in its slot. Tells the policy nothing.
    ///
    /// # Errors
    /// [`CacheError::StaleClaim`] when the pool was cleared since (no change);
    /// [`CacheError::NotAdopted`] for a forecast that no layer has demanded: it is withdrawn and
    /// its slot free. [`CacheError::Poisoned`].
    #[inline]
    pub fn publish(&mut self, claim: Claim) -> Result<(), CacheError> {
        self.check_sane()?;
        let (key, slot) = (claim.key, claim.slot);
        let cell = self.slots.cell_of(&claim).ok_or(CacheError::StaleClaim { key, slot })?;
        if !cell.told {
            self.abort(claim, Abort::Withdrawn)?;
            return Err(CacheError::NotAdopted { key, slot });
        }
        self.slots.settle(slot);
        self.counters.published += 1;
        Ok(())
    }

    /// Gives `claim` up: its slot is free. The policy hears [`RemoveCause::ReadFailed`] if it
    /// was told about the record, and nothing about a forecast that no layer demanded. A running
    /// call that counted on the slot goes on without it.
    ///
    /// # Errors
    /// [`CacheError::StaleClaim`] when the pool was cleared since (no change),
    /// [`CacheError::Poisoned`].
    #[expect(clippy::needless_pass_by_value, reason = "the claim ends here")]
    pub fn abort(&mut self, claim: Claim, why: Abort) -> Result<(), CacheError> {
        let Claim { key, slot, .. } = claim;
        self.guarded(|pool| {
            let cell = *pool.slots.cell_of(&claim).ok_or(CacheError::StaleClaim { key, slot })?;
            if cell.pinned {
                pool.pins.retain(|pin| *pin != slot);
            }
            match why {
                Abort::ReadFailed => pool.counters.read_failed += 1,
                Abort::Withdrawn => pool.counters.withdrawn += 1,
            }
            pool.slots.vacate(slot);
            if cell.told {
                pool.policy.on_remove(slot, key, RemoveCause::ReadFailed);
            }
            Ok(())
        })
    }

    /// A free slot, or one that the policy gives up; it is in the caller's hand.
    // Always: the paths of claims and of arrivals are both hot.
    #[inline(always)]
    fn take_slot(&mut self, key: ExpertKey, origin: Origin) -> Result<SlotId, CacheError> {
        if let Some(slot) = self.slots.free.pop() {
            return Ok(slot);
        }
        let incoming = Incoming { key, origin, pass: self.pass };
        let answer = self.policy.choose_victim(&incoming, &self.slots.view());
        let Some(slot) = answer else { return Err(self.violation(None)) };
        if slot.index() >= self.slots.len() {
            return Err(self.violation(answer));
        }
        let Some(old) = self.slots.evict(slot) else { return Err(self.violation(answer)) };
        if let Some(index) = self.slots.geometry.index(old) {
            self.left[index] = self.visit;
        }
        self.counters.evicted += 1;
        self.policy.on_remove(slot, old, RemoveCause::Evicted);
        Ok(slot)
    }

    #[cold]
    fn violation(&self, slot: Option<SlotId>) -> CacheError {
        let why = slot.map_or(Unlawful::NoAnswer, |slot| match self.state(slot) {
            None => Unlawful::OutOfRange,
            // Held for a record that arrives with the call: as good as claimed.
            Some(SlotState::Free) if self.slots.blocked[slot.index()] => Unlawful::Claimed,
            Some(SlotState::Free) => Unlawful::Free,
            Some(SlotState::Claimed { .. }) => Unlawful::Claimed,
            Some(SlotState::Resident { .. }) => Unlawful::Pinned,
        });
        CacheError::PolicyViolation { policy: self.policy.name(), slot, why }
    }

    fn check_room(&self, needed: usize) -> Result<(), CacheError> {
        let available = self.slots.available();
        if needed > available {
            return Err(CacheError::Exhausted { needed, available, slots: self.slots.len() });
        }
        Ok(())
    }

    fn check_layer(&self, layer: LayerIdx) -> Result<(), CacheError> {
        let layers = self.slots.geometry.layers();
        if layer.index() >= layers {
            return Err(CacheError::UnknownLayer { layer, layers });
        }
        Ok(())
    }

    fn index(&self, key: ExpertKey) -> Result<usize, CacheError> {
        self.check_layer(key.layer())?;
        self.slots.geometry.index(key).ok_or(CacheError::UnknownExpert {
            layer: key.layer(),
            expert: key.expert(),
            experts: self.slots.geometry.experts(),
        })
    }

    fn check_sane(&self) -> Result<(), CacheError> {
        if self.busy { Err(CacheError::Poisoned) } else { Ok(()) }
    }

    /// Runs `f`, which calls the policy. If the policy panics, the pool stays poisoned.
    #[inline]
    fn guarded<T>(
        &mut self,
        f: impl FnOnce(&mut Self) -> Result<T, CacheError>,
    ) -> Result<T, CacheError> {
        self.check_sane()?;
        self.busy = true;
        let result = f(self);
        self.busy = false;
        result
    }
}

/// What can be asked at any time.
impl<P: EvictionPolicy> SlotPool<P> {
    /// The geometry.
    #[must_use]
    pub const fn geometry(&self) -> &Geometry {
        &self.slots.geometry
    }

    /// Number of slots.
    #[must_use]
    pub const fn slots(&self) -> usize {
        self.slots.len()
    }

    /// Number of records with all their bytes in a slot.
    #[must_use]
    pub const fn resident_count(&self) -> usize {
        self.slots.resident()
    }

    /// Number of claimed slots.
    #[must_use]
    pub const fn open_claims(&self) -> usize {
        self.slots.open
    }

    /// Number of slots that a claim could take now: free ones and evictable ones. Speculation
    /// that is to leave room for demands looks here first.
    #[must_use]
    pub const fn available(&self) -> usize {
        self.slots.available()
    }

    /// The slot that has all bytes of `key`.
    #[must_use]
    pub fn slot_of(&self, key: ExpertKey) -> Option<SlotId> {
        match self.slots.place(self.slots.geometry.index(key)?) {
            Place::Resident(slot) => Some(slot),
            _ => None,
        }
    }

    /// Whether all bytes of `key` are in a slot.
    #[must_use]
    pub fn is_resident(&self, key: ExpertKey) -> bool {
        self.slot_of(key).is_some()
    }

    /// The record that `slot` holds with all its bytes.
    #[must_use]
    pub fn key(&self, slot: SlotId) -> Option<ExpertKey> {
        self.slots.keys.get(slot.index()).copied().flatten()
    }

    /// What `slot` holds; `None` when there is no such slot.
    #[must_use]
    pub fn state(&self, slot: SlotId) -> Option<SlotState> {
        let cell = self.slots.cells.get(slot.index())?;
        let pinned = self.slots.blocked[slot.index()];
        Some(match self.slots.keys[slot.index()] {
            Some(key) => SlotState::Resident { key, pinned },
            None if cell.claimed => SlotState::Claimed { key: cell.key, origin: cell.origin },
            None => SlotState::Free,
        })
    }

    /// All slots in order.
    pub fn states(&self) -> impl ExactSizeIterator<Item = (SlotId, SlotState)> + '_ {
        (0..self.slots.len()).map(|index| {
            let slot = slots::slot(index);
            (slot, self.state(slot).unwrap_or(SlotState::Free))
        })
    }

    /// The policy.
    #[must_use]
    pub const fn policy(&self) -> &P {
        &self.policy
    }

    /// The policy, for its `export` and `import`.
    pub const fn policy_mut(&mut self) -> &mut P {
        &mut self.policy
    }

    /// What was counted since the last [`reset_counters`](Self::reset_counters).
    #[must_use]
    pub const fn counters(&self) -> &PoolCounters {
        &self.counters
    }

    /// Counts from zero again.
    pub fn reset_counters(&mut self) {
        self.counters = PoolCounters::default();
        self.carried = (self.slots.open as u64, self.slots.resident() as u64);
    }
}

impl<P: EvictionPolicy> fmt::Debug for SlotPool<P> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SlotPool")
            .field("geometry", &self.slots.geometry)
            .field("slots", &self.slots())
            .field("resident", &self.resident_count())
            .field("open_claims", &self.open_claims())
            .field("call", &self.call)
            .field("counters", &self.counters)
            .field("policy", &self.policy)
            .finish_non_exhaustive()
    }
}

fn check_floor(geometry: &Geometry, slots: usize, floor: usize) -> Result<(), CacheError> {
    if slots == 0 && floor <= 1 {
        return Err(CacheError::NoSlots);
    }
    if slots < floor {
        let (top_k, records) = (geometry.top_k(), geometry.records());
        return Err(CacheError::BelowFloor { slots, floor, top_k, records });
    }
    Ok(())
}
