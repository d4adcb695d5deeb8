//! Owned read jobs and the queue that carries them out.

use std::fmt;
use std::time::Duration;

use crate::{CancelToken, Extent, ReadError};

/// Where the bytes of a job land. A slot's piece, a scratch page and a `Vec` implement it.
pub trait Landing: Send {
    /// The destination, exactly as long as the job's extent. Asked for once, before the read.
    fn buffer(&mut self) -> &mut [u8];

    /// Called exactly once, on a lane's thread, when the read has ended. After an error the
    /// content of the buffer is unspecified.
    fn landed(self: Box<Self>, result: Result<(), ReadError>);
}

/// A read that owns its destination.
pub struct Job {
    extent: Extent,
    dest: Box<dyn Landing>,
    cancel: Option<CancelToken>,
}

impl Job {
    /// Reads `extent` into `dest`.
    #[must_use]
    pub fn new(extent: Extent, dest: Box<dyn Landing>) -> Self {
        Self { extent, dest, cancel: None }
    }

    /// Lets the job end with [`ReadError::Cancelled`] if `token` is set before its read begins.
    #[must_use]
    pub fn with_cancel(mut self, token: CancelToken) -> Self {
        self.cancel = Some(token);
        self
    }

    /// What to read.
    #[must_use]
    pub const fn extent(&self) -> &Extent {
        &self.extent
    }

    /// Whether `token`, or a clone of it, is the job's token.
    #[must_use]
    pub fn has_token(&self, token: &CancelToken) -> bool {
        self.cancel.as_ref().is_some_and(|own| own.is_same(token))
    }

    /// Whether the job's token was set.
    #[must_use]
    pub fn is_cancelled(&self) -> bool {
        self.cancel.as_ref().is_some_and(CancelToken::is_cancelled)
    }

    /// The destination's bytes.
    pub fn buffer(&mut self) -> &mut [u8] {
        self.dest.buffer()
    }

    /// Ends the job.
    pub fn complete(self, result: Result<(), ReadError>) {
        self.dest.landed(result);
    }
}

impl fmt::Debug for Job {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Job").field("extent", &self.extent).finish_non_exhaustive()
    }
}

/// How urgent a job is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ReadClass {
    /// The running layer waits for it.
    Demand,
    /// A guess: served when no demand is queued.
    Speculative,
}

/// Carries out jobs on threads of its own.
pub trait ReadQueue: Send + Sync + fmt::Debug {
    /// Queues jobs. Each ends with exactly one call of its landing, also after a shutdown.
    fn submit(&self, class: ReadClass, jobs: Vec<Job>);

    /// Queued jobs with one of these tokens are urgent from now on: they go behind the jobs of
    /// [`ReadClass::Demand`] that are queued already. A hint: a queue that does nothing reads them
    /// later, and none is lost or read twice.
    fn promote(&self, tokens: &[CancelToken]) {
        let _ = tokens;
    }

    /// What has been read so far.
    fn counters(&self) -> ReadCounters;
}

/// What a queue has read since it was made.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct ReadCounters {
    /// Reads that succeeded.
    pub reads: u64,
    /// Reads that failed or were cancelled.
    pub failures: u64,
    /// Payload bytes of the reads that succeeded.
    pub bytes_read: u64,
    /// Bytes moved for them, widening to alignment included.
    pub bytes_issued: u64,
    /// Time during which at least one read was in flight.
    pub busy: Duration,
}

impl ReadCounters {
    /// What was read between an earlier state of the same counters and this one.
    #[must_use]
    pub fn since(&self, earlier: &Self) -> Self {
        Self {
            reads: self.reads.saturating_sub(earlier.reads),
            failures: self.failures.saturating_sub(earlier.failures),
            bytes_read: self.bytes_read.saturating_sub(earlier.bytes_read),
            bytes_issued: self.bytes_issued.saturating_sub(earlier.bytes_issued),
            busy: self.busy.saturating_sub(earlier.busy),
        }
    }
}
