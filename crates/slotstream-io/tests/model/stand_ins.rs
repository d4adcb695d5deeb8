//! Tensors without numbers, and the part of the op set that a provider calls. What takes the
//! place of the arithmetic looks at every byte that it is lent.

use std::fmt;
use std::sync::Arc;

use slotstream_core::{ErrorKind, RecordLayout, SlotId};

use crate::{Reading, SlotDevice};

/// The part of `slotstream_candle::Error` that slot memory and provider use.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("{slot} cannot be lent for {purpose}: it is {state}")]
    SlotBusy { slot: SlotId, purpose: &'static str, state: &'static str },
    #[error("{slot} was asked for, the arena has {slots} slots")]
    NoSuchSlot { slot: SlotId, slots: usize },
    #[error("the system refused {bytes} bytes")]
    SlotMemory { bytes: u64, source: std::io::Error },
    #[error("the experts could not be provided")]
    Provider { kind: ErrorKind, source: Box<dyn std::error::Error + Send + Sync> },
}

impl Error {
    pub fn provider(
        kind: ErrorKind,
        source: impl Into<Box<dyn std::error::Error + Send + Sync>>,
    ) -> Self {
        Self::Provider { kind, source: source.into() }
    }

    pub const fn kind(&self) -> ErrorKind {
        match self {
            Self::Provider { kind, .. } => *kind,
            _ => ErrorKind::Bug,
        }
    }
}

#[derive(Debug)]
pub struct Tensor;

#[derive(Clone, Copy, Debug)]
pub struct SlotRows<'a> {
    pub slot: SlotId,
    pub rows: &'a [u32],
    pub places: &'a [u32],
}

/// What a provider calls of `slotstream_candle::Ops`.
pub trait Ops: Send + Sync + fmt::Debug {
    fn slot_device(&self) -> Option<Arc<dyn SlotDevice>> {
        None
    }

    fn expert_mlp(
        &self,
        layout: &RecordLayout,
        slots: &Reading,
        experts: &[SlotRows<'_>],
        x: &Tensor,
        out: &Tensor,
    ) -> Result<(), Error>;

    fn scratch(&self, _shape: (usize, usize)) -> Result<Tensor, Error> {
        Ok(Tensor)
    }

    fn recycle(&self, _tensor: Tensor) {}

    fn rank_sum(&self, y: &Tensor, weights: &Tensor) -> Result<Tensor, Error>;
}
