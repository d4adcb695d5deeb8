//! The article's rule for a pool at its floor.

use slotstream_core::{BindError, EvictionPolicy, Geometry, Incoming, Origin, SlotId, SlotView};

use super::inner::hand_on;

/// While the pool is at its floor ([`Geometry::floor_slots`]), or below it in the laboratory, a
/// demand takes the slot of another record of its own layer when one is evictable: such a record
/// is not wanted again before the next pass. Which of them, and everything else, is up to the
/// policy inside.
///
/// The original takes the first slot of the layer that its hand meets, whatever the reference
/// bit; here the inner policy chooses among the layer's slots.
///
/// Speculation is not a demand of the running layer, so the rule does not apply to it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LayerLocal<P> {
    inner: P,
    floor: usize,
    slots: usize,
}

impl<P: EvictionPolicy> LayerLocal<P> {
    /// `layer-local:P`.
    #[must_use]
    pub const fn new(inner: P) -> Self {
        Self { inner, floor: 0, slots: 0 }
    }

    /// The policy inside.
    #[must_use]
    pub const fn inner(&self) -> &P {
        &self.inner
    }
}

impl<P: EvictionPolicy> EvictionPolicy for LayerLocal<P> {
    fn choose_victim(&mut self, incoming: &Incoming, view: &SlotView<'_>) -> Option<SlotId> {
        let layer = incoming.key.layer();
        let local = self.slots <= self.floor
            && incoming.origin == Origin::Demand
            && view.evictable_in(layer) > 0;
        if local {
            self.inner.choose_victim(incoming, &view.only_layer(layer))
        } else {
            self.inner.choose_victim(incoming, view)
        }
    }

    fn bind(&mut self, geometry: &Geometry, slots: usize) -> Result<(), BindError> {
        self.floor = geometry.floor_slots();
        self.slots = slots;
        self.inner.bind(geometry, slots)
    }

    fn on_resize(&mut self, slots: usize) {
        self.slots = slots;
        self.inner.on_resize(slots);
    }

    fn name(&self) -> String {
        format!("layer-local:{}", self.inner.name())
    }

    hand_on!(
        planned_bytes,
        on_insert,
        on_hit,
        on_miss,
        on_remove,
        admit,
        on_forecast,
        on_routing,
        on_step,
        export,
        import,
        reset
    );
}
