//! A reader over memory that fails on demand, and queues of several tempers.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;

use slotstream_core::{
    Extent, FileId, Job, ReadClass, ReadCounters, ReadError, ReadQueue, ReaderMode, RecordReader,
};

/// Files in memory. The read with number `fail` fails and leaves rubbish in the buffer.
#[derive(Debug)]
pub(crate) struct Memory {
    files: Vec<(PathBuf, Vec<u8>)>,
    reads: AtomicU64,
    fail: AtomicU64,
    seen: Mutex<HashMap<Extent, u64>>,
}

impl Memory {
    pub(crate) fn new(files: Vec<(PathBuf, Vec<u8>)>) -> Self {
        let (reads, fail) = (AtomicU64::new(0), AtomicU64::new(u64::MAX));
        Self { files, reads, fail, seen: Mutex::default() }
    }

    /// Makes the read that comes after `skip` others fail.
    pub(crate) fn fail_after(&self, skip: u64) {
        self.fail.store(self.reads() + skip, Ordering::SeqCst);
    }

    pub(crate) fn reads(&self) -> u64 {
        self.reads.load(Ordering::SeqCst)
    }

    /// How often each extent was read.
    pub(crate) fn seen(&self) -> HashMap<Extent, u64> {
        self.seen.lock().unwrap().clone()
    }

    pub(crate) fn bytes(&self, extent: &Extent) -> &[u8] {
        &self.files[extent.file().index()].1[extent.offset() as usize..extent.end() as usize]
    }
}

impl RecordReader for Memory {
    fn read_exact_at(&self, extent: &Extent, buffer: &mut [u8]) -> Result<(), ReadError> {
        assert_eq!(buffer.len() as u64, extent.len(), "a landing is as long as its extent");
        *self.seen.lock().unwrap().entry(*extent).or_default() += 1;
        let path = &self.files[extent.file().index()].0;
        if self.reads.fetch_add(1, Ordering::SeqCst) == self.fail.load(Ordering::SeqCst) {
            buffer.fill(0xee);
            return Err(ReadError::end_of_file(path, extent, 1));
        }
        buffer.copy_from_slice(self.bytes(extent));
        Ok(())
    }

    fn effective(&self) -> ReaderMode {
        ReaderMode::new("memory", "a test")
    }

    fn path(&self, file: FileId) -> Option<&Path> {
        self.files.get(file.index()).map(|(path, _)| path.as_path())
    }
}

fn carry_out(reader: &Memory, mut job: Job) {
    let extent = *job.extent();
    let result = reader.read_exact_at(&extent, job.buffer());
    job.complete(result);
}

/// Reads on the caller's thread before `submit` returns.
#[derive(Debug)]
pub(crate) struct Inline(pub(crate) Arc<Memory>);

impl ReadQueue for Inline {
    fn submit(&self, class: ReadClass, jobs: Vec<Job>) {
        assert_eq!(class, ReadClass::Demand);
        jobs.into_iter().for_each(|job| carry_out(&self.0, job));
    }

    fn counters(&self) -> ReadCounters {
        ReadCounters::default()
    }
}

/// Reads on three threads a batch, last job first.
#[derive(Debug)]
pub(crate) struct Threads(pub(crate) Arc<Memory>);

impl ReadQueue for Threads {
    fn submit(&self, _class: ReadClass, jobs: Vec<Job>) {
        let jobs = Arc::new(Mutex::new(jobs));
        for _ in 0..3 {
            let (jobs, reader) = (Arc::clone(&jobs), Arc::clone(&self.0));
            thread::spawn(move || {
                loop {
                    let Some(job) = jobs.lock().unwrap().pop() else { break };
                    carry_out(&reader, job);
                }
            });
        }
    }

    fn counters(&self) -> ReadCounters {
        ReadCounters::default()
    }
}

/// Reads nothing until told to.
#[derive(Debug)]
pub(crate) struct Held {
    reader: Arc<Memory>,
    batches: Mutex<Vec<Vec<Job>>>,
}

impl Held {
    pub(crate) fn new(reader: Arc<Memory>) -> Self {
        Self { reader, batches: Mutex::default() }
    }

    /// Jobs of each batch that waits.
    pub(crate) fn waiting(&self) -> Vec<usize> {
        self.batches.lock().unwrap().iter().map(Vec::len).collect()
    }

    /// Carries out all that waits, last batch first.
    pub(crate) fn release(&self) {
        let batches = std::mem::take(&mut *self.batches.lock().unwrap());
        for job in batches.into_iter().rev().flatten() {
            carry_out(&self.reader, job);
        }
    }

    /// Forgets all that waits but the first `keep` jobs of each batch, which are carried out.
    pub(crate) fn abandon(&self, keep: usize) {
        let batches = std::mem::take(&mut *self.batches.lock().unwrap());
        for job in batches.into_iter().flat_map(|batch| batch.into_iter().take(keep)) {
            carry_out(&self.reader, job);
        }
    }
}

impl ReadQueue for Held {
    fn submit(&self, _class: ReadClass, jobs: Vec<Job>) {
        self.batches.lock().unwrap().push(jobs);
    }

    fn counters(&self) -> ReadCounters {
        ReadCounters::default()
    }
}

/// Was shut down: ends every job with an error.
#[derive(Debug)]
pub(crate) struct Closed;

impl ReadQueue for Closed {
    fn submit(&self, _class: ReadClass, jobs: Vec<Job>) {
        for job in jobs {
            let error = ReadError::closed(job.extent());
            job.complete(Err(error));
        }
    }

    fn counters(&self) -> ReadCounters {
        ReadCounters::default()
    }
}
