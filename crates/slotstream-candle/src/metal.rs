//! The glue to Apple's GPUs: plans encoded on candle's own stream, and slots in memory that host
//! and GPU share. All else of the Metal path is plain Rust that runs anywhere.
#![expect(unsafe_code, reason = "the memory of a Metal buffer is a pointer")]

mod memory;
mod pipelines;
mod tensors;

use std::sync::Arc;

use candle_core::{DType, Device, MetalDevice, MetalStorage, Storage, Tensor};
use candle_metal_kernels::metal::{Buffer, ComputeCommandEncoder, Device as Gpu};
use objc2::rc::autoreleasepool;
use objc2_metal::{MTLBuffer as _, MTLDevice as _, MTLSize};
use slotstream_kernels::metal::{Bind, Direction, Dispatch, MAX_BUFFERS};

use self::memory::Slots;
use self::pipelines::Pipelines;
use self::tensors::{buffer_of, metal_buffer, values};
use crate::device::SlotDevice;
use crate::planned::{GpuFigures, PlanEncoder, Resource};
use crate::{CandleContext, Error};

/// An index that no plan uses where tables of pages are bound: candle's encoder puts barriers by
/// what is bound, and pages are found by address.
const PAGES: usize = MAX_BUFFERS - 1;

/// Encodes plans for the default GPU of a Mac.
///
/// Launches go into candle's own command buffers, so that its element-wise operations and ours are
/// in order: its encoder puts a barrier before whatever touches a buffer that was written, or writes
/// one that was touched.
#[derive(Debug)]
pub struct MetalEncoder {
    device: Device,
    metal: MetalDevice,
    pipelines: Pipelines,
    slots: Arc<Slots>,
}

impl MetalEncoder {
    /// Opens the default GPU. Libraries are compiled when a kernel of theirs is first launched.
    ///
    /// # Errors
    /// [`Error::NoMetal`] before macOS 15 and where there is no GPU, as in some virtual machines;
    /// [`Error::Candle`] when candle cannot open it.
    pub fn new() -> Result<Self, Error> {
        // candle itself would panic in either case.
        if !objc2::available!(macos = 15.0) {
            return Err(Error::NoMetal { why: "macOS 15 or later is needed" });
        }
        if Gpu::all().is_empty() {
            return Err(Error::NoMetal { why: "this machine has no GPU that Metal can use" });
        }
        autoreleasepool(|_| {
            let device = Device::new_metal(0).within("metal")?;
            let metal = device.as_metal_device().within("metal")?.clone();
            let (pipelines, slots) = (Pipelines::new(&metal), Arc::new(Slots::new(&metal)));
            Ok(Self { device, metal, pipelines, slots })
        })
    }

    /// The same with records read straight into their slots instead of into other memory of the host
    /// from which they are copied.
    ///
    /// # Safety
    /// Unproven: nobody has run it. Reads into memory of the GPU have been seen to hang in a program
    /// like this, and a read that goes on after it was given up would write into a slot that the GPU
    /// reads. Whoever calls this vouches that on their system a read has ended when the call returns.
    #[must_use]
    pub unsafe fn with_straight_reads(self) -> Self {
        self.slots.take_reads();
        self
    }

    fn launch(&self, launch: &Dispatch<Resource<'_>>) -> Result<(), Error> {
        let pipeline = self.pipelines.get(launch.library(), launch.kernel())?;
        let binds = launch.binds().iter().map(|bind| self.bound(bind));
        let binds = binds.collect::<Result<Vec<_>, Error>>()?;
        let guard = self.metal.command_encoder().within(launch.kernel())?;
        let encoder: &ComputeCommandEncoder = guard.as_ref();
        encoder.set_compute_pipeline_state(&pipeline);
        for (index, (bind, (buffer, offset))) in launch.binds().iter().zip(&binds).enumerate() {
            if bind.direction != Direction::Out {
                encoder.set_input_buffer(index, Some(buffer), *offset);
            }
            if bind.direction != Direction::In {
                encoder.set_output_buffer(index, Some(buffer), *offset);
            }
            if let Resource::Pages(pages) = bind.view.buffer {
                for page in pages {
                    let (page, _) = buffer_of(page)?;
                    encoder.set_input_buffer(PAGES, Some(&page), 0);
                }
            }
        }
        let constants = launch.constants();
        if !constants.is_empty() {
            let pointer = constants.as_ptr().cast();
            // Copied before this returns.
            encoder.set_bytes_directly(binds.len(), constants.len(), pointer);
        }
        if launch.threadgroup_memory() > 0 {
            encoder.set_threadgroup_memory_length(0, launch.threadgroup_memory() as usize);
        }
        let [width, height, depth] = launch.grid().map(|count| count as usize);
        let threads = MTLSize { width: launch.threads() as usize, height: 1, depth: 1 };
        encoder.dispatch_thread_groups(MTLSize { width, height, depth }, threads);
        Ok(())
    }

    /// The buffer of a bind and the offset into it.
    fn bound(&self, bind: &Bind<Resource<'_>>) -> Result<(Arc<Buffer>, usize), Error> {
        let offset = bind.view.offset;
        match &bind.view.buffer {
            Resource::Tensor(tensor) => Ok((buffer_of(tensor)?.0, offset)),
            Resource::Pages(pages) => {
                let addresses = pages.iter().map(|page| {
                    let (buffer, start) = buffer_of(page)?;
                    Ok(metal_buffer(&buffer).gpuAddress() + start as u64)
                });
                Ok((self.table(&addresses.collect::<Result<Vec<_>, Error>>()?)?, offset))
            }
            Resource::Slots(reading) => Ok((self.table(&reading.addresses())?, offset)),
        }
    }

    /// A buffer of its own, which the pool of buffers does not hand out while it is used.
    fn table(&self, addresses: &[u64]) -> Result<Arc<Buffer>, Error> {
        self.metal.new_buffer_with_data(addresses).within("table")
    }
}

/// Bytes that the default GPU recommends as a process's working set; `None` without a GPU.
#[must_use]
pub fn recommended_working_set() -> Option<u64> {
    autoreleasepool(|_| Gpu::all().first().map(|gpu| gpu.recommended_max_working_set_size() as u64))
}

impl PlanEncoder for MetalEncoder {
    fn name(&self) -> String {
        format!("metal {}", self.metal.device().architecture_name())
    }

    fn figures(&self) -> Option<GpuFigures> {
        let gpu = self.metal.device();
        Some(GpuFigures {
            architecture: gpu.architecture_name(),
            recommended_bytes: gpu.recommended_max_working_set_size() as u64,
            allocated_bytes: gpu.current_allocated_size() as u64,
            largest_buffer_bytes: gpu.as_ref().maxBufferLength() as u64,
        })
    }

    fn device(&self) -> &Device {
        &self.device
    }

    fn slot_device(&self) -> Option<Arc<dyn SlotDevice>> {
        Some(Arc::clone(&self.slots) as Arc<dyn SlotDevice>)
    }

    /// What Metal and candle hand out autoreleased is released after every step, on whatever thread it
    /// is: else it would live as long as the thread.
    fn step(&self, work: &mut dyn FnMut()) {
        autoreleasepool(|_| work());
    }

    /// In memory that the host can read: whatever is read back is read where it lies.
    fn room(&self, shape: &[usize], dtype: DType) -> Result<Tensor, Error> {
        let count = shape.iter().product::<usize>();
        let bytes = (count * dtype.size_in_bytes()).max(1);
        let buffer = self.metal.allocate_buffer(bytes).within("room")?;
        let storage = MetalStorage::new(buffer, self.metal.clone(), count, dtype);
        let none = candle_core::op::BackpropOp::none();
        Ok(Tensor::from_storage(Storage::Metal(storage), shape, none, false))
    }

    fn encode(&self, launches: Vec<Dispatch<Resource<'_>>>) -> Result<(), Error> {
        // What Metal hands out autoreleased would otherwise live as long as the thread.
        autoreleasepool(|_| launches.iter().try_for_each(|launch| self.launch(launch)))
    }

    /// Another thread hands the work over and waits, so that this one can go on encoding.
    fn read_back(
        &self,
        ids: &Tensor,
        floats: &[&Tensor],
        meanwhile: &mut dyn FnMut() -> Result<(), Error>,
    ) -> Result<(Vec<u32>, Vec<Vec<f32>>), Error> {
        let (waited, encoded) = std::thread::scope(|scope| {
            let waiting = scope.spawn(|| autoreleasepool(|_| self.slots.wait()));
            let encoded = meanwhile();
            let gone = Error::NoMetal { why: "the thread that waits for it panicked" };
            (waiting.join().unwrap_or(Err(gone)), encoded)
        });
        waited.and(encoded)?;
        autoreleasepool(|_| {
            let floats = floats.iter().map(|tensor| values(tensor));
            Ok((values(ids)?, floats.collect::<Result<_, _>>()?))
        })
    }
}
