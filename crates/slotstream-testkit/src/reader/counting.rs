//! A reader that keeps books.

use std::sync::{Mutex, MutexGuard, PoisonError};

use slotstream_core::{Extent, ReadError, ReadRequest, RecordReader};

use super::hand_on;

/// Counts the reads of another reader and writes down what they asked for. Batches are handed on
/// whole.
#[derive(Debug)]
pub struct CountingReader<R> {
    inner: R,
    books: Mutex<Books>,
}

#[derive(Debug, Default)]
struct Books {
    bytes: u64,
    failures: u64,
    log: Vec<Extent>,
}

impl<R: RecordReader> CountingReader<R> {
    /// Counts the reads of `inner`.
    pub fn new(inner: R) -> Self {
        Self { inner, books: Mutex::default() }
    }

    /// Reads that have begun, those that failed included.
    pub fn reads(&self) -> u64 {
        self.books().log.len() as u64
    }

    /// Reads that failed.
    pub fn failures(&self) -> u64 {
        self.books().failures
    }

    /// Bytes of the reads that succeeded.
    pub fn bytes(&self) -> u64 {
        self.books().bytes
    }

    /// What was asked for, in the order in which the reads began.
    pub fn log(&self) -> Vec<Extent> {
        self.books().log.clone()
    }

    /// Starts empty books.
    pub fn clear(&self) {
        *self.books() = Books::default();
    }

    /// The reader behind it.
    pub const fn inner(&self) -> &R {
        &self.inner
    }

    fn books(&self) -> MutexGuard<'_, Books> {
        self.books.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn close(&self, extent: &Extent, result: &Result<(), ReadError>) {
        let mut books = self.books();
        match result {
            Ok(()) => books.bytes += extent.len(),
            Err(_) => books.failures += 1,
        }
    }
}

impl<R: RecordReader> RecordReader for CountingReader<R> {
    fn read_exact_at(&self, extent: &Extent, buffer: &mut [u8]) -> Result<(), ReadError> {
        self.books().log.push(*extent);
        let result = self.inner.read_exact_at(extent, buffer);
        self.close(extent, &result);
        result
    }

    fn read_batch(
        &self,
        requests: &mut [ReadRequest<'_>],
        landed: &mut dyn FnMut(usize, Result<(), ReadError>),
    ) {
        let extents: Vec<Extent> = requests.iter().map(|request| request.extent).collect();
        self.books().log.extend(&extents);
        self.inner.read_batch(requests, &mut |i, result| {
            if let Some(extent) = extents.get(i) {
                self.close(extent, &result);
            }
            landed(i, result);
        });
    }

    hand_on!("counted");
}
