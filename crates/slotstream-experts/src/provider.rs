//! The provider: a layer's demand from routing to weighted sum.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Instant;

use candle_core::{DType, Tensor};
use slotstream_cache::{Abort, Claim, Ensured, Found, SlotPool};
use slotstream_candle::{CandleContext, Error, ExpertProvider, Ops, SlotArena, SlotRows};
use slotstream_core::{
    CancelToken, EventSink, ExpertIdx, ExpertKey, Extent, Forecaster, Geometry, LayerIdx, Outcome,
    PIECE_ORDER, Phase, Prediction, Probe, ProbeResults, ReadClass, ReadQueue, RecordLayout,
    Routing, SessionId, SlotId, Step, Tap,
};

use crate::builder::StreamingBuilder;
use crate::landing::{Landed, PieceFault, Place, Spare, jobs};
use crate::prompt::{PassHints, Prompts};
use crate::route::Grouped;
use crate::sinks::Sinks;
use crate::sweep::{Staging, Sweep};
use crate::sync::{Receiver, Sender, TryRecvError};
use crate::{ExpertMetrics, ExpertsError, RecordIndex};

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
    pub(crate) prompts: Prompts,
    /// Of the running pass, or of the next one.
    pub(crate) hints: PassHints,
    pub(crate) call: Option<Call>,
    /// Records, or blocks of a sweep, whose reads were queued and that have not landed. Kept
    /// outside of the call, so that a panic in the middle of one does not lose count.
    pub(crate) outstanding: usize,
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
        self.sinks.on_outcome(&Outcome::CountersReset);
    }

    /// Empties the pool; also the way out of a poisoned one.
    pub fn clear(&mut self) {
        self.end_call();
        self.pool.clear();
        self.ensured.clear();
        self.sinks.on_outcome(&Outcome::Cleared);
    }

    /// Tells the forecaster that `session` has ended or gone back.
    pub fn forget(&mut self, session: SessionId) {
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
        let mut queued = Vec::new();
        let mut fault = None;
        for claim in ensured.take_claims() {
            if fault.is_none() {
                let place = place(claim.key(), self.arena.layout(), &*self.index);
                let lent = place
                    .and_then(|place| Ok((self.arena.lease(claim.slot(), claim.after())?, place)));
                match lent {
                    Ok((lease, place)) => {
                        let (index, done) = (call.open.len(), &self.landed.0);
                        let (spare, cancel) = (&self.spare, &call.cancel);
                        jobs(index, lease, &place, done, spare, cancel, &mut queued);
                        self.outstanding += 1;
                    }
                    Err(error) => fault = Some(error),
                }
            }
            call.open.push(Some(claim));
        }
        let read = self.outstanding;
        self.metrics.records_read += read as u64;
        self.queue.submit(ReadClass::Demand, queued);
        // The first claim without memory ends the call; it and the ones after it go back.
        self.withdraw(read)?;
        fault.map_or(Ok(()), Err)
    }

    /// Gives up the open claims from number `first` on, whose reads were never queued.
    fn withdraw(&mut self, first: usize) -> Result<(), ExpertsError> {
        let open = self.call.as_ref().map_or(0, |call| call.open.len());
        for at in first..open {
            let Some(claim) = self.call.as_mut().and_then(|call| call.open[at].take()) else {
                continue;
            };
            let (slot, key, origin) = (claim.slot(), claim.key(), claim.origin());
            self.pool.abort(claim, Abort::Withdrawn)?;
            self.sinks.on_outcome(&Outcome::Withdrawn { slot, key, origin });
        }
        Ok(())
    }

    /// Takes the next landed record: waits for it when there is none.
    pub(crate) fn next_landed(&mut self, wait: bool) -> Result<Option<Landed>, ExpertsError> {
        let gone = ExpertsError::QueueGone { outstanding: self.outstanding };
        let landed = match self.landed.1.try_recv() {
            Ok(landed) => landed,
            Err(TryRecvError::Disconnected) => return Err(gone),
            Err(TryRecvError::Empty) if !wait => return Ok(None),
            Err(TryRecvError::Empty) => {
                let begun = Instant::now();
                let landed = self.landed.1.recv().map_err(|_| gone)?;
                self.metrics.wait += begun.elapsed();
                landed
            }
        };
        self.outstanding -= 1;
        Ok(Some(landed))
    }

    /// Publishes or aborts the claim of a landed record; gives the record when it is there.
    fn settle(&mut self, landed: Landed) -> Result<Settled, ExpertsError> {
        let call = self.call.as_mut();
        let claim = call.and_then(|call| call.open.get_mut(landed.index)).and_then(Option::take);
        let Some(claim) = claim else {
            return Err(ExpertsError::Order { called: "landed", when: "twice for one record" });
        };
        let (key, slot, origin) = (claim.key(), claim.slot(), claim.origin());
        match landed.fault {
            None => {
                self.pool.publish(claim)?;
                Ok(Ok((key.expert(), slot)))
            }
            Some(fault) => {
                self.pool.abort(claim, Abort::ReadFailed)?;
                self.sinks.on_outcome(&Outcome::Failed { slot, key, origin });
                Ok(Err((key, fault)))
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
            .filter(|entry| entry.found != Found::Miss)
            .map(|entry| (entry.expert, entry.slot))
            .collect();
        self.run(&self.arena, &resident, x, out)?;
        let mut ready = Vec::new();
        let mut first: Option<(ExpertKey, PieceFault)> = None;
        while self.outstanding > 0 {
            ready.clear();
            let mut wait = true;
            while let Some(landed) =
                if self.outstanding > 0 { self.next_landed(wait)? } else { None }
            {
                wait = false;
                match self.settle(landed)? {
                    Ok(record) => ready.push(record),
                    // The error of the lowest record, whatever landed first.
                    Err(fault) if first.as_ref().is_none_or(|(key, _)| fault.0 < *key) => {
                        first = Some(fault);
                    }
                    Err(_) => {}
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
        if let Some(call) = &self.call {
            call.cancel.cancel();
        }
        while self.outstanding > 0 {
            let Ok(Some(landed)) = self.next_landed(true) else { break };
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
    }

    fn try_demand(&mut self, routing: &Routing<'_>) -> Result<(), ExpertsError> {
        if self.call.is_some() {
            let when = "before the previous layer was computed";
            return Err(ExpertsError::Order { called: "demand", when });
        }
        self.pool.routing(routing)?;
        self.sinks.on_routing(routing);
        self.forecaster.observe(routing);
        let sweeps = |staging: &Staging| staging.sweeps(routing.rows());
        let swept = routing.phase() != Phase::Decode && self.staging.as_ref().is_some_and(sweeps);
        // A sweep goes by number, as waves do.
        self.grouped.group(routing, if swept { 0 } else { self.pool.capacity() });
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
        let out = Tensor::zeros((call.rows * call.top_k, hidden), DType::F32, x.device());
        let out = out.within("experts")?;
        if call.sweep.is_some() {
            self.run_sweep(x, &out)?;
            return Ok(self.ops.rank_sum(&out, weights)?);
        }
        loop {
            self.run_wave(x, &out)?;
            if self.call.as_ref().is_none_or(|call| call.waves.is_empty()) {
                break;
            }
            self.start_wave()?;
        }
        Ok(self.ops.rank_sum(&out, weights)?)
    }
}

/// Whether a prediction says something that could come true.
fn is_lawful(geometry: &Geometry, prediction: &Prediction) -> bool {
    geometry.index(prediction.key).is_some()
        && prediction.needed_by.layer == prediction.key.layer()
        && (0.0..=1.0).contains(&prediction.confidence)
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
        if self.hints.prompt.is_some_and(|prompt| prompt.first) {
            self.prompts.forget(step.session);
        }
        self.pool.begin_step(step).map_err(ExpertsError::from)?;
        self.sinks.on_step(step);
        Ok(())
    }

    fn probes(&mut self, at: Tap, want: &mut Vec<Probe>) {
        self.forecaster.probes(at, want);
    }

    fn demand(&mut self, routing: &Routing<'_>) -> Result<(), Error> {
        Ok(self.try_demand(routing)?)
    }

    fn predict(&mut self, at: Tap, results: &ProbeResults<'_>) {
        self.predictions.clear();
        self.forecaster.predict(at, results, &mut self.predictions);
        let told = self.predictions.len();
        let geometry = *self.pool.geometry();
        self.predictions.retain(|prediction| is_lawful(&geometry, prediction));
        self.metrics.predictions += told as u64;
        self.metrics.predictions_dropped += (told - self.predictions.len()) as u64;
        if self.predictions.is_empty() {
            return;
        }
        match self.pool.forecast(&self.predictions) {
            Ok(()) => self.sinks.on_forecast(at, &self.predictions),
            Err(error) => tracing::debug!(%error, "a forecast that the pool was not told of"),
        }
    }

    fn compute(&mut self, x: &Tensor, weights: &Tensor) -> Result<Tensor, Error> {
        let result = self.try_compute(x, weights);
        self.end_call();
        Ok(result?)
    }

    fn end_pass(&mut self) {
        self.end_call();
        self.hints = PassHints::new();
    }
}

impl Drop for StreamingExperts {
    fn drop(&mut self) {
        self.end_call();
    }
}
