//! Slots in memory that host and GPU share, and how far the GPU has come.

use std::ptr::NonNull;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use candle_core::MetalDevice;
use candle_metal_kernels::RESOURCE_OPTIONS;
use candle_metal_kernels::metal::Buffer;
use objc2_metal::{MTLBuffer as _, MTLDevice as _};
use slotstream_core::{SlotId, Tick};

use super::tensors::metal_buffer;
use crate::device::{SlotDevice, SlotMemory};
use crate::{CandleContext, Error};

/// Largest slab, where the GPU takes as much: on machines with little memory it takes less.
const SLAB_BYTES: usize = 4 << 30;

/// Gives memory for slots and counts submissions.
#[derive(Debug)]
pub(super) struct Slots {
    metal: MetalDevice,
    /// The tick of what is encoded now.
    current: AtomicU64,
    /// All ticks below it have ended.
    ended: AtomicU64,
    /// Whether files are read straight into the memory.
    takes_reads: AtomicBool,
}

impl Slots {
    pub(super) fn new(metal: &MetalDevice) -> Self {
        Self {
            metal: metal.clone(),
            current: AtomicU64::new(0),
            ended: AtomicU64::new(0),
            takes_reads: AtomicBool::new(false),
        }
    }

    /// Memory that is lent from now on takes reads.
    pub(super) fn take_reads(&self) {
        self.takes_reads.store(true, Ordering::Release);
    }

    /// Hands over what is encoded and waits until it has ended.
    pub(super) fn wait(&self) -> Result<(), Error> {
        // What another thread encodes from here on may come along, and counts as later.
        let tick = self.current.fetch_add(1, Ordering::AcqRel);
        self.metal.flush_and_wait_current().within("wait")?;
        self.ended.fetch_max(tick + 1, Ordering::AcqRel);
        Ok(())
    }
}

impl SlotDevice for Slots {
    fn tick(&self) -> Tick {
        Tick::new(self.current.load(Ordering::Acquire))
    }

    fn vacate(&self, _: SlotId, after: Tick) -> Result<(), Error> {
        if after.get() < self.ended.load(Ordering::Acquire) {
            return Ok(());
        }
        objc2::rc::autoreleasepool(|_| self.wait())
    }

    fn slab_bytes(&self) -> usize {
        self.metal.device().as_ref().maxBufferLength().min(SLAB_BYTES)
    }

    fn memory(&self, bytes: usize) -> Result<Option<Box<dyn SlotMemory>>, Error> {
        objc2::rc::autoreleasepool(|_| self.lend(bytes))
    }
}

impl Slots {
    /// Memory of `bytes` bytes, within the working set.
    fn lend(&self, bytes: usize) -> Result<Option<Box<dyn SlotMemory>>, Error> {
        let gpu = self.metal.device();
        let (limit, used) = (gpu.recommended_max_working_set_size(), gpu.current_allocated_size());
        if used.saturating_add(bytes) > limit {
            return Err(Error::WorkingSet {
                bytes: bytes as u64,
                used: used as u64,
                limit: limit as u64,
            });
        }
        // Not from candle's pool, which rounds up to powers of two and hands buffers out again.
        let buffer = gpu.new_buffer(bytes, RESOURCE_OPTIONS);
        let buffer = buffer.map_err(candle_core::Error::wrap).within("slot memory")?;
        let base = NonNull::new(buffer.contents()).ok_or(Error::NoMetal {
            why: "the memory of its buffers cannot be reached by the host",
        })?;
        self.metal.register_buffers([&buffer]);
        let takes_reads = self.takes_reads.load(Ordering::Acquire);
        Ok(Some(Box::new(SharedBuffer { metal: self.metal.clone(), buffer, base, takes_reads })))
    }
}

/// A buffer of slots, resident until it is dropped.
#[derive(Debug)]
struct SharedBuffer {
    metal: MetalDevice,
    buffer: Buffer,
    base: NonNull<u8>,
    takes_reads: bool,
}

// SAFETY: `base` points to the memory of `buffer`, which is owned here and never given away; the
// buffer may be used from any thread, and who reaches its bytes is the slab's business.
unsafe impl Send for SharedBuffer {}
// SAFETY: as above.
unsafe impl Sync for SharedBuffer {}

// SAFETY: `base` is the start of the memory of a shared buffer of `length` bytes, which Metal zeroes,
// keeps where it is and frees with the buffer; the GPU only reads it.
unsafe impl SlotMemory for SharedBuffer {
    fn base(&self) -> NonNull<u8> {
        self.base
    }

    fn bytes(&self) -> usize {
        self.buffer.length()
    }

    fn address(&self) -> u64 {
        metal_buffer(&self.buffer).gpuAddress()
    }

    fn takes_reads(&self) -> bool {
        self.takes_reads
    }
}

impl Drop for SharedBuffer {
    fn drop(&mut self) {
        // What is encoded may still find a slot of it by address. Where the GPU has failed, nothing
        // reads any more.
        if let Err(error) = self.metal.flush_and_wait_current() {
            tracing::debug!(%error, "the GPU failed before its slots were given back");
        }
        self.metal.unregister_buffers([&self.buffer]);
    }
}
