//! What a device is asked for: to end reading slots, and for memory to lay them in.

use std::fmt;
use std::ptr::NonNull;

use slotstream_core::{SlotId, Tick};

use crate::Error;

/// Most bytes of one slab.
pub(crate) const SLAB_BYTES: usize = 1 << 30;

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
