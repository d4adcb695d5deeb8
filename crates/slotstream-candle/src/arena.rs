//! Slot memory: slabs of anonymous memory, lent for reading or for writing, never for both.

use std::sync::Arc;

use slotstream_core::{RecordLayout, SlotId, Tick};

use crate::Error;
use crate::device::{SLAB_BYTES, SlotDevice};
use crate::lease::{Reading, RunLease, SlotLease};
use crate::slab::Slab;
use crate::sync::RwLock;

/// The memory of all slots. Cheap to clone; clones share the memory.
///
/// Slots live in slabs of at most 1 GiB of zeroed anonymous memory, for which huge pages are
/// advised. Growing appends slabs, so addresses and contents stay.
#[derive(Clone, Debug)]
pub struct SlotArena {
    layout: Arc<RecordLayout>,
    slabs: Arc<RwLock<Slabs>>,
    device: Option<Arc<dyn SlotDevice>>,
}

#[derive(Debug, Default)]
struct Slabs {
    all: Vec<Arc<Slab>>,
    /// Slots that may be lent; the last slab may hold more.
    slots: usize,
}

impl SlotArena {
    /// Reserves memory for `slots` records.
    ///
    /// # Errors
    /// [`Error::SlotMemory`] when the system refuses.
    pub fn new(layout: RecordLayout, slots: usize) -> Result<Self, Error> {
        Self::on(None, layout, slots)
    }

    /// The same, read by a device; without one, by the CPU.
    ///
    /// # Errors
    /// As [`new`](Self::new).
    pub fn on(
        device: Option<Arc<dyn SlotDevice>>,
        layout: RecordLayout,
        slots: usize,
    ) -> Result<Self, Error> {
        let arena = Self { layout: Arc::new(layout), slabs: Arc::default(), device };
        arena.grow(slots)?;
        Ok(arena)
    }

    /// How a record lies in a slot.
    #[must_use]
    pub fn layout(&self) -> &RecordLayout {
        &self.layout
    }

    /// Whether files may be read straight into slots: they lie in memory of the host, or in a
    /// device's that [takes reads](crate::SlotMemory::takes_reads). Else records are copied into them.
    #[must_use]
    pub fn is_host(&self) -> bool {
        self.slabs.read().all.iter().all(|slab| slab.is_host())
    }

    /// Slots that may be lent.
    #[must_use]
    pub fn slots(&self) -> usize {
        self.slabs.read().slots
    }

    /// Bytes reserved: slots times stride.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        let slabs = self.slabs.read();
        slabs.all.iter().map(|slab| slab.bytes() as u64).sum()
    }

    /// Appends slabs until there are `slots` slots; fewer than now changes nothing.
    ///
    /// # Errors
    /// [`Error::SlotMemory`] when the system refuses; the arena is then as it was.
    pub fn grow(&self, slots: usize) -> Result<(), Error> {
        let mut slabs = self.slabs.write();
        let slab_bytes = self.device.as_ref().map_or(SLAB_BYTES, |device| device.slab_bytes());
        let per_slab = (slab_bytes / self.layout.stride()).max(1);
        let mut missing = slots.saturating_sub(slabs.all.iter().map(|s| s.slots()).sum());
        let mut added = Vec::new();
        while missing > 0 {
            let count = missing.min(per_slab);
            added.push(Arc::new(Slab::new(count, self.layout.stride(), self.device.clone())?));
            missing -= count;
        }
        slabs.all.append(&mut added);
        slabs.slots = slabs.slots.max(slots);
        Ok(())
    }

    /// Keeps the first `slots` slots and returns the pages of the others to the system once
    /// nobody reads or writes them.
    pub fn shrink(&self, slots: usize) {
        let mut slabs = self.slabs.write();
        if slots >= slabs.slots {
            return;
        }
        slabs.slots = slots;
        let mut first = 0;
        slabs.all.retain(|slab| {
            let keep = first < slots;
            if keep && first + slab.slots() > slots {
                slab.release_from(slots - first);
            }
            first += slab.slots();
            keep
        });
    }

    fn find(&self, slot: SlotId) -> Result<(Arc<Slab>, usize), Error> {
        let slabs = self.slabs.read();
        let mut index = slot.index();
        if index < slabs.slots {
            for slab in &slabs.all {
                if index < slab.slots() {
                    return Ok((Arc::clone(slab), index));
                }
                index -= slab.slots();
            }
        }
        Err(Error::NoSuchSlot { slot, slots: slabs.slots })
    }

    /// Lends a slot for writing, once the device has ended what reads it, and `after`. On the CPU
    /// work is done when the call that did it returns, so every tick has completed.
    ///
    /// # Errors
    /// [`Error::SlotBusy`] while the slot is lent, [`Error::NoSuchSlot`] beyond the end; what the
    /// device answers.
    pub fn lease(&self, slot: SlotId, after: Option<Tick>) -> Result<SlotLease, Error> {
        let (slab, index) = self.find(slot)?;
        let lease = SlotLease::begin(slab, index, slot, Arc::clone(&self.layout))?;
        lease.vacate(after)?;
        Ok(lease)
    }

    /// Lends the `count` slots from `first` on for writing, as one stretch of bytes: for a read
    /// that brings several records at once. They must lie in one slab, as those of an arena below
    /// 1 GiB do.
    ///
    /// # Errors
    /// [`Error::SlotBusy`] while one of them is lent, [`Error::NoSuchSlot`] beyond the end of the
    /// slab.
    pub fn lease_run(&self, first: SlotId, count: usize) -> Result<RunLease, Error> {
        let mut run = RunLease::with_capacity(count);
        for slot in (first.get()..).take(count).map(SlotId::new) {
            run.add(self.lease(slot, None)?)?;
        }
        Ok(run)
    }

    /// Lends slots for reading, all or none.
    ///
    /// # Errors
    /// [`Error::SlotBusy`] while one of them is being written, [`Error::NoSuchSlot`] beyond the
    /// end.
    pub fn read(&self, slots: &[SlotId]) -> Result<Reading, Error> {
        let mut reading = Reading::with_capacity(slots.len());
        for &slot in slots {
            let (slab, index) = self.find(slot)?;
            reading.add(slab, index, slot)?;
        }
        Ok(reading)
    }
}

#[cfg(all(test, not(loom)))]
mod tests;
