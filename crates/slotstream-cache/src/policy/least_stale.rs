//! Staleness by visits of a record's own layer: a reconstruction of Least-Stale.

use slotstream_core::{
    BindError, EvictionPolicy, ExpertKey, Geometry, Incoming, LayerIdx, Origin, RemoveCause,
    Routing, SlotId, SlotView, Step,
};

use super::lists::Lists;
use super::options::Options;
use super::visits::Visits;

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
    visits: Visits,
    /// By slot: the visit of its record's layer in which the record was used last.
    used: Vec<u64>,
    /// The slots of each layer.
    lists: Lists,
    layers: usize,
}

impl LeastStale {
    /// `least-stale`.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    fn touch(&mut self, slot: SlotId, key: ExpertKey) {
        if let Some(used) = self.used.get_mut(slot.index()) {
            *used = self.visits.of(key.layer());
        }
        self.lists.push(key.layer().index(), slot.get());
    }

    /// The least recently used slot of `layer` that can be had. The list is in order of use, so
    /// it is the stalest as well.
    fn oldest(&self, layer: usize, view: &SlotView<'_>) -> Option<SlotId> {
        self.lists.oldest_evictable(layer, view)
    }
}

impl Options for LeastStale {}

impl EvictionPolicy for LeastStale {
    fn on_insert(&mut self, slot: SlotId, key: ExpertKey, _origin: Origin) {
        self.touch(slot, key);
    }

    fn on_hit(&mut self, slot: SlotId, key: ExpertKey) {
        self.visits.lookup(key.layer());
        self.touch(slot, key);
    }

    fn choose_victim(&mut self, _incoming: &Incoming, view: &SlotView<'_>) -> Option<SlotId> {
        let mut stalest = None;
        for layer in 0..self.layers {
            let number = LayerIdx::new(u16::try_from(layer).ok()?);
            if view.evictable_in(number) == 0 {
                continue;
            }
            if let Some(slot) = self.oldest(layer, view) {
                let passed = self.visits.of(number).saturating_sub(self.used[slot.index()]);
                stalest = stalest.max(Some((passed, self.visits.ahead(number), slot)));
            }
        }
        stalest.map(|(_, _, slot)| slot)
    }

    fn bind(&mut self, geometry: &Geometry, slots: usize) -> Result<(), BindError> {
        self.layers = geometry.layers();
        self.visits = Visits::new(geometry.layers());
        self.used = vec![0; slots];
        self.lists = Lists::new(geometry.layers(), slots);
        Ok(())
    }

    fn on_resize(&mut self, slots: usize) {
        self.used.resize(slots, 0);
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
        "least-stale".into()
    }

    fn reset(&mut self) {
        self.visits.reset();
        self.used.fill(0);
        self.lists.clear();
    }
}
