//! Where a record lands, whole or in nine pieces.

use std::sync::Arc;

use slotstream_candle::{PieceLease, SlotLease};
use slotstream_core::{CancelToken, Extent, Job, Landing, ReadError};

use crate::sync::{AtomicUsize, Mutex, Ordering, Sender};

/// A record that has landed: its number within the wave, and the first piece that failed.
pub(crate) struct Landed {
    pub(crate) index: usize,
    pub(crate) fault: Option<PieceFault>,
}

/// Where the bytes of a record lie.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Place {
    /// In nine pieces.
    Pieces([Extent; 9]),
    /// As in a slot.
    Whole(Extent),
}

/// A piece, or a whole record, that could not be read.
pub(crate) struct PieceFault {
    /// Index into core's `PIECE_ORDER`; `None` of a whole record.
    pub(crate) piece: Option<usize>,
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
    piece: Option<usize>,
    extent: Extent,
    record: Arc<Record>,
}

/// Queues the reads of a record into its leased slot. `done` hears of it once, when the last
/// piece has landed and the slot is no longer lent.
pub(crate) fn jobs(
    index: usize,
    lease: SlotLease,
    place: &Place,
    done: &Sender<Landed>,
    cancel: &CancelToken,
    queued: &mut Vec<Job>,
) {
    let outstanding = match place {
        Place::Pieces(pieces) => pieces.len(),
        Place::Whole(_) => 1,
    };
    let record = Arc::new(Record {
        index,
        outstanding: AtomicUsize::new(outstanding),
        fault: Mutex::new(None),
        done: done.clone(),
    });
    let mut queue = |lease, piece, extent| {
        let landing = PieceLanding { lease: Some(lease), piece, extent, record: record.clone() };
        queued.push(Job::new(extent, Box::new(landing)).with_cancel(cancel.clone()));
    };
    match *place {
        Place::Whole(extent) => {
            // In range: the provider has compared it with the stride.
            queue(lease.into_whole(extent.len() as usize), None, extent);
        }
        Place::Pieces(extents) => {
            for (piece, lease) in lease.into_pieces().into_iter().enumerate() {
                queue(lease, Some(piece), extents[piece]);
            }
        }
    }
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
