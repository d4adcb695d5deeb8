//! Where reads land: a record, whole or in nine pieces, or a run of many pieces.

use std::sync::Arc;

use slotstream_candle::{PieceLease, RunLease, SlotLease};
use slotstream_core::{CancelToken, ExpertKey, Extent, Job, Landing, ReadError, RecordLayout};
use slotstream_io::AlignedBuf;

use crate::sync::{AtomicUsize, Mutex, Ordering, Sender};
use crate::{ExpertsError, RecordIndex};

/// Who waits for a group of reads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Owner {
    /// The running call: a record or a block of a sweep, by its number.
    Call(usize),
    /// A ticket, by its number.
    Ticket(u64),
}

/// A record, or a block of a sweep, that has landed: whose it is, and the first read of it that
/// failed.
#[derive(Debug)]
pub(crate) struct Landed {
    pub(crate) owner: Owner,
    pub(crate) fault: Option<PieceFault>,
    /// Bytes of the reads that succeeded.
    pub(crate) bytes: u64,
}

/// Where the bytes of a record lie.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Place {
    /// In nine pieces.
    Pieces([Extent; 9]),
    /// As in a slot.
    Whole(Extent),
}

impl Place {
    /// Where a record lies, once it is known to fit its slot.
    pub(crate) fn of(
        key: ExpertKey,
        layout: &RecordLayout,
        index: &dyn RecordIndex,
    ) -> Result<Self, ExpertsError> {
        let wrong = |what| ExpertsError::Index { key, what };
        if let Some(whole) = index.whole(key) {
            if !(layout.record_len() as u64..=layout.stride() as u64).contains(&whole.len()) {
                return Err(wrong("the whole record has another length"));
            }
            return Ok(Self::Whole(whole));
        }
        let pieces = index.pieces(key).ok_or(wrong("it has no such record"))?;
        let lens = layout.pieces().iter().map(|piece| piece.len as u64);
        if !lens.eq(pieces.iter().map(Extent::len)) {
            return Err(wrong("its pieces have other lengths"));
        }
        Ok(Self::Pieces(pieces))
    }
}

/// A read that failed.
#[derive(Debug)]
pub(crate) struct PieceFault {
    /// Index into core's `PIECE_ORDER`, or of a run within its block; `None` of a whole record.
    pub(crate) piece: Option<usize>,
    pub(crate) extent: Extent,
    pub(crate) source: ReadError,
}

/// What the reads of one record, or of one block, share.
pub(crate) struct Group {
    owner: Owner,
    outstanding: AtomicUsize,
    /// The fault of the lowest read, so that the error does not depend on timing.
    fault: Mutex<Option<PieceFault>>,
    /// Of the reads that succeeded; a figure that orders nothing.
    bytes: std::sync::atomic::AtomicU64,
    done: Sender<Landed>,
}

impl Group {
    /// Of `reads` reads, which `owner` waits for. `done` hears of it once, when the last of them has ended
    /// and nothing is lent to them any more.
    pub(crate) fn new(owner: Owner, reads: usize, done: &Sender<Landed>) -> Arc<Self> {
        Arc::new(Self {
            owner,
            outstanding: AtomicUsize::new(reads),
            fault: Mutex::new(None),
            bytes: 0.into(),
            done: done.clone(),
        })
    }
}

/// What is lent to one read.
pub(crate) enum Lent {
    /// A piece of a slot, or a slot.
    Piece(PieceLease),
    /// The first bytes of neighbouring slots.
    Slots(RunLease, usize),
    /// A buffer of this length, from which pieces are copied: each with its place in the buffer.
    Apart(AlignedBuf, usize, Vec<(usize, PieceLease)>),
}

impl Lent {
    /// A piece that is read into where it lies, in memory of the host; into a device's it is copied.
    pub(crate) fn piece(lease: PieceLease) -> Self {
        if lease.is_host() {
            return Self::Piece(lease);
        }
        Self::Apart(AlignedBuf::new(), lease.len(), vec![(0, lease)])
    }
}

struct ReadLanding {
    lent: Option<Lent>,
    number: Option<usize>,
    extent: Extent,
    group: Arc<Group>,
    spare: Option<Arc<Spare>>,
}

/// Buffers that are used again by the next runs. At most as many exist as reads are in flight.
#[derive(Debug)]
pub(crate) struct Spare(Mutex<Vec<AlignedBuf>>);

impl Spare {
    pub(crate) fn new() -> Arc<Self> {
        Arc::new(Self(Mutex::new(Vec::new())))
    }

    fn take(&self) -> AlignedBuf {
        self.0.lock().pop().unwrap_or_default()
    }

    fn put(&self, buffer: AlignedBuf) {
        self.0.lock().push(buffer);
    }
}

/// Queues the reads of a record into its leased slot. `done` hears of it once, when the last
/// piece has landed and the slot is no longer lent.
pub(crate) fn jobs(
    owner: Owner,
    lease: SlotLease,
    place: &Place,
    done: &Sender<Landed>,
    spare: &Arc<Spare>,
    cancel: &CancelToken,
    queued: &mut Vec<Job>,
) {
    match *place {
        Place::Whole(extent) => {
            let group = Group::new(owner, 1, done);
            // In range: the provider has compared it with the stride.
            let lent = Lent::piece(lease.into_whole(extent.len() as usize));
            queued.push(read(None, extent, lent, &group, Some(spare), cancel));
        }
        Place::Pieces(extents) => {
            let group = Group::new(owner, extents.len(), done);
            for (piece, lease) in lease.into_pieces().into_iter().enumerate() {
                let lent = Lent::piece(lease);
                queued.push(read(Some(piece), extents[piece], lent, &group, Some(spare), cancel));
            }
        }
    }
}

/// One read of a group.
pub(crate) fn read(
    number: Option<usize>,
    extent: Extent,
    lent: Lent,
    group: &Arc<Group>,
    spare: Option<&Arc<Spare>>,
    cancel: &CancelToken,
) -> Job {
    let (lent, group, spare) = (Some(lent), Arc::clone(group), spare.cloned());
    let landing = ReadLanding { lent, number, extent, group, spare };
    Job::new(extent, Box::new(landing)).with_cancel(cancel.clone())
}

impl Landing for ReadLanding {
    fn buffer(&mut self) -> &mut [u8] {
        match &mut self.lent {
            None => &mut [],
            Some(Lent::Piece(lease)) => lease.bytes(),
            Some(Lent::Slots(lease, len)) => {
                let (bytes, len) = (lease.bytes(), *len);
                let len = len.min(bytes.len());
                &mut bytes[..len]
            }
            Some(Lent::Apart(buffer, len, _)) => {
                // Taken when the read begins: a queued run holds no memory.
                if let Some(spare) = &self.spare {
                    *buffer = spare.take();
                }
                // Without room it is empty, which the queue reports as a buffer too short.
                let _ = buffer.set_len(*len);
                &mut buffer[..]
            }
        }
    }

    fn landed(mut self: Box<Self>, result: Result<(), ReadError>) {
        if result.is_ok() {
            self.group.bytes.fetch_add(self.extent.len(), Ordering::Relaxed);
        }
        match (result, &mut self.lent) {
            (Err(source), _) => self.fail(source),
            (Ok(()), Some(Lent::Apart(buffer, _, pieces))) => {
                for (at, lease) in pieces {
                    let to = lease.bytes();
                    to.copy_from_slice(&buffer[*at..*at + to.len()]);
                }
            }
            (Ok(()), _) => {}
        }
        self.finish();
    }
}

impl ReadLanding {
    fn fail(&self, source: ReadError) {
        let mut fault = self.group.fault.lock();
        if fault.as_ref().is_none_or(|fault| self.number < fault.piece) {
            *fault = Some(PieceFault { piece: self.number, extent: self.extent, source });
        }
    }

    /// Gives back what was lent, then counts the read. The order matters: whoever hears that the
    /// group is complete may lend its slots at once.
    fn finish(&mut self) {
        match self.lent.take() {
            None => return,
            Some(Lent::Apart(buffer, _, pieces)) => {
                drop(pieces);
                if let Some(spare) = self.spare.take()
                    && buffer.capacity() > 0
                {
                    spare.put(buffer);
                }
            }
            Some(lent) => drop(lent),
        }
        let group = &self.group;
        if group.outstanding.fetch_sub(1, Ordering::AcqRel) == 1 {
            let fault = group.fault.lock().take();
            let bytes = group.bytes.load(Ordering::Relaxed);
            // A provider that is gone no longer waits.
            let _ = group.done.send(Landed { owner: group.owner, fault, bytes });
        }
    }
}

impl Drop for ReadLanding {
    /// A queue that drops a job unread must not leave the provider waiting.
    fn drop(&mut self) {
        if self.lent.is_some() {
            self.fail(ReadError::closed(&self.extent));
            self.finish();
        }
    }
}
