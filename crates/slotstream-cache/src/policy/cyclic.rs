//! Layers go round in order.

use slotstream_core::{
    BindError, EvictionPolicy, ExpertKey, Geometry, Incoming, LayerIdx, Origin, RemoveCause,
    Routing, SlotId, SlotView, Step,
};

use super::lists::Lists;
use super::options::Options;
use super::visits::Visits;

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
    layers: usize,
    visits: Visits,
    /// The slots of each layer.
    lists: Lists,
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
    fn on_insert(&mut self, slot: SlotId, key: ExpertKey, _origin: Origin) {
        self.lists.push(key.layer().index(), slot.get());
    }

    fn on_hit(&mut self, slot: SlotId, key: ExpertKey) {
        self.visits.lookup(key.layer());
        self.lists.push(key.layer().index(), slot.get());
    }

    fn choose_victim(&mut self, _incoming: &Incoming, view: &SlotView<'_>) -> Option<SlotId> {
        let at = self.visits.layer().map_or(0, LayerIdx::index);
        (0..self.layers).find_map(|behind| {
            let layer = (at + self.layers - behind) % self.layers;
            let number = LayerIdx::new(u16::try_from(layer).ok()?);
            if view.evictable_in(number) == 0 {
                return None;
            }
            self.lists.oldest_evictable(layer, view)
        })
    }

    fn bind(&mut self, geometry: &Geometry, slots: usize) -> Result<(), BindError> {
        self.layers = geometry.layers();
        self.visits = Visits::new(geometry.layers());
        self.lists = Lists::new(geometry.layers(), slots);
        Ok(())
    }

    fn on_resize(&mut self, slots: usize) {
        self.lists.resize(slots);
    }

    fn on_miss(&mut self, key: ExpertKey) {
        self.visits.lookup(key.layer());
    }

    fn on_remove(&mut self, slot: SlotId, _key: ExpertKey, _cause: RemoveCause) {
        self.lists.remove(slot.get());
    }

    fn on_routing(&mut self, routing: &Routing<'_>) {
        self.visits.routing(routing);
    }

    fn on_step(&mut self, _step: &Step<'_>) {
        self.visits.step();
    }

    fn name(&self) -> String {
        "cyclic".into()
    }

    fn reset(&mut self) {
        self.visits.reset();
        self.lists.clear();
    }
}
