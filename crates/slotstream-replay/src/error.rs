//! What can go wrong.

use slotstream_cache::{CacheError, PolicyNameError};
use slotstream_core::{ErrorKind, LayerIdx};

use crate::PoolSizeError;

/// A replay or a recipe that cannot be carried out.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ReplayError {
    /// A knob of a synthetic trace is out of range.
    #[error("{name} = {value}: expected {least} to {most}")]
    #[non_exhaustive]
    Knob {
        /// Which.
        name: &'static str,
        /// As given.
        value: f64,
        /// Smallest legal value.
        least: f64,
        /// Largest legal value.
        most: f64,
    },
    /// No policy of that name.
    #[error("a replay's policy is \"opt\" or one that an engine can have")]
    #[non_exhaustive]
    Policy {
        /// What is wrong with the name.
        source: PolicyNameError,
    },
    /// A pool of no size.
    #[error("a shadow is POLICY or POLICY@SIZE")]
    #[non_exhaustive]
    Size {
        /// What is wrong with the size.
        source: PoolSizeError,
    },
    /// The caller cancelled the replay.
    #[error("the replay was cancelled")]
    Cancelled,
    /// A chart that cannot be drawn.
    #[error("the chart cannot be drawn: {why}")]
    #[non_exhaustive]
    Chart {
        /// Why.
        why: &'static str,
    },
    /// The pool or its policy refused.
    #[error(
        "replay of {policy} with {slots} slots stopped {}",
        layer.map_or(format!("at the start of pass {pass}"), |layer| format!("in pass {pass}, {layer}"))
    )]
    #[non_exhaustive]
    Pool {
        /// The policy's name.
        policy: String,
        /// Slots of the pool.
        slots: usize,
        /// Number of the pass among those of the trace.
        pass: usize,
        /// The layer; `None` when the pool refused its size or the policy.
        layer: Option<LayerIdx>,
        /// Why.
        source: Box<CacheError>,
    },
}

impl ReplayError {
    /// What the caller can do about it.
    #[must_use]
    pub fn kind(&self) -> ErrorKind {
        match self {
            Self::Knob { .. } | Self::Chart { .. } => ErrorKind::User,
            Self::Cancelled => ErrorKind::Cancelled,
            Self::Policy { source } => source.kind(),
            Self::Size { source } => source.kind(),
            Self::Pool { source, .. } => source.kind(),
        }
    }
}
