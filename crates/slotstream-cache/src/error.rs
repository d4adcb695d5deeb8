//! What can go wrong in a pool.

use std::fmt;

use slotstream_core::{BindError, ErrorKind, ExpertIdx, ExpertKey, LayerIdx, Origin, SlotId};

/// A request that the pool refused. After every error but [`Poisoned`](Self::Poisoned) the pool
/// is consistent and the next request works.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum CacheError {
    /// Fewer slots than the geometry's floor.
    #[error(
        "a pool of {slots} slots is below the floor of {floor} = max(2 x top-{top_k}, \
         ceil({records} records x 640 / 24576)), at most all records: give it at least {floor}"
    )]
    #[non_exhaustive]
    BelowFloor {
        /// Slots asked for.
        slots: usize,
        /// [`Geometry::floor_slots`](slotstream_core::Geometry::floor_slots).
        floor: usize,
        /// `num_experts_per_tok`.
        top_k: usize,
        /// Records of the model.
        records: usize,
    },
    /// A pool without a floor still needs a slot.
    #[error("a pool of no slots: give it at least 1")]
    NoSlots,
    /// A geometry whose tables would be absurdly large.
    #[error("{records} records: a pool keeps a table of all records and takes at most {most}")]
    #[non_exhaustive]
    TooManyRecords {
        /// Records of the model.
        records: usize,
        /// [`MAX_RECORDS`](crate::MAX_RECORDS).
        most: usize,
    },
    /// The policy does not work with this pool.
    #[error("policy {policy} refuses a pool of {slots} slots")]
    #[non_exhaustive]
    Bind {
        /// Name of the policy.
        policy: String,
        /// Slots of the pool.
        slots: usize,
        /// Why.
        source: BindError,
    },
    /// Not enough slots can be given up now. A call that does not fit runs in waves.
    #[error(
        "{needed} slots are needed and {available} of {slots} can be had: run the layer in \
         waves, give up reservations or enlarge the pool"
    )]
    #[non_exhaustive]
    Exhausted {
        /// Slots that the request needs.
        needed: usize,
        /// Free and evictable slots.
        available: usize,
        /// Slots of the pool.
        slots: usize,
    },
    /// No such layer.
    #[error("{layer} of a model with {layers} layers")]
    #[non_exhaustive]
    UnknownLayer {
        /// The layer.
        layer: LayerIdx,
        /// Layers of the model.
        layers: usize,
    },
    /// No such expert.
    #[error("{expert} of {layer}, which has {experts} experts")]
    #[non_exhaustive]
    UnknownExpert {
        /// The layer.
        layer: LayerIdx,
        /// The expert.
        expert: ExpertIdx,
        /// Experts of a layer.
        experts: usize,
    },
    /// One call names a record twice.
    #[error("{key} is named twice in one call: a call takes distinct experts")]
    #[non_exhaustive]
    Duplicate {
        /// The record.
        key: ExpertKey,
    },
    /// Lookup counts that do not belong to the experts.
    #[error("{counts} lookup counts for {experts} experts: give one an expert, or none")]
    #[non_exhaustive]
    CountMismatch {
        /// Experts of the call.
        experts: usize,
        /// Counts of the call.
        counts: usize,
    },
    /// Waves of experts that are not in ascending order.
    #[error("expert number {at} of the list does not ascend: waves take sorted, distinct experts")]
    #[non_exhaustive]
    NotAscending {
        /// Index into the list.
        at: usize,
    },
    /// The call before has not been released.
    #[error("a call of {layer} is running: release it first")]
    #[non_exhaustive]
    CallRunning {
        /// The layer of the running call.
        layer: LayerIdx,
    },
    /// The buffer still holds claims of an earlier call, which would be lost.
    #[error("the buffer holds {claims} claims of an earlier call: publish or abort them first")]
    #[non_exhaustive]
    BufferInUse {
        /// Claims in the buffer.
        claims: usize,
    },
    /// A slot that is to go away is claimed.
    #[error("{slot} cannot be removed while {key} is being read into it: end its claim first")]
    #[non_exhaustive]
    SlotClaimed {
        /// The slot.
        slot: SlotId,
        /// The record.
        key: ExpertKey,
    },
    /// The policy answered against its contract.
    #[error("policy {policy} broke its contract: {}", answer(*slot, *why))]
    #[non_exhaustive]
    PolicyViolation {
        /// Name of the policy.
        policy: String,
        /// Its answer.
        slot: Option<SlotId>,
        /// What is wrong with it.
        why: Unlawful,
    },
    /// The record to claim is there already.
    #[error("{key} is already in {slot}")]
    #[non_exhaustive]
    Resident {
        /// The record.
        key: ExpertKey,
        /// Its slot.
        slot: SlotId,
    },
    /// The record to claim is being read already.
    #[error("{key} is already being read into {slot}")]
    #[non_exhaustive]
    Claimed {
        /// The record.
        key: ExpertKey,
        /// Its slot.
        slot: SlotId,
    },
    /// The policy does not want a record that nobody demanded.
    #[error("the policy does not admit {key} ({origin:?})")]
    #[non_exhaustive]
    NotAdmitted {
        /// The record.
        key: ExpertKey,
        /// Why it was offered.
        origin: Origin,
    },
    /// A claim from before the pool was cleared. Nothing was changed.
    #[error("the claim of {key} on {slot} is no longer valid")]
    #[non_exhaustive]
    StaleClaim {
        /// The record.
        key: ExpertKey,
        /// The slot.
        slot: SlotId,
    },
    /// A forecast record was published before a layer demanded it. Its slot is free now.
    #[error("{key} in {slot} was forecast but not demanded: its claim is withdrawn")]
    #[non_exhaustive]
    NotAdopted {
        /// The record.
        key: ExpertKey,
        /// The slot.
        slot: SlotId,
    },
    /// The policy panicked in an earlier call. [`clear`](crate::SlotPool::clear) makes the pool
    /// usable again.
    #[error("the eviction policy panicked in an earlier call: clear the pool to use it again")]
    Poisoned,
    /// The pool's own tables contradict each other: a defect of this crate.
    #[error("inconsistent pool: {check}: expected {expected}, found {found} (at {at})")]
    #[non_exhaustive]
    Inconsistent {
        /// What was checked.
        check: &'static str,
        /// Number of the slot, layer or record; 0 for the pool.
        at: usize,
        /// What should be.
        expected: u64,
        /// What is.
        found: u64,
    },
}

/// What is wrong with a policy's answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Unlawful {
    /// The pool has no such slot.
    OutOfRange,
    /// Nobody owns the slot.
    Free,
    /// A record is being read into the slot.
    Claimed,
    /// The running call uses the slot.
    Pinned,
    /// No slot, although one was evictable.
    NoAnswer,
}

impl fmt::Display for Unlawful {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::OutOfRange => "is out of range",
            Self::Free => "is free",
            Self::Claimed => "is claimed",
            Self::Pinned => "is pinned by the running call",
            Self::NoAnswer => "no victim although a slot was evictable",
        })
    }
}

fn answer(slot: Option<SlotId>, why: Unlawful) -> String {
    slot.map_or_else(|| why.to_string(), |slot| format!("its victim, {slot}, {why}"))
}

impl CacheError {
    /// A pool of `slots` slots is below the floor of this geometry.
    #[must_use]
    pub fn below_floor(geometry: &slotstream_core::Geometry, slots: usize) -> Self {
        let (floor, top_k) = (geometry.floor_slots(), geometry.top_k());
        Self::BelowFloor { slots, floor, top_k, records: geometry.records() }
    }

    /// What the caller can do about it.
    #[must_use]
    pub const fn kind(&self) -> ErrorKind {
        match self {
            Self::BelowFloor { .. }
            | Self::NoSlots
            | Self::TooManyRecords { .. }
            | Self::Bind { .. }
            | Self::Exhausted { .. }
            | Self::Resident { .. }
            | Self::Claimed { .. }
            | Self::NotAdmitted { .. } => ErrorKind::User,
            Self::SlotClaimed { .. } => ErrorKind::Transient,
            Self::UnknownLayer { .. }
            | Self::UnknownExpert { .. }
            | Self::Duplicate { .. }
            | Self::CountMismatch { .. }
            | Self::NotAscending { .. }
            | Self::CallRunning { .. }
            | Self::BufferInUse { .. }
            | Self::PolicyViolation { .. }
            | Self::StaleClaim { .. }
            | Self::NotAdopted { .. }
            | Self::Poisoned
            | Self::Inconsistent { .. } => ErrorKind::Bug,
        }
    }
}
