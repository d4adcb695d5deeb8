//! Where the nine pieces of a record land.

use std::sync::Arc;

use slotstream_candle::{PieceLease, SlotLease};
use slotstream_core::{CancelToken, Extent, Job, Landing, PIECE_ORDER, ReadError};

use crate::sync::{AtomicUsize, Mutex, Ordering, Sender};

/// A record that has landed: its number within the wave, and the first piece that failed.
pub(crate) struct Landed {
    pub(crate) index: usize,
    pub(crate) fault: Option<PieceFault>,
}

/// A piece that could not be read.
pub(crate) struct PieceFault {
    /// Index into [`PIECE_ORDER`].
    pub(crate) piece: usize,
    pub(crate) extent: Extent,
    pub(crate) source: ReadError,
}

/// What the pieces of one record share.
struct Record {
    index: usize,
    outstanding: AtomicUsize,
    /// The fault of the lowest piece, so that the error does not depend on timing.
    fault: Mutex<Option<PieceFault>>,
    done: Sender<Landed>,
}

struct PieceLanding {
    lease: Option<PieceLease>,
    piece: usize,
    extent: Extent,
    record: Arc<Record>,
}

/// The nine reads of a record into its leased slot. `done` hears of it once, when the last piece
/// has landed and the slot is no longer lent.
pub(crate) fn jobs(
    index: usize,
    lease: SlotLease,
    pieces: &[Extent; 9],
    done: &Sender<Landed>,
    cancel: &CancelToken,
) -> impl Iterator<Item = Job> {
    let record = Arc::new(Record {
        index,
        outstanding: AtomicUsize::new(PIECE_ORDER.len()),
        fault: Mutex::new(None),
        done: done.clone(),
    });
    let (extents, cancel) = (*pieces, cancel.clone());
    lease.into_pieces().into_iter().enumerate().map(move |(piece, lease)| {
        let (extent, record) = (extents[piece], Arc::clone(&record));
        let landing = PieceLanding { lease: Some(lease), piece, extent, record };
        Job::new(extent, Box::new(landing)).with_cancel(cancel.clone())
    })
}

impl Landing for PieceLanding {
    fn buffer(&mut self) -> &mut [u8] {
        self.lease.as_mut().map_or(&mut [], PieceLease::bytes)
    }

    fn landed(mut self: Box<Self>, result: Result<(), ReadError>) {
        if let Err(source) = result {
            self.fail(source);
        }
        self.finish();
    }
}

impl PieceLanding {
    fn fail(&self, source: ReadError) {
        let mut fault = self.record.fault.lock();
        if fault.as_ref().is_none_or(|fault| self.piece < fault.piece) {
            *fault = Some(PieceFault { piece: self.piece, extent: self.extent, source });
        }
    }

    /// Gives the piece back, then counts it. The order matters: whoever hears that the record is
    /// complete may lend the slot at once.
    fn finish(&mut self) {
        if self.lease.take().is_none() {
            return;
        }
        let record = &self.record;
        if record.outstanding.fetch_sub(1, Ordering::AcqRel) == 1 {
            let fault = record.fault.lock().take();
            // A provider that is gone no longer waits.
            let _ = record.done.send(Landed { index: record.index, fault });
        }
    }
}

impl Drop for PieceLanding {
    /// A queue that drops a job unread must not leave the provider waiting.
    fn drop(&mut self) {
        if self.lease.is_some() {
            self.fail(ReadError::closed(&self.extent));
            self.finish();
        }
    }
}
