//! Leases exclude each other, and memory grows and shrinks under them.

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
        assert!(record[piece.offset..piece.offset + piece.len].iter().all(|b| *b == i as u8 + 1));
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
