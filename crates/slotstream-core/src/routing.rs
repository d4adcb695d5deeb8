//! What the router decided, and the pass in which it did.

use crate::{ExpertIdx, ExpertKey, LayerIdx, PassId, SessionId};

/// What a pass is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Phase {
    /// The prompt is read.
    Prefill,
    /// Tokens are generated.
    Decode,
}

/// A pass that begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(clippy::exhaustive_structs, reason = "made by the engine and by traces alike")]
pub struct Step<'a> {
    /// Number of the pass.
    pub pass: PassId,
    /// What it is for.
    pub phase: Phase,
    /// Whose it is.
    pub session: SessionId,
    /// Position of the first token in its sequence.
    pub position: u64,
    /// The token ids, one a row.
    pub tokens: &'a [u32],
}

/// The router's decision for all rows of a pass at one layer.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Routing<'a> {
    pass: PassId,
    phase: Phase,
    session: SessionId,
    layer: LayerIdx,
    top_k: usize,
    ids: &'a [ExpertIdx],
    weights: &'a [f32],
    logits: Option<&'a [f32]>,
}

impl<'a> Routing<'a> {
    /// The decision of `layer` in the pass that `step` opened: `ids` holds `top_k` experts a row
    /// in descending weight, `weights` the same number of weights or nothing.
    ///
    /// # Panics
    /// When the lengths do not fit `top_k` and the number of tokens.
    #[inline]
    #[must_use]
    pub fn new(
        step: &Step<'_>,
        layer: LayerIdx,
        top_k: usize,
        ids: &'a [ExpertIdx],
        weights: &'a [f32],
    ) -> Self {
        assert_eq!(ids.len(), step.tokens.len() * top_k, "ids are rows x top-k");
        assert!(weights.is_empty() || weights.len() == ids.len(), "a weight an id");
        let Step { pass, phase, session, .. } = *step;
        Self { pass, phase, session, layer, top_k, ids, weights, logits: None }
    }

    /// Adds the router's logits, `[rows, experts]`.
    #[must_use]
    pub fn with_logits(mut self, logits: &'a [f32]) -> Self {
        self.logits = Some(logits);
        self
    }

    /// The pass.
    #[inline]
    #[must_use]
    pub const fn pass(&self) -> PassId {
        self.pass
    }

    /// What the pass is for.
    #[inline]
    #[must_use]
    pub const fn phase(&self) -> Phase {
        self.phase
    }

    /// Whose pass it is.
    #[inline]
    #[must_use]
    pub const fn session(&self) -> SessionId {
        self.session
    }

    /// The layer.
    #[inline]
    #[must_use]
    pub const fn layer(&self) -> LayerIdx {
        self.layer
    }

    /// Experts a row.
    #[inline]
    #[must_use]
    pub const fn top_k(&self) -> usize {
        self.top_k
    }

    /// Rows of the pass.
    #[inline]
    #[must_use]
    pub const fn rows(&self) -> usize {
        if let Some(rows) = self.ids.len().checked_div(self.top_k) { rows } else { 0 }
    }

    /// Experts, `[rows, top_k]`, in descending weight.
    #[inline]
    #[must_use]
    pub const fn ids(&self) -> &'a [ExpertIdx] {
        self.ids
    }

    /// Weights, `[rows, top_k]`, each row's sum 1; empty when unknown.
    #[inline]
    #[must_use]
    pub const fn weights(&self) -> &'a [f32] {
        self.weights
    }

    /// Router logits, `[rows, experts]`, where the device lends them.
    #[must_use]
    pub const fn logits(&self) -> Option<&'a [f32]> {
        self.logits
    }

    /// The record behind an expert of this layer.
    #[inline]
    #[must_use]
    pub const fn key(&self, expert: ExpertIdx) -> ExpertKey {
        ExpertKey::new(self.layer, expert)
    }
}

/// A guess that a record will be wanted.
#[derive(Clone, Copy, Debug, PartialEq)]
#[expect(clippy::exhaustive_structs, reason = "made by forecasters outside this workspace")]
pub struct Prediction {
    /// The record.
    pub key: ExpertKey,
    /// How sure the forecaster is: a finite number, 0 to 1.
    pub confidence: f32,
    /// When it will be wanted.
    pub needed_by: Deadline,
}

/// The moment at which a record is wanted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[expect(clippy::exhaustive_structs, reason = "made by forecasters outside this workspace")]
pub struct Deadline {
    /// Passes from the running one: 0 is this pass.
    pub passes_ahead: u32,
    /// The layer that will ask: the record's own.
    pub layer: LayerIdx,
}
