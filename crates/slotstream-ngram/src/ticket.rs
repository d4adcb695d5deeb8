//! Rows on their way.

use std::fmt;
use std::mem::size_of;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::time::Duration;

use slotstream_core::{CancelToken, Job, Landing, Part, ReadError};

use crate::table::RowRead;
use crate::{NgramError, NgramTable};

/// How often somebody who waits looks whether he was told to stop.
const POLL: Duration = Duration::from_millis(10);

/// The rows of one pass: those that were in the cache, and the reads of the others.
///
/// Made by [`NgramStore::request`](crate::NgramStore::request), used up by
/// [`NgramStore::join`](crate::NgramStore::join). Dropping it unjoined is fine: reads in flight
/// end into buffers of their own, which are then freed.
#[must_use = "the rows arrive when the ticket is joined"]
pub struct NgramTicket {
    table: Arc<NgramTable>,
    tokens: usize,
    /// Number of the distinct row of each (token, head).
    places: Vec<u32>,
    /// Distinct rows in order of first appearance.
    rows: Vec<u64>,
    /// Their packed bytes, `[rows, row_len]`.
    packed: Vec<u8>,
    missing: Vec<Missing>,
    arrivals: Receiver<Arrival>,
}

/// A row that is being read.
#[derive(Debug)]
struct Missing {
    place: u32,
    ended: u8,
    arrived: u8,
}

/// The end of one read.
struct Arrival {
    missing: u32,
    part: Option<Part>,
    /// Where its bytes belong in the packed row.
    start: usize,
    bytes: Vec<u8>,
    result: Result<(), ReadError>,
}

/// Owns the bytes of one piece, or of a whole row, while it is being read.
struct PieceLanding {
    missing: u32,
    part: Option<Part>,
    start: usize,
    bytes: Vec<u8>,
    to: Sender<Arrival>,
}

impl Landing for PieceLanding {
    fn buffer(&mut self) -> &mut [u8] {
        &mut self.bytes
    }

    fn landed(self: Box<Self>, result: Result<(), ReadError>) {
        let Self { missing, part, start, bytes, to } = *self;
        // Nobody listens when the ticket was dropped; the bytes then end here.
        let _ = to.send(Arrival { missing, part, start, bytes, result });
    }
}

impl NgramTicket {
    /// A ticket for `rows`, the distinct rows of a pass; `cached(row, packed)` fills in those
    /// that need no read and says whether it did. Also returns the reads of the others.
    pub(crate) fn new(
        table: &Arc<NgramTable>,
        tokens: usize,
        places: Vec<u32>,
        rows: Vec<u64>,
        mut cached: impl FnMut(u64, &mut [u8]) -> bool,
    ) -> Result<(Self, Vec<Job>), NgramError> {
        let mut packed = vec![0; rows.len() * table.row_len()];
        // Reserved at once, so that `bytes_for` holds.
        let mut missing = Vec::with_capacity(rows.len());
        let mut jobs = Vec::with_capacity(rows.len() * table.reads_per_row());
        let (to, arrivals) = channel();
        for (place, (&row, packed)) in
            rows.iter().zip(packed.chunks_exact_mut(table.row_len())).enumerate()
        {
            if cached(row, packed) {
                continue;
            }
            let (reads, count) = table.reads(row)?;
            for RowRead { part, start, extent } in reads.into_iter().take(count) {
                // In range: at most a packed row.
                let bytes = vec![0; extent.len() as usize];
                let missing = missing.len() as u32;
                let dest = PieceLanding { missing, part, start, bytes, to: to.clone() };
                jobs.push(Job::new(extent, Box::new(dest)));
            }
            missing.push(Missing { place: place as u32, ended: 0, arrived: 0 });
        }
        let table = Arc::clone(table);
        Ok((Self { table, tokens, places, rows, packed, missing, arrivals }, jobs))
    }

    /// Tokens of the pass.
    #[must_use]
    pub const fn tokens(&self) -> usize {
        self.tokens
    }

    /// Distinct rows of the pass.
    #[must_use]
    pub const fn distinct(&self) -> usize {
        self.rows.len()
    }

    /// Distinct rows that were not in the cache.
    #[must_use]
    pub const fn missing(&self) -> usize {
        self.missing.len()
    }

    /// Values that a join writes: tokens x heads x row width.
    #[must_use]
    pub fn values(&self) -> usize {
        self.places.len() * self.table.row_width()
    }

    /// Bytes of a ticket for `rows` distinct rows, none of them cached, with its reads; without
    /// what the allocator and the queue add.
    pub(crate) fn bytes_for(rows: usize, row_len: usize) -> usize {
        let read = size_of::<Job>() + size_of::<PieceLanding>() + size_of::<Arrival>();
        let row = size_of::<u32>() + size_of::<u64>() + size_of::<Missing>() + 3 * read;
        rows.saturating_mul(row_len.saturating_mul(2).saturating_add(row))
    }

    pub(crate) fn is_of(&self, table: &Arc<NgramTable>) -> bool {
        Arc::ptr_eq(&self.table, table)
    }

    /// Waits until every read has ended and gathers the pieces; says whether there was anything
    /// to wait for.
    ///
    /// Which error is reported does not depend on the order of arrival: that of the first piece
    /// of the first row, unless `cancel` is set first.
    pub(crate) fn wait(&mut self, cancel: &CancelToken) -> (bool, Result<(), NgramError>) {
        let mut waited = false;
        let mut failed: Option<(u32, Option<Part>, ReadError)> = None;
        for _ in 0..self.missing.len() * self.table.reads_per_row() {
            let mut arrival = self.arrivals.try_recv().map_err(|_| RecvTimeoutError::Timeout);
            while let Err(RecvTimeoutError::Timeout) = arrival {
                if waited && cancel.is_cancelled() {
                    return (waited, Err(NgramError::Cancelled));
                }
                waited = true;
                arrival = self.arrivals.recv_timeout(POLL);
            }
            // An error means that the queue dropped the jobs that have not ended.
            let Ok(arrival) = arrival else { break };
            let Arrival { missing, part, start, bytes, result } = arrival;
            let of_row = &mut self.missing[missing as usize];
            of_row.ended += 1;
            match result {
                Ok(()) => {
                    of_row.arrived += 1;
                    let start = of_row.place as usize * self.table.row_len() + start;
                    self.packed[start..][..bytes.len()].copy_from_slice(&bytes);
                }
                Err(error) => {
                    if failed.as_ref().is_none_or(|(m, p, _)| (missing, part) < (*m, *p)) {
                        failed = Some((missing, part, error));
                    }
                }
            }
        }
        (waited, self.outcome(failed))
    }

    /// The result of a wait whose first failed piece this was.
    fn outcome(&self, failed: Option<(u32, Option<Part>, ReadError)>) -> Result<(), NgramError> {
        if let Some((missing, part, source)) = failed {
            let row = self.rows[self.missing[missing as usize].place as usize];
            let shard = self.table.shard(row);
            return Err(match part {
                Some(part) => NgramError::Read { row, shard, part, source },
                None => NgramError::ReadRow { row, source },
            });
        }
        let reads = self.table.reads_per_row();
        match self.missing.iter().find(|missing| usize::from(missing.ended) < reads) {
            Some(missing) => {
                let row = self.rows[missing.place as usize];
                Err(NgramError::Abandoned { row, shard: self.table.shard(row) })
            }
            None => Ok(()),
        }
    }

    /// The rows that were read whole, in order of first appearance, with their packed bytes.
    pub(crate) fn whole(&self) -> impl Iterator<Item = (u64, &[u8])> {
        let reads = self.table.reads_per_row();
        let is_whole = move |missing: &&Missing| usize::from(missing.arrived) == reads;
        self.missing.iter().filter(is_whole).map(|missing| {
            let place = missing.place as usize;
            (self.rows[place], self.packed(place))
        })
    }

    /// Dequantizes all rows into `out`, `[tokens, heads * row_width]`.
    pub(crate) fn dequantize(&self, out: &mut [f32]) {
        for (place, out) in self.places.iter().zip(out.chunks_exact_mut(self.table.row_width())) {
            self.table.dequantize(self.packed(*place as usize), out);
        }
    }

    fn packed(&self, place: usize) -> &[u8] {
        &self.packed[place * self.table.row_len()..][..self.table.row_len()]
    }
}

impl fmt::Debug for NgramTicket {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("NgramTicket")
            .field("tokens", &self.tokens)
            .field("distinct", &self.rows.len())
            .field("missing", &self.missing.len())
            .finish_non_exhaustive()
    }
}
