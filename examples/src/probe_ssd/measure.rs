//! One measurement.

use std::fs::{self, File};
use std::path::PathBuf;
use std::sync::mpsc::{Sender, channel};
use std::sync::{Arc, Barrier};
use std::time::{Duration, Instant};

use memmap2::MmapMut;
use rustix::time::{ClockId, clock_gettime};
use slotstream_core::{Extent, Job, Landing, ReadClass, ReadError, ReadQueue, RecordReader};
use slotstream_io::LaneQueue;

use super::slots::Slots;
use super::source::Source;
use super::{Arguments, Way};
use crate::Failure;

/// What is measured.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Cell {
    pub(super) way: Way,
    pub(super) source: Source,
    pub(super) depth: u16,
}

impl Cell {
    /// Everything that the command line asks for.
    pub(super) fn all(arguments: &Arguments, sources: &[Source]) -> Vec<Self> {
        let mut cells = Vec::new();
        for &way in &arguments.way {
            for &depth in &arguments.depth {
                cells.extend(sources.iter().map(|&source| Self { way, source, depth }));
            }
        }
        cells
    }
}

/// What came out.
#[derive(Clone, Debug)]
pub(super) struct Sample {
    pub(super) bytes: u64,
    pub(super) seconds: f64,
    pub(super) processor_s: f64,
    /// Bytes that the system fetched; `None` where it does not say.
    pub(super) fetched: Option<u64>,
    /// Seconds of each read.
    pub(super) latencies: Vec<f64>,
}

impl Sample {
    /// Reads everything once on as many lanes as the cell is deep. `warm_up` are reads that come
    /// first, one a lane at once, and are not counted: threads, rings and bounce pages are made in
    /// them, as an engine makes them once and keeps them.
    pub(super) fn of(
        reader: &Arc<dyn RecordReader>,
        cell: &Cell,
        warm_up: Vec<Extent>,
        reads: Vec<Extent>,
        slots: &Slots,
    ) -> Result<Self, Failure> {
        let failed = |source| Failure::Reader { source };
        let queue = LaneQueue::new(Arc::clone(reader), usize::from(cell.depth)).map_err(failed)?;
        let together = Some(Arc::new(Barrier::new(warm_up.len())));
        pass(&queue, warm_up, slots, together)?;
        let bytes = reads.iter().map(Extent::len).sum();
        let (before, processor, begun) = (fetched(), processor_time(), Instant::now());
        let latencies = pass(&queue, reads, slots, None)?;
        let (seconds, processor) = (begun.elapsed(), processor_time().saturating_sub(processor));
        let fetched = cell.source.fetches().then(fetched).flatten().zip(before);
        Ok(Self {
            bytes,
            seconds: seconds.as_secs_f64(),
            processor_s: processor.as_secs_f64(),
            fetched: fetched.map(|(after, before)| after.saturating_sub(before)),
            latencies,
        })
    }
}

/// Reads everything through the queue; the seconds of each read.
pub(crate) fn pass(
    queue: &LaneQueue,
    reads: Vec<Extent>,
    slots: &Slots,
    together: Option<Arc<Barrier>>,
) -> Result<Vec<f64>, Failure> {
    let (to, from) = channel();
    let mut latencies = Vec::with_capacity(reads.len());
    let jobs = reads.into_iter().map(|extent| {
        let (slots, to, together) = (slots.clone(), to.clone(), together.clone());
        let landing = Timed { slots, slot: None, extent, begun: None, together, to };
        Job::new(extent, Box::new(landing))
    });
    let jobs: Vec<Job> = jobs.collect();
    drop(to);
    queue.submit(ReadClass::Demand, jobs);
    for result in from {
        latencies.push(result.map_err(|source| Failure::Read { source })?.as_secs_f64());
    }
    Ok(latencies)
}

/// Takes a slot when its read begins, and tells how long that took.
struct Timed {
    slots: Slots,
    slot: Option<MmapMut>,
    extent: Extent,
    begun: Option<Instant>,
    /// Where every lane waits for the others before it reads.
    together: Option<Arc<Barrier>>,
    to: Sender<Result<Duration, ReadError>>,
}

impl Landing for Timed {
    fn buffer(&mut self) -> &mut [u8] {
        if let Some(together) = &self.together {
            together.wait();
        }
        // At least as many slots as lanes: there is one.
        self.slot = self.slots.take();
        self.begun = Some(Instant::now());
        let len = self.extent.len() as usize;
        self.slot.as_mut().and_then(|slot| slot.get_mut(..len)).unwrap_or_default()
    }

    fn landed(mut self: Box<Self>, result: Result<(), ReadError>) {
        let took = self.begun.map_or(Duration::ZERO, |begun| begun.elapsed());
        if let Some(slot) = self.slot.take() {
            self.slots.give_back(slot);
        }
        // Whoever waits has gone after an error.
        let _ = self.to.send(result.map(|()| took));
    }
}

/// Drops the files from the page cache, so that reads are cold.
pub(crate) fn forget(files: &[PathBuf]) -> Result<(), Failure> {
    for path in files {
        let failed = |source| Failure::ReadFile { path: path.clone(), source };
        let file = File::open(path).map_err(failed)?;
        #[cfg(target_os = "linux")]
        rustix::fs::fadvise(&file, 0, None, rustix::fs::Advice::DontNeed)
            .map_err(|errno| failed(errno.into()))?;
        drop(file);
    }
    Ok(())
}

/// What this process has used of the processors.
pub(crate) fn processor_time() -> Duration {
    clock_gettime(ClockId::ProcessCPUTime).try_into().unwrap_or_default()
}

/// Bytes that this process caused to be fetched from disks so far; `None` where the system does
/// not say.
fn fetched() -> Option<u64> {
    let text = fs::read_to_string("/proc/self/io").ok()?;
    let line = text.lines().find_map(|line| line.strip_prefix("read_bytes: "))?;
    line.trim().parse().ok()
}
