//! The slots of each layer by age.

use slotstream_core::{
    ExpertKey, Geometry, LayerIdx, Origin, RemoveCause, Routing, SlotId, SlotView, Step,
};

use super::lists::Lists;
use super::visits::Visits;

/// What policies that choose a layer first keep: a list of its slots for each layer, and where the
/// pass is. The methods are those of the contract.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct ByLayer {
    layers: usize,
    visits: Visits,
    lists: Lists,
    /// By slot: the visit of its record's layer in which the record was used last.
    used: Vec<u64>,
}

impl ByLayer {
    pub(super) fn new(geometry: &Geometry, slots: usize) -> Self {
        let layers = geometry.layers();
        let (visits, lists) = (Visits::new(layers), Lists::new(layers, slots));
        Self { layers, visits, lists, used: vec![0; slots] }
    }

    /// The layers with something that can be had, in order from `first` on, or against it.
    pub(super) fn layers<'s>(
        &'s self,
        view: &'s SlotView<'_>,
    ) -> impl DoubleEndedIterator<Item = LayerIdx> + 's {
        let first = self.visits.layer().map_or(0, |layer| layer.index() + 1);
        let numbers = (first..first + self.layers).map(|layer| layer % self.layers);
        let layers = numbers.filter_map(|layer| u16::try_from(layer).ok()).map(LayerIdx::new);
        layers.filter(|layer| view.evictable_in(*layer) > 0)
    }

    /// The least recently used slot of `layer` that can be had.
    pub(super) fn oldest(&self, layer: LayerIdx, view: &SlotView<'_>) -> Option<SlotId> {
        self.lists.oldest_evictable(layer.index(), view)
    }

    /// How many visits of `layer` have passed over its record in `slot`.
    pub(super) fn passed(&self, layer: LayerIdx, slot: SlotId) -> u64 {
        let used = self.used.get(slot.index()).copied().unwrap_or(0);
        self.visits.of(layer).saturating_sub(used)
    }

    fn touch(&mut self, slot: SlotId, key: ExpertKey) {
        if let Some(used) = self.used.get_mut(slot.index()) {
            *used = self.visits.of(key.layer());
        }
        self.lists.push(key.layer().index(), slot.get());
    }

    pub(super) fn on_insert(&mut self, slot: SlotId, key: ExpertKey, _origin: Origin) {
        self.touch(slot, key);
    }

    pub(super) fn on_hit(&mut self, slot: SlotId, key: ExpertKey) {
        self.visits.lookup(key.layer());
        self.touch(slot, key);
    }

    pub(super) fn on_resize(&mut self, slots: usize) {
        self.used.resize(slots, 0);
        self.lists.resize(slots);
    }

    pub(super) fn on_miss(&mut self, key: ExpertKey) {
        self.visits.lookup(key.layer());
    }

    pub(super) fn on_remove(&mut self, slot: SlotId, _key: ExpertKey, _cause: RemoveCause) {
        self.lists.remove(slot.get());
    }

    pub(super) fn on_routing(&mut self, routing: &Routing<'_>) {
        self.visits.routing(routing);
    }

    pub(super) const fn on_step(&mut self, _step: &Step<'_>) {
        self.visits.step();
    }

    pub(super) fn reset(&mut self) {
        self.visits.reset();
        self.used.fill(0);
        self.lists.clear();
    }
}
