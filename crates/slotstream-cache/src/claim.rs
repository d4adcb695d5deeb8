//! Claims on slots, and what a demand of a layer gave.

use slotstream_core::{ExpertIdx, ExpertKey, Origin, SlotId, Tick};

/// The right to fill one slot. Whoever holds it reads the record and then gives it back by
/// [`publish`](crate::SlotPool::publish) or [`abort`](crate::SlotPool::abort); until then the
/// slot has no key and nobody else gets it. A claim that is dropped keeps its slot blocked until
/// the pool is [cleared](crate::SlotPool::clear).
#[derive(Debug, PartialEq, Eq)]
#[must_use = "a claim blocks its slot until it is published or aborted"]
pub struct Claim {
    pub(crate) slot: SlotId,
    pub(crate) key: ExpertKey,
    pub(crate) origin: Origin,
    pub(crate) generation: u64,
    pub(crate) after: Option<Tick>,
}

impl Claim {
    /// The slot to fill.
    #[must_use]
    pub const fn slot(&self) -> SlotId {
        self.slot
    }

    /// The record to fill it with.
    #[must_use]
    pub const fn key(&self) -> ExpertKey {
        self.key
    }

    /// Why the record is read.
    #[must_use]
    pub const fn origin(&self) -> Origin {
        self.origin
    }

    /// A number that no other claim of the pool has.
    #[must_use]
    pub const fn generation(&self) -> u64 {
        self.generation
    }

    /// The device may still read the slot's old bytes until this tick has completed: the writer
    /// waits for it. `None` when the bytes may be overwritten at once.
    #[must_use]
    pub const fn after(&self) -> Option<Tick> {
        self.after
    }
}

/// Why a claim is given up.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Abort {
    /// The bytes could not be read.
    ReadFailed,
    /// Nobody wants the record any more: a forecast expired, a request was cancelled.
    Withdrawn,
}

/// How a demand found a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Found {
    /// Resident: its bytes are there. Counts as a hit.
    Hit,
    /// It owns its slot, but somebody else's claim (hot admission, warm start, a cancelled
    /// request) is still reading it: wait for that claim. Counts as a hit, because nothing new
    /// is read and because arrival times must not change counters or the policy.
    Pending,
    /// A forecast had reserved a slot for it; the holder of that claim publishes it when its
    /// bytes are there. Counts as a miss.
    Adopted,
    /// Not there: the call made a [`Claim`] for it.
    Miss,
}

/// One record of a demand.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Entry {
    /// The expert.
    pub expert: ExpertIdx,
    /// The slot that has, or will have, its bytes.
    pub slot: SlotId,
    /// How it was found.
    pub found: Found,
}

impl Entry {
    /// Whether the bytes are there already.
    #[must_use]
    pub fn is_hit(&self) -> bool {
        self.found == Found::Hit
    }
}

/// What [`ensure`](crate::SlotPool::ensure) gave: a buffer that the caller owns and reuses.
#[derive(Debug, Default)]
pub struct Ensured {
    pub(crate) entries: Vec<Entry>,
    pub(crate) claims: Vec<Claim>,
}

impl Ensured {
    /// An empty buffer.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// An empty buffer with room for calls of `experts` experts.
    #[must_use]
    pub fn with_capacity(experts: usize) -> Self {
        Self { entries: Vec::with_capacity(experts), claims: Vec::with_capacity(experts) }
    }

    /// One entry a record, in the order of the call.
    #[must_use]
    pub fn entries(&self) -> &[Entry] {
        &self.entries
    }

    /// The claims of the misses that were not taken yet, in the order of the call.
    pub fn claims(&self) -> &[Claim] {
        &self.claims
    }

    /// Takes the claims out, to read their records.
    pub fn take_claims(&mut self) -> std::vec::Drain<'_, Claim> {
        self.claims.drain(..)
    }

    /// Drops the entries, and the claims of a pool that was cleared since.
    pub fn clear(&mut self) {
        self.entries.clear();
        self.claims.clear();
    }
}
