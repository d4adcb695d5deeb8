//! The provider: a layer's demand from routing to weighted sum.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Instant;

use candle_core::Tensor;
use slotstream_cache::{Abort, Claim, Ensured, Found, SlotPool};
use slotstream_candle::{Error, ExpertProvider, Ops, SlotArena, SlotRows};
use slotstream_core::{
    CancelToken, EventSink, ExpertIdx, ExpertKey, Extent, Forecaster, Geometry, LayerIdx, Outcome,
    PIECE_ORDER, Phase, Prediction, Probe, ProbeResults, ReadClass, ReadQueue, RecordLayout,
    Routing, SessionId, SlotId, Step, Tap,
};

use crate::builder::StreamingBuilder;
use crate::landing::{Landed, Owner, PieceFault, Place, Spare, jobs};
use crate::prompt::{PassHints, Prompts};
use crate::route::Grouped;
use crate::sinks::Sinks;
use crate::speculation::{Ahead, LateRead};
use crate::sweep::{Staging, Sweep};
use crate::sync::{Receiver, Sender, TryRecvError, recv_unless};
use crate::{ExpertMetrics, ExpertsError, LookaheadMetrics, RecordIndex};

/// Streams experts: joins a slot pool, slot memory, a read queue and a forecaster into an
/// [`ExpertProvider`].
#[derive(Debug)]
pub struct StreamingExperts {
    pub(crate) pool: SlotPool,
    pub(crate) arena: SlotArena,
    /// Buffers of reads into the memory of a device.
    pub(crate) spare: Arc<Spare>,
    /// Where sweeps read to; none where nothing is swept.
    pub(crate) staging: Option<Staging>,
    pub(crate) queue: Arc<dyn ReadQueue>,
    pub(crate) index: Arc<dyn RecordIndex>,
    pub(crate) ops: Arc<dyn Ops>,
    pub(crate) forecaster: Box<dyn Forecaster>,
    pub(crate) sinks: Sinks,
    pub(crate) metrics: ExpertMetrics,
    pub(crate) landed: (Sender<Landed>, Receiver<Landed>),
    pub(crate) grouped: Grouped,
    pub(crate) ensured: Ensured,
    pub(crate) predictions: Vec<Prediction>,
    /// What is read before it is demanded.
    pub(crate) ahead: Ahead,
    pub(crate) prompts: Prompts,
    /// Of the running pass, or of the next one.
    pub(crate) hints: PassHints,
    pub(crate) call: Option<Call>,
    /// Records, or blocks of a sweep, whose reads were queued and that have not landed. Kept
    /// outside of the call, so that a panic in the middle of one does not lose count.
    pub(crate) outstanding: usize,
}

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
    rows: usize,
    top_k: usize,
    /// Waves that have not begun.
    waves: VecDeque<Vec<ExpertIdx>>,
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

impl StreamingExperts {
    /// A provider of records of this layout for a model of this geometry, with `slots` slots.
    #[must_use]
    pub fn builder(geometry: Geometry, layout: RecordLayout, slots: usize) -> StreamingBuilder {
        StreamingBuilder::new(geometry, layout, slots)
    }

    /// Says more about the next pass. Without it a pass belongs to no prompt and is cancelled
    /// between layers only.
    pub fn hint(&mut self, hints: PassHints) {
        self.hints = hints;
    }

    /// The pool, for counters and displays.
    #[must_use]
    pub const fn pool(&self) -> &SlotPool {
        &self.pool
    }

    /// Counts pool events and waits from zero again.
    pub fn reset_counters(&mut self) {
        self.pool.reset_counters();
        self.metrics = ExpertMetrics::default();
        self.ahead.reset_counters();
        self.sinks.on_outcome(&Outcome::CountersReset);
    }

    /// Empties the pool; also the way out of a poisoned one. Reads that are under way are joined.
    pub fn clear(&mut self) {
        self.end_call();
        self.join_quietly();
        self.pool.clear();
        self.ensured.clear();
        self.sinks.on_outcome(&Outcome::Cleared);
    }

    /// Makes pool and slot memory `slots` slots large; what is read ahead is joined and given up.
    /// Between two passes.
    ///
    /// # Errors
    /// [`ExpertsError::Cache`] when the pool refuses the number, [`ExpertsError::Compute`] when the
    /// system refuses the memory. The pool is then as it was.
    pub fn resize(&mut self, slots: usize) -> Result<(), ExpertsError> {
        self.end_call();
        self.join_tickets()?;
        let before = self.pool.slots();
        self.arena.grow(slots.min(self.pool.geometry().records()))?;
        let resized = self.pool.resize(slots);
        self.arena.shrink(self.pool.slots());
        resized?;
        if self.pool.slots() != before {
            self.sinks.on_outcome(&Outcome::Resized { slots: self.pool.slots() });
        }
        Ok(())
    }

    /// Tells the forecaster that `session` has ended or gone back. What is read ahead is joined
    /// and given up.
    pub fn forget(&mut self, session: SessionId) {
        self.join_quietly();
        self.forecaster.reset(session);
        self.prompts.forget(session);
    }

    /// Slot memory of the pool in bytes.
    #[must_use]
    pub fn arena_bytes(&self) -> u64 {
        self.arena.bytes()
    }

    /// What was waited for and guessed since the counters were last reset.
    #[must_use]
    pub const fn metrics(&self) -> &ExpertMetrics {
        &self.metrics
    }

    /// What reading ahead did since the counters were last reset.
    #[must_use]
    pub const fn lookahead(&self) -> &LookaheadMetrics {
        &self.ahead.metrics
    }

    /// The forecaster's name.
    #[must_use]
    pub fn forecaster(&self) -> String {
        self.forecaster.name()
    }

    fn plan_waves(&self) -> Result<VecDeque<Vec<ExpertIdx>>, ExpertsError> {
        let distinct = self.grouped.experts();
        if distinct.len() <= self.pool.capacity() {
            return Ok(VecDeque::from([distinct.to_vec()]));
        }
        Ok(self.pool.waves(distinct)?.map(<[ExpertIdx]>::to_vec).collect())
    }

    /// Pins and claims the records of the next wave and queues their reads.
    fn start_wave(&mut self) -> Result<(), ExpertsError> {
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
                let place = place(claim.key(), self.arena.layout(), &*self.index);
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
    fn run_wave(&mut self, x: &Tensor, out: &Tensor) -> Result<(), ExpertsError> {
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
    fn end_call(&mut self) {
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

    /// Joins what is read ahead where an error is nobody's.
    fn join_quietly(&mut self) {
        if let Err(error) = self.join_tickets() {
            tracing::debug!(%error, "tickets that were joined");
        }
    }

    fn try_demand(&mut self, routing: &Routing<'_>) -> Result<(), ExpertsError> {
        if self.call.is_some() {
            let when = "before the previous layer was computed";
            return Err(ExpertsError::Order { called: "demand", when });
        }
        self.prepare_demand(routing)?;
        self.pool.routing(routing)?;
        self.sinks.on_routing(routing);
        self.forecaster.observe(routing);
        let sweeps = |staging: &Staging| staging.sweeps(routing.rows());
        let swept = routing.phase() != Phase::Decode && self.staging.as_ref().is_some_and(sweeps);
        // A sweep goes by number, as waves do.
        self.grouped.group(routing, if swept { 0 } else { self.pool.capacity() });
        self.count_demand(routing.layer());
        self.count_prompt(routing);
        if swept {
            self.call = Some(Call::new(routing, VecDeque::new()));
            return self.begin_sweep(routing);
        }
        let planned = self.plan_waves();
        if planned.is_err() {
            self.sinks.on_outcome(&Outcome::Refused { layer: routing.layer() });
        }
        let (waves, refused) = planned.map_or_else(|e| (VecDeque::new(), Err(e)), |w| (w, Ok(())));
        self.metrics.waves += waves.len().saturating_sub(1) as u64;
        self.call = Some(Call::new(routing, waves));
        refused?;
        self.start_wave()
    }

    /// Counts what a pass over a prompt looks up, where a sweep will ask.
    fn count_prompt(&mut self, routing: &Routing<'_>) {
        if self.hints.prompt.is_some() && self.staging.is_some() {
            let (geometry, session) = (self.pool.geometry(), routing.session());
            let lookups = self.grouped.experts().iter().map(|e| (*e, self.grouped.count(*e)));
            self.prompts.count(session, geometry, routing.layer(), lookups);
        }
    }

    fn try_compute(&mut self, x: &Tensor, weights: &Tensor) -> Result<Tensor, ExpertsError> {
        let Some(call) = &self.call else {
            return Err(ExpertsError::Order { called: "compute", when: "without a demand" });
        };
        let hidden = self.arena.layout().shape().hidden();
        let out = self.ops.scratch((call.rows * call.top_k, hidden))?;
        if call.sweep.is_some() {
            self.run_sweep(x, &out)?;
        } else {
            loop {
                self.run_wave(x, &out)?;
                if self.call.as_ref().is_none_or(|call| call.waves.is_empty()) {
                    break;
                }
                self.start_wave()?;
            }
        }
        let sum = self.ops.rank_sum(&out, weights)?;
        self.ops.recycle(out);
        Ok(sum)
    }
}

impl Call {
    fn new(routing: &Routing<'_>, waves: VecDeque<Vec<ExpertIdx>>) -> Self {
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

/// Where a record lies, once it is known to fit its slot.
pub(crate) fn place(
    key: ExpertKey,
    layout: &RecordLayout,
    index: &dyn RecordIndex,
) -> Result<Place, ExpertsError> {
    let wrong = |what| ExpertsError::Index { key, what };
    if let Some(whole) = index.whole(key) {
        if !(layout.record_len() as u64..=layout.stride() as u64).contains(&whole.len()) {
            return Err(wrong("the whole record has another length"));
        }
        return Ok(Place::Whole(whole));
    }
    let pieces = index.pieces(key).ok_or(wrong("it has no such record"))?;
    let lens = layout.pieces().iter().map(|piece| piece.len as u64);
    if !lens.eq(pieces.iter().map(Extent::len)) {
        return Err(wrong("its pieces have other lengths"));
    }
    Ok(Place::Pieces(pieces))
}

impl ExpertProvider for StreamingExperts {
    fn begin_pass(&mut self, step: &Step<'_>) -> Result<(), Error> {
        self.end_call();
        self.begin_ahead(step)?;
        self.forecaster.on_step(step);
        if self.hints.prompt.is_some_and(|prompt| prompt.first) {
            self.prompts.forget(step.session);
        }
        self.pool.begin_step(step).map_err(ExpertsError::from)?;
        self.sinks.on_step(step);
        Ok(())
    }

    fn probes(&mut self, at: Tap, want: &mut Vec<Probe>) {
        if self.ahead.asks() {
            self.forecaster.probes(at, want);
        }
    }

    fn demand(&mut self, routing: &Routing<'_>) -> Result<(), Error> {
        Ok(self.try_demand(routing)?)
    }

    fn predict(&mut self, at: Tap, results: &ProbeResults<'_>) {
        self.forecast(at, results);
    }

    fn compute(&mut self, x: &Tensor, weights: &Tensor) -> Result<Tensor, Error> {
        let waited = self.metrics.wait;
        let result = self.try_compute(x, weights);
        self.count_wait(self.metrics.wait.saturating_sub(waited));
        self.end_call();
        Ok(result?)
    }

    fn end_pass(&mut self) {
        self.end_call();
        self.end_ahead();
        self.hints = PassHints::new();
    }
}

impl Drop for StreamingExperts {
    fn drop(&mut self) {
        self.end_call();
        self.join_quietly();
    }
}
