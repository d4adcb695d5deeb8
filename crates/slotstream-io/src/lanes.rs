//! The lane queue: threads that carry out owned read jobs, demand before speculation.

mod backlog;
mod busy;
mod tracked;

use std::any::Any;
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::Instant;

use slotstream_core::{
    CancelToken, Extent, Job, ReadClass, ReadCounters, ReadError, ReadQueue, RecordReader,
};

use self::backlog::{Backlog, Next};
use self::busy::BusyClock;
use self::tracked::Tracked;
use crate::IoError;
use crate::sync::{AtomicU64, Builder, Condvar, JoinHandle, Mutex, Ordering, current};

/// A fixed number of threads, the lanes, over one reader.
///
/// A lane reads one job at a time, or, where the reader keeps several in flight
/// ([`RecordReader::batch_depth`] above 1), its share of the jobs of one class that are queued: as
/// many as there are for each lane, rounded up, `batch_depth` at most, and
/// [`Self::SPECULATIVE_BATCH`] of the speculation, so that a demand that comes next waits for few
/// guesses. So up to `lanes * batch_depth` reads are in flight. A job's read begins when a lane
/// takes it, and its landing is called as soon as its own read has ended.
///
/// Two first-in-first-out classes: no speculative job begins while a demand is queued.
/// [`promote`](ReadQueue::promote) turns speculation into demand. Each job
/// ends with exactly one call of its landing on a lane's thread:
/// - `Ok` or the reader's error after its read;
/// - [`ReadError::Cancelled`] when its token was set before its read began;
/// - [`ReadError::Closed`] when [`shutdown`](Self::shutdown) or the drop came first;
/// - [`ReadError::BufferLength`] when the landing's buffer is not as long as the extent;
/// - [`ReadError::Other`] when the reader, or the landing's `buffer`, panicked, or when the reader
///   dropped a job of several unended.
///
/// A landing whose `landed` panics is counted and reported as a `tracing` error; its lane lives
/// on. The counters include a read before its landing is called.
///
/// Dropping the queue ends the jobs that are still queued with `Closed` and joins every lane. A
/// landing that waits for the thread that drops its queue would wait for ever.
///
/// Each read is a `tracing` span `read` at trace level.
pub struct LaneQueue {
    shared: Arc<Shared>,
    lanes: Vec<JoinHandle<()>>,
}

struct Shared {
    reader: Arc<dyn RecordReader>,
    lanes: usize,
    /// Jobs that the reader is handed at once, at most.
    depth: usize,
    inner: Mutex<Inner>,
    /// Signalled once for each new job, and to all when the queue is closed.
    work: Condvar,
    landing_panics: AtomicU64,
}

struct Inner {
    backlog: Backlog<Job>,
    counters: ReadCounters,
    busy: BusyClock,
}

/// What a lane does next with the job it took.
enum Turn {
    Read(Job, ReadClass),
    ReadAll(Vec<Job>, ReadClass),
    End(Job, ReadError),
}

impl LaneQueue {
    /// The largest number of lanes.
    pub const MAX_LANES: usize = 1024;

    /// The most speculative jobs that one lane takes at once.
    pub const SPECULATIVE_BATCH: usize = 9;

    /// Starts `lanes` threads that read through `reader`.
    ///
    /// # Errors
    /// [`IoError::Lanes`] for 0 or more than [`Self::MAX_LANES`]; [`IoError::Spawn`] when the
    /// system refuses a thread.
    pub fn new(reader: Arc<dyn RecordReader>, lanes: usize) -> Result<Self, IoError> {
        if lanes == 0 || lanes > Self::MAX_LANES {
            return Err(IoError::Lanes { requested: lanes, limit: Self::MAX_LANES });
        }
        let inner = Inner {
            backlog: Backlog::new(),
            counters: ReadCounters::default(),
            busy: BusyClock::new(),
        };
        let depth = reader.batch_depth().max(1);
        let shared = Arc::new(Shared {
            reader,
            lanes,
            depth,
            inner: Mutex::new(inner),
            work: Condvar::new(),
            landing_panics: AtomicU64::new(0),
        });
        let mut queue = Self { shared, lanes: Vec::with_capacity(lanes) };
        for started in 0..lanes {
            let shared = Arc::clone(&queue.shared);
            let lane = Builder::new()
                .name(format!("read-lane-{started}"))
                .spawn(move || shared.serve())
                // The drop of `queue` joins those that had started.
                .map_err(|source| IoError::Spawn { requested: lanes, started, source })?;
            queue.lanes.push(lane);
        }
        Ok(queue)
    }

    /// The number of threads.
    #[must_use]
    pub fn lanes(&self) -> usize {
        self.lanes.len()
    }

    /// The reader behind the queue.
    #[must_use]
    pub fn reader(&self) -> &Arc<dyn RecordReader> {
        &self.shared.reader
    }

    /// Jobs of one class that no lane has taken yet.
    #[must_use]
    pub fn queued(&self, class: ReadClass) -> usize {
        self.shared.inner.lock().backlog.queued(class)
    }

    /// Reads that are running now.
    #[must_use]
    pub fn in_flight(&self) -> usize {
        self.shared.inner.lock().backlog.in_flight()
    }

    /// How many landings panicked.
    #[must_use]
    pub fn landing_panics(&self) -> u64 {
        self.shared.landing_panics.load(Ordering::Relaxed)
    }

    /// Lets no further read begin: all queued jobs, and all submitted from now on, end with
    /// [`ReadError::Closed`]. Reads in flight end as usual. Returns at once.
    pub fn shutdown(&self) {
        self.shared.inner.lock().backlog.close();
        self.shared.work.notify_all();
    }
}

impl ReadQueue for LaneQueue {
    fn submit(&self, class: ReadClass, jobs: Vec<Job>) {
        // A lane that takes no part in the wait looks at the backlog before it waits, so a
        // signal that finds nobody is not missed.
        let wake = jobs.len().min(self.lanes.len());
        self.shared.inner.lock().backlog.push(class, jobs);
        for _ in 0..wake {
            self.shared.work.notify_one();
        }
    }

    fn promote(&self, tokens: &[CancelToken]) {
        let wanted = |job: &Job| tokens.iter().any(|token| job.has_token(token));
        // Lanes that sleep have nothing to do in either class: nobody is woken.
        self.shared.inner.lock().backlog.promote(wanted);
    }

    fn counters(&self) -> ReadCounters {
        let inner = self.shared.inner.lock();
        let mut counters = inner.counters;
        counters.busy = inner.busy.total(Instant::now());
        counters
    }
}

impl Drop for LaneQueue {
    fn drop(&mut self) {
        self.shared.inner.lock().backlog.leave();
        self.shared.work.notify_all();
        for lane in self.lanes.drain(..) {
            // The last handle of the queue may be dropped by a landing. That lane cannot wait
            // for itself; it leaves once the backlog is empty.
            if lane.thread().id() != current().id() {
                // A lane catches every panic of foreign code.
                let _ = lane.join();
            }
        }
    }
}

impl fmt::Debug for LaneQueue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LaneQueue")
            .field("reader", &self.shared.reader)
            .field("lanes", &self.lanes.len())
            .finish_non_exhaustive()
    }
}

impl Shared {
    /// The life of a lane.
    fn serve(self: &Arc<Self>) {
        while let Some(turn) = self.next() {
            let (job, result) = match turn {
                Turn::ReadAll(jobs, class) => {
                    self.read_all(jobs, class);
                    continue;
                }
                Turn::Read(mut job, class) => {
                    let result = self.read(&mut job, class);
                    (job, result)
                }
                Turn::End(job, error) => {
                    self.inner.lock().counters.failures += 1;
                    (job, Err(error))
                }
            };
            self.land(job, result);
        }
    }

    /// Waits for a job; `None` when there will be none.
    fn next(&self) -> Option<Turn> {
        let mut inner = self.inner.lock();
        loop {
            match inner.backlog.next(Job::is_cancelled) {
                Next::Read(job, class) => {
                    return Some(self.take(&mut inner, job, class));
                }
                Next::Cancelled(job) => {
                    let error = ReadError::cancelled(job.extent());
                    return Some(Turn::End(job, error));
                }
                Next::Closed(job) => {
                    let error = ReadError::closed(job.extent());
                    return Some(Turn::End(job, error));
                }
                Next::Wait => self.work.wait(&mut inner),
                Next::Leave => return None,
            }
        }
    }

    /// Begins the read of a job that was just taken, and of the rest of this lane's share.
    fn take(&self, inner: &mut Inner, job: Job, class: ReadClass) -> Turn {
        let share = (inner.backlog.queued(class) + 1).div_ceil(self.lanes).min(self.depth);
        let share = match class {
            ReadClass::Demand => share,
            _ => share.min(LaneQueue::SPECULATIVE_BATCH),
        };
        let now = Instant::now();
        inner.busy.begin(now);
        if share == 1 {
            return Turn::Read(job, class);
        }
        let mut jobs = vec![job];
        jobs.extend(inner.backlog.more(class, share - 1, Job::is_cancelled));
        jobs.iter().skip(1).for_each(|_| inner.busy.begin(now));
        Turn::ReadAll(jobs, class)
    }

    /// Lets the reader read several jobs; each counts itself and lands as it ends.
    fn read_all(self: &Arc<Self>, jobs: Vec<Job>, class: ReadClass) {
        let bytes = jobs.iter().fold(0_u64, |sum, job| sum.saturating_add(job.extent().len()));
        let tracked: Vec<Job> = jobs.into_iter().map(|job| Tracked::wrap(job, self)).collect();
        // The jobs that a panic takes along end by their drop.
        let outcome = catch_unwind(AssertUnwindSafe(|| {
            let jobs = tracked.len();
            let _span = tracing::trace_span!("read", jobs, bytes, ?class).entered();
            self.reader.read_jobs(tracked);
        }));
        if let Err(panic) = outcome {
            let message = panic_message(panic);
            let _ = catch_unwind(|| tracing::error!(message, "the reader panicked"));
        }
    }

    /// Reads one job and counts it.
    fn read(&self, job: &mut Job, class: ReadClass) -> Result<(), ReadError> {
        let extent = *job.extent();
        // A buffer that a panic left half-written is reported as a failed read, whose buffer is
        // unspecified; the reader's own invariants are the reader's business.
        let outcome = catch_unwind(AssertUnwindSafe(|| {
            let _span = tracing::trace_span!(
                "read",
                file = extent.file().get(),
                offset = extent.offset(),
                bytes = extent.len(),
                ?class,
            )
            .entered();
            let buffer = job.buffer();
            if buffer.len() as u64 != extent.len() {
                return Err(ReadError::buffer_length(&extent, buffer.len()));
            }
            self.reader.read_exact_at(&extent, buffer)?;
            Ok(self.reader.issued_len(&extent))
        }));
        let result = outcome.unwrap_or_else(|panic| {
            Err(ReadError::other(&extent, Panicked { message: panic_message(panic) }))
        });
        self.finished(&extent, result)
    }

    /// Counts a read that has ended; `result` has the bytes that were issued for it.
    fn finished(&self, extent: &Extent, result: Result<u64, ReadError>) -> Result<(), ReadError> {
        let mut inner = self.inner.lock();
        inner.backlog.finished();
        inner.busy.end(Instant::now());
        let counters = &mut inner.counters;
        match result {
            Ok(issued) => {
                counters.reads += 1;
                counters.bytes_read = counters.bytes_read.saturating_add(extent.len());
                counters.bytes_issued = counters.bytes_issued.saturating_add(issued);
                Ok(())
            }
            Err(error) => {
                counters.failures += 1;
                Err(error)
            }
        }
    }

    /// Ends a job.
    fn land(&self, job: Job, result: Result<(), ReadError>) {
        let extent = *job.extent();
        let outcome = catch_unwind(AssertUnwindSafe(|| job.complete(result)));
        if let Err(panic) = outcome {
            self.landing_panics.fetch_add(1, Ordering::Relaxed);
            let message = panic_message(panic);
            // A subscriber is foreign code too.
            let _ = catch_unwind(|| {
                tracing::error!(
                    file = extent.file().get(),
                    offset = extent.offset(),
                    bytes = extent.len(),
                    message,
                    "a landing panicked"
                );
            });
        }
    }
}

/// The source of [`ReadError::Other`] when a reader or a landing's `buffer` panicked.
#[derive(Debug, thiserror::Error)]
#[error("the reader panicked: {message}")]
struct Panicked {
    message: String,
}

fn panic_message(panic: Box<dyn Any + Send>) -> String {
    match panic.downcast::<String>() {
        Ok(message) => *message,
        Err(panic) => match panic.downcast::<&'static str>() {
            Ok(message) => (*message).to_owned(),
            Err(panic) => {
                // The drop of a stranger's value may panic as well.
                std::mem::forget(panic);
                "a value that is not a text".to_owned()
            }
        },
    }
}
