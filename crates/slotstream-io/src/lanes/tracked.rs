//! A job among several that the reader was handed at once.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use slotstream_core::{Job, Landing, ReadError};

use super::{Panicked, Shared, panic_message};

/// The landing of a job that a reader owns: counts the read before the job's own landing is
/// called, keeps that landing's panics from the reader, and ends a job that the reader drops.
pub(super) struct Tracked {
    /// Taken when it ends.
    job: Option<Job>,
    shared: Arc<Shared>,
    /// What the job's `buffer` panicked with.
    panicked: Option<String>,
}

impl Tracked {
    pub(super) fn wrap(job: Job, shared: &Arc<Shared>) -> Job {
        let extent = *job.extent();
        let tracked = Self { job: Some(job), shared: Arc::clone(shared), panicked: None };
        Job::new(extent, Box::new(tracked))
    }

    fn end(&mut self, result: Result<(), ReadError>) {
        let Some(job) = self.job.take() else { return };
        let (shared, extent) = (&self.shared, *job.extent());
        let issued = || match self.panicked.take() {
            Some(message) => Err(ReadError::other(&extent, Panicked { message })),
            None => result.map(|()| shared.reader.issued_len(&extent)),
        };
        let issued = catch_unwind(AssertUnwindSafe(issued)).unwrap_or_else(|panic| {
            Err(ReadError::other(&extent, Panicked { message: panic_message(panic) }))
        });
        let result = shared.finished(&extent, issued);
        shared.land(job, result);
    }
}

impl Landing for Tracked {
    /// Empty if the job's own panics, which the reader then finds too short, or reads nothing to.
    fn buffer(&mut self) -> &mut [u8] {
        let Self { job: Some(job), panicked, .. } = self else { return &mut [] };
        let buffer = move || {
            // Moved, so that what it lends may leave the closure.
            let job = job;
            job.buffer()
        };
        match catch_unwind(AssertUnwindSafe(buffer)) {
            Ok(buffer) => buffer,
            Err(panic) => {
                *panicked = Some(panic_message(panic));
                &mut []
            }
        }
    }

    fn landed(mut self: Box<Self>, result: Result<(), ReadError>) {
        self.end(result);
    }
}

impl Drop for Tracked {
    fn drop(&mut self) {
        if let Some(job) = &self.job {
            let why = if std::thread::panicking() { "it panicked" } else { "it dropped the job" };
            let error = ReadError::other(job.extent(), Unended { why });
            self.end(Err(error));
        }
    }
}

/// The source of [`ReadError::Other`] when a reader did not end a job.
#[derive(Debug, thiserror::Error)]
#[error("the reader did not end a read that it was handed with others: {why}")]
struct Unended {
    why: &'static str,
}
