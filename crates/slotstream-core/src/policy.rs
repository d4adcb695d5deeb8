//! The contract of an eviction policy: ids in, an id out.

use std::fmt;

use crate::{ExpertKey, Geometry, LayerIdx, PassId, Prediction, Routing, SlotId, Step};

/// Decides which slot to give up. An opinion: the pool verifies every answer, so a policy can
/// cost time but never change the output.
///
/// # Order of calls
/// It is a function of the request sequence alone. [`on_step`](Self::on_step) opens a pass. Per
/// layer: [`on_routing`](Self::on_routing); then [`on_hit`](Self::on_hit) for every hit in route
/// order; then per miss in route order [`on_miss`](Self::on_miss),
/// [`choose_victim`](Self::choose_victim) when no slot is free, [`on_remove`](Self::on_remove)
/// of the victim, [`on_insert`](Self::on_insert): at the moment the slot is claimed, before its
/// bytes arrive. Arrival calls nothing; a failed read calls `on_remove` with
/// [`RemoveCause::ReadFailed`].
///
/// # Law
/// [`choose_victim`](Self::choose_victim) answers with an evictable slot whenever there is one,
/// in at most a few sweeps over the slots, and depends on nothing but the calls so far and the
/// seed it was made with.
pub trait EvictionPolicy: Send + fmt::Debug {
    /// `key` now owns `slot`, which was free.
    fn on_insert(&mut self, slot: SlotId, key: ExpertKey, origin: Origin);

    /// A demand found `key` in `slot`.
    fn on_hit(&mut self, slot: SlotId, key: ExpertKey);

    /// Which slot to give up for `incoming`. `None` only when nothing in `view` is evictable.
    fn choose_victim(&mut self, incoming: &Incoming, view: &SlotView<'_>) -> Option<SlotId>;

    /// Called once, before anything else, to size arrays.
    ///
    /// # Errors
    /// A [`BindError`] when the policy cannot work with these numbers. With legal parameters it
    /// refuses no pool from the floor up, except where it gives each layer room of its own and
    /// the pool cannot hold a token's route in every layer.
    fn bind(&mut self, geometry: &Geometry, slots: usize) -> Result<(), BindError> {
        let _ = (geometry, slots);
        Ok(())
    }

    /// The pool now has `slots` slots; slots at or beyond that number were removed before.
    fn on_resize(&mut self, slots: usize) {
        let _ = slots;
    }

    /// A demand did not find `key`.
    fn on_miss(&mut self, key: ExpertKey) {
        let _ = key;
    }

    /// `slot` lost `key`.
    fn on_remove(&mut self, slot: SlotId, key: ExpertKey, cause: RemoveCause) {
        let _ = (slot, key, cause);
    }

    /// Whether a record that nobody demanded may take a slot. A demand is never asked about.
    fn admit(&mut self, key: ExpertKey, origin: Origin) -> bool {
        let _ = (key, origin);
        true
    }

    /// What the forecaster expects.
    fn on_forecast(&mut self, predictions: &[Prediction]) {
        let _ = predictions;
    }

    /// What the router decided, before hits and misses are told.
    fn on_routing(&mut self, routing: &Routing<'_>) {
        let _ = routing;
    }

    /// A pass begins.
    fn on_step(&mut self, step: &Step<'_>) {
        let _ = step;
    }

    /// The state, for [`import`](Self::import) in a later process; `None` when there is none.
    fn export(&self) -> Option<Vec<u8>> {
        None
    }

    /// Takes over a state that [`export`](Self::export) gave, after `bind`.
    ///
    /// # Errors
    /// A [`BindError`] when the bytes are not such a state.
    fn import(&mut self, state: &[u8]) -> Result<(), BindError> {
        let _ = state;
        Err(BindError::State { expected: "a policy that keeps a state" })
    }

    /// Bytes that the policy holds once it is bound to a model of this geometry, for a memory
    /// plan: an upper bound, 0 where it is a few bytes a slot or record.
    fn planned_bytes(&self, geometry: &Geometry) -> u64 {
        let _ = geometry;
        0
    }

    /// The name under which figures are reported.
    fn name(&self) -> String {
        std::any::type_name::<Self>().rsplit("::").next().unwrap_or("policy").to_lowercase()
    }

    /// Forgets everything but the numbers given to `bind` and `on_resize`.
    fn reset(&mut self);
}

impl<P: EvictionPolicy + ?Sized> EvictionPolicy for Box<P> {
    fn on_insert(&mut self, slot: SlotId, key: ExpertKey, origin: Origin) {
        (**self).on_insert(slot, key, origin);
    }
    fn on_hit(&mut self, slot: SlotId, key: ExpertKey) {
        (**self).on_hit(slot, key);
    }
    fn choose_victim(&mut self, incoming: &Incoming, view: &SlotView<'_>) -> Option<SlotId> {
        (**self).choose_victim(incoming, view)
    }
    fn bind(&mut self, geometry: &Geometry, slots: usize) -> Result<(), BindError> {
        (**self).bind(geometry, slots)
    }
    fn on_resize(&mut self, slots: usize) {
        (**self).on_resize(slots);
    }
    fn on_miss(&mut self, key: ExpertKey) {
        (**self).on_miss(key);
    }
    fn on_remove(&mut self, slot: SlotId, key: ExpertKey, cause: RemoveCause) {
        (**self).on_remove(slot, key, cause);
    }
    fn admit(&mut self, key: ExpertKey, origin: Origin) -> bool {
        (**self).admit(key, origin)
    }
    fn on_forecast(&mut self, predictions: &[Prediction]) {
        (**self).on_forecast(predictions);
    }
    fn on_routing(&mut self, routing: &Routing<'_>) {
        (**self).on_routing(routing);
    }
    fn on_step(&mut self, step: &Step<'_>) {
        (**self).on_step(step);
    }
    fn export(&self) -> Option<Vec<u8>> {
        (**self).export()
    }
    fn import(&mut self, state: &[u8]) -> Result<(), BindError> {
        (**self).import(state)
    }
    fn planned_bytes(&self, geometry: &Geometry) -> u64 {
        (**self).planned_bytes(geometry)
    }
    fn name(&self) -> String {
        (**self).name()
    }
    fn reset(&mut self) {
        (**self).reset();
    }
}

/// Why a record takes a slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Origin {
    /// A layer asked for it.
    Demand,
    /// A forecast that a layer then asked for.
    Prefetch,
    /// One of the prompt's most used experts, admitted at the end of a prefill.
    PromptHot,
    /// Read back at start because it was resident when an earlier process ended.
    WarmStart,
}

/// Why a record lost its slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum RemoveCause {
    /// Another record took the slot.
    Evicted,
    /// Its bytes could not be read.
    ReadFailed,
    /// The pool became smaller.
    Shrunk,
    /// The pool was emptied.
    Cleared,
}

/// The record that wants a slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[expect(clippy::exhaustive_structs, reason = "made by pools and simulators alike")]
pub struct Incoming {
    /// The record.
    pub key: ExpertKey,
    /// Why.
    pub origin: Origin,
    /// The running pass.
    pub pass: PassId,
}

/// The pool's slots as a policy may see them, borrowed for one choice.
#[derive(Clone, Copy, Debug)]
pub struct SlotView<'a> {
    keys: &'a [Option<ExpertKey>],
    blocked: &'a [bool],
    evictable: &'a [u32],
    free: usize,
    only: Option<LayerIdx>,
}

impl<'a> SlotView<'a> {
    /// A view over all slots: `keys[s]` owns slot `s`; `blocked[s]` when it is pinned or
    /// claimed; `evictable[l]` counts the unblocked slots that layer `l` owns; `free` counts the
    /// slots that nobody owns.
    ///
    /// # Panics
    /// When `keys` and `blocked` differ in length.
    #[must_use]
    #[inline]
    pub fn new(
        keys: &'a [Option<ExpertKey>],
        blocked: &'a [bool],
        evictable: &'a [u32],
        free: usize,
    ) -> Self {
        assert_eq!(keys.len(), blocked.len(), "a flag a slot");
        Self { keys, blocked, evictable, free, only: None }
    }

    /// The same slots with only those of `layer` evictable: what a combinator hands to the
    /// policy inside it.
    #[must_use]
    #[inline]
    pub const fn only_layer(mut self, layer: LayerIdx) -> Self {
        self.only = Some(layer);
        self
    }

    /// Number of slots.
    #[must_use]
    #[inline]
    #[expect(clippy::len_without_is_empty, reason = "a pool is never without slots")]
    pub const fn len(&self) -> usize {
        self.keys.len()
    }

    /// The record that owns `slot` with all its bytes; `None` for free and claimed slots.
    #[must_use]
    #[inline]
    pub fn key(&self, slot: SlotId) -> Option<ExpertKey> {
        self.keys.get(slot.index()).copied().flatten()
    }

    /// Whether `slot` may be given up: owned, not pinned by the running call, not claimed.
    #[must_use]
    #[inline]
    pub fn is_evictable(&self, slot: SlotId) -> bool {
        let blocked = self.blocked.get(slot.index()).copied().unwrap_or(true);
        !blocked
            && self.key(slot).is_some_and(|key| self.only.is_none_or(|layer| key.layer() == layer))
    }

    /// Number of slots that nobody owns.
    #[must_use]
    #[inline]
    pub const fn free(&self) -> usize {
        self.free
    }

    /// Number of evictable slots that `layer` owns.
    #[must_use]
    #[inline]
    pub fn evictable_in(&self, layer: LayerIdx) -> usize {
        let count = self.evictable.get(layer.index()).copied().unwrap_or(0);
        if self.only.is_none_or(|only| only == layer) { count as usize } else { 0 }
    }
}

/// A policy that cannot work with the pool it was given to.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum BindError {
    /// The pool is too small for this policy.
    #[error("the policy needs {needed} slots, the pool has {slots}")]
    #[non_exhaustive]
    TooFewSlots {
        /// Slots of the pool.
        slots: usize,
        /// Slots needed.
        needed: usize,
    },
    /// A parameter is out of range for this geometry.
    #[error("parameter {name} = {value}: expected {expected}")]
    #[non_exhaustive]
    Parameter {
        /// Name of the parameter.
        name: &'static str,
        /// Its value as given.
        value: String,
        /// What would be legal.
        expected: &'static str,
    },
    /// Bytes that are not an exported state.
    #[error("not an exported state of this policy: expected {expected}")]
    #[non_exhaustive]
    State {
        /// What would be legal.
        expected: &'static str,
    },
}

impl BindError {
    /// The policy needs `needed` slots.
    #[must_use]
    pub const fn too_few_slots(slots: usize, needed: usize) -> Self {
        Self::TooFewSlots { slots, needed }
    }

    /// A parameter is out of range.
    #[must_use]
    pub fn parameter(name: &'static str, value: impl fmt::Display, expected: &'static str) -> Self {
        Self::Parameter { name, value: value.to_string(), expected }
    }

    /// The bytes are not an exported state.
    #[must_use]
    pub const fn state(expected: &'static str) -> Self {
        Self::State { expected }
    }

    /// What the caller can do about it: choose another policy, parameter or pool.
    #[must_use]
    pub const fn kind(&self) -> crate::ErrorKind {
        crate::ErrorKind::User
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ExpertIdx;

    #[test]
    fn views_hide_what_is_blocked_or_foreign() {
        let key = |l, e| Some(ExpertKey::new(LayerIdx::new(l), ExpertIdx::new(e)));
        let keys = [key(0, 1), key(1, 1), None, key(1, 2)];
        let blocked = [false, true, false, false];
        let view = SlotView::new(&keys, &blocked, &[1, 1], 1);
        let evictable = |view: SlotView<'_>| {
            (0..5).filter(|s| view.is_evictable(SlotId::new(*s))).collect::<Vec<_>>()
        };
        assert_eq!(evictable(view), [0, 3]);
        let one = view.only_layer(LayerIdx::new(1));
        assert_eq!(evictable(one), [3]);
        assert_eq!(
            (one.evictable_in(LayerIdx::new(0)), one.evictable_in(LayerIdx::new(1))),
            (0, 1)
        );
        assert_eq!((view.len(), view.free(), view.key(SlotId::new(9))), (4, 1, None));
    }
}
