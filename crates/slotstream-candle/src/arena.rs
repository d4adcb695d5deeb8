//! Slot memory: slabs of anonymous memory, lent for reading or for writing, never for both.

use std::fmt;
use std::ptr::NonNull;
use std::sync::Arc;

use slotstream_core::{PIECE_ORDER, RecordLayout, SlotId, Tick};

use crate::Error;
use crate::slab::Slab;
use crate::sync::RwLock;

/// Most bytes of one slab.
const SLAB_BYTES: usize = 1 << 30;

/// A device that reads slots later than the call that asks for it: what is encoded carries a tick,
/// and ends some time after it was handed over.
pub trait SlotDevice: Send + Sync + fmt::Debug {
    /// The tick of what is encoded now.
    fn tick(&self) -> Tick;

    /// Returns when everything up to `after`, which may read `slot`, has ended: the slot will be
    /// written.
    ///
    /// # Errors
    /// [`Error`] when the device fails.
    fn vacate(&self, slot: SlotId, after: Tick) -> Result<(), Error>;

    /// Most bytes of one slab.
    fn slab_bytes(&self) -> usize {
        SLAB_BYTES
    }

    /// Memory for a slab of `bytes`; `None` where the device reads the host's.
    ///
    /// # Errors
    /// [`Error`] when there is no room for it.
    fn memory(&self, bytes: usize) -> Result<Option<Box<dyn SlotMemory>>, Error> {
        let _ = bytes;
        Ok(None)
    }
}

/// Memory that a device lends for slots: the host writes it, the device reads it.
///
/// # Safety
/// From [`base`](Self::base) on lie [`bytes`](Self::bytes) bytes that are initialised, stay where
/// they are until this is dropped, and may be read and written by any thread of the host; nobody
/// else writes them, and the device reads them only through launches on slots that are lent.
#[expect(unsafe_code, reason = "whoever implements it vouches for its pointer")]
pub unsafe trait SlotMemory: Send + Sync + fmt::Debug {
    /// The first byte, at a multiple of 16 KiB.
    fn base(&self) -> NonNull<u8>;

    /// Bytes.
    fn bytes(&self) -> usize;

    /// Where the device finds the first byte.
    fn address(&self) -> u64;

    /// Whether files may be read straight into it. Else they are read into other memory and copied.
    fn takes_reads(&self) -> bool {
        false
    }
}

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
    /// device's that [takes reads](SlotMemory::takes_reads). Else records are copied into them.
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
        if let Err(state) = slab.begin_write(index) {
            return Err(Error::SlotBusy { slot, purpose: "writing", state });
        }
        // From here on, the lease ends when it is dropped.
        let lease = SlotLease { slab, index, slot, layout: Arc::clone(&self.layout) };
        lease.slab.vacate(index, slot, after)?;
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
        let mut leases = Vec::with_capacity(count);
        for slot in (first.get()..).take(count).map(SlotId::new) {
            let lease = self.lease(slot, None)?;
            let same = |one: &SlotLease| Arc::ptr_eq(&one.slab, &lease.slab);
            if !leases.first().is_none_or(same) {
                return Err(Error::NoSuchSlot { slot, slots: slot.index() });
            }
            leases.push(lease);
        }
        Ok(RunLease { leases })
    }

    /// Lends slots for reading, all or none.
    ///
    /// # Errors
    /// [`Error::SlotBusy`] while one of them is being written, [`Error::NoSuchSlot`] beyond the
    /// end.
    pub fn read(&self, slots: &[SlotId]) -> Result<Reading, Error> {
        let mut reading = Reading { held: Vec::with_capacity(slots.len()) };
        for &slot in slots {
            let (slab, index) = self.find(slot)?;
            match slab.begin_read(index) {
                Ok(()) => reading.held.push(Held { slab, index, slot }),
                Err(state) => return Err(Error::SlotBusy { slot, purpose: "reading", state }),
            }
        }
        Ok(reading)
    }
}

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

    /// Whether it lies in memory of the host; see [`SlotArena::is_host`].
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

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use slotstream_core::{AffineFormat, ExpertShape};

    fn arena(slots: usize) -> SlotArena {
        let shape = ExpertShape::new(64, 64, AffineFormat::Q4_G64).expect("legal");
        SlotArena::new(RecordLayout::new(shape), slots).expect("small")
    }

    #[test]
    fn writing_excludes_reading_and_writing() {
        let arena = arena(3);
        let slot = SlotId::new(1);
        let lease = arena.lease(slot, None).expect("free");
        assert!(matches!(arena.lease(slot, None), Err(Error::SlotBusy { .. })));
        assert!(matches!(arena.read(&[SlotId::new(0), slot]), Err(Error::SlotBusy { .. })));
        let mut pieces = lease.into_pieces();
        for (i, piece) in pieces.iter_mut().enumerate() {
            piece.bytes().fill(i as u8 + 1);
        }
        let [first, rest @ ..] = pieces;
        drop(rest);
        assert!(arena.read(&[slot]).is_err(), "one piece is still lent");
        drop(first);
        let reading = arena.read(&[slot, SlotId::new(0)]).expect("written");
        let record = reading.record(slot).expect("lent");
        for (i, piece) in arena.layout().pieces().iter().enumerate() {
            assert!(
                record[piece.offset..piece.offset + piece.len].iter().all(|b| *b == i as u8 + 1)
            );
        }
        assert!(reading.record(SlotId::new(2)).is_none());
        assert!(arena.lease(slot, None).is_err(), "it is being read");
        drop(reading);
        assert!(arena.lease(slot, None).is_ok());
    }

    #[test]
    fn a_slot_is_lent_whole() {
        let arena = arena(1);
        let slot = SlotId::new(0);
        let stride = arena.layout().stride();
        let mut whole = arena.lease(slot, None).expect("free").into_whole(usize::MAX);
        assert_eq!((whole.slot(), whole.bytes().len()), (slot, stride));
        assert_eq!(whole.bytes().as_ptr() as usize % 4096, 0);
        whole.bytes().fill(9);
        assert!(arena.read(&[slot]).is_err(), "it is still lent");
        drop(whole);
        let reading = arena.read(&[slot]).expect("written");
        assert!(reading.record(slot).expect("lent").iter().all(|byte| *byte == 9));
        drop(reading);
        let mut some = arena.lease(slot, None).expect("free").into_whole(100);
        assert_eq!(some.bytes().len(), 100);
    }

    #[test]
    fn neighbours_are_lent_as_one() {
        let arena = arena(4);
        let (stride, slot) = (arena.layout().stride(), SlotId::new);
        let other = arena.lease(slot(3), None).expect("free");
        assert!(arena.lease_run(slot(1), 3).is_err(), "the last of them is being written");
        let mut run = arena.lease_run(slot(1), 2).expect("the others were handed back");
        assert_eq!(run.bytes().len(), 2 * stride);
        run.bytes()[..stride].fill(1);
        run.bytes()[stride..].fill(2);
        assert!(arena.read(&[slot(2)]).is_err() && arena.lease(slot(1), None).is_err());
        drop((run, other));
        let reading = arena.read(&[slot(0), slot(1), slot(2), slot(3)]).expect("written");
        for (index, byte) in [0, 1, 2, 0].into_iter().enumerate() {
            let record = reading.record(slot(index as u32)).expect("lent");
            assert!(record.iter().all(|found| *found == byte), "slot {index}");
        }
        assert!(arena.lease_run(slot(3), 2).is_err(), "there are four");
        assert!(arena.lease_run(slot(0), 0).expect("nothing").bytes().is_empty());
    }

    #[test]
    fn a_refused_reading_lends_nothing() {
        let arena = arena(2);
        let lease = arena.lease(SlotId::new(1), None).expect("free");
        assert!(arena.read(&[SlotId::new(0), SlotId::new(1)]).is_err());
        assert!(arena.lease(SlotId::new(0), None).is_ok(), "slot 0 was handed back");
        drop(lease);
    }

    #[test]
    fn grows_with_contents_and_shrinks() {
        let arena = arena(2);
        arena.lease(SlotId::new(0), None).expect("free").into_pieces()[0].bytes().fill(7);
        assert!(matches!(arena.lease(SlotId::new(2), None), Err(Error::NoSuchSlot { .. })));
        arena.grow(5).expect("small");
        assert_eq!((arena.slots(), arena.bytes()), (5, 5 * 16_384));
        assert!(arena.lease(SlotId::new(4), None).is_ok());
        let reading = arena.read(&[SlotId::new(0)]).expect("free");
        assert_eq!(reading.record(SlotId::new(0)).expect("lent")[0], 7);
        arena.shrink(1);
        assert!(arena.lease(SlotId::new(1), None).is_err());
        assert_eq!(reading.record(SlotId::new(0)).expect("lent")[0], 7);
        arena.grow(3).expect("small");
        let reading = arena.read(&[SlotId::new(1), SlotId::new(2)]).expect("free");
        assert_eq!(reading.record(SlotId::new(2)).expect("lent").len(), 16_384);
    }

    /// Remembers what it was asked for.
    #[derive(Debug, Default)]
    struct Device(RwLock<(u64, Vec<(SlotId, Tick)>)>);

    impl SlotDevice for Device {
        fn tick(&self) -> Tick {
            Tick::new(self.0.read().0)
        }

        fn vacate(&self, slot: SlotId, after: Tick) -> Result<(), Error> {
            self.0.write().1.push((slot, after));
            if slot.index() == 2 {
                return Err(Error::provider(
                    slotstream_core::ErrorKind::Transient,
                    "the device is gone",
                ));
            }
            Ok(())
        }
    }

    #[test]
    fn a_lease_waits_for_the_device() {
        let device = Arc::new(Device::default());
        let layout = arena(1).layout().clone();
        let arena = SlotArena::on(Some(device.clone()), layout, 3).expect("small");
        let (slot, tick) = (SlotId::new, Tick::new);
        drop(arena.lease(slot(0), None).expect("nobody reads it"));
        assert!(device.0.read().1.is_empty());
        let reading = arena.read(&[slot(0), slot(1), slot(2)]).expect("free");
        assert_eq!(reading.tick(), Some(tick(0)));
        // What reads them is encoded while they are lent.
        device.0.write().0 = 4;
        drop(reading);
        device.0.write().0 = 9;
        drop(arena.lease(slot(1), None).expect("lent"));
        drop(arena.lease(slot(0), Some(tick(7))).expect("lent"));
        assert!(arena.lease(slot(2), None).is_err());
        assert!(arena.read(&[slot(2)]).is_ok(), "a refused lease is none");
        let asked = [(slot(1), tick(4)), (slot(0), tick(7)), (slot(2), tick(4))];
        assert_eq!(device.0.read().1, asked);
    }

    #[test]
    fn leases_move_between_threads() {
        let arena = arena(8);
        std::thread::scope(|scope| {
            for slot in 0..8 {
                let arena = arena.clone();
                scope.spawn(move || {
                    for round in 0..100_u8 {
                        let lease = arena.lease(SlotId::new(slot), None).expect("mine");
                        lease.into_pieces().iter_mut().for_each(|p| p.bytes().fill(round));
                        let reading = arena.read(&[SlotId::new(slot)]).expect("mine");
                        assert_eq!(reading.record(SlotId::new(slot)).expect("lent")[0], round);
                    }
                });
            }
        });
    }
}
