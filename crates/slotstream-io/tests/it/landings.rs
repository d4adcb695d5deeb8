//! Landings and readers for the tests of the queue.

use std::path::Path;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Condvar, Mutex};
use std::time::Duration;

use slotstream_core::{Extent, FileId, Job, Landing, ReadError, ReaderMode, RecordReader};
use slotstream_io::MemReader;

/// Long enough for a loaded machine; only a hang waits for it.
pub(crate) const PATIENCE: Duration = Duration::from_secs(30);

pub(crate) const FILE_LEN: u64 = 100_000;

pub(crate) fn byte(at: u64) -> u8 {
    (at % 251) as u8
}

/// One file of [`FILE_LEN`] bytes.
pub(crate) fn memory() -> MemReader {
    MemReader::from_bytes(vec![(0..FILE_LEN).map(byte).collect()]).unwrap()
}

pub(crate) fn extent(offset: u64, len: u64) -> Extent {
    Extent::new(FileId::new(0), offset, len).unwrap()
}

/// How one job ended.
#[derive(Debug)]
pub(crate) struct Landed {
    pub(crate) extent: Extent,
    pub(crate) result: Result<(), ReadError>,
    pub(crate) bytes: Vec<u8>,
    pub(crate) thread: String,
}

impl Landed {
    /// Whether it succeeded, with the right bytes.
    pub(crate) fn right(&self) -> bool {
        let right = (self.extent.offset()..self.extent.end()).map(byte);
        self.result.is_ok() && self.bytes.iter().copied().eq(right)
    }
}

/// Collects landings. A job that is dropped without landing is noticed: nothing comes.
pub(crate) struct Landings {
    sender: Sender<Landed>,
    receiver: Receiver<Landed>,
}

impl Landings {
    pub(crate) fn new() -> Self {
        let (sender, receiver) = channel();
        Self { sender, receiver }
    }

    pub(crate) fn job(&self, extent: Extent) -> Job {
        self.job_with_buffer(extent, extent.len() as usize)
    }

    pub(crate) fn job_with_buffer(&self, extent: Extent, len: usize) -> Job {
        let to = self.sender.clone();
        Job::new(extent, Box::new(Sending { extent, bytes: vec![0xEE; len], to }))
    }

    pub(crate) fn next(&self) -> Landed {
        self.receiver.recv_timeout(PATIENCE).expect("a job never landed")
    }

    pub(crate) fn take(&self, count: usize) -> Vec<Landed> {
        (0..count).map(|_| self.next()).collect()
    }

    pub(crate) fn assert_empty(&self) {
        match self.receiver.recv_timeout(Duration::from_millis(1)) {
            Err(RecvTimeoutError::Timeout) => {}
            other => panic!("a job too many landed: {other:?}"),
        }
    }
}

struct Sending {
    extent: Extent,
    bytes: Vec<u8>,
    to: Sender<Landed>,
}

impl Landing for Sending {
    fn buffer(&mut self) -> &mut [u8] {
        &mut self.bytes
    }

    fn landed(self: Box<Self>, result: Result<(), ReadError>) {
        let thread = std::thread::current().name().unwrap_or("").to_owned();
        let Self { extent, bytes, to } = *self;
        to.send(Landed { extent, result, bytes, thread }).unwrap();
    }
}

/// A landing made of closures.
pub(crate) struct Acting<B, L> {
    pub(crate) buffer: B,
    pub(crate) landed: L,
    pub(crate) bytes: Vec<u8>,
}

impl<B, L> Landing for Acting<B, L>
where
    B: FnMut() + Send,
    L: FnOnce(Result<(), ReadError>) + Send,
{
    fn buffer(&mut self) -> &mut [u8] {
        (self.buffer)();
        &mut self.bytes
    }

    fn landed(self: Box<Self>, result: Result<(), ReadError>) {
        (self.landed)(result);
    }
}

pub(crate) fn acting(len: u64, landed: impl FnOnce(Result<(), ReadError>) + Send + 'static) -> Job {
    let bytes = vec![0; len as usize];
    Job::new(extent(0, len), Box::new(Acting { buffer: || {}, landed, bytes }))
}

/// Holds every read back until its gate opens, and writes down the order in which they began.
#[derive(Debug)]
pub(crate) struct Gated {
    inner: MemReader,
    state: Mutex<Gate>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct Gate {
    open: bool,
    /// Reads at these offsets pass a closed gate.
    passes: Vec<u64>,
    began: Vec<u64>,
}

impl Gated {
    pub(crate) fn new() -> Arc<Self> {
        Arc::new(Self { inner: memory(), state: Mutex::default(), changed: Condvar::new() })
    }

    pub(crate) fn open(&self) {
        self.state.lock().unwrap().open = true;
        self.changed.notify_all();
    }

    pub(crate) fn let_pass(&self, offset: u64) {
        self.state.lock().unwrap().passes.push(offset);
        self.changed.notify_all();
    }

    /// Waits until that many reads have begun.
    pub(crate) fn wait_for(&self, count: usize) {
        let state = self.state.lock().unwrap();
        let (_state, timeout) = self
            .changed
            .wait_timeout_while(state, PATIENCE, |state| state.began.len() < count)
            .unwrap();
        assert!(!timeout.timed_out(), "the reads never began");
    }

    pub(crate) fn order(&self) -> Vec<u64> {
        self.state.lock().unwrap().began.clone()
    }
}

impl RecordReader for Gated {
    fn read_exact_at(&self, extent: &Extent, buffer: &mut [u8]) -> Result<(), ReadError> {
        let mut state = self.state.lock().unwrap();
        state.began.push(extent.offset());
        self.changed.notify_all();
        // Not for ever: a test that fails drops its queue, which joins this lane.
        let shut = |s: &mut Gate| !s.open && !s.passes.contains(&extent.offset());
        let (state, timeout) = self.changed.wait_timeout_while(state, PATIENCE, shut).unwrap();
        drop(state);
        assert!(!timeout.timed_out(), "nobody opened the gate");
        self.inner.read_exact_at(extent, buffer)
    }

    fn effective(&self) -> ReaderMode {
        ReaderMode::new("gated", "a test")
    }

    fn path(&self, file: FileId) -> Option<&Path> {
        self.inner.path(file)
    }
}
