//! Speculative reads: which records have a slot reserved, which arrived, and whose they become.
//!
//! A ticket is a claim of the pool with a state:
//!
//! ```text
//!            reserve               landed                        adopt
//! (absent) ----------> reading --------------> ready ---------------------------> adopted
//!                       |   \                    |
//!                       |    `- landed, failed   | retire
//!                retire |                   \    v
//!                       v       landed       `-> over ------> failed | discarded
//!                     retired -----------------> over  settle
//! ```
//!
//! *Reading* means that its reads were queued, whether they have begun or not. A ticket that is
//! retired while it is being read keeps its slot until the read has ended: only then is nothing
//! lent any more. Whoever demands the record before that adopts it all the same. Everything here
//! is bookkeeping: no read, no lock, no wait.

use slotstream_cache::{Abort, CacheError, Claim, SlotPool};
use slotstream_core::{CancelToken, ExpertKey, Geometry, LayerIdx, Origin, PassId, SlotId};

/// How much may be read ahead. The defaults fit every pool.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Speculation {
    /// Slots reserved at once, at most; 0 turns speculation off.
    pub in_flight: usize,
    /// Records of one layer that are reserved at once, at most.
    pub per_layer: usize,
    /// Records that one pass may reserve for each of its rows, at most; `None`: as many as a
    /// token uses in all layers.
    pub per_row: Option<usize>,
    /// Slots that stay free or evictable beside the reserved ones and those that the running
    /// layer uses; `None`: a token's route.
    pub keep: Option<usize>,
    /// Passes of more rows than this read nothing ahead.
    pub rows: usize,
    /// Stop, and ask for no probes, while passes are no faster for it.
    pub back_off: bool,
}

impl Default for Speculation {
    fn default() -> Self {
        Self { in_flight: 64, per_layer: 32, per_row: None, keep: None, rows: 4, back_off: true }
    }
}

impl Speculation {
    /// Nothing is read ahead.
    #[must_use]
    pub fn off() -> Self {
        Self { in_flight: 0, ..Self::default() }
    }

    /// The defaults, never stopped by its own figures.
    #[must_use]
    pub fn always() -> Self {
        Self { back_off: false, ..Self::default() }
    }

    fn keep(&self, geometry: &Geometry) -> usize {
        self.keep.unwrap_or(geometry.top_k())
    }

    pub(crate) fn a_pass(&self, geometry: &Geometry, rows: usize) -> usize {
        let per_row = self.per_row.unwrap_or(geometry.layers() * geometry.top_k());
        per_row.saturating_mul(rows)
    }
}

/// When a record is wanted, in the order of time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Due {
    pub(crate) pass: PassId,
    pub(crate) layer: LayerIdx,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// Its reads are queued or running.
    Reading,
    /// All its bytes are there.
    Ready,
    /// Its layer has passed, its reads have not ended.
    Retired,
    /// Its reads have ended and it is of no use: [`Tickets::settle`] gives it up.
    Over {
        /// A read failed before its layer had passed.
        failed: bool,
        /// Payload that was read.
        bytes: u64,
    },
}

#[derive(Debug)]
struct Ticket {
    id: u64,
    claim: Claim,
    due: Due,
    state: State,
    cancel: CancelToken,
}

/// A slot that was reserved.
#[derive(Debug)]
pub(crate) struct Reserved {
    pub(crate) id: u64,
    pub(crate) key: ExpertKey,
    pub(crate) slot: SlotId,
    pub(crate) after: Option<slotstream_core::Tick>,
    /// Ends its reads that have not begun.
    pub(crate) cancel: CancelToken,
}

/// Why nothing was reserved.
#[derive(Debug)]
pub(crate) enum Refused {
    /// There is one, or the record is resident: nothing to do.
    There,
    /// A bound was reached.
    Full,
    /// The policy did not want it, or broke its contract when it was asked.
    Policy,
    /// The pool cannot answer.
    Pool(CacheError),
}

/// A record that a layer demanded and that had a ticket.
#[derive(Debug)]
pub(crate) enum Adopted {
    /// It is there.
    Ready(SlotId),
    /// Its reads are under way.
    Late { id: u64, claim: Claim, cancel: CancelToken },
    /// Its reads have ended and gave nothing: they are to be done again.
    Again { id: u64, claim: Claim },
}

/// A ticket that ended without being adopted; its slot is free.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Gone {
    pub(crate) key: ExpertKey,
    pub(crate) slot: SlotId,
    /// Its read failed before its layer had passed.
    pub(crate) failed: bool,
    /// Payload that was read for nothing.
    pub(crate) bytes: u64,
}

/// All tickets that are neither adopted nor gone.
#[derive(Debug)]
pub(crate) struct Tickets {
    limits: Speculation,
    live: Vec<Ticket>,
    /// The number of the next one.
    next: u64,
}

impl Tickets {
    pub(crate) const fn new(limits: Speculation) -> Self {
        Self { limits, live: Vec::new(), next: 0 }
    }

    pub(crate) const fn limits(&self) -> &Speculation {
        &self.limits
    }

    /// Tickets whose reads have not ended.
    pub(crate) fn outstanding(&self) -> usize {
        let reads = |ticket: &&Ticket| matches!(ticket.state, State::Reading | State::Retired);
        self.live.iter().filter(reads).count()
    }

    /// Tickets that nobody waits for and whose reads have not ended.
    pub(crate) fn retired(&self) -> usize {
        self.live.iter().filter(|ticket| ticket.state == State::Retired).count()
    }

    pub(crate) const fn is_empty(&self) -> bool {
        self.live.is_empty()
    }

    pub(crate) fn has(&self, key: ExpertKey) -> bool {
        self.live.iter().any(|ticket| ticket.claim.key() == key)
    }

    /// Reserves a slot for `key`. The caller queues its reads, or takes it back by
    /// [`withdraw`](Self::withdraw).
    pub(crate) fn reserve(
        &mut self,
        pool: &mut SlotPool,
        key: ExpertKey,
        due: Due,
    ) -> Result<Reserved, Refused> {
        if self.has(key) || pool.is_resident(key) {
            return Err(Refused::There);
        }
        let of_layer = self.live.iter().filter(|t| t.claim.key().layer() == key.layer()).count();
        let full = self.live.len() >= self.limits.in_flight
            || of_layer >= self.limits.per_layer
            || pool.available() <= self.limits.keep(pool.geometry());
        if full {
            return Err(Refused::Full);
        }
        let claim = pool.claim(key, Origin::Prefetch).map_err(|error| match error {
            CacheError::Resident { .. } | CacheError::Claimed { .. } => Refused::There,
            CacheError::Exhausted { .. } => Refused::Full,
            CacheError::NotAdmitted { .. } | CacheError::PolicyViolation { .. } => Refused::Policy,
            error => Refused::Pool(error),
        })?;
        self.next += 1;
        let (id, slot, after) = (self.next, claim.slot(), claim.after());
        let cancel = CancelToken::new();
        let reserved = Reserved { id, key, slot, after, cancel: cancel.clone() };
        self.live.push(Ticket { id, claim, due, state: State::Reading, cancel });
        Ok(reserved)
    }

    /// Takes back a ticket whose reads were never queued.
    pub(crate) fn withdraw(&mut self, pool: &mut SlotPool, id: u64) -> Result<(), CacheError> {
        match self.take(|ticket| ticket.id == id) {
            Some(ticket) => pool.abort(ticket.claim, Abort::Withdrawn),
            None => Ok(()),
        }
    }

    fn take(&mut self, wanted: impl Fn(&Ticket) -> bool) -> Option<Ticket> {
        let at = self.live.iter().position(wanted)?;
        Some(self.live.remove(at))
    }

    /// The reads of a ticket have ended and nothing is lent to them any more; `bytes` of payload
    /// were read. The pool hears of it by [`settle`](Self::settle).
    pub(crate) fn landed(&mut self, id: u64, failed: bool, bytes: u64) {
        if let Some(ticket) = self.live.iter_mut().find(|ticket| ticket.id == id) {
            ticket.state = match ticket.state {
                State::Reading if !failed => State::Ready,
                state => State::Over { failed: failed && state == State::Reading, bytes },
            };
        }
    }

    /// Gives the slots of tickets back whose reads have ended to no use. Between two calls of the
    /// pool: within one, what is told would depend on timing.
    ///
    /// # Errors
    /// The first thing that the pool says; the tickets are gone all the same.
    pub(crate) fn settle(
        &mut self,
        pool: &mut SlotPool,
        gone: &mut Vec<Gone>,
    ) -> Result<(), CacheError> {
        let mut result = Ok(());
        for ticket in self.live.extract_if(.., |ticket| matches!(ticket.state, State::Over { .. }))
        {
            let State::Over { failed, bytes } = ticket.state else { continue };
            let (key, slot) = (ticket.claim.key(), ticket.claim.slot());
            gone.push(Gone { key, slot, failed, bytes });
            let why = if failed { Abort::ReadFailed } else { Abort::Withdrawn };
            result = result.and(pool.abort(ticket.claim, why));
        }
        result
    }

    /// A call of the pool has found the record adopted: gives its claim up to that call, published
    /// if its bytes are there. `None` when there is no ticket for it.
    ///
    /// # Errors
    /// What the pool says to the publication.
    pub(crate) fn adopt(
        &mut self,
        pool: &mut SlotPool,
        key: ExpertKey,
    ) -> Result<Option<Adopted>, CacheError> {
        let Some(ticket) = self.take(|ticket| ticket.claim.key() == key) else { return Ok(None) };
        let Ticket { id, claim, cancel, state, .. } = ticket;
        match state {
            State::Reading | State::Retired => Ok(Some(Adopted::Late { id, claim, cancel })),
            State::Over { .. } => Ok(Some(Adopted::Again { id, claim })),
            State::Ready => {
                let slot = claim.slot();
                pool.publish(claim)?;
                Ok(Some(Adopted::Ready(slot)))
            }
        }
    }

    /// Nobody waits any more for the tickets that `passed` says: those that are ready, with `bytes`
    /// of payload each, are over, reads that have not begun are called off, running ones end by
    /// [`landed`](Self::landed).
    pub(crate) fn retire(&mut self, passed: impl Fn(ExpertKey, Due) -> bool, bytes: u64) {
        for ticket in self.live.iter_mut().filter(|t| passed(t.claim.key(), t.due)) {
            match ticket.state {
                State::Reading => {
                    ticket.cancel.cancel();
                    ticket.state = State::Retired;
                }
                State::Ready => ticket.state = State::Over { failed: false, bytes },
                State::Retired | State::Over { .. } => {}
            }
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests;
