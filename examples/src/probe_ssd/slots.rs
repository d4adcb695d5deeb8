//! Memory to read into, as the engine's slots are: mapped once, in huge pages where the system has
//! them, and touched before a read is timed.

use std::sync::{Arc, Mutex, PoisonError};

use memmap2::{MmapMut, MmapOptions};

use crate::Failure;

/// Bytes of a huge page on most machines.
const HUGE: usize = 2 << 20;

/// A slot for each read at once. Clones share them.
#[derive(Clone, Debug)]
pub(crate) struct Slots(Arc<Mutex<Vec<MmapMut>>>);

impl Slots {
    /// `count` slots of at least `len` bytes.
    ///
    /// # Errors
    /// [`Failure::Slots`] when the system has no room.
    pub(crate) fn new(count: usize, len: usize) -> Result<Self, Failure> {
        let refuse = |source| Failure::Slots { count, len, source };
        // Whole huge pages: the system puts such a mapping at a multiple of one.
        let whole = if len < HUGE { len } else { len.next_multiple_of(HUGE) };
        let map = |_| {
            let mut slot = MmapOptions::new().len(whole).map_anon()?;
            // A hint: without huge pages reads cost more, and are no others.
            #[cfg(target_os = "linux")]
            let _ = slot.advise(memmap2::Advice::HugePage);
            slot.fill(0);
            Ok(slot)
        };
        let slots = (0..count).map(map).collect::<Result<_, _>>().map_err(refuse)?;
        Ok(Self(Arc::new(Mutex::new(slots))))
    }

    /// A slot that nobody has, if there is one.
    pub(super) fn take(&self) -> Option<MmapMut> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).pop()
    }

    /// Gives a slot back. The last one given back is the next one taken: fewest are in use.
    pub(super) fn give_back(&self, slot: MmapMut) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).push(slot);
    }
}
