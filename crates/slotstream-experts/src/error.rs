//! Errors of providing experts.

use slotstream_core::{ErrorKind, ExpertKey, LayerIdx, Matrix, Part, ReadError};

/// Experts that could not be provided.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ExpertsError {
    /// The pool or its policy refused.
    #[error("the slot pool refused")]
    #[non_exhaustive]
    Cache {
        /// Why.
        source: slotstream_cache::CacheError,
    },
    /// Slot memory or an op failed.
    #[error("slot memory or an op failed")]
    #[non_exhaustive]
    Compute {
        /// Why.
        source: slotstream_candle::Error,
    },
    /// A piece of a record could not be read. Its slot is free again.
    #[error("{matrix:?} {part:?} of {key}{} could not be read", tensor.as_deref().map(|t| format!(" (`{t}`)")).unwrap_or_default())]
    #[non_exhaustive]
    Read {
        /// The record.
        key: ExpertKey,
        /// Which matrix of it.
        matrix: Matrix,
        /// Which array of that.
        part: Part,
        /// The tensor, where the index knows it.
        tensor: Option<String>,
        /// Why.
        source: ReadError,
    },
    /// A record that lies in one run could not be read. Its slot is free again.
    #[error("{key} could not be read")]
    #[non_exhaustive]
    ReadRecord {
        /// The record.
        key: ExpertKey,
        /// Why.
        source: ReadError,
    },
    /// A run of a sweep could not be read. Nothing of it was used.
    #[error("one of the reads of {first} to {last}{} failed", tensor.as_deref().map(|t| format!(" (`{t}`)")).unwrap_or_default())]
    #[non_exhaustive]
    ReadRun {
        /// First record of the block.
        first: ExpertKey,
        /// Last record of the block.
        last: ExpertKey,
        /// The tensor in which the run begins, where the index knows it.
        tensor: Option<String>,
        /// Why.
        source: ReadError,
    },
    /// The pass was cancelled while experts were read or swept.
    #[error("cancelled while the experts of {layer} were read")]
    #[non_exhaustive]
    Cancelled {
        /// The layer.
        layer: LayerIdx,
    },
    /// It was told to stop.
    #[error("the {called} was cancelled")]
    #[non_exhaustive]
    Stopped {
        /// What was.
        called: &'static str,
    },
    /// The index does not know a record, or its pieces do not have the layout's lengths.
    #[error("the record index and the layout disagree about {key}: {what}")]
    #[non_exhaustive]
    Index {
        /// The record.
        key: ExpertKey,
        /// What does not fit.
        what: &'static str,
    },
    /// The methods were called in another order than the contract says.
    #[error("{called} was called {when}")]
    #[non_exhaustive]
    Order {
        /// The method.
        called: &'static str,
        /// The state in which it may not be called.
        when: &'static str,
    },
    /// The queue was dropped with reads outstanding.
    #[error("the read queue ended with {outstanding} records outstanding")]
    #[non_exhaustive]
    QueueGone {
        /// Records that never landed.
        outstanding: usize,
    },
}

impl ExpertsError {
    /// What the caller can do about it.
    #[must_use]
    pub fn kind(&self) -> ErrorKind {
        match self {
            Self::Cache { source } => source.kind(),
            Self::Compute { source } => source.kind(),
            Self::Read { source, .. }
            | Self::ReadRecord { source, .. }
            | Self::ReadRun { source, .. } => source.kind(),
            Self::Cancelled { .. } | Self::Stopped { .. } => ErrorKind::Cancelled,
            Self::Index { .. } | Self::Order { .. } | Self::QueueGone { .. } => ErrorKind::Bug,
        }
    }
}

impl From<slotstream_cache::CacheError> for ExpertsError {
    fn from(source: slotstream_cache::CacheError) -> Self {
        Self::Cache { source }
    }
}

impl From<slotstream_candle::Error> for ExpertsError {
    fn from(source: slotstream_candle::Error) -> Self {
        Self::Compute { source }
    }
}

impl From<ExpertsError> for slotstream_candle::Error {
    fn from(error: ExpertsError) -> Self {
        Self::provider(error.kind(), error)
    }
}
