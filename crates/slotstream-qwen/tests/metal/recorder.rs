//! Writes down what is handed to a device: launches, waits, and what the host writes.

use std::collections::HashSet;
use std::ops::Range;
use std::sync::{Arc, Mutex, MutexGuard};

use candle_core::{DType, Device, Storage, Tensor};
use slotstream_candle::{Error, PlanEncoder, Resource, SlotDevice, touched};
use slotstream_core::{SlotId, Tick};
use slotstream_kernels::metal::{Direction, Dispatch};

/// What a launch touches: a storage, and which of its bytes.
#[derive(Clone, Debug)]
pub(crate) struct Touch {
    pub(crate) storage: usize,
    pub(crate) bytes: Range<usize>,
    pub(crate) writes: bool,
}

impl Touch {
    /// Whether the order of the two matters.
    pub(crate) fn conflicts(&self, other: &Self) -> bool {
        let overlap = self.bytes.start < other.bytes.end && other.bytes.start < self.bytes.end;
        self.storage == other.storage && overlap && (self.writes || other.writes)
    }
}

/// In the order in which they happened.
#[derive(Clone, Debug)]
pub(crate) enum Event {
    /// A launch, `barrier` before it or not.
    Launch { kernel: &'static str, touches: Vec<Touch>, slots: Vec<SlotId>, barrier: bool },
    /// The host made a small tensor.
    Upload { bytes: usize },
    /// The host waits for everything so far, and reads.
    Wait,
    /// The host is about to write a slot that was read before.
    Write(SlotId),
}

/// An encoder that hands on what it writes down. Its device ends what it got when it is waited for,
/// and not before.
#[derive(Debug)]
pub(crate) struct Recorder {
    inner: Arc<dyn PlanEncoder>,
    log: Arc<Log>,
}

#[derive(Debug, Default)]
pub(crate) struct Log(Mutex<Written>);

#[derive(Debug, Default)]
struct Written {
    tick: u64,
    events: Vec<Event>,
    barriers: Barriers,
}

/// Where candle's encoder puts barriers: before a launch that touches a buffer which one since the
/// last barrier writes, or writes one that one since then touches.
#[derive(Debug, Default)]
struct Barriers {
    read: HashSet<usize>,
    written: HashSet<usize>,
}

impl Barriers {
    fn before(&mut self, launch: &Dispatch<Resource<'_>>) -> bool {
        let all: Vec<_> =
            touched(launch).map(|(tensor, writes)| (storage(tensor), writes)).collect();
        let waits = |(of, writes): &(usize, bool)| {
            self.written.contains(of) || (*writes && self.read.contains(of))
        };
        let barrier = all.iter().any(waits);
        if barrier {
            *self = Self::default();
        }
        for (of, writes) in all {
            if writes { &mut self.written } else { &mut self.read }.insert(of);
        }
        barrier
    }
}

impl Log {
    fn lock(&self) -> MutexGuard<'_, Written> {
        self.0.lock().expect("not poisoned")
    }

    fn push(&self, event: Event) {
        let mut log = self.lock();
        if matches!(event, Event::Wait) {
            log.tick += 1;
            log.barriers = Barriers::default();
        }
        log.events.push(event);
    }

    fn launch(&self, launch: &Dispatch<Resource<'_>>) {
        let slots = launch.binds().iter().find_map(|bind| match &bind.view.buffer {
            Resource::Slots(reading) => Some(reading.slots().collect()),
            _ => None,
        });
        let barrier = self.lock().barriers.before(launch);
        self.push(Event::Launch {
            kernel: launch.kernel(),
            touches: touches(launch),
            slots: slots.unwrap_or_default(),
            barrier,
        });
    }

    /// What was written down since the last call.
    pub(crate) fn take(&self) -> Vec<Event> {
        std::mem::take(&mut self.lock().events)
    }
}

impl Recorder {
    pub(crate) fn new(inner: Arc<dyn PlanEncoder>) -> (Arc<Self>, Arc<Log>) {
        let log = Arc::new(Log::default());
        (Arc::new(Self { inner, log: Arc::clone(&log) }), log)
    }
}

impl SlotDevice for Log {
    fn tick(&self) -> Tick {
        Tick::new(self.lock().tick)
    }

    fn vacate(&self, slot: SlotId, after: Tick) -> Result<(), Error> {
        // What is encoded under the current tick ends only with a wait.
        if after >= self.tick() {
            self.push(Event::Wait);
        }
        self.push(Event::Write(slot));
        Ok(())
    }
}

impl PlanEncoder for Recorder {
    fn name(&self) -> String {
        self.inner.name()
    }

    fn device(&self) -> &Device {
        self.inner.device()
    }

    fn slot_device(&self) -> Option<Arc<dyn SlotDevice>> {
        Some(self.log.clone())
    }

    fn room(&self, shape: &[usize], dtype: DType) -> Result<Tensor, Error> {
        self.inner.room(shape, dtype)
    }

    fn words(&self, words: Vec<u32>) -> Result<Tensor, Error> {
        self.log.push(Event::Upload { bytes: 4 * words.len() });
        self.inner.words(words)
    }

    fn floats(&self, floats: Vec<f32>) -> Result<Tensor, Error> {
        self.log.push(Event::Upload { bytes: 4 * floats.len() });
        self.inner.floats(floats)
    }

    fn encode(&self, launches: Vec<Dispatch<Resource<'_>>>) -> Result<(), Error> {
        launches.iter().for_each(|launch| self.log.launch(launch));
        self.inner.encode(launches)
    }

    fn read_back(
        &self,
        ids: &Tensor,
        floats: &[&Tensor],
        meanwhile: &mut dyn FnMut() -> Result<(), Error>,
    ) -> Result<(Vec<u32>, Vec<Vec<f32>>), Error> {
        self.log.push(Event::Wait);
        self.inner.read_back(ids, floats, meanwhile)
    }
}

fn touches(launch: &Dispatch<Resource<'_>>) -> Vec<Touch> {
    let mut touches = Vec::new();
    for bind in launch.binds() {
        match &bind.view.buffer {
            Resource::Tensor(tensor) => {
                let bytes = bind.view.offset..bind.view.offset + bind.view.len;
                let writes = bind.direction != Direction::In;
                touches.push(Touch { storage: storage(tensor), bytes, writes });
            }
            Resource::Pages(pages) => {
                let all =
                    |page| Touch { storage: storage(page), bytes: 0..usize::MAX, writes: false };
                touches.extend(pages.iter().map(all));
            }
            // Slots are written by the host alone.
            _ => {}
        }
    }
    touches
}

/// Names a tensor's memory.
fn storage(tensor: &Tensor) -> usize {
    let (storage, _) = tensor.storage_and_layout();
    let Storage::Cpu(cpu) = &*storage else { panic!("on the CPU") };
    std::ptr::from_ref(cpu).addr()
}
