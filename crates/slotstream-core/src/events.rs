//! What happened, told to whoever records it.

use std::fmt;

use crate::{ExpertKey, LayerIdx, Origin, Prediction, Routing, SlotId, Step, Tap};

/// Is told every request and every outcome in the order in which the pool saw them. A trace
/// writer and a shadow policy implement it.
pub trait EventSink: Send + fmt::Debug {
    /// A pass begins.
    fn on_step(&mut self, step: &Step<'_>);

    /// The router decided.
    fn on_routing(&mut self, routing: &Routing<'_>);

    /// The forecaster guessed.
    fn on_forecast(&mut self, at: Tap, predictions: &[Prediction]) {
        let _ = (at, predictions);
    }

    /// Something befell a record or the pool.
    fn on_outcome(&mut self, outcome: &Outcome) {
        let _ = outcome;
    }
}

/// What befell a record or the pool: everything that replay cannot derive from the requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Outcome {
    /// A slot was reserved for a forecast record.
    Reserved {
        /// The slot.
        slot: SlotId,
        /// The record.
        key: ExpertKey,
    },
    /// A forecast record was there when it was demanded.
    Adopted {
        /// The slot.
        slot: SlotId,
        /// The record.
        key: ExpertKey,
    },
    /// A forecast record was still being read when it was demanded.
    Late {
        /// The record.
        key: ExpertKey,
    },
    /// A forecast record was given up before its read began.
    Cancelled {
        /// The record.
        key: ExpertKey,
    },
    /// A forecast record was not demanded in time.
    Expired {
        /// The record.
        key: ExpertKey,
    },
    /// A read failed; the slot is free.
    Failed {
        /// The slot.
        slot: SlotId,
        /// The record.
        key: ExpertKey,
        /// Why it was read.
        origin: Origin,
    },
    /// The pool has another size.
    Resized {
        /// Slots from now on.
        slots: usize,
    },
    /// A layer's experts were read outside the pool.
    Swept {
        /// The layer.
        layer: LayerIdx,
        /// Records read.
        records: usize,
    },
    /// A record that nobody demanded took a slot.
    Admitted {
        /// The slot.
        slot: SlotId,
        /// The record.
        key: ExpertKey,
        /// Why.
        origin: Origin,
    },
}
