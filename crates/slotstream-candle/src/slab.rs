//! One slab of slot memory. The only place where slot bytes are reached through a pointer.
#![expect(unsafe_code, reason = "slots are written by lanes while other slots are read")]

use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use memmap2::{MmapMut, MmapOptions};
use slotstream_core::{SlotId, Tick};

use crate::Error;
use crate::device::{SlotDevice, SlotMemory};
use crate::lease::{PieceLease, RunLease};
use crate::sync::{AtomicU32, Ordering};

/// State of a slot that is being written; smaller numbers count readers.
const WRITING: u32 = u32::MAX;

#[derive(Debug)]
pub(crate) struct Slab {
    /// Owns the memory; reached only through `base` after construction.
    memory: Memory,
    base: NonNull<u8>,
    stride: usize,
    states: Vec<AtomicU32>,
    /// Who reads slots later than the call that asks for it.
    device: Option<Arc<dyn SlotDevice>>,
    /// With a device, one more than the last tick that reads each slot; 0: none does. Ordered by
    /// `states`.
    ticks: Vec<AtomicU64>,
}

/// Whose memory it is.
#[derive(Debug)]
enum Memory {
    /// Elsewhere than on Linux it is never looked at again: it only owns the memory.
    Map(#[cfg_attr(not(target_os = "linux"), expect(dead_code, reason = "an owner"))] MmapMut),
    Device(Box<dyn SlotMemory>),
}

// SAFETY: `base` points into `memory`, which the slab owns and never hands out. Bytes are reached
// only through `bytes_of` (while the slot's state counts a reader) and `piece_mut` or `run_mut`
// (while it says WRITING, and for disjoint ranges), so no byte is written by one thread while
// another reaches it.
unsafe impl Send for Slab {}
// SAFETY: as above; the states that guard the bytes are atomics.
unsafe impl Sync for Slab {}

impl Slab {
    pub(crate) fn new(
        slots: usize,
        stride: usize,
        device: Option<Arc<dyn SlotDevice>>,
    ) -> Result<Self, Error> {
        let bytes = slots.saturating_mul(stride);
        let lent = device.as_ref().map(|device| device.memory(bytes)).transpose()?.flatten();
        let (memory, base) = match lent {
            Some(memory) => {
                // What `SlotMemory` promises, as far as it can be seen.
                let found = memory.bytes();
                if found < bytes {
                    let source = std::io::ErrorKind::OutOfMemory.into();
                    return Err(Error::SlotMemory { bytes: bytes as u64, source });
                }
                let base = memory.base();
                (Memory::Device(memory), base)
            }
            None => Self::map(bytes)?,
        };
        let states = (0..slots).map(|_| AtomicU32::new(0)).collect();
        let ticks = device.iter().flat_map(|_| (0..slots).map(|_| AtomicU64::new(0))).collect();
        Ok(Self { memory, base, stride, states, device, ticks })
    }

    fn map(bytes: usize) -> Result<(Memory, NonNull<u8>), Error> {
        let refuse = |source| Error::SlotMemory { bytes: bytes as u64, source };
        let mut map = MmapOptions::new().len(bytes).map_anon().map_err(refuse)?;
        #[cfg(target_os = "linux")]
        if bytes >= 4 << 20 {
            // A hint: without huge pages the slab is slower, not wrong.
            if let Err(error) = map.advise(memmap2::Advice::HugePage) {
                tracing::debug!(%error, "huge pages refused");
            }
        }
        let base = NonNull::new(map.as_mut_ptr())
            .ok_or_else(|| refuse(std::io::ErrorKind::OutOfMemory.into()))?;
        Ok((Memory::Map(map), base))
    }

    pub(crate) fn is_host(&self) -> bool {
        match &self.memory {
            Memory::Map(_) => true,
            Memory::Device(memory) => memory.takes_reads(),
        }
    }

    /// The address at which whoever reads slots finds this one.
    pub(crate) fn address(&self, index: usize) -> u64 {
        let base = match &self.memory {
            Memory::Map(_) => self.base.addr().get() as u64,
            Memory::Device(memory) => memory.address(),
        };
        base + (index * self.stride) as u64
    }

    pub(crate) fn slots(&self) -> usize {
        self.states.len()
    }

    pub(crate) fn bytes(&self) -> usize {
        self.states.len() * self.stride
    }

    pub(crate) fn begin_write(&self, index: usize) -> Result<(), &'static str> {
        let state = &self.states[index];
        match state.compare_exchange(0, WRITING, Ordering::Acquire, Ordering::Relaxed) {
            Ok(_) => Ok(()),
            Err(WRITING) => Err("being written"),
            Err(_) => Err("being read"),
        }
    }

    /// What is handed over to the device now; `None` where the device is the CPU.
    pub(crate) fn tick(&self) -> Option<Tick> {
        self.device.as_ref().map(|device| device.tick())
    }

    /// Lets the device end what it still reads of a slot that is in state WRITING, and `after`.
    pub(crate) fn vacate(
        &self,
        index: usize,
        slot: SlotId,
        after: Option<Tick>,
    ) -> Result<(), Error> {
        let Some(device) = &self.device else { return Ok(()) };
        let last = self.ticks[index].load(Ordering::Relaxed).checked_sub(1).map(Tick::new);
        match last.max(after) {
            Some(last) => device.vacate(slot, last),
            None => Ok(()),
        }
    }

    pub(crate) fn end_write(&self, index: usize) {
        self.states[index].store(0, Ordering::Release);
    }

    pub(crate) fn begin_read(&self, index: usize) -> Result<(), &'static str> {
        let add = |state: u32| (state < WRITING - 1).then(|| state + 1);
        match self.states[index].try_update(Ordering::Acquire, Ordering::Relaxed, add) {
            Ok(_) => Ok(()),
            Err(_) => Err("being written"),
        }
    }

    pub(crate) fn end_read(&self, index: usize) {
        if let Some(tick) = self.tick() {
            self.ticks[index].fetch_max(tick.get() + 1, Ordering::Relaxed);
        }
        self.states[index].fetch_sub(1, Ordering::Release);
    }

    /// The bytes of a slot. Called only by a `Reading` that counted itself with `begin_read`.
    pub(crate) fn bytes_of(&self, index: usize) -> &[u8] {
        debug_assert!((1..WRITING).contains(&self.states[index].load(Ordering::Relaxed)));
        let start = index * self.stride;
        assert!(start + self.stride <= self.bytes());
        // SAFETY: the range lies inside the memory (asserted) and is initialised (anonymous memory
        // is zeroed, and a device's is initialised, as `SlotMemory` promises). The caller holds a
        // read count on this slot for as long as the returned borrow lives (`Reading` lends it from
        // `&self` and releases on drop), and a writer needs the count to be zero, so nobody writes
        // these bytes meanwhile.
        unsafe { std::slice::from_raw_parts(self.base.as_ptr().add(start), self.stride) }
    }

    /// The bytes of one piece, for as long as its lease is borrowed.
    #[expect(clippy::mut_from_ref, reason = "the lease, not the slab, is what is borrowed")]
    pub(crate) fn piece_mut<'a>(
        &self,
        index: usize,
        offset: usize,
        len: usize,
        _lease: &'a PieceLease,
    ) -> &'a mut [u8] {
        debug_assert_eq!(self.states[index].load(Ordering::Relaxed), WRITING);
        assert!(offset + len <= self.stride && index < self.states.len());
        // SAFETY: the range lies inside the slot and the slot inside the memory (asserted). The slot
        // is in state WRITING for as long as the lease lives, so no `Reading` covers it and no
        // second `SlotLease` exists. `SlotLease::into_pieces` consumes the lease and makes exactly
        // one `PieceLease` a piece, with disjoint ranges (RecordLayout's pieces are disjoint), and
        // `PieceLease::bytes` borrows its lease mutably for the life of the result, so this is
        // the only reference to these bytes. The lease keeps the slab, hence the memory, alive.
        unsafe {
            std::slice::from_raw_parts_mut(
                self.base.as_ptr().add(index * self.stride + offset),
                len,
            )
        }
    }

    /// The bytes of `count` slots from `first` on, for as long as their lease is borrowed.
    #[expect(clippy::mut_from_ref, reason = "the lease, not the slab, is what is borrowed")]
    pub(crate) fn run_mut<'a>(
        &self,
        first: usize,
        count: usize,
        _lease: &'a RunLease,
    ) -> &'a mut [u8] {
        assert!(first + count <= self.states.len());
        let states = &self.states[first..first + count];
        debug_assert!(states.iter().all(|state| state.load(Ordering::Relaxed) == WRITING));
        // SAFETY: the slots lie in the memory (asserted), one after another. `RunLease` owns a
        // `SlotLease` of each of them, for `RunLease::add` takes only the next one of this slab, so
        // all are in state WRITING for as long as it lives: no `Reading` covers them and no other
        // lease exists. It never gives those leases away, and `RunLease::bytes` borrows it mutably
        // for the life of the result, so this is the only reference to these bytes. The leases keep
        // the slab, hence the memory, alive.
        unsafe {
            std::slice::from_raw_parts_mut(
                self.base.as_ptr().add(first * self.stride),
                count * self.stride,
            )
        }
    }

    /// Returns the pages of the slots from `first` on, those that nobody holds.
    pub(crate) fn release_from(&self, first: usize) {
        for index in first..self.slots() {
            if self.begin_write(index).is_ok() {
                #[cfg(target_os = "linux")]
                if let Memory::Map(map) = &self.memory {
                    let (start, len) = (index * self.stride, self.stride);
                    let advice = memmap2::UncheckedAdvice::DontNeed;
                    // SAFETY: the slot is in state WRITING, so no reference to its bytes exists; it
                    // starts and ends at multiples of 16 KiB from the map's page-aligned start, so
                    // exactly its pages are dropped. They read as zeroes afterwards, which is a
                    // valid content for a slot that owns no record.
                    if let Err(error) = unsafe { map.unchecked_advise_range(advice, start, len) } {
                        tracing::debug!(%error, index, "pages of a removed slot were kept");
                    }
                }
                self.end_write(index);
            }
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests;
