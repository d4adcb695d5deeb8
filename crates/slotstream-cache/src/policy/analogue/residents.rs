//! Which records are resident, and the least valued of each layer.

use slotstream_core::{ExpertKey, Geometry, SlotId};

/// How much a record is worth, and when it was last used: less goes first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Worth(pub(super) u64, pub(super) u64);

/// The residents of each layer, in no order.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Residents {
    experts: usize,
    /// `[layers, experts]`: the first [`count`](Self::count) of each layer are resident.
    listed: Vec<u16>,
    count: Vec<usize>,
    /// By record.
    held: Vec<Held>,
    /// By layer: the least, while it is known.
    least: Vec<Option<(Worth, u16)>>,
}

/// Where a record is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Held {
    slot: u32,
    /// Its place in the list of its layer; `ABSENT` while it is not resident.
    at: u16,
}

const ABSENT: Held = Held { slot: u32::MAX, at: u16::MAX };

impl Residents {
    pub(super) fn new(geometry: &Geometry) -> Self {
        Self {
            experts: geometry.experts(),
            listed: vec![0; geometry.records()],
            count: vec![0; geometry.layers()],
            held: vec![ABSENT; geometry.records()],
            least: vec![None; geometry.layers()],
        }
    }

    fn index(&self, key: ExpertKey) -> Option<usize> {
        let (layer, expert) = (key.layer().index(), key.expert().index());
        (layer < self.count.len() && expert < self.experts).then(|| layer * self.experts + expert)
    }

    /// `key` is in `slot`.
    pub(super) fn insert(&mut self, key: ExpertKey, slot: SlotId) {
        let Some(index) = self.index(key) else { return };
        let layer = key.layer().index();
        self.least[layer] = None;
        if self.held[index].at == ABSENT.at {
            let at = self.count[layer];
            self.listed[layer * self.experts + at] = key.expert().get();
            self.count[layer] += 1;
            // In range: less than the experts of a layer.
            self.held[index].at = at as u16;
        }
        self.held[index].slot = slot.get();
    }

    /// `key` is not resident.
    pub(super) fn remove(&mut self, key: ExpertKey) {
        let Some(index) = self.index(key) else { return };
        let Held { at, .. } = self.held[index];
        if at == ABSENT.at {
            return;
        }
        let layer = key.layer().index();
        self.least[layer] = None;
        self.count[layer] -= 1;
        let moved = self.listed[layer * self.experts + self.count[layer]];
        self.listed[layer * self.experts + usize::from(at)] = moved;
        self.held[layer * self.experts + usize::from(moved)].at = at;
        self.held[index] = ABSENT;
    }

    /// Values of `layer` changed.
    pub(super) fn changed(&mut self, layer: usize) {
        if let Some(least) = self.least.get_mut(layer) {
            *least = None;
        }
    }

    /// Values changed.
    pub(super) fn all_changed(&mut self) {
        self.least.fill(None);
    }

    /// The slot of a resident record.
    pub(super) fn slot(&self, layer: usize, expert: u16) -> SlotId {
        SlotId::new(self.held[layer * self.experts + usize::from(expert)].slot)
    }

    /// The least of `layer`, whether it can be had or not; of equals, that of the lowest number.
    pub(super) fn least(
        &mut self,
        layer: usize,
        worth: impl Fn(usize) -> Worth,
    ) -> Option<(Worth, u16)> {
        if self.least.get(layer)?.is_none() {
            self.least[layer] = self.find(layer, worth, |_| true);
        }
        self.least[layer]
    }

    /// The least of `layer` that `is` right.
    pub(super) fn find(
        &self,
        layer: usize,
        worth: impl Fn(usize) -> Worth,
        is: impl Fn(u16) -> bool,
    ) -> Option<(Worth, u16)> {
        let listed = &self.listed[layer * self.experts..][..self.count[layer]];
        let right = listed.iter().filter(|expert| is(**expert));
        right.map(|expert| (worth(layer * self.experts + usize::from(*expert)), *expert)).min()
    }

    /// Nothing is resident.
    pub(super) fn clear(&mut self) {
        self.count.fill(0);
        self.held.fill(ABSENT);
        self.all_changed();
    }
}
