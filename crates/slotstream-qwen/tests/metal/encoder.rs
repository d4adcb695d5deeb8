//! Plans carried out by the emulator of the Metal kernels, on candle's CPU tensors.

use std::collections::HashMap;
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard};

use candle_core::{CpuStorage, DType, Device, InplaceOp1, Layout, Storage, Tensor};
use slotstream_candle::{CandleContext, Error, PlanEncoder, Resource};
use slotstream_core::ErrorKind;
use slotstream_emulator::{Emulator, EmulatorError, Order, Session};
use slotstream_kernels::metal::{BufferId, Direction, Dispatch, LIBRARIES, Memory, POISON, View};

/// Each launch is carried out at once: what candle does on the same tensors in between is in order.
#[derive(Debug)]
pub(crate) struct Emulated(Mutex<Session>);

impl Emulated {
    /// The kernels without sanitizers, which their own tests have: a graph is long.
    pub(crate) fn new() -> Arc<Self> {
        let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("emulator");
        let emulator = Emulator::fast(LIBRARIES, &folder).unwrap_or_else(|e| panic!("{e}"));
        Arc::new(Self(Mutex::new(emulator.session().expect("it starts"))))
    }

    fn session(&self) -> MutexGuard<'_, Session> {
        self.0.lock().expect("not poisoned")
    }
}

fn failed(source: EmulatorError) -> Error {
    Error::provider(ErrorKind::Bug, source)
}

impl PlanEncoder for Emulated {
    fn name(&self) -> String {
        "emulator".to_owned()
    }

    fn device(&self) -> &Device {
        &Device::Cpu
    }

    /// Full of NaN, so that what a launch forgets to write shows.
    fn room(&self, shape: &[usize], dtype: DType) -> Result<Tensor, Error> {
        let room = Tensor::zeros(shape, dtype, &Device::Cpu).within("room")?;
        let bytes = vec![POISON; room.elem_count() * dtype.size_in_bytes()];
        room.inplace_op1(&Store(&bytes)).within("room")?;
        Ok(room)
    }

    fn encode(&self, launches: Vec<Dispatch<Resource<'_>>>) -> Result<(), Error> {
        let mut job = Job::default();
        let launches: Vec<_> = launches
            .into_iter()
            .map(|launch| launch.map(|resource| job.buffer(resource)))
            .collect();
        let mut written: Vec<BufferId> = Vec::new();
        let binds = launches.iter().flat_map(Dispatch::binds);
        for bind in binds.filter(|bind| bind.direction != Direction::In) {
            if !written.contains(&bind.view.buffer) {
                written.push(bind.view.buffer);
            }
        }
        let views: Vec<_> =
            written.iter().map(|id| View::new(*id, 0, job.memory.len(*id))).collect();
        let results = self.session().run(&job.memory, &launches, &views, Order::Normal);
        for (id, bytes) in written.iter().zip(results.map_err(failed)?) {
            job.tensors[id].inplace_op1(&Store(&bytes)).within("store")?;
        }
        Ok(())
    }

    fn read_back(
        &self,
        ids: &Tensor,
        floats: &[&Tensor],
        meanwhile: &mut dyn FnMut() -> Result<(), Error>,
    ) -> Result<(Vec<u32>, Vec<Vec<f32>>), Error> {
        meanwhile()?;
        let ids = ids.flatten_all().and_then(|t| t.to_vec1()).within("read back")?;
        let floats = floats.iter().map(|t| t.flatten_all().and_then(|t| t.to_vec1()));
        Ok((ids, floats.collect::<Result<_, _>>().within("read back")?))
    }
}

/// Device memory that holds what the tensors hold.
#[derive(Default)]
struct Job {
    memory: Memory,
    /// Buffers by where candle keeps the storage.
    known: HashMap<usize, BufferId>,
    tensors: HashMap<BufferId, Tensor>,
}

impl Job {
    fn buffer(&mut self, resource: Resource<'_>) -> BufferId {
        match resource {
            Resource::Tensor(tensor) => self.tensor(&tensor),
            Resource::Pages(pages) => {
                let table = self.memory.poisoned(8 * pages.len());
                for (i, page) in pages.iter().enumerate() {
                    let offset = page.layout().start_offset() * page.dtype().size_in_bytes();
                    let page = self.tensor(page);
                    self.memory.address(table, 8 * i, page, offset);
                }
                table
            }
            Resource::Slots(reading) => {
                let table = self.memory.poisoned(8 * reading.slots().count());
                for (i, slot) in reading.slots().enumerate() {
                    let record = self.memory.bytes(reading.record(slot).expect("lent").to_vec());
                    self.memory.address(table, 8 * i, record, 0);
                }
                table
            }
            other => panic!("{other:?}"),
        }
    }

    /// The whole storage of a tensor.
    fn tensor(&mut self, tensor: &Tensor) -> BufferId {
        let (storage, _) = tensor.storage_and_layout();
        let Storage::Cpu(cpu) = &*storage else { panic!("on the CPU") };
        *self.known.entry(std::ptr::from_ref(cpu).addr()).or_insert_with(|| {
            let buffer = self.memory.bytes(bytes(cpu).to_vec());
            self.tensors.insert(buffer, tensor.clone());
            buffer
        })
    }
}

fn bytes(storage: &CpuStorage) -> &[u8] {
    match storage {
        CpuStorage::F32(values) => bytemuck::cast_slice(values),
        CpuStorage::U32(values) => bytemuck::cast_slice(values),
        CpuStorage::BF16(values) => bytemuck::cast_slice(values),
        CpuStorage::U8(values) => values,
        _ => panic!("no kernel takes it"),
    }
}

/// Replaces what a whole storage holds.
struct Store<'a>(&'a [u8]);

impl InplaceOp1 for Store<'_> {
    fn name(&self) -> &'static str {
        "store"
    }

    fn cpu_fwd(&self, storage: &mut CpuStorage, _: &Layout) -> candle_core::Result<()> {
        let to: &mut [u8] = match storage {
            CpuStorage::F32(values) => bytemuck::cast_slice_mut(values),
            CpuStorage::U32(values) => bytemuck::cast_slice_mut(values),
            CpuStorage::BF16(values) => bytemuck::cast_slice_mut(values),
            CpuStorage::U8(values) => values,
            _ => panic!("no kernel writes it"),
        };
        to.copy_from_slice(self.0);
        Ok(())
    }
}
