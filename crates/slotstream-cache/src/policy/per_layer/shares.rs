//! How many slots each layer may hold, and how many it holds.

use slotstream_core::{BindError, Geometry, LayerIdx, SlotView};

/// The shares of all layers.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Shares {
    slots: usize,
    layers: Vec<Share>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Share {
    /// Slots that the layer may hold.
    due: usize,
    /// Slots that it holds: those that the policy was told of.
    held: usize,
}

impl Shares {
    /// Equal shares.
    pub(super) fn equal(geometry: &Geometry, slots: usize) -> Result<Self, BindError> {
        let needed = geometry.layers() * geometry.top_k();
        if slots < needed {
            return Err(BindError::too_few_slots(slots, needed));
        }
        let mut shares = Self { slots, layers: vec![Share::default(); geometry.layers()] };
        shares.split_evenly(slots);
        Ok(shares)
    }

    pub(super) const fn slots(&self) -> usize {
        self.slots
    }

    /// Splits `slots` evenly, with the remainder spread over the layers.
    pub(super) fn split_evenly(&mut self, slots: usize) {
        self.slots = slots;
        let layers = self.layers.len();
        for (layer, share) in self.layers.iter_mut().enumerate() {
            share.due = (layer + 1) * slots / layers - layer * slots / layers;
        }
    }

    /// Gives `layer` another share.
    pub(super) fn set(&mut self, layer: usize, due: usize) {
        if let Some(share) = self.layers.get_mut(layer) {
            share.due = due;
        }
    }

    pub(super) fn due(&self, layer: usize) -> Option<usize> {
        self.layers.get(layer).map(|share| share.due)
    }

    pub(super) fn gain(&mut self, layer: LayerIdx) {
        if let Some(share) = self.layers.get_mut(layer.index()) {
            share.held += 1;
        }
    }

    pub(super) fn lose(&mut self, layer: LayerIdx) {
        if let Some(share) = self.layers.get_mut(layer.index()) {
            share.held = share.held.saturating_sub(1);
        }
    }

    /// `view` with the layer only that gives up a slot for a record of `layer`.
    pub(super) fn narrowed<'v>(&self, layer: LayerIdx, view: &SlotView<'v>) -> SlotView<'v> {
        let is_full = self.layers.get(layer.index()).is_some_and(|share| share.held >= share.due);
        if is_full && view.evictable_in(layer) > 0 {
            return view.only_layer(layer);
        }
        let mut furthest = (0, None);
        for (number, share) in (0..).map(LayerIdx::new).zip(&self.layers) {
            let above = share.held.saturating_sub(share.due);
            if above > furthest.0 && view.evictable_in(number) > 0 {
                furthest = (above, Some(number));
            }
        }
        furthest.1.map_or(*view, |layer| view.only_layer(layer))
    }

    /// No layer holds anything, and shares are equal again.
    pub(super) fn reset(&mut self) {
        self.layers.fill(Share::default());
        self.split_evenly(self.slots);
    }
}
