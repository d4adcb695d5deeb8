//! Events as values, for tools.

use slotstream_core::{
    EventSink, ExpertIdx, LayerIdx, Outcome, PassId, Phase, Prediction, Routing, SessionId, Step,
    Tap,
};

/// One event of a trace.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum Event {
    /// A pass begins.
    Step(StepEvent),
    /// The router decided.
    Routing(RoutingEvent),
    /// The forecaster guessed.
    Forecast {
        /// Where.
        at: Tap,
        /// What.
        predictions: Vec<Prediction>,
    },
    /// Something befell a record or the pool.
    Outcome(Outcome),
}

/// A pass that begins; see [`Step`].
#[derive(Clone, Debug, PartialEq, Eq)]
#[expect(clippy::exhaustive_structs, reason = "made by tools, as a step is")]
pub struct StepEvent {
    /// Number of the pass.
    pub pass: PassId,
    /// What it is for.
    pub phase: Phase,
    /// Whose it is.
    pub session: SessionId,
    /// Position of the first token in its sequence.
    pub position: u64,
    /// The token ids, one a row.
    pub tokens: Vec<u32>,
}

impl StepEvent {
    /// Lends it.
    #[must_use]
    pub fn step(&self) -> Step<'_> {
        let Self { pass, phase, session, position, ref tokens } = *self;
        Step { pass, phase, session, position, tokens }
    }
}

impl From<&Step<'_>> for StepEvent {
    fn from(step: &Step<'_>) -> Self {
        let Step { pass, phase, session, position, tokens } = *step;
        Self { pass, phase, session, position, tokens: tokens.to_vec() }
    }
}

/// What a router decided for all rows of the pass; see [`Routing`].
#[derive(Clone, Debug, PartialEq)]
#[expect(clippy::exhaustive_structs, reason = "made by tools, as a routing is")]
pub struct RoutingEvent {
    /// The layer.
    pub layer: LayerIdx,
    /// Experts, `[rows, top_k]`, in descending weight.
    pub ids: Vec<ExpertIdx>,
    /// Weights, `[rows, top_k]`; empty when they were not recorded.
    pub weights: Vec<f32>,
    /// Logits, `[rows, experts]`, minus infinity where they were not recorded; empty when none
    /// were.
    pub logits: Vec<f32>,
}

impl RoutingEvent {
    /// Lends it as of the pass of `step`; `None` when its rows are not those of the pass.
    #[must_use]
    pub fn routing<'a>(&'a self, step: &Step<'_>, top_k: usize) -> Option<Routing<'a>> {
        let lookups = step.tokens.len().checked_mul(top_k)?;
        let weights = self.weights.is_empty() || self.weights.len() == lookups;
        if lookups == 0 || self.ids.len() != lookups || !weights {
            return None;
        }
        let routing = Routing::new(step, self.layer, top_k, &self.ids, &self.weights);
        Some(if self.logits.is_empty() { routing } else { routing.with_logits(&self.logits) })
    }
}

impl From<&Routing<'_>> for RoutingEvent {
    fn from(routing: &Routing<'_>) -> Self {
        Self {
            layer: routing.layer(),
            ids: routing.ids().to_vec(),
            weights: routing.weights().to_vec(),
            logits: routing.logits().map(<[f32]>::to_vec).unwrap_or_default(),
        }
    }
}

/// Hands each event to `f`, as a value.
pub(super) struct Owned<F>(pub(super) F);

impl<F> std::fmt::Debug for Owned<F> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Owned")
    }
}

impl<F: FnMut(Event) + Send> EventSink for Owned<F> {
    fn on_step(&mut self, step: &Step<'_>) {
        (self.0)(Event::Step(step.into()));
    }
    fn on_routing(&mut self, routing: &Routing<'_>) {
        (self.0)(Event::Routing(routing.into()));
    }
    fn on_forecast(&mut self, at: Tap, predictions: &[Prediction]) {
        (self.0)(Event::Forecast { at, predictions: predictions.to_vec() });
    }
    fn on_outcome(&mut self, outcome: &Outcome) {
        (self.0)(Event::Outcome(*outcome));
    }
}
