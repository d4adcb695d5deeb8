//! Errors of loading and running the graph.

use slotstream_core::{ErrorKind, LayerIdx, PassId};

/// A graph that could not be loaded or a pass that could not be run.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum QwenError {
    /// The checkpoint does not hold what the graph needs.
    #[error("the checkpoint does not fit the graph")]
    #[non_exhaustive]
    Checkpoint {
        /// What is wrong with it.
        source: Box<slotstream_checkpoint::CheckpointError>,
    },
    /// The bytes of a tensor could not be read.
    #[error("tensor `{tensor}` could not be read")]
    #[non_exhaustive]
    Load {
        /// The tensor.
        tensor: String,
        /// Why.
        source: Box<slotstream_core::ReadError>,
    },
    /// A tensor could not be placed on the device.
    #[error("tensor `{tensor}` could not be loaded")]
    #[non_exhaustive]
    Place {
        /// The tensor.
        tensor: String,
        /// Why.
        source: Box<slotstream_candle::Error>,
    },
    /// The caller cancelled.
    #[error("cancelled {during}")]
    #[non_exhaustive]
    Cancelled {
        /// What was going on: loading, or a layer of a pass.
        during: String,
    },
    /// A pass without tokens, or one that starts elsewhere than the state.
    #[error("a pass of {tokens} tokens at position {position}: the state is at {expected}")]
    #[non_exhaustive]
    Position {
        /// Tokens of the pass.
        tokens: usize,
        /// Position of its first token.
        position: u64,
        /// Position of the state.
        expected: u64,
    },
    /// A token that the model does not know.
    #[error("token {token} at position {position}: the vocabulary has {vocab_size} entries")]
    #[non_exhaustive]
    Token {
        /// The token.
        token: u32,
        /// Its position.
        position: u64,
        /// `vocab_size`.
        vocab_size: usize,
    },
    /// The sequence would become longer than the context.
    #[error("{tokens} tokens after position {position} exceed the context of {context} tokens")]
    #[non_exhaustive]
    Context {
        /// Position of the first token that was to run.
        position: u64,
        /// Tokens that were to run.
        tokens: usize,
        /// The longest context of this state.
        context: usize,
    },
    /// A rollback further than the state remembers.
    #[error(
        "the state at position {position} cannot go back to {wanted}: it remembers {kept} rows"
    )]
    #[non_exhaustive]
    Rollback {
        /// Position of the state.
        position: u64,
        /// Position wanted.
        wanted: u64,
        /// Rows that can be undone.
        kept: usize,
    },
    /// A pass failed midway and the state was used again.
    #[error(
        "the state at position {position} is unusable since a pass failed midway; go on from a snapshot or a fresh state"
    )]
    #[non_exhaustive]
    Dirty {
        /// Position before the failed pass.
        position: u64,
    },
    /// A row of the pass that does not exist was asked for.
    #[error("row {row} was asked for, the pass has {rows}")]
    #[non_exhaustive]
    Row {
        /// The row.
        row: usize,
        /// Rows of the pass.
        rows: usize,
    },
    /// NaN or infinity reached the router of a layer.
    #[error(
        "{value} reached the router of {layer} in step {}, at position {position}: damaged weights \
         in this layer or the one before it, or an overflow; the example `inspect --values` finds \
         damaged weights",
        pass.get()
    )]
    #[non_exhaustive]
    NotFinite {
        /// The layer.
        layer: LayerIdx,
        /// The step: number of the pass.
        pass: PassId,
        /// Position of the token.
        position: u64,
        /// The value.
        value: f32,
    },
    /// NaN or infinity among the logits.
    #[error(
        "{value} is the logit of token {token} in step {}, at position {position}: damaged weights \
         in {layer}, the last one, or in the output head, or an overflow; the example `inspect \
         --values` finds damaged weights",
        pass.get()
    )]
    #[non_exhaustive]
    LogitNotFinite {
        /// The last layer.
        layer: LayerIdx,
        /// The step: number of the pass.
        pass: PassId,
        /// Position of the token after which these are the logits.
        position: u64,
        /// The first token whose logit is not finite.
        token: usize,
        /// Its logit.
        value: f32,
    },
    /// An op failed.
    #[error("{layer} failed")]
    #[non_exhaustive]
    Layer {
        /// The layer; one past the last stands for the output head.
        layer: LayerIdx,
        /// Why.
        source: slotstream_candle::Error,
    },
    /// The rows of the n-gram table could not be had.
    #[error("the n-gram rows of this pass could not be had")]
    #[non_exhaustive]
    Ngram {
        /// Why.
        source: Box<slotstream_ngram::NgramError>,
    },
    /// The model has an n-gram layer and the pass brought no store, or the other way round.
    #[error("the model {} an n-gram layer, the pass {} a store", if *.model { "has" } else { "lacks" }, if *.model { "lacks" } else { "has" })]
    #[non_exhaustive]
    NgramStore {
        /// Whether the model has an n-gram layer.
        model: bool,
    },
    /// The state is of another model.
    #[error("the state has {found} layers, the model {expected}")]
    #[non_exhaustive]
    ForeignState {
        /// Layers of the model.
        expected: usize,
        /// Layers of the state.
        found: usize,
    },
}

impl QwenError {
    /// What the caller can do about it.
    #[must_use]
    pub fn kind(&self) -> ErrorKind {
        match self {
            Self::Checkpoint { source } => source.kind(),
            Self::Load { source, .. } => source.kind(),
            Self::Place { source, .. } => source.kind(),
            Self::Layer { source, .. } => source.kind(),
            Self::Ngram { source } => source.kind(),
            Self::Cancelled { .. } => ErrorKind::Cancelled,
            Self::Token { .. } | Self::Context { .. } | Self::Rollback { .. } => ErrorKind::User,
            Self::NotFinite { .. } | Self::LogitNotFinite { .. } => ErrorKind::Corrupt,
            Self::Position { .. }
            | Self::Row { .. }
            | Self::Dirty { .. }
            | Self::NgramStore { .. }
            | Self::ForeignState { .. } => ErrorKind::Bug,
        }
    }

    /// A token that the model does not know.
    #[must_use]
    pub const fn token(token: u32, position: u64, vocab_size: usize) -> Self {
        Self::Token { token, position, vocab_size }
    }

    /// Tokens that do not fit in the context.
    #[must_use]
    pub const fn context(position: u64, tokens: usize, context: usize) -> Self {
        Self::Context { position, tokens, context }
    }

    pub(crate) fn layer(index: usize) -> impl Fn(slotstream_candle::Error) -> Self {
        move |source| Self::Layer { layer: layer_idx(index), source }
    }
}

/// The layer with this number; the schema bounds `num_hidden_layers` far below `u16::MAX`.
pub(crate) fn layer_idx(index: usize) -> LayerIdx {
    LayerIdx::new(u16::try_from(index).unwrap_or(u16::MAX))
}
