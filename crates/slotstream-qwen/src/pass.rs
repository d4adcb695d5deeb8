//! One pass of the graph over the next tokens of a sequence.

mod embedding;
mod probes;
mod run;

use std::fmt;

use candle_core::Tensor;
use slotstream_candle::ExpertProvider;
use slotstream_core::{CancelToken, LayerIdx, Step, Tap};
use slotstream_ngram::NgramStore;

use self::embedding::Embedding;
use self::run::{Run, in_step};
use crate::QwenError;
use crate::model::QwenModel;
use crate::state::State;

/// Which rows' logits a pass computes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[expect(clippy::exhaustive_enums, reason = "these are all the choices there are")]
pub enum Logits {
    /// None: a prompt's chunk that is not its last.
    None,
    /// The last row's.
    #[default]
    Last,
    /// Every row's.
    All,
}

/// What to run and what to give back.
#[derive(Clone, Debug)]
pub struct Pass<'a> {
    step: Step<'a>,
    logits: Logits,
    streams: &'a [usize],
    cancel: Option<&'a CancelToken>,
    observer: Option<&'a dyn Observer>,
}

/// Looks at the inside of a pass: for tests, dumps and research. Changes nothing. Tensors are lent
/// for the call: their memory is used again.
pub trait Observer: fmt::Debug {
    /// The residual streams after a layer, `[m, hc_count * hidden_size]`.
    fn on_streams(&self, layer: LayerIdx, streams: &Tensor) {
        let _ = (layer, streams);
    }

    /// What an n-gram (PLE) layer adds to the streams, `[m, hc_count * hidden_size]`: in the pass
    /// itself, or on a copy for a probe at this tap.
    fn on_injection(&self, layer: LayerIdx, at: Option<Tap>, added: &Tensor) {
        let _ = (layer, at, added);
    }

    /// The blocks that the indexer of a layer chose, `[m, budget]` u32 ascending and padded with
    /// `u32::MAX`; `None` when every row sees everything.
    fn on_selection(&self, layer: LayerIdx, selection: Option<&Tensor>) {
        let _ = (layer, selection);
    }
}

impl<'a> Pass<'a> {
    /// A pass over the tokens of `step`, which start at the state's position; gives the last
    /// row's logits.
    #[must_use]
    pub const fn new(step: Step<'a>) -> Self {
        Self { step, logits: Logits::Last, streams: &[], cancel: None, observer: None }
    }

    /// Chooses the rows whose logits to compute.
    #[must_use]
    pub const fn with_logits(mut self, logits: Logits) -> Self {
        self.logits = logits;
        self
    }

    /// Also gives the residual streams of these rows before the final mixer.
    #[must_use]
    pub const fn with_streams(mut self, rows: &'a [usize]) -> Self {
        self.streams = rows;
        self
    }

    /// Shows the inside of the pass to `observer`.
    #[must_use]
    pub const fn with_observer(mut self, observer: &'a dyn Observer) -> Self {
        self.observer = Some(observer);
        self
    }

    /// Lets the pass end with [`QwenError::Cancelled`] when `token` is set; looked at before
    /// every layer.
    #[must_use]
    pub const fn with_cancel(mut self, token: &'a CancelToken) -> Self {
        self.cancel = Some(token);
        self
    }
}

/// What a pass gave.
#[derive(Debug)]
#[non_exhaustive]
pub struct PassOutput {
    /// Logits, `[rows asked for, vocab_size]`; `None` when none were asked for.
    pub logits: Option<Tensor>,
    /// Pre-mixer streams, `[rows asked for, hc_count * hidden_size]`.
    pub streams: Option<Tensor>,
}

impl QwenModel {
    /// Runs a pass and advances `state`.
    ///
    /// # Errors
    /// Before anything is computed: [`QwenError::Position`], [`QwenError::Token`],
    /// [`QwenError::Context`], [`QwenError::Row`], [`QwenError::Dirty`],
    /// [`QwenError::ForeignState`], [`QwenError::NgramStore`]; the state is as it was. Midway:
    /// [`QwenError::Layer`], [`QwenError::Ngram`], [`QwenError::NotFinite`],
    /// [`QwenError::Cancelled`]; the state is then dirty ([`State::is_dirty`]).
    pub fn forward(
        &self,
        state: &mut State,
        pass: &Pass<'_>,
        experts: &mut dyn ExpertProvider,
        ngram: Option<&mut NgramStore>,
    ) -> Result<PassOutput, QwenError> {
        self.check(state, pass, ngram.is_some())?;
        state.set_dirty(true);
        let mut run = Run {
            model: self,
            ops: &*self.ops,
            pass,
            embedding: Embedding::request(state, pass, ngram)?,
            probes: Vec::new(),
        };
        let begun = experts.begin_pass(&pass.step).map_err(QwenError::layer(0));
        let output = begun.and_then(|()| in_step(&*self.ops, 0, || run.layers(state, experts)));
        experts.end_pass();
        let output = output?;
        state.advance(pass.step.tokens);
        state.set_dirty(false);
        Ok(output)
    }

    fn check(&self, state: &State, pass: &Pass<'_>, store: bool) -> Result<(), QwenError> {
        let Step { position, tokens, .. } = pass.step;
        if state.layers.len() != self.layers.len() {
            let (expected, found) = (self.layers.len(), state.layers.len());
            return Err(QwenError::ForeignState { expected, found });
        }
        if store != self.ple.is_some() {
            return Err(QwenError::NgramStore { model: self.ple.is_some() });
        }
        if state.is_dirty() {
            return Err(QwenError::Dirty { position: state.position() });
        }
        if tokens.is_empty() || position != state.position() {
            let (tokens, expected) = (tokens.len(), state.position());
            return Err(QwenError::Position { tokens, position, expected });
        }
        if position + tokens.len() as u64 > state.context() as u64 {
            let (tokens, context) = (tokens.len(), state.context());
            return Err(QwenError::Context { position, tokens, context });
        }
        let vocab_size = self.config.vocab_size;
        if let Some(i) = tokens.iter().position(|t| *t as usize >= vocab_size) {
            let (token, position) = (tokens[i], position + i as u64);
            return Err(QwenError::Token { token, position, vocab_size });
        }
        let rows = tokens.len();
        match pass.streams.iter().find(|row| **row >= rows) {
            Some(row) => Err(QwenError::Row { row: *row, rows }),
            None => Ok(()),
        }
    }
}
