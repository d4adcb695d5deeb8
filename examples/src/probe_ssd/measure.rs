//! One measurement.

use std::fs::{self, File};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::mpsc::{Sender, channel};
use std::time::{Duration, Instant};

use rustix::time::{ClockId, clock_gettime};
use slotstream_core::{Extent, Job, Landing, ReadClass, ReadError, ReadQueue, RecordReader};
use slotstream_io::{LaneQueue, ReaderKind, ScratchPage, ScratchPool};

use super::{Arguments, Shape, Way};
use crate::Failure;

/// What is measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Cell {
    pub(super) way: Way,
    pub(super) reader: ReaderKind,
    pub(super) depth: u16,
}

impl Cell {
    /// Everything that the command line asks for.
    pub(super) fn all(arguments: &Arguments) -> Vec<Self> {
        let mut cells = Vec::new();
        for &way in &arguments.way {
            for &depth in &arguments.depth {
                cells.extend(arguments.reader.iter().map(|&reader| Self { way, reader, depth }));
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
    /// Reads everything once on as many lanes as the cell is deep.
    pub(super) fn of(
        reader: &Arc<dyn RecordReader>,
        cell: &Cell,
        reads: Vec<Extent>,
        shape: &Shape,
    ) -> Result<Self, Failure> {
        let failed = |source| Failure::Reader { source };
        let depth = usize::from(cell.depth);
        let queue = LaneQueue::new(Arc::clone(reader), depth).map_err(failed)?;
        // In range: a record fits in memory, as the engine's slots do.
        let page = (shape.record() as usize).max(1 << 15);
        let pool = ScratchPool::new(page, depth).map_err(failed)?;
        let (to, from) = channel();
        let bytes = reads.iter().map(Extent::len).sum();
        let count = reads.len();
        let jobs = reads.into_iter().map(|extent| {
            let landing =
                Timed { pool: pool.clone(), page: None, extent, begun: None, to: to.clone() };
            Job::new(extent, Box::new(landing))
        });
        let jobs: Vec<Job> = jobs.collect();
        drop(to);
        let (fetched, processor, begun) = (fetched(), processor_time(), Instant::now());
        queue.submit(ReadClass::Demand, jobs);
        let mut latencies = Vec::with_capacity(count);
        for result in from {
            latencies.push(result.map_err(|source| Failure::Read { source })?.as_secs_f64());
        }
        let (seconds, processor) = (begun.elapsed(), processor_time().saturating_sub(processor));
        let after = self::fetched();
        Ok(Self {
            bytes,
            seconds: seconds.as_secs_f64(),
            processor_s: processor.as_secs_f64(),
            fetched: after.zip(fetched).map(|(after, before)| after.saturating_sub(before)),
            latencies,
        })
    }
}

/// Takes a page when its read begins, and tells how long that took.
struct Timed {
    pool: ScratchPool,
    page: Option<ScratchPage>,
    extent: Extent,
    begun: Option<Instant>,
    to: Sender<Result<Duration, ReadError>>,
}

impl Landing for Timed {
    fn buffer(&mut self) -> &mut [u8] {
        // As many pages as lanes: there is one.
        self.page = self.pool.take().ok();
        self.begun = Some(Instant::now());
        let len = self.extent.len() as usize;
        self.page.as_mut().and_then(|page| page.get_mut(..len)).unwrap_or_default()
    }

    fn landed(self: Box<Self>, result: Result<(), ReadError>) {
        let took = self.begun.map_or(Duration::ZERO, |begun| begun.elapsed());
        // Whoever waits has gone after an error.
        let _ = self.to.send(result.map(|()| took));
    }
}

/// Drops the files from the page cache, so that reads are cold.
pub(super) fn forget(files: &[PathBuf]) -> Result<(), Failure> {
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
fn processor_time() -> Duration {
    clock_gettime(ClockId::ProcessCPUTime).try_into().unwrap_or_default()
}

/// Bytes that this process caused to be fetched from disks so far; `None` where the system does
/// not say.
fn fetched() -> Option<u64> {
    let text = fs::read_to_string("/proc/self/io").ok()?;
    let line = text.lines().find_map(|line| line.strip_prefix("read_bytes: "))?;
    line.trim().parse().ok()
}
