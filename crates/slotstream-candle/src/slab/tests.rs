//! Slots in memory that a device lends.

use super::*;

/// A device that lends memory of the host, which it finds elsewhere.
#[derive(Debug)]
struct Device {
    takes_reads: bool,
    /// Bytes that are missing of what is asked for.
    missing: usize,
}

#[derive(Debug)]
struct Lent {
    map: MmapMut,
    base: NonNull<u8>,
    takes_reads: bool,
}

// SAFETY: an anonymous map is zeroed, stays where it is and is owned here; nobody else reaches it.
unsafe impl Send for Lent {}
// SAFETY: as above.
unsafe impl Sync for Lent {}

// SAFETY: as above; no device reads it.
unsafe impl SlotMemory for Lent {
    fn base(&self) -> NonNull<u8> {
        self.base
    }

    fn bytes(&self) -> usize {
        self.map.len()
    }

    fn address(&self) -> u64 {
        1 << 40
    }

    fn takes_reads(&self) -> bool {
        self.takes_reads
    }
}

impl SlotDevice for Device {
    fn tick(&self) -> Tick {
        Tick::new(0)
    }

    fn vacate(&self, _: SlotId, _: Tick) -> Result<(), Error> {
        Ok(())
    }

    fn memory(&self, bytes: usize) -> Result<Option<Box<dyn SlotMemory>>, Error> {
        let map = MmapMut::map_anon(bytes - self.missing);
        let mut map = map.expect("anonymous memory");
        let base = NonNull::new(map.as_mut_ptr()).expect("not at zero");
        Ok(Some(Box::new(Lent { map, base, takes_reads: self.takes_reads })))
    }
}

fn slab(takes_reads: bool, missing: usize) -> Result<Slab, Error> {
    Slab::new(2, 16 << 10, Some(Arc::new(Device { takes_reads, missing })))
}

#[test]
fn files_are_read_into_a_device_only_where_it_says_so() {
    assert!(Slab::new(2, 16 << 10, None).expect("memory").is_host());
    assert!(!slab(false, 0).expect("memory").is_host());
    assert!(slab(true, 0).expect("memory").is_host());
}

#[test]
fn slots_are_where_the_device_finds_them() {
    let whole = slab(false, 0).expect("memory");
    assert_eq!([whole.address(0), whole.address(1)], [1 << 40, (1 << 40) + (16 << 10)]);
    assert!(matches!(slab(false, 1), Err(Error::SlotMemory { .. })));
}
