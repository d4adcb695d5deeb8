//! A share of the slots for each layer.

mod counts;
mod shares;

pub use counts::PerLayerCounts;
pub(super) use counts::Schedule;

use slotstream_core::{
    BindError, EvictionPolicy, ExpertKey, Geometry, Incoming, Origin, RemoveCause, SlotId, SlotView,
};

use super::inner::hand_on;
use shares::Shares;

/// Every layer has an equal share of the slots; what cannot be split evenly is spread over the
/// layers. A layer that holds its share gives up a record of its own. One that holds less takes
/// a slot from the layer that is furthest above its share, which happens where free slots went
/// to whoever came first. Which of that layer's records goes is up to the policy inside.
///
/// Where a layer's own slots are all in use by the running call, and where no layer is above its
/// share, the policy inside chooses among all.
///
/// `bind` refuses a pool in which the shares could not hold a token's route: one of fewer than
/// `layers * top_k` slots. A pool that is made smaller than that later goes on with what there
/// is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PerLayer<P> {
    inner: P,
    shares: Shares,
}

impl<P: EvictionPolicy> PerLayer<P> {
    /// `per-layer:P`.
    #[must_use]
    pub fn new(inner: P) -> Self {
        Self { inner, shares: Shares::default() }
    }

    /// The policy inside.
    #[must_use]
    pub const fn inner(&self) -> &P {
        &self.inner
    }
}

impl<P: EvictionPolicy> EvictionPolicy for PerLayer<P> {
    fn on_insert(&mut self, slot: SlotId, key: ExpertKey, origin: Origin) {
        self.shares.gain(key.layer());
        self.inner.on_insert(slot, key, origin);
    }

    fn choose_victim(&mut self, incoming: &Incoming, view: &SlotView<'_>) -> Option<SlotId> {
        self.inner.choose_victim(incoming, &self.shares.narrowed(incoming.key.layer(), view))
    }

    fn bind(&mut self, geometry: &Geometry, slots: usize) -> Result<(), BindError> {
        self.shares = Shares::equal(geometry, slots)?;
        self.inner.bind(geometry, slots)
    }

    fn on_resize(&mut self, slots: usize) {
        self.shares.split_evenly(slots);
        self.inner.on_resize(slots);
    }

    fn on_remove(&mut self, slot: SlotId, key: ExpertKey, cause: RemoveCause) {
        self.shares.lose(key.layer());
        self.inner.on_remove(slot, key, cause);
    }

    fn name(&self) -> String {
        format!("per-layer:{}", self.inner.name())
    }

    fn reset(&mut self) {
        self.shares.reset();
        self.inner.reset();
    }

    hand_on!(
        on_hit,
        on_miss,
        admit,
        on_forecast,
        on_routing,
        on_step,
        planned_bytes,
        export,
        import
    );
}
