//! The pool's tables and the few steps that change them. Nothing here knows the policy.

use slotstream_core::{ExpertIdx, ExpertKey, Geometry, LayerIdx, Origin, SlotId, SlotView, Tick};

use crate::Claim;

/// Table entry of a record without a slot.
const VACANT: u32 = u32::MAX;
/// Table entry of a record that the running call is about to claim a slot for.
const WANTED: u32 = u32::MAX - 1;
/// Set in the table entry of a record whose slot is claimed; the lower bits are the slot.
const CLAIMED: u32 = 1 << 31;

/// Where a record is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Place {
    Absent,
    /// Named by the running call already, no slot yet.
    Wanted,
    Resident(SlotId),
    Claimed(SlotId),
}

/// The claim on a slot, and the last tick at which the device reads it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Cell {
    pub(super) claimed: bool,
    /// The policy was told by `on_insert` that the record owns the slot.
    pub(super) told: bool,
    /// The running call counts on the claimed slot.
    pub(super) pinned: bool,
    pub(super) origin: Origin,
    pub(super) key: ExpertKey,
    generation: u64,
    after: Option<Tick>,
}

const EMPTY: Cell = Cell {
    claimed: false,
    told: false,
    pinned: false,
    origin: Origin::Demand,
    key: ExpertKey::new(LayerIdx::new(0), ExpertIdx::new(0)),
    generation: 0,
    after: None,
};

pub(super) struct Slots {
    pub(super) geometry: Geometry,
    /// By dense record number: [`VACANT`], [`WANTED`], a slot, or a slot with [`CLAIMED`].
    table: Vec<u32>,
    /// By slot: the record with all its bytes.
    pub(super) keys: Vec<Option<ExpertKey>>,
    /// By slot: pinned or claimed.
    pub(super) blocked: Vec<bool>,
    /// By layer: unblocked slots that it owns.
    pub(super) evictable: Vec<u32>,
    /// Sum of `evictable`.
    pub(super) evictable_total: usize,
    /// Slots that nobody owns; the last one goes first.
    pub(super) free: Vec<SlotId>,
    pub(super) cells: Vec<Cell>,
    /// Claimed slots.
    pub(super) open: usize,
    generation: u64,
}

/// `index` as a slot; pools have far fewer than 2^31 slots.
pub(super) fn slot(index: usize) -> SlotId {
    SlotId::new(u32::try_from(index).unwrap_or(u32::MAX))
}

impl Slots {
    pub(super) fn new(geometry: Geometry, slots: usize) -> Self {
        let mut new = Self {
            geometry,
            table: vec![VACANT; geometry.records()],
            keys: Vec::new(),
            blocked: Vec::new(),
            evictable: vec![0; geometry.layers()],
            evictable_total: 0,
            free: Vec::new(),
            cells: Vec::new(),
            open: 0,
            generation: 0,
        };
        new.grow(slots);
        new
    }

    pub(super) const fn len(&self) -> usize {
        self.keys.len()
    }

    /// Slots that could be taken now.
    pub(super) const fn available(&self) -> usize {
        self.free.len() + self.evictable_total
    }

    /// Records with all their bytes.
    pub(super) const fn resident(&self) -> usize {
        self.len() - self.free.len() - self.open
    }

    #[inline]
    pub(super) fn view(&self) -> SlotView<'_> {
        SlotView::new(&self.keys, &self.blocked, &self.evictable, self.free.len())
    }

    /// Where the record with dense number `index` is.
    #[inline]
    pub(super) fn place(&self, index: usize) -> Place {
        match self.table[index] {
            VACANT => Place::Absent,
            WANTED => Place::Wanted,
            entry if entry & CLAIMED == 0 => Place::Resident(SlotId::new(entry)),
            entry => Place::Claimed(SlotId::new(entry & !CLAIMED)),
        }
    }

    /// Marks an absent record as named by the running call.
    #[inline]
    pub(super) fn want(&mut self, index: usize) {
        self.table[index] = WANTED;
    }

    /// Takes back [`want`](Self::want).
    pub(super) fn unwant(&mut self, index: usize) {
        if self.table[index] == WANTED {
            self.table[index] = VACANT;
        }
    }

    /// Pins a resident slot; `false` when it is pinned already. [`pinned`](Self::pinned) then
    /// corrects the counts.
    #[inline]
    pub(super) fn pin(&mut self, slot: SlotId) -> bool {
        !std::mem::replace(&mut self.blocked[slot.index()], true)
    }

    /// `count` resident slots of `layer` were pinned.
    #[inline]
    pub(super) fn pinned(&mut self, layer: LayerIdx, count: usize) {
        // At most the slots that the layer owns.
        self.evictable[layer.index()] -= u32::try_from(count).unwrap_or(u32::MAX);
        self.evictable_total -= count;
    }

    /// Pins a claimed slot; `false` when it is pinned already.
    pub(super) fn pin_claimed(&mut self, slot: SlotId) -> bool {
        !std::mem::replace(&mut self.cells[slot.index()].pinned, true)
    }

    /// Takes back the pins of slots whose records are of `layer`, or are on their way.
    #[inline]
    pub(super) fn unpin(&mut self, slots: &[SlotId], layer: LayerIdx) {
        let mut count = 0;
        for slot in slots {
            if self.keys[slot.index()].is_some() {
                self.blocked[slot.index()] = false;
                count += 1;
            } else {
                self.cells[slot.index()].pinned = false;
            }
        }
        self.evictable[layer.index()] += count;
        self.evictable_total += count as usize;
    }

    /// The record that the policy knows to own `slot`.
    #[inline]
    pub(super) fn announced(&self, slot: SlotId) -> Option<ExpertKey> {
        self.keys[slot.index()].or_else(|| {
            let cell = &self.cells[slot.index()];
            (cell.claimed && cell.told).then_some(cell.key)
        })
    }

    /// The device reads the slot until `tick`.
    pub(super) fn read_until(&mut self, slot: SlotId, tick: Tick) {
        let after = &mut self.cells[slot.index()].after;
        *after = (*after).max(Some(tick));
    }

    /// Takes the key off an evictable slot. The slot is in the caller's hand: neither free nor
    /// claimed. `None`, and no change, when the slot is not evictable.
    #[inline]
    pub(super) fn evict(&mut self, slot: SlotId) -> Option<ExpertKey> {
        if self.blocked[slot.index()] {
            return None;
        }
        let key = self.keys[slot.index()].take()?;
        if let Some(index) = self.geometry.index(key) {
            self.table[index] = VACANT;
        }
        self.evictable[key.layer().index()] -= 1;
        self.evictable_total -= 1;
        Some(key)
    }

    /// Claims a slot that the caller has in hand for the record with dense number `index`.
    #[inline]
    pub(super) fn open(
        &mut self,
        slot: SlotId,
        index: usize,
        key: ExpertKey,
        origin: Origin,
        pinned: bool,
    ) -> Claim {
        self.generation += 1;
        self.open += 1;
        self.table[index] = slot.get() | CLAIMED;
        self.blocked[slot.index()] = true;
        let cell = &mut self.cells[slot.index()];
        cell.claimed = true;
        cell.told = origin != Origin::Prefetch;
        cell.pinned = pinned;
        cell.origin = origin;
        cell.key = key;
        cell.generation = self.generation;
        Claim { slot, key, origin, generation: self.generation, after: cell.after }
    }

    /// The running call has the slot in hand for a record that arrives at its end.
    #[inline]
    pub(super) fn hold(&mut self, slot: SlotId) {
        self.blocked[slot.index()] = true;
    }

    /// The record with dense number `index` arrives in a [held](Self::hold) slot.
    /// [`freed`](Self::freed) then corrects the counts.
    #[inline]
    pub(super) fn fill(&mut self, slot: SlotId, index: usize, key: ExpertKey) {
        self.keys[slot.index()] = Some(key);
        self.table[index] = slot.get();
        self.blocked[slot.index()] = false;
    }

    /// `count` slots of `layer` may be evicted from now on.
    #[inline]
    pub(super) fn freed(&mut self, layer: LayerIdx, count: usize) {
        // At most the number of slots.
        self.evictable[layer.index()] += u32::try_from(count).unwrap_or(u32::MAX);
        self.evictable_total += count;
    }

    /// A [held](Self::hold) slot is free; `false`, and no change, for any other number.
    pub(super) fn let_go(&mut self, slot: SlotId) -> bool {
        let held = self.blocked.get_mut(slot.index());
        let was = held.is_some_and(|held| std::mem::replace(held, false));
        if was {
            self.free.push(slot);
        }
        was
    }

    /// The cell of a claim that is still valid.
    #[inline]
    pub(super) fn cell_of(&self, claim: &Claim) -> Option<&Cell> {
        let cell = self.cells.get(claim.slot.index())?;
        (cell.claimed && cell.generation == claim.generation && cell.key == claim.key)
            .then_some(cell)
    }

    /// Ends the claim on `slot`: its record has all its bytes.
    #[inline]
    pub(super) fn settle(&mut self, slot: SlotId) {
        let cell = &mut self.cells[slot.index()];
        let (key, pinned) = (cell.key, cell.pinned);
        cell.claimed = false;
        cell.pinned = false;
        self.open -= 1;
        self.keys[slot.index()] = Some(key);
        if let Some(index) = self.geometry.index(key) {
            self.table[index] = slot.get();
        }
        if !pinned {
            self.blocked[slot.index()] = false;
            self.evictable[key.layer().index()] += 1;
            self.evictable_total += 1;
        }
    }

    /// Ends the claim on `slot`: the slot is free.
    pub(super) fn vacate(&mut self, slot: SlotId) {
        let cell = &mut self.cells[slot.index()];
        let key = cell.key;
        cell.claimed = false;
        cell.pinned = false;
        self.open -= 1;
        if let Some(index) = self.geometry.index(key) {
            self.table[index] = VACANT;
        }
        self.blocked[slot.index()] = false;
        self.free.push(slot);
    }

    /// Appends free slots; the first of them goes first.
    pub(super) fn grow(&mut self, slots: usize) {
        let old = self.len();
        self.keys.resize(slots, None);
        self.blocked.resize(slots, false);
        self.cells.resize(slots, EMPTY);
        self.free.reserve_exact(slots - self.free.len());
        self.free.extend((old..slots).rev().map(slot));
    }

    /// Removes the slots from number `slots` on; they are free or in the caller's hand.
    pub(super) fn shrink(&mut self, slots: usize) {
        self.free.retain(|slot| slot.index() < slots);
        self.keys.truncate(slots);
        self.blocked.truncate(slots);
        self.cells.truncate(slots);
    }

    /// Every slot is free, every claim stale. Ticks stay: the device may still be reading.
    pub(super) fn empty(&mut self) {
        let slots = self.len();
        self.table.fill(VACANT);
        self.keys.fill(None);
        self.blocked.fill(false);
        self.evictable.fill(0);
        self.evictable_total = 0;
        self.open = 0;
        for cell in &mut self.cells {
            *cell = Cell { after: cell.after, ..EMPTY };
        }
        self.free.clear();
        self.free.extend((0..slots).rev().map(slot));
    }
}
