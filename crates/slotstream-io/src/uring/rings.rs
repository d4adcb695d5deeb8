//! The rings of a reader: one for each thread that reads at the same time.

use std::fmt;
use std::os::fd::{AsRawFd, RawFd};

use parking_lot::Mutex;
use slotstream_core::{ReadError, ReadRequest};

use super::batch::Batch;
pub(super) use super::ring::DEPTH;
use super::ring::Ring;
use crate::DirectReader;

/// Rings over the same files. They are closed before the files are.
pub(super) struct Rings {
    /// What is registered: the direct descriptors, or the plain ones where direct reads were
    /// refused.
    files: Vec<RawFd>,
    direct: bool,
    limit: usize,
    state: Mutex<State>,
}

struct State {
    free: Vec<Ring>,
    made: usize,
}

impl Rings {
    /// Makes the first ring, to see whether there can be any.
    pub(super) fn open(reader: &DirectReader, limit: usize) -> Result<Self, String> {
        let way = reader.way();
        let files: Vec<RawFd> = match way {
            Some(way) => way.files.iter().map(|direct| direct.file.as_raw_fd()).collect(),
            None => reader.files().iter().map(|plain| plain.file.as_raw_fd()).collect(),
        };
        if files.is_empty() {
            return Err("there are no files to register".into());
        }
        let first = Ring::new(&files)?;
        let state = Mutex::new(State { free: vec![first], made: 1 });
        Ok(Self { files, direct: way.is_some(), limit, state })
    }

    /// Reads the batch, unless there is no ring for it, or what is registered is no longer
    /// trusted.
    pub(super) fn read_batch(
        &self,
        reader: &DirectReader,
        requests: &mut [ReadRequest<'_>],
        landed: &mut dyn FnMut(usize, Result<(), ReadError>),
    ) -> bool {
        // Looked at once: another thread may find a reason not to trust it at any time.
        let way = reader.way();
        if self.direct && way.is_none() {
            return false;
        }
        let alignment = way.map(|way| way.alignment);
        let Some(mut leased) = self.take() else { return false };
        let Some(ring) = &mut leased.ring else { return false };
        let mut places = [const { None }; DEPTH];
        ring.scope(&mut places, |flight| {
            Batch::new(reader, alignment, flight).run(requests, landed);
        });
        true
    }

    fn take(&self) -> Option<Leased<'_>> {
        let mut state = self.state.lock();
        if let Some(ring) = state.free.pop() {
            return Some(Leased { ring: Some(ring), home: self });
        }
        if state.made >= self.limit {
            return None;
        }
        state.made += 1;
        drop(state);
        // From here on the drop keeps the count, whatever happens.
        let mut leased = Leased { ring: None, home: self };
        match Ring::new(&self.files) {
            Ok(ring) => leased.ring = Some(ring),
            Err(why) => {
                tracing::debug!(why, "no further ring, reading without");
                return None;
            }
        }
        Some(leased)
    }
}

impl fmt::Debug for Rings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Rings")
            .field("direct", &self.direct)
            .field("limit", &self.limit)
            .field("made", &self.state.lock().made)
            .finish_non_exhaustive()
    }
}

/// A ring that goes back when it is dropped.
struct Leased<'a> {
    ring: Option<Ring>,
    home: &'a Rings,
}

impl Drop for Leased<'_> {
    fn drop(&mut self) {
        let mut state = self.home.state.lock();
        match self.ring.take() {
            Some(ring) => state.free.push(ring),
            None => state.made -= 1,
        }
    }
}
