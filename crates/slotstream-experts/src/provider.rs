//! The provider: a layer's demand from routing to weighted sum.

use std::collections::VecDeque;
use std::sync::Arc;

use candle_core::Tensor;
use slotstream_cache::{Ensured, SlotPool};
use slotstream_candle::{Error, ExpertProvider, Ops, SlotArena};
use slotstream_core::{
    EventSink, Forecaster, Geometry, Outcome, Phase, Prediction, Probe, ProbeResults, ReadQueue,
    RecordLayout, Routing, SessionId, Step, Tap,
};

use crate::builder::StreamingBuilder;
use crate::call::Call;
use crate::landing::{Landed, Spare};
use crate::prompt::{PassHints, Prompts};
use crate::route::Grouped;
use crate::sinks::Sinks;
use crate::speculation::Ahead;
use crate::sweep::Staging;
use crate::sync::{Receiver, Sender};
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
