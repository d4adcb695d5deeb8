//! Layers go round in order.

use slotstream_core::{BindError, EvictionPolicy, Geometry, Incoming, SlotId, SlotView};

use super::by_layer::ByLayer;
use super::inner::hand_on;
use super::options::Options;

/// Gives up a record of the layer that will be visited furthest ahead, of its records the least
/// recently used.
///
/// A pass visits the layers in order, so the layer being visited comes last of all: its other
/// records go first, then those of the layer before it, and so on round the model. What the
/// router prefers is not looked at: the baseline of this job.
///
/// In a pass that visits a layer in several waves, records of later waves may go.
///
/// An event takes constant time, a choice time in the number of layers.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Cyclic {
    inner: ByLayer,
}

impl Cyclic {
    /// `cyclic`.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }
}

impl Options for Cyclic {}

impl EvictionPolicy for Cyclic {
    fn choose_victim(&mut self, _incoming: &Incoming, view: &SlotView<'_>) -> Option<SlotId> {
        let mut furthest_first = self.inner.layers(view).rev();
        furthest_first.find_map(|layer| self.inner.oldest(layer, view))
    }

    fn bind(&mut self, geometry: &Geometry, slots: usize) -> Result<(), BindError> {
        self.inner = ByLayer::new(geometry, slots);
        Ok(())
    }

    fn name(&self) -> String {
        "cyclic".into()
    }

    hand_on!(on_insert, on_hit, on_resize, on_miss, on_remove, on_routing, on_step, reset);
}
