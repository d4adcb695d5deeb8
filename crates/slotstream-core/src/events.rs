//! What happened, told to whoever records it.

use std::fmt;

use crate::{ExpertKey, Geometry, LayerIdx, Origin, Prediction, Routing, SlotId, Step, Tap};

/// The pool that a sink is about to hear of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(clippy::exhaustive_structs, reason = "made by engines and by traces alike")]
pub struct Attached<'a> {
    /// The model's geometry.
    pub geometry: Geometry,
    /// Payload bytes of a record; 0 when unknown.
    pub record_bytes: u64,
    /// Slots of the pool, which is empty; 0 when the requests are of no pool.
    pub slots: usize,
    /// Fewest slots that the pool may have.
    pub floor: usize,
    /// Name of its policy; empty when unknown.
    pub policy: &'a str,
}

/// Is told every request and every outcome in the order in which the pool saw them. A trace
/// writer and a shadow policy implement it.
///
/// # Order
/// [`on_attach`](Self::on_attach) once, before anything else. [`on_step`](Self::on_step) opens a
/// pass. Each layer's *call* begins with [`on_routing`](Self::on_routing); what then befalls its
/// records follows, and [`Outcome::Ended`] ends it, whether it succeeded or not; [`Outcome::Swept`]
/// is all that is told of a layer that is swept. Everything comes after the pool has been told of
/// it.
///
/// A sink has no way to fail: one that can keeps its first error for whoever asks.
pub trait EventSink: Send + fmt::Debug {
    /// The pool whose events follow.
    fn on_attach(&mut self, pool: &Attached<'_>) {
        let _ = pool;
    }

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

    /// Bytes that it will hold at most once it has heard of a pool of this model and of `tokens`
    /// tokens: the number for a memory plan. 0 unless told otherwise, which is right for a sink
    /// that holds next to nothing.
    fn planned_bytes(&self, geometry: &Geometry, tokens: usize) -> u64 {
        let _ = (geometry, tokens);
        0
    }
}

impl<S: EventSink + ?Sized> EventSink for Box<S> {
    fn on_attach(&mut self, pool: &Attached<'_>) {
        (**self).on_attach(pool);
    }
    fn on_step(&mut self, step: &Step<'_>) {
        (**self).on_step(step);
    }
    fn on_routing(&mut self, routing: &Routing<'_>) {
        (**self).on_routing(routing);
    }
    fn on_forecast(&mut self, at: Tap, predictions: &[Prediction]) {
        (**self).on_forecast(at, predictions);
    }
    fn on_outcome(&mut self, outcome: &Outcome) {
        (**self).on_outcome(outcome);
    }
    fn planned_bytes(&self, geometry: &Geometry, tokens: usize) -> u64 {
        (**self).planned_bytes(geometry, tokens)
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
    /// A layer's experts go by outside the pool, which has no call of it: this takes the place of
    /// [`Ended`](Self::Ended). Told when the sweep begins; records that it admits follow.
    Swept {
        /// The layer.
        layer: LayerIdx,
        /// Records to be read; the others are computed where they are resident.
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
    /// A record that nobody demanded got no slot: the policy did not want it, or broke the
    /// contract when it was asked.
    NotAdmitted {
        /// The record.
        key: ExpertKey,
        /// Why it was to be admitted.
        origin: Origin,
    },
    /// A claim was given up without a read: there was no memory to read into, or the call ended.
    Withdrawn {
        /// The slot.
        slot: SlotId,
        /// The record.
        key: ExpertKey,
        /// Why it was to be read.
        origin: Origin,
    },
    /// The pool refused a wave of a layer's call: its policy broke the contract, or nothing could
    /// be given up.
    Refused {
        /// The layer.
        layer: LayerIdx,
    },
    /// A layer's call is over: every claim that it made was published or given up.
    Ended {
        /// The layer.
        layer: LayerIdx,
        /// Waves that never reached the pool, because the call failed or was abandoned.
        waves: usize,
    },
    /// The pool was emptied.
    Cleared,
    /// The pool counts from zero again.
    CountersReset,
}
