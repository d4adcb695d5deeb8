//! A model of the pool without any cleverness, and a policy that misbehaves now and then.

use slotstream_cache::{CacheError, Found};
use slotstream_core::*;

use crate::support::{Scribe, key, layer};

pub(crate) const LAYERS: u16 = 3;
pub(crate) const EXPERTS: u16 = 7;

/// Takes any evictable slot; sometimes answers against its contract or refuses to admit.
#[derive(Clone, Debug)]
pub(crate) struct Moody {
    pub(crate) state: u32,
    /// One answer in this many is a bad one; 0 for never.
    pub(crate) bad: u32,
}

impl Moody {
    fn next(&mut self, below: u32) -> u32 {
        self.state = self.state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        (self.state >> 8) % below
    }
}

impl EvictionPolicy for Moody {
    fn on_insert(&mut self, _slot: SlotId, _key: ExpertKey, _origin: Origin) {}
    fn on_hit(&mut self, _slot: SlotId, _key: ExpertKey) {}
    fn choose_victim(&mut self, _incoming: &Incoming, view: &SlotView<'_>) -> Option<SlotId> {
        let slots = u32::try_from(view.len()).unwrap();
        if self.bad > 0 && self.next(self.bad) == 0 {
            // Out of range, or any slot, lawful or not, or none.
            return Some(SlotId::new(self.next(slots + 2))).filter(|_| self.next(4) > 0);
        }
        let start = self.next(slots);
        let turn = (0..slots).map(|i| SlotId::new((start + i) % slots));
        let mut lawful = turn.filter(|slot| view.is_evictable(*slot));
        lawful.next()
    }
    fn admit(&mut self, _key: ExpertKey, _origin: Origin) -> bool {
        self.next(5) > 0
    }
    fn reset(&mut self) {}
}

/// The kind of an error, as far as the model knows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum No {
    Exhausted,
    Unknown,
    Duplicate,
    Running,
    Violation,
    Resident,
    Claimed,
    NotAdmitted,
    Stale,
    NotAdopted,
    TooSmall,
    SlotClaimed,
}

pub(crate) fn no(error: CacheError) -> No {
    match error {
        CacheError::Exhausted { .. } => No::Exhausted,
        CacheError::UnknownExpert { .. } => No::Unknown,
        CacheError::Duplicate { .. } => No::Duplicate,
        CacheError::CallRunning { .. } => No::Running,
        CacheError::PolicyViolation { .. } => No::Violation,
        CacheError::Resident { .. } => No::Resident,
        CacheError::Claimed { .. } => No::Claimed,
        CacheError::NotAdmitted { .. } => No::NotAdmitted,
        CacheError::StaleClaim { .. } => No::Stale,
        CacheError::NotAdopted { .. } => No::NotAdopted,
        CacheError::NoSlots => No::TooSmall,
        CacheError::SlotClaimed { .. } => No::SlotClaimed,
        other => panic!("{other}"),
    }
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Held {
    Nothing,
    Record(ExpertKey),
    /// Record, why, whether the policy was told, number of the claim.
    Claim(ExpertKey, Origin, bool, usize),
}

pub(crate) struct Model {
    pub(crate) slots: Vec<Held>,
    pub(crate) free: Vec<usize>,
    /// Layer and slots of the running call.
    pub(crate) call: Option<(u16, Vec<usize>)>,
    pub(crate) policy: Scribe<Moody>,
    pub(crate) pass: u64,
    pub(crate) claims: usize,
    pub(crate) hits: u64,
    pub(crate) misses: u64,
    pub(crate) adopted: u64,
    pub(crate) evicted: u64,
}

impl Model {
    pub(crate) fn new(slots: usize, policy: Scribe<Moody>) -> Self {
        Self {
            slots: vec![Held::Nothing; slots],
            free: (0..slots).rev().collect(),
            call: None,
            policy,
            pass: 0,
            claims: 0,
            hits: 0,
            misses: 0,
            adopted: 0,
            evicted: 0,
        }
    }

    pub(crate) fn pinned(&self, at: usize) -> bool {
        self.call.as_ref().is_some_and(|(_, pins)| pins.contains(&at))
    }

    fn find(&self, key: ExpertKey) -> Option<usize> {
        self.slots.iter().position(|held| match held {
            Held::Nothing => false,
            Held::Record(owner) | Held::Claim(owner, ..) => *owner == key,
        })
    }

    fn evictable(&self, at: usize) -> Option<ExpertKey> {
        match self.slots.get(at) {
            Some(Held::Record(key)) if !self.pinned(at) => Some(*key),
            _ => None,
        }
    }

    pub(crate) fn room(&self) -> usize {
        self.free.len() + (0..self.slots.len()).filter(|at| self.evictable(*at).is_some()).count()
    }

    /// A slot for `key`: the free one that was freed last, or the policy's lawful choice.
    fn slot_for(&mut self, key: ExpertKey, origin: Origin) -> Result<usize, No> {
        if let Some(at) = self.free.pop() {
            return Ok(at);
        }
        let keys: Vec<_> = self
            .slots
            .iter()
            .map(|held| if let Held::Record(key) = held { Some(*key) } else { None })
            .collect();
        let blocked: Vec<bool> = (0..keys.len()).map(|at| self.evictable(at).is_none()).collect();
        let per_layer: Vec<u32> = (0..LAYERS)
            .map(|of| {
                let owned = (0..keys.len()).filter_map(|at| self.evictable(at));
                owned.filter(|key| key.layer() == layer(of)).count() as u32
            })
            .collect();
        let view = SlotView::new(&keys, &blocked, &per_layer, 0);
        let incoming = Incoming { key, origin, pass: PassId::new(self.pass) };
        let at = self.policy.choose_victim(&incoming, &view).ok_or(No::Violation)?.index();
        let old = self.evictable(at).ok_or(No::Violation)?;
        self.slots[at] = Held::Nothing;
        self.evicted += 1;
        self.policy.on_remove(SlotId::new(at as u32), old, RemoveCause::Evicted);
        Ok(at)
    }

    fn free(&mut self, at: usize, cause: Option<RemoveCause>) {
        let (key, told) = match self.slots[at] {
            Held::Claim(key, _, told, _) => (key, told),
            Held::Record(key) => (key, true),
            Held::Nothing => return,
        };
        self.slots[at] = Held::Nothing;
        self.free.push(at);
        if let Some((_, pins)) = &mut self.call {
            pins.retain(|pin| *pin != at);
        }
        if let Some(cause) = cause.filter(|_| told) {
            self.policy.on_remove(SlotId::new(at as u32), key, cause);
        }
    }

    pub(crate) fn ensure(
        &mut self,
        of: u16,
        ids: &[u16],
    ) -> Result<Vec<(usize, Found, usize)>, No> {
        if self.call.is_some() {
            return Err(No::Running);
        }
        for (at, id) in ids.iter().enumerate() {
            if *id >= EXPERTS {
                return Err(No::Unknown);
            }
            if ids[..at].contains(id) {
                return Err(No::Duplicate);
            }
        }
        let places: Vec<_> = ids.iter().map(|id| self.find(key(of, *id))).collect();
        self.call = Some((of, places.iter().flatten().copied().collect()));
        if places.iter().filter(|place| place.is_none()).count() > self.room() {
            self.call = None;
            return Err(No::Exhausted);
        }
        let mut found = Vec::new();
        for (id, place) in ids.iter().zip(&places) {
            let key = key(of, *id);
            let kind = match place.map(|at| self.slots[at]) {
                Some(Held::Record(_)) => Found::Hit,
                Some(Held::Claim(_, _, true, _)) => Found::Pending,
                Some(_) => Found::Adopted,
                None => Found::Miss,
            };
            if matches!(kind, Found::Hit | Found::Pending) {
                self.policy.on_hit(SlotId::new(place.unwrap() as u32), key);
            }
            found.push((place.unwrap_or(0), kind, 0));
        }
        let mut made = Vec::new();
        for (id, entry) in ids.iter().zip(&mut found) {
            let key = key(of, *id);
            if let Err(error) = self.miss(key, entry, &mut made) {
                self.call = None;
                made.iter().rev().for_each(|at| self.free(*at, Some(RemoveCause::ReadFailed)));
                return Err(error);
            }
        }
        for (_, kind, _) in &found {
            match kind {
                Found::Hit | Found::Pending => self.hits += 1,
                _ => self.misses += 1,
            }
            self.adopted += u64::from(*kind == Found::Adopted);
        }
        Ok(found)
    }

    fn miss(
        &mut self,
        key: ExpertKey,
        entry: &mut (usize, Found, usize),
        made: &mut Vec<usize>,
    ) -> Result<(), No> {
        match entry.1 {
            Found::Adopted => {
                self.policy.on_miss(key);
                self.policy.on_insert(SlotId::new(entry.0 as u32), key, Origin::Prefetch);
                if let Held::Claim(_, _, told, _) = &mut self.slots[entry.0] {
                    *told = true;
                }
            }
            Found::Miss => {
                self.policy.on_miss(key);
                let at = self.slot_for(key, Origin::Demand)?;
                self.policy.on_insert(SlotId::new(at as u32), key, Origin::Demand);
                self.claims += 1;
                self.slots[at] = Held::Claim(key, Origin::Demand, true, self.claims);
                self.call.as_mut().unwrap().1.push(at);
                made.push(at);
                (entry.0, entry.2) = (at, self.claims);
            }
            _ => {}
        }
        Ok(())
    }

    pub(crate) fn claim(&mut self, key: ExpertKey, origin: Origin) -> Result<(usize, usize), No> {
        match self.find(key).map(|at| self.slots[at]) {
            Some(Held::Record(_)) => return Err(No::Resident),
            Some(_) => return Err(No::Claimed),
            None => {}
        }
        if self.room() == 0 {
            return Err(No::Exhausted);
        }
        if origin == Origin::Demand {
            self.policy.on_miss(key);
        } else if !self.policy.admit(key, origin) {
            return Err(No::NotAdmitted);
        }
        let at = self.slot_for(key, origin)?;
        let told = origin != Origin::Prefetch;
        if told {
            self.policy.on_insert(SlotId::new(at as u32), key, origin);
        }
        self.claims += 1;
        self.slots[at] = Held::Claim(key, origin, told, self.claims);
        Ok((at, self.claims))
    }

    fn find_claim(&self, number: usize) -> Result<(usize, ExpertKey, bool), No> {
        let find = |(at, held): (usize, &Held)| match held {
            Held::Claim(key, _, told, id) if *id == number => Some((at, *key, *told)),
            _ => None,
        };
        self.slots.iter().enumerate().find_map(find).ok_or(No::Stale)
    }

    pub(crate) fn publish(&mut self, number: usize) -> Result<(), No> {
        let (at, key, told) = self.find_claim(number)?;
        if !told {
            self.free(at, None);
            return Err(No::NotAdopted);
        }
        self.slots[at] = Held::Record(key);
        Ok(())
    }

    pub(crate) fn abort(&mut self, number: usize) -> Result<(), No> {
        let (at, ..) = self.find_claim(number)?;
        self.free(at, Some(RemoveCause::ReadFailed));
        Ok(())
    }

    pub(crate) fn resize(&mut self, slots: usize) -> Result<(), No> {
        if self.call.is_some() {
            return Err(No::Running);
        }
        if slots == 0 {
            return Err(No::TooSmall);
        }
        let slots = slots.min(usize::from(LAYERS * EXPERTS));
        let old = self.slots.len();
        if self.slots.iter().skip(slots).any(|held| matches!(held, Held::Claim(..))) {
            return Err(No::SlotClaimed);
        }
        for at in slots..old {
            self.free(at, Some(RemoveCause::Shrunk));
        }
        self.free.retain(|at| *at < slots);
        self.free.extend((old..slots).rev());
        self.slots.resize(slots, Held::Nothing);
        if slots != old {
            self.policy.on_resize(slots);
        }
        Ok(())
    }

    pub(crate) fn clear(&mut self) {
        self.call = None;
        for at in 0..self.slots.len() {
            self.free(at, Some(RemoveCause::Cleared));
        }
        self.free = (0..self.slots.len()).rev().collect();
    }
}
