//! Staleness by visits of a record's own layer: a reconstruction of Least-Stale.

use slotstream_core::{BindError, EvictionPolicy, Geometry, Incoming, SlotId, SlotView};

use super::by_layer::ByLayer;
use super::inner::hand_on;
use super::options::Options;

/// Gives up the stalest record: the one that most visits of its own layer have passed over. Of
/// equally stale ones, that of the layer which will be visited furthest ahead; of those, the
/// least recently used.
///
/// This is a reconstruction of Least-Stale (`SpecMD`, arXiv 2602.03921) from its abstract and
/// from what others write about it: a record's staleness is to weigh *when* it was used, counted
/// in passes, with *where* its layer is on the way through the model, so that records which the
/// running pass is about to reach are not given up for merely being used longer ago ('collision
/// misses'). Its own text may define it otherwise.
///
/// An event takes constant time, a choice time in the number of layers.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LeastStale {
    inner: ByLayer,
}

impl LeastStale {
    /// `least-stale`.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }
}

impl Options for LeastStale {}

impl EvictionPolicy for LeastStale {
    fn choose_victim(&mut self, _incoming: &Incoming, view: &SlotView<'_>) -> Option<SlotId> {
        // Of a layer the oldest is the stalest. The last of equals is furthest ahead.
        let oldest = self.inner.layers(view).filter_map(|layer| {
            let slot = self.inner.oldest(layer, view)?;
            Some((self.inner.passed(layer, slot), slot))
        });
        oldest.max_by_key(|(passed, _)| *passed).map(|(_, slot)| slot)
    }

    fn bind(&mut self, geometry: &Geometry, slots: usize) -> Result<(), BindError> {
        self.inner = ByLayer::new(geometry, slots);
        Ok(())
    }

    fn name(&self) -> String {
        "least-stale".into()
    }

    hand_on!(on_insert, on_hit, on_resize, on_miss, on_remove, on_routing, on_step, reset);
}
