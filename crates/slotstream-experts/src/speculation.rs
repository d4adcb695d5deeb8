//! Reading ahead: forecasts become tickets, and tickets become records of a call.

use std::time::Instant;

use slotstream_cache::{Claim, Found};
use slotstream_core::{
    CancelToken, EventSink, ExpertIdx, ExpertKey, Geometry, LayerIdx, Origin, Outcome, PassId,
    Phase, Prediction, ProbeResults, ReadClass, ReadError, Routing, SlotId, Step, Tap, Tick,
};

use crate::backoff::BackOff;
use crate::call::Wait;
use crate::landing::{Owner, PieceFault, Place, jobs};
use crate::lookahead::LookaheadMetrics;
use crate::provider::StreamingExperts;
use crate::tickets::{Adopted, Due, Gone, Refused, Reserved, Speculation, Tickets};
use crate::{ExpertsError, LayerLookahead};

/// What a provider knows of the future.
#[derive(Debug)]
pub(crate) struct Ahead {
    pub(crate) tickets: Tickets,
    pub(crate) metrics: LookaheadMetrics,
    back_off: BackOff,
    pass: PassId,
    /// The running pass may reserve so many records more.
    budget: usize,
    /// The running pass may read ahead, as far as its rows are concerned.
    fits: bool,
    /// It does.
    on: bool,
    begun: Option<Instant>,
    /// The layer whose demand is the last of the running pass.
    demanded: Option<LayerIdx>,
    /// By layer: what was forecast for its next demand, and for which pass.
    forecast: Vec<(PassId, Vec<ExpertIdx>)>,
    /// Scratch.
    gone: Vec<Gone>,
}

/// An adopted record whose reads have not ended.
#[derive(Debug)]
pub(crate) struct LateRead {
    id: u64,
    /// Taken when it lands.
    claim: Option<Claim>,
    cancel: CancelToken,
    /// It failed as a speculative read, and is being read once more.
    again: bool,
}

impl Ahead {
    pub(crate) fn new(limits: Speculation, geometry: &Geometry) -> Self {
        let none = (PassId::new(0), Vec::new());
        Self {
            tickets: Tickets::new(limits),
            metrics: LookaheadMetrics::new(geometry.layers()),
            back_off: BackOff::new(),
            pass: PassId::new(0),
            budget: 0,
            fits: false,
            on: false,
            begun: None,
            demanded: None,
            forecast: vec![none; geometry.layers()],
            gone: Vec::new(),
        }
    }

    /// Whether the forecaster is asked in the running pass: where it reads ahead, and everywhere
    /// when nothing ever does, because somebody else may want to hear it.
    pub(crate) const fn asks(&self) -> bool {
        self.on || self.tickets.limits().in_flight == 0
    }

    fn layer(&mut self, layer: LayerIdx) -> Option<&mut LayerLookahead> {
        self.metrics.layers.get_mut(layer.index())
    }

    pub(crate) fn reset_counters(&mut self) {
        self.metrics = LookaheadMetrics::new(self.metrics.layers.len());
    }

    /// Remembers what was forecast for a layer's next demand.
    fn expect(&mut self, prediction: &Prediction, due: PassId) {
        let Some((pass, experts)) = self.forecast.get_mut(prediction.key.layer().index()) else {
            return;
        };
        if *pass != due {
            *pass = due;
            experts.clear();
        }
        let expert = prediction.key.expert();
        if !experts.contains(&expert) {
            experts.push(expert);
        }
    }
}

/// Whether a prediction says something that could come true.
fn is_lawful(geometry: &Geometry, prediction: &Prediction) -> bool {
    geometry.index(prediction.key).is_some()
        && prediction.needed_by.layer == prediction.key.layer()
        && (0.0..=1.0).contains(&prediction.confidence)
}

impl StreamingExperts {
    /// A pass begins: what earlier ones wanted is given up, and everything where this one cannot
    /// read ahead.
    pub(crate) fn begin_ahead(&mut self, step: &Step<'_>) -> Result<(), ExpertsError> {
        let rows = step.tokens.len();
        let swept = step.phase != Phase::Decode
            && self.staging.as_ref().is_some_and(|staging| staging.sweeps(rows));
        let limits = *self.ahead.tickets.limits();
        let ahead = &mut self.ahead;
        ahead.pass = step.pass;
        ahead.fits = !swept && rows <= limits.rows;
        let wanted = limits.in_flight > 0;
        ahead.on = wanted && ahead.fits && (!limits.back_off || ahead.back_off.is_on());
        ahead.budget = limits.a_pass(self.pool.geometry(), rows);
        ahead.demanded = None;
        ahead.begun = Some(Instant::now());
        if ahead.fits && wanted {
            let counter = if ahead.on {
                &mut ahead.metrics.passes
            } else {
                &mut ahead.metrics.passes_without
            };
            *counter += 1;
        }
        if !ahead.fits {
            return self.join_tickets();
        }
        self.retire(|_, due| due.pass < step.pass)
    }

    /// A pass has ended: nobody waits for what it wanted.
    pub(crate) fn end_ahead(&mut self) {
        let pass = self.ahead.pass;
        if let Err(error) = self.retire(|_, due| due.pass <= pass) {
            tracing::debug!(%error, "tickets of a pass that has ended");
        }
        let took = self.ahead.begun.take().map(|begun| begun.elapsed());
        let limits = self.ahead.tickets.limits();
        let counts = self.ahead.fits
            && (limits.back_off && limits.in_flight > 0)
            && self.metrics.predictions > 0;
        let Some(verdict) = took.filter(|_| counts).and_then(|t| self.ahead.back_off.passed(t))
        else {
            return;
        };
        self.ahead.metrics.compared = Some((verdict.without, verdict.with));
        if verdict.changed {
            self.ahead.metrics.backed_off += u64::from(!verdict.pays);
            let what = if verdict.pays { "reading ahead again" } else { "no longer reading ahead" };
            let (without, with) = (verdict.without, verdict.with);
            tracing::info!(without, with, forecaster = self.forecaster.name(), "{what}");
        }
    }

    /// The answer to probes: what the forecaster expects is told and, where it fits, read.
    pub(crate) fn forecast(&mut self, at: Tap, results: &ProbeResults<'_>) {
        if !self.ahead.asks() {
            return;
        }
        let mut predictions = std::mem::take(&mut self.predictions);
        predictions.clear();
        self.forecaster.predict(at, results, &mut predictions);
        let told = predictions.len();
        let geometry = *self.pool.geometry();
        predictions.retain(|prediction| is_lawful(&geometry, prediction));
        self.metrics.predictions += told as u64;
        self.metrics.predictions_dropped += (told - predictions.len()) as u64;
        if !predictions.is_empty() {
            match self.pool.forecast(&predictions) {
                Ok(()) => {
                    self.sinks.on_forecast(at, &predictions);
                    self.reserve_all(&predictions);
                }
                Err(error) => tracing::debug!(%error, "a forecast that the pool was not told of"),
            }
        }
        self.predictions = predictions;
    }

    /// Reserves slots for what is expected, as far as there is room, and queues the reads.
    fn reserve_all(&mut self, predictions: &[Prediction]) {
        if !self.ahead.on {
            return;
        }
        let mut queued = Vec::new();
        for prediction in predictions {
            let (key, layer) = (prediction.key, prediction.key.layer());
            let ahead_by = u64::from(prediction.needed_by.passes_ahead);
            let due =
                Due { pass: PassId::new(self.ahead.pass.get().saturating_add(ahead_by)), layer };
            let passed = ahead_by == 0 && self.ahead.demanded.is_some_and(|last| layer <= last);
            if passed {
                self.ahead.layer(layer).into_iter().for_each(|layer| layer.too_late += 1);
                continue;
            }
            self.ahead.expect(prediction, due.pass);
            let refused = if self.ahead.budget == 0 && !self.ahead.tickets.has(key) {
                Err(if self.pool.is_resident(key) { Refused::There } else { Refused::Full })
            } else {
                self.ahead.tickets.reserve(&mut self.pool, key, due)
            };
            match refused {
                Ok(reserved) => self.issue(&reserved, &mut queued),
                Err(Refused::There) => {}
                Err(Refused::Full) => {
                    self.ahead.layer(layer).into_iter().for_each(|layer| layer.refused += 1);
                }
                Err(Refused::Policy) => {
                    self.ahead.layer(layer).into_iter().for_each(|layer| layer.refused += 1);
                    self.sinks.on_outcome(&Outcome::NotAdmitted { key, origin: Origin::Prefetch });
                }
                Err(Refused::Pool(error)) => {
                    tracing::debug!(%error, "the pool reserves nothing");
                    break;
                }
            }
        }
        if !queued.is_empty() {
            self.queue.submit(ReadClass::Speculative, queued);
        }
    }

    /// Queues the reads of a reserved record.
    fn issue(&mut self, reserved: &Reserved, queued: &mut Vec<slotstream_core::Job>) {
        let Reserved { id, key, slot, after, cancel } = reserved;
        let placed = Place::of(*key, self.arena.layout(), &*self.index);
        let lent = placed.and_then(|place| Ok((self.arena.lease(*slot, *after)?, place)));
        let withdrawn = match lent {
            Ok((lease, place)) => {
                let (owner, done) = (Owner::Ticket(*id), &self.landed.0);
                jobs(owner, lease, &place, done, &self.spare, cancel, queued);
                self.ahead.budget -= 1;
                self.ahead.layer(key.layer()).into_iter().for_each(|layer| layer.issued += 1);
                None
            }
            // A demand will meet the same error and say it.
            Err(error) => {
                tracing::debug!(%error, "a record that cannot be read ahead");
                Some(self.ahead.tickets.withdraw(&mut self.pool, *id))
            }
        };
        self.sinks.on_outcome(&Outcome::Reserved { slot: *slot, key: *key });
        if let Some(Ok(())) = withdrawn {
            self.sinks.on_outcome(&Outcome::Cancelled { key: *key });
        }
    }

    /// Gives the slots of tickets back whose reads have ended to no use. Between two calls.
    fn settle_tickets(&mut self) -> Result<(), ExpertsError> {
        let mut gone = std::mem::take(&mut self.ahead.gone);
        let settled = self.ahead.tickets.settle(&mut self.pool, &mut gone);
        gone.drain(..).for_each(|gone| self.tell_gone(gone));
        self.ahead.gone = gone;
        Ok(settled?)
    }

    fn tell_gone(&mut self, Gone { key, slot, failed, bytes }: Gone) {
        if let Some(layer) = self.ahead.layer(key.layer()) {
            layer.wasted_bytes += bytes;
            match (failed, bytes) {
                (true, _) => layer.failed += 1,
                (false, 0) => layer.cancelled += 1,
                (false, _) => layer.expired += 1,
            }
        }
        self.sinks.on_outcome(&match (failed, bytes) {
            (true, _) => Outcome::Failed { slot, key, origin: Origin::Prefetch },
            (false, 0) => Outcome::Cancelled { key },
            (false, _) => Outcome::Expired { key },
        });
    }

    /// Gives up the tickets that `passed` says.
    fn retire(&mut self, passed: impl Fn(ExpertKey, Due) -> bool) -> Result<(), ExpertsError> {
        if self.ahead.tickets.is_empty() {
            return Ok(());
        }
        self.ahead.tickets.retire(passed, self.arena.layout().payload_len() as u64);
        self.settle_tickets()
    }

    /// The call of a layer is over: nobody waits for what was read for it or for layers before.
    pub(crate) fn expire(&mut self, layer: LayerIdx) {
        let now = Due { pass: self.ahead.pass, layer };
        if let Err(error) = self.retire(|_, due| due <= now) {
            tracing::debug!(%error, "tickets of a layer that has passed");
        }
    }

    /// Gives up all tickets and waits until none of them reads any more. Between two calls.
    pub(crate) fn join_tickets(&mut self) -> Result<(), ExpertsError> {
        self.join_all_but(|_| false)
    }

    fn join_all_but(&mut self, keep: impl Fn(ExpertKey) -> bool) -> Result<(), ExpertsError> {
        let mut result = self.retire(|key, _| !keep(key));
        // What is kept may land meanwhile; it does not count.
        while self.ahead.tickets.retired() > 0 {
            let outstanding = self.ahead.tickets.outstanding();
            let gone = ExpertsError::QueueGone { outstanding };
            let landed = self.landed.1.recv().map_err(|_| gone)?;
            if let Owner::Ticket(id) = landed.owner {
                self.ahead.tickets.landed(id, landed.fault.is_some(), landed.bytes);
            }
        }
        result = result.and(self.settle_tickets());
        result
    }

    /// Before a layer is demanded: takes what has arrived, and makes room where its distinct
    /// experts would not fit beside the tickets of others.
    pub(crate) fn prepare_demand(&mut self, routing: &Routing<'_>) -> Result<(), ExpertsError> {
        if self.ahead.tickets.is_empty() {
            return Ok(());
        }
        // No call runs, so that only tickets can land.
        let landed = self.next_landed(Wait::No)?;
        debug_assert!(landed.is_none(), "a record that nobody demanded has landed");
        self.settle_tickets()?;
        self.grouped.group(routing, 0);
        let distinct = self.grouped.experts().len();
        if distinct <= self.pool.capacity() {
            return Ok(());
        }
        let wanted: Vec<ExpertKey> =
            self.grouped.experts().iter().map(|e| routing.key(*e)).collect();
        self.join_all_but(|key| wanted.contains(&key))
    }

    /// Counts what a layer demands against what was forecast.
    pub(crate) fn count_demand(&mut self, layer: LayerIdx) {
        let pass = self.ahead.pass;
        self.ahead.demanded = Some(layer);
        let Some((due, forecast)) = self.ahead.forecast.get_mut(layer.index()) else { return };
        let Some(counted) = self.ahead.metrics.layers.get_mut(layer.index()) else { return };
        if self.ahead.on {
            let demanded = self.grouped.experts();
            counted.demanded += demanded.len() as u64;
            if *due == pass {
                counted.forecast += forecast.len() as u64;
                counted.foreseen += demanded.iter().filter(|e| forecast.contains(e)).count() as u64;
            }
        }
        if *due <= pass {
            forecast.clear();
        }
    }

    /// What the running call waited.
    pub(crate) fn count_wait(&mut self, waited: std::time::Duration) {
        if let Some(layer) = self.call.as_ref().map(|call| call.layer).filter(|_| self.ahead.on)
            && let Some(counted) = self.ahead.layer(layer)
        {
            counted.wait += waited;
        }
    }

    /// The running wave takes over the tickets of its records. Gives the tokens of those whose
    /// reads have not ended.
    pub(crate) fn adopt(&mut self, layer: LayerIdx) -> Result<Vec<CancelToken>, ExpertsError> {
        let (mut told, mut tokens, mut again) = (Vec::new(), Vec::new(), Vec::new());
        let misses = self.ensured.entries().iter().filter(|entry| !entry.is_hit()).count();
        for entry in self.ensured.entries().iter().filter(|e| e.found == Found::Adopted) {
            let key = ExpertKey::new(layer, entry.expert);
            match self.ahead.tickets.adopt(&mut self.pool, key)? {
                Some(Adopted::Ready(slot)) => told.push(Outcome::Adopted { slot, key }),
                Some(Adopted::Late { id, claim, cancel }) => {
                    told.push(Outcome::Late { key });
                    tokens.push(cancel.clone());
                    let late = LateRead { id, claim: Some(claim), cancel, again: false };
                    if let Some(call) = &mut self.call {
                        call.late.push(late);
                        self.outstanding += 1;
                    }
                }
                Some(Adopted::Again { id, claim }) => {
                    told.push(Outcome::Late { key });
                    again.push((id, claim));
                }
                None => {
                    let when = "for a record that has no ticket";
                    return Err(ExpertsError::Order { called: "adopt", when });
                }
            }
        }
        let on = self.ahead.on;
        if let Some(counted) = self.ahead.layer(layer) {
            counted.misses += if on { misses as u64 } else { 0 };
            let late = (tokens.len() + again.len()) as u64;
            counted.late += late;
            counted.on_time += told.len() as u64 - late;
        }
        for (id, claim) in again {
            let (key, slot, after) = (claim.key(), claim.slot(), claim.after());
            let Some(call) = &mut self.call else { break };
            let cancel = call.cancel.clone();
            call.late.push(LateRead { id, claim: Some(claim), cancel, again: true });
            self.read_again(id, (key, slot, after))?;
        }
        told.iter().for_each(|outcome| self.sinks.on_outcome(outcome));
        Ok(tokens)
    }

    /// Reads on demand what was read ahead to no use.
    fn read_again(
        &mut self,
        id: u64,
        (key, slot, after): (ExpertKey, SlotId, Option<Tick>),
    ) -> Result<(), ExpertsError> {
        let Some(call) = &self.call else { return Ok(()) };
        let place = Place::of(key, self.arena.layout(), &*self.index)?;
        let lease = self.arena.lease(slot, after)?;
        let mut queued = Vec::new();
        let (owner, done) = (Owner::Ticket(id), &self.landed.0);
        jobs(owner, lease, &place, done, &self.spare, &call.cancel, &mut queued);
        self.outstanding += 1;
        self.queue.submit(ReadClass::Demand, queued);
        Ok(())
    }

    /// Whether the running call waits for this ticket's reads.
    pub(crate) fn is_late(&self, id: u64) -> bool {
        self.call.as_ref().is_some_and(|call| call.late.iter().any(|late| late.id == id))
    }

    /// The slot of an adopted record, and whether it is in nobody's way any more.
    pub(crate) fn is_awaited(&self, slot: SlotId) -> bool {
        let late = self.call.as_ref().map_or(&[][..], |call| &call.late);
        late.iter().any(|late| late.claim.as_ref().is_some_and(|claim| claim.slot() == slot))
    }

    /// A speculative read that failed, or that was called off before somebody wanted it, is
    /// nobody's error: the record is read on demand. Gives the claim of a record that landed for
    /// good, and nothing while it is read once more.
    pub(crate) fn settle_late(
        &mut self,
        id: u64,
        fault: Option<&PieceFault>,
    ) -> Result<Option<Claim>, ExpertsError> {
        let twice = ExpertsError::Order { called: "landed", when: "twice for one record" };
        let Some(call) = &mut self.call else { return Err(twice) };
        let Some(late) = call.late.iter_mut().find(|late| late.id == id) else { return Err(twice) };
        let Some(claim) = &late.claim else { return Err(twice) };
        if fault.is_none() || late.again || call.cancel.is_cancelled() {
            return Ok(late.claim.take());
        }
        late.again = true;
        late.cancel = call.cancel.clone();
        let (key, slot, after) = (claim.key(), claim.slot(), claim.after());
        self.read_again(id, (key, slot, after))?;
        let called_off =
            fault.is_some_and(|fault| matches!(fault.source, ReadError::Cancelled { .. }));
        if let Some(layer) = self.ahead.layer(key.layer()) {
            layer.failed += u64::from(!called_off);
        }
        Ok(None)
    }
}

impl LateRead {
    /// Ends its reads that have not begun.
    pub(crate) fn cancel(&self) {
        self.cancel.cancel();
    }

    /// The claim, where it has not landed.
    pub(crate) fn take(&mut self) -> Option<Claim> {
        self.claim.take()
    }
}
