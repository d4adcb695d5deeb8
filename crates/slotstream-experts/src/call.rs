//! A layer's demand in progress: waves of records that are claimed, read, computed as they land.

use std::collections::VecDeque;
use std::time::Instant;

use candle_core::Tensor;
use slotstream_cache::{Abort, Claim, Found};
use slotstream_candle::{Error, SlotArena, SlotRows};
use slotstream_core::{
    CancelToken, EventSink, ExpertIdx, ExpertKey, LayerIdx, Outcome, PIECE_ORDER, Phase, ReadClass,
    Routing, SlotId,
};

use crate::ExpertsError;
use crate::landing::{Landed, Owner, PieceFault, Place, jobs};
use crate::provider::StreamingExperts;
use crate::speculation::LateRead;
use crate::sweep::Sweep;
use crate::sync::{TryRecvError, recv_unless};

/// Whether a record that has not landed is waited for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Wait {
    /// It is not.
    No,
    /// Until it lands or the pass is cancelled.
    UnlessCancelled,
    /// Until it lands: its memory is lent.
    ToTheEnd,
}

/// A layer's demand in progress.
#[derive(Debug)]
pub(crate) struct Call {
    pub(crate) layer: LayerIdx,
    phase: Phase,
    pub(crate) rows: usize,
    pub(crate) top_k: usize,
    /// Waves that have not begun.
    pub(crate) waves: VecDeque<Vec<ExpertIdx>>,
    /// Claims of the running wave; taken when their records land.
    open: Vec<Option<Claim>>,
    /// Records of the running wave whose speculative reads have not ended.
    pub(crate) late: Vec<LateRead>,
    pub(crate) cancel: CancelToken,
    /// Where the layer is swept; there are no waves then.
    pub(crate) sweep: Option<Sweep>,
}

/// A record that is there, or the record and the piece that could not be read.
type Settled = Result<(ExpertIdx, SlotId), (ExpertKey, PieceFault)>;

impl Call {
    pub(crate) fn new(routing: &Routing<'_>, waves: VecDeque<Vec<ExpertIdx>>) -> Self {
        Self {
            layer: routing.layer(),
            phase: routing.phase(),
            rows: routing.rows(),
            top_k: routing.top_k(),
            waves,
            open: Vec::new(),
            late: Vec::new(),
            cancel: CancelToken::new(),
            sweep: None,
        }
    }
}

impl StreamingExperts {
    pub(crate) fn plan_waves(&self) -> Result<VecDeque<Vec<ExpertIdx>>, ExpertsError> {
        let distinct = self.grouped.experts();
        if distinct.len() <= self.pool.capacity() {
            return Ok(VecDeque::from([distinct.to_vec()]));
        }
        Ok(self.pool.waves(distinct)?.map(<[ExpertIdx]>::to_vec).collect())
    }

    /// Pins and claims the records of the next wave and queues their reads.
    pub(crate) fn start_wave(&mut self) -> Result<(), ExpertsError> {
        let Some(call) = &mut self.call else { return Ok(()) };
        let Some(experts) = call.waves.pop_front() else { return Ok(()) };
        let counts: Vec<u32> = experts.iter().map(|e| self.grouped.count(*e)).collect();
        let (layer, phase) = (call.layer, call.phase);
        call.open.clear();
        let ensured = &mut self.ensured;
        if let Err(error) = self.pool.ensure_counted(layer, &experts, &counts, phase, ensured) {
            self.sinks.on_outcome(&Outcome::Refused { layer });
            return Err(error.into());
        }
        call.late.clear();
        let promoted = self.adopt(layer);
        let Some(call) = &mut self.call else { return Ok(()) };
        let promoted = promoted.inspect_err(|_| {
            // The end of the call gives them back.
            call.open.extend(self.ensured.take_claims().map(Some));
        })?;
        let mut queued = Vec::new();
        let (mut fault, mut read) = (None, 0);
        for claim in self.ensured.take_claims() {
            if fault.is_none() {
                let place = Place::of(claim.key(), self.arena.layout(), &*self.index);
                let lent = place
                    .and_then(|place| Ok((self.arena.lease(claim.slot(), claim.after())?, place)));
                match lent {
                    Ok((lease, place)) => {
                        let (owner, done) = (Owner::Call(call.open.len()), &self.landed.0);
                        let (spare, cancel) = (&self.spare, &call.cancel);
                        jobs(owner, lease, &place, done, spare, cancel, &mut queued);
                        read += 1;
                    }
                    Err(error) => fault = Some(error),
                }
            }
            call.open.push(Some(claim));
        }
        self.outstanding += read;
        self.metrics.records_read += read as u64;
        self.queue.submit(ReadClass::Demand, queued);
        // Behind the demand: they have a head start.
        if !promoted.is_empty() {
            self.queue.promote(&promoted);
        }
        // The first claim without memory ends the call; it and the ones after it go back.
        self.withdraw(read)?;
        fault.map_or(Ok(()), Err)
    }

    /// Gives up the open claims from number `first` on, whose reads were never queued, and late
    /// ones whose second read was not.
    fn withdraw(&mut self, first: usize) -> Result<(), ExpertsError> {
        let Some(call) = &mut self.call else { return Ok(()) };
        let mut open: Vec<Claim> =
            call.open.iter_mut().skip(first).filter_map(Option::take).collect();
        if self.outstanding == 0 {
            open.extend(call.late.iter_mut().filter_map(LateRead::take));
        }
        for claim in open {
            let (slot, key, origin) = (claim.slot(), claim.key(), claim.origin());
            self.pool.abort(claim, Abort::Withdrawn)?;
            self.sinks.on_outcome(&Outcome::Withdrawn { slot, key, origin });
        }
        Ok(())
    }

    /// Takes the next landed record of the running call. What was read ahead and has landed
    /// meanwhile is noted.
    pub(crate) fn next_landed(&mut self, wait: Wait) -> Result<Option<Landed>, ExpertsError> {
        loop {
            let gone = ExpertsError::QueueGone { outstanding: self.outstanding };
            let landed = match self.landed.1.try_recv() {
                Ok(landed) => landed,
                Err(TryRecvError::Disconnected) => return Err(gone),
                Err(TryRecvError::Empty) if wait == Wait::No => return Ok(None),
                Err(TryRecvError::Empty) => {
                    let stop = || wait != Wait::ToTheEnd && self.hints.cancel.is_cancelled();
                    let begun = Instant::now();
                    let landed = recv_unless(&self.landed.1, stop).map_err(|_| gone)?;
                    self.metrics.wait += begun.elapsed();
                    match (landed, &self.call) {
                        (Some(landed), _) => landed,
                        (None, Some(call)) => {
                            return Err(ExpertsError::Cancelled { layer: call.layer });
                        }
                        (None, None) => return Ok(None),
                    }
                }
            };
            match landed.owner {
                Owner::Ticket(id) if !self.is_late(id) => {
                    self.ahead.tickets.landed(id, landed.fault.is_some(), landed.bytes);
                }
                _ => {
                    self.outstanding -= 1;
                    return Ok(Some(landed));
                }
            }
        }
    }

    /// Publishes or aborts the claim of a landed record; gives the record when it is there, and
    /// nothing where it is read once more.
    fn settle(&mut self, landed: Landed) -> Result<Option<Settled>, ExpertsError> {
        let claim = match landed.owner {
            Owner::Call(index) => {
                let call = self.call.as_mut();
                call.and_then(|call| call.open.get_mut(index)).and_then(Option::take)
            }
            Owner::Ticket(id) => match self.settle_late(id, landed.fault.as_ref())? {
                None => return Ok(None),
                claim => claim,
            },
        };
        let Some(claim) = claim else {
            return Err(ExpertsError::Order { called: "landed", when: "twice for one record" });
        };
        let (key, slot, origin) = (claim.key(), claim.slot(), claim.origin());
        match landed.fault {
            None => {
                self.pool.publish(claim)?;
                Ok(Some(Ok((key.expert(), slot))))
            }
            Some(fault) => {
                self.pool.abort(claim, Abort::ReadFailed)?;
                self.sinks.on_outcome(&Outcome::Failed { slot, key, origin });
                Ok(Some(Err((key, fault))))
            }
        }
    }

    /// Computes the given experts of the running call from the memory where they are.
    pub(crate) fn run(
        &self,
        arena: &SlotArena,
        records: &[(ExpertIdx, SlotId)],
        x: &Tensor,
        out: &Tensor,
    ) -> Result<(), Error> {
        if records.is_empty() {
            return Ok(());
        }
        let slots: Vec<SlotId> = records.iter().map(|(_, slot)| *slot).collect();
        let reading = arena.read(&slots)?;
        let experts: Vec<SlotRows<'_>> = records
            .iter()
            .map(|(expert, slot)| {
                let (rows, places) = self.grouped.members(*expert);
                SlotRows { slot: *slot, rows, places }
            })
            .collect();
        self.ops.expert_mlp(arena.layout(), &reading, &experts, x, out)
    }

    /// Runs one wave: first what is resident, then each record as it lands.
    pub(crate) fn run_wave(&mut self, x: &Tensor, out: &Tensor) -> Result<(), ExpertsError> {
        let resident: Vec<_> = (self.ensured.entries().iter())
            .filter(|entry| entry.found != Found::Miss && !self.is_awaited(entry.slot))
            .map(|entry| (entry.expert, entry.slot))
            .collect();
        self.run(&self.arena, &resident, x, out)?;
        let mut ready = Vec::new();
        let mut first: Option<(ExpertKey, PieceFault)> = None;
        while self.outstanding > 0 {
            ready.clear();
            let mut wait = Wait::UnlessCancelled;
            while let Some(landed) =
                if self.outstanding > 0 { self.next_landed(wait)? } else { None }
            {
                wait = Wait::No;
                match self.settle(landed)? {
                    None => {}
                    Some(Ok(record)) => ready.push(record),
                    // The error of the lowest record, whatever landed first.
                    Some(Err(fault)) if first.as_ref().is_none_or(|(key, _)| fault.0 < *key) => {
                        first = Some(fault);
                    }
                    Some(Err(_)) => {}
                }
            }
            if first.is_none() {
                self.run(&self.arena, &ready, x, out)?;
            }
        }
        self.pool.release();
        match first {
            None => Ok(()),
            Some((key, fault)) => Err(self.read_error(key, fault)),
        }
    }

    fn read_error(&self, key: ExpertKey, fault: PieceFault) -> ExpertsError {
        let PieceFault { piece, extent, source } = fault;
        match piece {
            None => ExpertsError::ReadRecord { key, source },
            Some(piece) => {
                let (matrix, part) = PIECE_ORDER[piece];
                let tensor = self.index.tensor(&extent);
                ExpertsError::Read { key, matrix, part, tensor, source }
            }
        }
    }

    /// Ends the running call, if there is one: its queued reads are cancelled, running ones
    /// joined. Once a call was computed, none are left.
    pub(crate) fn end_call(&mut self) {
        let ended = self.call.as_ref().map(|call| call.layer);
        if let Some(call) = &self.call {
            call.cancel.cancel();
            call.late.iter().for_each(LateRead::cancel);
        }
        while self.outstanding > 0 {
            let Ok(Some(landed)) = self.next_landed(Wait::ToTheEnd) else { break };
            if self.call.as_ref().is_some_and(|call| call.sweep.is_some()) {
                continue;
            }
            if let Err(error) = self.settle(landed) {
                tracing::debug!(%error, "a claim of an abandoned call");
            }
        }
        if let Err(error) = self.withdraw(0) {
            tracing::debug!(%error, "a claim of an abandoned call");
        }
        // A sweep was told as a whole when it began, and the pool never had a call.
        if let Some(call) = self.call.take().filter(|call| call.sweep.is_none()) {
            self.pool.release();
            let (layer, waves) = (call.layer, call.waves.len());
            self.sinks.on_outcome(&Outcome::Ended { layer, waves });
        }
        if let Some(layer) = ended {
            self.expire(layer);
        }
    }
}
