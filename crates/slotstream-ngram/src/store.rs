//! Requests and joins.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::{Duration, Instant};

use slotstream_checkpoint::NgramPlan;
use slotstream_core::{CancelToken, ReadClass, ReadQueue};

use crate::cache::RowCache;
use crate::index::RowIndex;
use crate::{NgramError, NgramHasher, NgramTable, NgramTicket};

/// Most requests ahead of their passes that are kept: sessions take turns.
const AHEAD: usize = 4;

/// The table of one layer: hashes, reads, caches and dequantizes its rows.
///
/// What the cache holds, and in which order tickets are joined, never changes a value.
#[derive(Debug)]
pub struct NgramStore {
    hasher: NgramHasher,
    table: Arc<NgramTable>,
    cache: RowCache,
    queue: Arc<dyn ReadQueue>,
    metrics: NgramMetrics,
    /// Row ids of the pass being requested; kept for its memory.
    ids: Vec<u64>,
    /// Requests that no pass has asked for yet, by their row ids.
    ahead: VecDeque<(Vec<u64>, NgramTicket)>,
}

/// What a store has done since it was made.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct NgramMetrics {
    /// Rows asked for: one a token and head.
    pub requested: u64,
    /// Distinct rows of each request, summed up: hits and reads.
    pub distinct: u64,
    /// Distinct rows that were in the cache.
    pub hits: u64,
    /// Distinct rows whose reads were queued, three reads each.
    pub rows_read: u64,
    /// Payload bytes asked for by those reads.
    pub bytes_read: u64,
    /// Rows of joined tickets that did not arrive whole.
    pub failed: u64,
    /// Joins that found rows on their way and had to wait for them.
    pub waits: u64,
    /// Time for which joins waited for reads.
    pub wait: Duration,
}

impl NgramMetrics {
    /// What was done between an earlier state of the same metrics and this one.
    #[must_use]
    pub fn since(&self, earlier: &Self) -> Self {
        Self {
            requested: self.requested.saturating_sub(earlier.requested),
            distinct: self.distinct.saturating_sub(earlier.distinct),
            hits: self.hits.saturating_sub(earlier.hits),
            rows_read: self.rows_read.saturating_sub(earlier.rows_read),
            bytes_read: self.bytes_read.saturating_sub(earlier.bytes_read),
            failed: self.failed.saturating_sub(earlier.failed),
            waits: self.waits.saturating_sub(earlier.waits),
            wait: self.wait.saturating_sub(earlier.wait),
        }
    }
}

impl NgramStore {
    /// A store of a checkpoint's table that reads on `queue` and keeps up to `cache_rows` rows in
    /// memory; 0 keeps none. More rows than the table has are as good as all.
    ///
    /// # Errors
    /// As [`NgramHasher::new`], [`NgramTable::new`] and [`Self::from_parts`].
    pub fn new(
        plan: &NgramPlan,
        cache_rows: usize,
        queue: Arc<dyn ReadQueue>,
    ) -> Result<Self, NgramError> {
        Self::from_parts(NgramHasher::new(plan)?, NgramTable::new(plan)?, cache_rows, queue)
    }

    /// A store of any table.
    ///
    /// # Errors
    /// [`NgramError::HeadRange`] when a head of `hasher` ends beyond `table`, and
    /// [`NgramError::CacheMemory`] when there is no memory for the cache.
    pub fn from_parts(
        hasher: NgramHasher,
        table: NgramTable,
        cache_rows: usize,
        queue: Arc<dyn ReadQueue>,
    ) -> Result<Self, NgramError> {
        hasher.check_rows(table.rows())?;
        let cache_rows = usize::try_from(table.rows()).map_or(cache_rows, |n| cache_rows.min(n));
        let cache = RowCache::new(cache_rows, table.row_len())?;
        let (table, metrics) = (Arc::new(table), NgramMetrics::default());
        Ok(Self { hasher, table, cache, queue, metrics, ids: Vec::new(), ahead: VecDeque::new() })
    }

    /// Bytes of a cache of `cache_rows` rows of `row_len` bytes: 100 bytes of a real row, 13 of
    /// bookkeeping, and 4 a chain of the index, whose chains are the next power of two. `None`
    /// when a number cannot name them.
    #[must_use]
    pub fn cache_bytes(cache_rows: usize, row_len: usize) -> Option<usize> {
        RowCache::bytes_for(cache_rows, row_len)
    }

    /// Bytes that the cache has reserved; it never takes more.
    #[must_use]
    pub fn bytes(&self) -> usize {
        // Such a cache exists, so a number can name its bytes.
        RowCache::bytes_for(self.cache.capacity(), self.table.row_len()).unwrap_or(usize::MAX)
    }

    /// The most bytes that a request of `tokens` tokens holds until it is joined: ids, packed
    /// rows and the buffers of its reads, without what the allocator and the queue add.
    #[must_use]
    pub fn request_bytes(&self, tokens: usize) -> usize {
        let rows = tokens.saturating_mul(self.hasher.heads());
        let ids = rows.saturating_mul(size_of::<u64>());
        let index = RowIndex::bytes(rows).unwrap_or(usize::MAX);
        NgramTicket::bytes_for(rows, self.table.row_len()).saturating_add(ids).saturating_add(index)
    }

    /// Rows that the cache can hold.
    #[must_use]
    pub const fn cache_capacity(&self) -> usize {
        self.cache.capacity()
    }

    /// Rows that the cache holds.
    #[must_use]
    pub fn cached_rows(&self) -> usize {
        self.cache.len()
    }

    /// The hash.
    #[must_use]
    pub const fn hasher(&self) -> &NgramHasher {
        &self.hasher
    }

    /// The shape of the table.
    #[must_use]
    pub fn table(&self) -> &NgramTable {
        &self.table
    }

    /// What the store has done since it was made.
    #[must_use]
    pub const fn metrics(&self) -> &NgramMetrics {
        &self.metrics
    }

    /// Starts to bring the rows that a later [`request`](Self::request) of the same tokens will
    /// ask for: they may be there when it comes. Counted when they are asked for. The last four
    /// are kept; rows that nobody asks for are read for nothing.
    ///
    /// # Errors
    /// As [`request`](Self::request).
    pub fn request_ahead(&mut self, context: &[u32], tokens: &[u32]) -> Result<(), NgramError> {
        let ticket = self.start(context, tokens)?;
        if self.ahead.len() == AHEAD {
            self.ahead.pop_front();
        }
        self.ahead.push_back((self.ids.clone(), ticket));
        Ok(())
    }

    /// Starts to bring the rows of `tokens`, which follow `context` in their sequence (see
    /// [`NgramHasher::rows_for`]). Rows that are not in the cache are read once each, as one
    /// batch of demand reads; none where the same rows were requested ahead. Does not wait.
    ///
    /// # Errors
    /// [`NgramError::PassLength`] for a pass of 2^32 - 1 rows or more, or one for whose ids there
    /// is no memory. A failed read is reported by [`Self::join`].
    pub fn request(&mut self, context: &[u32], tokens: &[u32]) -> Result<NgramTicket, NgramError> {
        if !self.ahead.is_empty() {
            self.hasher.rows_for(context, tokens, &mut self.ids);
            if let Some(i) = self.ahead.iter().position(|(ids, _)| *ids == self.ids)
                && let Some((_, ticket)) = self.ahead.remove(i)
            {
                self.count_request(&ticket, self.ids.len());
                return Ok(ticket);
            }
        }
        let ticket = self.start(context, tokens)?;
        self.count_request(&ticket, self.ids.len());
        Ok(ticket)
    }

    /// Hashes the tokens and queues the reads of what is not in the cache.
    fn start(&mut self, context: &[u32], tokens: &[u32]) -> Result<NgramTicket, NgramError> {
        let (heads, tokens_len) = (self.hasher.heads(), tokens.len());
        let too_long = || NgramError::PassLength { tokens: tokens_len, heads };
        let requested = tokens_len.checked_mul(heads).ok_or_else(too_long)?;
        if requested >= u32::MAX as usize {
            return Err(too_long());
        }
        self.hasher.rows_for(context, tokens, &mut self.ids);
        let mut distinct = RowIndex::with_capacity(requested).map_err(|_| too_long())?;
        let place = |&row| distinct.get(row).unwrap_or_else(|| distinct.push(row)) as u32;
        let places = self.ids.iter().map(place).collect();
        let rows = distinct.into_rows();

        let cached = |row, packed: &mut [u8]| match self.cache.get(row) {
            Some(bytes) => {
                packed.copy_from_slice(bytes);
                true
            }
            None => false,
        };
        let (ticket, jobs) = NgramTicket::new(&self.table, tokens_len, places, rows, cached)?;
        if !jobs.is_empty() {
            self.queue.submit(ReadClass::Demand, jobs);
        }
        Ok(ticket)
    }

    /// Waits for the rows of `ticket` and writes them to `out`, `[tokens, heads * row_width]`: the
    /// rows of a token one after the other in head order, each value `scale * q + bias` in f32.
    ///
    /// Tickets may be joined in any order. Rows that arrived whole go to the cache, also when
    /// others failed.
    ///
    /// # Errors
    /// [`NgramError::ForeignTicket`], [`NgramError::OutputLength`], [`NgramError::Read`] when a
    /// read failed, [`NgramError::Abandoned`] when the queue dropped one. After an error `out` is
    /// unchanged; the same request may be made anew.
    pub fn join(&mut self, ticket: NgramTicket, out: &mut [f32]) -> Result<(), NgramError> {
        self.join_unless(&CancelToken::new(), ticket, out)
    }

    /// [`join`](Self::join), given up while it waits when `cancel` is set. Reads that are under way
    /// end into buffers of their own.
    ///
    /// # Errors
    /// As [`join`](Self::join), and [`NgramError::Cancelled`].
    pub fn join_unless(
        &mut self,
        cancel: &CancelToken,
        mut ticket: NgramTicket,
        out: &mut [f32],
    ) -> Result<(), NgramError> {
        if !ticket.is_of(&self.table) {
            return Err(NgramError::ForeignTicket);
        }
        let (expected, found) = (ticket.values(), out.len());
        if expected != found {
            return Err(NgramError::OutputLength { expected, found });
        }
        let result = self.wait(&mut ticket, cancel);
        let mut whole = 0;
        for (row, packed) in ticket.whole() {
            self.cache.insert(row, packed);
            whole += 1;
        }
        if !matches!(result, Err(NgramError::Cancelled)) {
            self.metrics.failed += (ticket.missing() - whole) as u64;
        }
        result?;
        ticket.dequantize(out);
        Ok(())
    }

    fn wait(&mut self, ticket: &mut NgramTicket, cancel: &CancelToken) -> Result<(), NgramError> {
        if ticket.missing() == 0 {
            return Ok(());
        }
        let _span = tracing::debug_span!("read", ngram_rows = ticket.missing()).entered();
        let start = Instant::now();
        let (waited, result) = ticket.wait(cancel);
        self.metrics.waits += u64::from(waited);
        self.metrics.wait += start.elapsed();
        result
    }

    fn count_request(&mut self, ticket: &NgramTicket, requested: usize) {
        let (distinct, missing) = (ticket.distinct(), ticket.missing());
        self.metrics.requested += requested as u64;
        self.metrics.distinct += distinct as u64;
        self.metrics.hits += (distinct - missing) as u64;
        self.metrics.rows_read += missing as u64;
        self.metrics.bytes_read += (missing * self.table.row_len()) as u64;
    }
}
