//! Slots that are lent, for reading or for writing, until the loan is dropped.

use std::sync::Arc;

use slotstream_core::{PIECE_ORDER, RecordLayout, SlotId, Tick};

use crate::Error;
use crate::slab::Slab;

/// Slots lent for reading. Ends when dropped.
#[derive(Debug)]
pub struct Reading {
    held: Vec<Held>,
}

#[derive(Debug)]
struct Held {
    slab: Arc<Slab>,
    index: usize,
    slot: SlotId,
}

impl Drop for Held {
    fn drop(&mut self) {
        self.slab.end_read(self.index);
    }
}

impl Reading {
    /// Of no slot yet.
    pub(crate) fn with_capacity(slots: usize) -> Self {
        Self { held: Vec::with_capacity(slots) }
    }

    /// Lends one more slot: number `index` of its slab.
    pub(crate) fn add(&mut self, slab: Arc<Slab>, index: usize, slot: SlotId) -> Result<(), Error> {
        if let Err(state) = slab.begin_read(index) {
            return Err(Error::SlotBusy { slot, purpose: "reading", state });
        }
        self.held.push(Held { slab, index, slot });
        Ok(())
    }

    /// The slots.
    pub fn slots(&self) -> impl Iterator<Item = SlotId> + '_ {
        self.held.iter().map(|held| held.slot)
    }

    /// The tick of what is encoded now and may read them; `None` when reading ends with the call,
    /// as on the CPU.
    #[must_use]
    pub fn tick(&self) -> Option<Tick> {
        self.held.first().and_then(|held| held.slab.tick())
    }

    /// Where the slots begin, as whoever reads them finds them: the device, or the CPU.
    #[must_use]
    pub fn addresses(&self) -> Vec<u64> {
        self.held.iter().map(|held| held.slab.address(held.index)).collect()
    }

    /// The bytes of a slot, a whole stride; `None` when the slot is not among these.
    #[must_use]
    pub fn record(&self, slot: SlotId) -> Option<&[u8]> {
        let held = self.held.iter().find(|held| held.slot == slot)?;
        Some(held.slab.bytes_of(held.index))
    }
}

/// A slot lent for writing. Ends when dropped.
#[derive(Debug)]
pub struct SlotLease {
    slab: Arc<Slab>,
    index: usize,
    slot: SlotId,
    layout: Arc<RecordLayout>,
}

impl SlotLease {
    /// Lends a slot: number `index` of its slab.
    pub(crate) fn begin(
        slab: Arc<Slab>,
        index: usize,
        slot: SlotId,
        layout: Arc<RecordLayout>,
    ) -> Result<Self, Error> {
        match slab.begin_write(index) {
            Ok(()) => Ok(Self { slab, index, slot, layout }),
            Err(state) => Err(Error::SlotBusy { slot, purpose: "writing", state }),
        }
    }

    /// Lets the device end what it still reads of the slot, and `after`.
    pub(crate) fn vacate(&self, after: Option<Tick>) -> Result<(), Error> {
        self.slab.vacate(self.index, self.slot, after)
    }

    /// The slot.
    #[must_use]
    pub const fn slot(&self) -> SlotId {
        self.slot
    }

    /// Splits the lease into one for each of the nine pieces, in [`PIECE_ORDER`]. The slot is
    /// lent until all of them are dropped.
    #[must_use]
    pub fn into_pieces(self) -> [PieceLease; 9] {
        let pieces = *self.layout.pieces();
        let lease = Arc::new(self);
        std::array::from_fn::<_, { PIECE_ORDER.len() }, _>(|i| PieceLease {
            lease: Arc::clone(&lease),
            offset: pieces[i].offset,
            len: pieces[i].len,
        })
    }

    /// The first `len` bytes of the slot as one piece, at most its stride: for a source that holds
    /// records as they lie in a slot.
    #[must_use]
    pub fn into_whole(self, len: usize) -> PieceLease {
        let len = len.min(self.layout.stride());
        PieceLease { lease: Arc::new(self), offset: 0, len }
    }
}

impl Drop for SlotLease {
    fn drop(&mut self) {
        self.slab.end_write(self.index);
    }
}

/// Neighbouring slots of one slab lent for writing. Ends when dropped.
#[derive(Debug)]
pub struct RunLease {
    leases: Vec<SlotLease>,
}

impl RunLease {
    /// Of no slot yet.
    pub(crate) fn with_capacity(slots: usize) -> Self {
        Self { leases: Vec::with_capacity(slots) }
    }

    /// Takes in the next slot; refuses one of another slab.
    pub(crate) fn add(&mut self, lease: SlotLease) -> Result<(), Error> {
        let next = |first: &SlotLease| {
            let index = first.index + self.leases.len();
            Arc::ptr_eq(&first.slab, &lease.slab) && lease.index == index
        };
        if !self.leases.first().is_none_or(next) {
            return Err(Error::NoSuchSlot { slot: lease.slot, slots: lease.slot.index() });
        }
        self.leases.push(lease);
        Ok(())
    }

    /// The bytes of all slots, a stride each.
    pub fn bytes(&mut self) -> &mut [u8] {
        let Some(SlotLease { slab, index, .. }) = self.leases.first() else { return &mut [] };
        slab.run_mut(*index, self.leases.len(), self)
    }
}

/// One piece of a slot lent for writing.
#[derive(Debug)]
pub struct PieceLease {
    lease: Arc<SlotLease>,
    offset: usize,
    len: usize,
}

impl PieceLease {
    /// The slot.
    #[must_use]
    pub fn slot(&self) -> SlotId {
        self.lease.slot
    }

    /// Whether it lies in memory of the host; see [`SlotArena::is_host`](crate::SlotArena::is_host).
    #[must_use]
    pub fn is_host(&self) -> bool {
        self.lease.slab.is_host()
    }

    /// Bytes.
    #[must_use]
    pub const fn len(&self) -> usize {
        self.len
    }

    /// Whether it has none.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The piece's bytes.
    pub fn bytes(&mut self) -> &mut [u8] {
        self.lease.slab.piece_mut(self.lease.index, self.offset, self.len, self)
    }
}
