//! Which records are resident, and the least valued of each layer.

use slotstream_core::{ExpertKey, Geometry, SlotId};

/// How much a record is worth, and when it was last used: less goes first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Worth(pub(super) u64, pub(super) u64);

/// An expert of a layer with its worth; of equals, the lower number goes first.
pub(super) type Ranked = (Worth, u16);

/// The residents of each layer, in no order, and the least of them in order.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Residents {
    experts: usize,
    /// `[layers, experts]`: the first [`count`](Self::count) of each layer are resident.
    listed: Vec<u16>,
    count: Vec<usize>,
    /// By record.
    held: Vec<Held>,
    lowest: Vec<Lowest>,
    /// By layer: no resident is worth less. 0 while that is unknown.
    floor: Vec<u64>,
}

/// Where a record is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Held {
    slot: u32,
    /// Its place in the list of its layer; `ABSENT.at` while it is not resident.
    at: u16,
}

const ABSENT: Held = Held { slot: u32::MAX, at: u16::MAX };

/// How many are known in order: a victim leaves the next one behind.
const DEPTH: usize = 3;

/// The least of a layer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Lowest {
    /// No resident that is not here is less than one that is.
    ranked: [Ranked; DEPTH],
    len: usize,
}

const UNKNOWN: Lowest = Lowest { ranked: [(Worth(0, 0), 0); DEPTH], len: 0 };

impl Lowest {
    fn known(&self) -> &[Ranked] {
        &self.ranked[..self.len]
    }

    /// Takes `one` to its place; the greatest leaves where there is no room.
    fn enter(&mut self, one: Ranked) {
        let mut at = self.len.min(DEPTH - 1);
        if self.len == DEPTH && self.ranked[at] <= one {
            return;
        }
        while at > 0 && one < self.ranked[at - 1] {
            self.ranked[at] = self.ranked[at - 1];
            at -= 1;
        }
        self.ranked[at] = one;
        self.len = (self.len + 1).min(DEPTH);
    }

    /// What none is worth less than; 0 where that is unknown.
    fn floor(&self) -> u64 {
        self.known().first().map_or(0, |(Worth(value, _), _)| *value)
    }

    fn leave(&mut self, expert: u16) {
        if let Some(at) = self.known().iter().position(|(_, other)| *other == expert) {
            self.ranked[at..self.len].rotate_left(1);
            self.len -= 1;
        }
    }
}

impl Residents {
    pub(super) fn new(geometry: &Geometry) -> Self {
        Self {
            experts: geometry.experts(),
            listed: vec![0; geometry.records()],
            count: vec![0; geometry.layers()],
            held: vec![ABSENT; geometry.records()],
            lowest: vec![UNKNOWN; geometry.layers()],
            floor: vec![0; geometry.layers()],
        }
    }

    fn index(&self, key: ExpertKey) -> Option<usize> {
        let (layer, expert) = (key.layer().index(), key.expert().index());
        (layer < self.count.len() && expert < self.experts).then(|| layer * self.experts + expert)
    }

    /// `key` is in `slot` and worth so much.
    pub(super) fn insert(&mut self, key: ExpertKey, slot: SlotId, worth: Worth) {
        let Some(index) = self.index(key) else { return };
        let (layer, expert) = (key.layer().index(), key.expert().get());
        let count = self.count[layer];
        if self.held[index].at == ABSENT.at {
            self.listed[layer * self.experts + count] = expert;
            self.count[layer] += 1;
            // In range: less than the experts of a layer.
            self.held[index].at = count as u16;
        }
        self.held[index].slot = slot.get();
        let lowest = &mut self.lowest[layer];
        lowest.leave(expert);
        let one = (worth, expert);
        // Where some are unknown, nothing is known of what is greater than those that are.
        if lowest.len >= count || lowest.known().last().is_some_and(|last| one < *last) {
            lowest.enter(one);
        }
        self.floor[layer] = self.lowest[layer].floor();
    }

    /// `key` is not resident.
    pub(super) fn remove(&mut self, key: ExpertKey) {
        let Some(index) = self.index(key) else { return };
        let at = usize::from(self.held[index].at);
        if self.held[index].at == ABSENT.at {
            return;
        }
        let (layer, expert) = (key.layer().index(), key.expert().get());
        self.count[layer] -= 1;
        let moved = self.listed[layer * self.experts + self.count[layer]];
        self.listed[layer * self.experts + at] = moved;
        self.held[layer * self.experts + usize::from(moved)].at = self.held[index].at;
        self.held[index] = ABSENT;
        self.lowest[layer].leave(expert);
        self.floor[layer] = self.lowest[layer].floor();
    }

    /// Values of `layer` changed.
    pub(super) fn changed(&mut self, layer: usize) {
        (self.lowest[layer], self.floor[layer]) = (UNKNOWN, 0);
    }

    /// Values changed.
    pub(super) fn all_changed(&mut self) {
        self.lowest.fill(UNKNOWN);
        self.floor.fill(0);
    }

    /// The slot of a resident record.
    pub(super) fn slot(&self, layer: usize, expert: u16) -> SlotId {
        SlotId::new(self.held[layer * self.experts + usize::from(expert)].slot)
    }

    /// Those of [`lowest`](Self::lowest) that are known.
    pub(super) fn known(&self, layer: usize) -> &[Ranked] {
        self.lowest[layer].known()
    }

    /// Some of the least of `layer` in order, whether they can be had or not; none only where
    /// nothing is resident.
    pub(super) fn lowest(
        &mut self,
        layer: usize,
        value: impl Fn(usize) -> u64,
        used: impl Fn(usize) -> u64,
    ) -> &[Ranked] {
        let listed = &self.listed[layer * self.experts..][..self.count[layer]];
        let lowest = &mut self.lowest[layer];
        if lowest.len == 0 {
            let mut most = u64::MAX;
            for expert in listed {
                let value = value(usize::from(*expert));
                if value <= most {
                    lowest.enter((Worth(value, used(usize::from(*expert))), *expert));
                    most = if lowest.len < DEPTH { most } else { lowest.ranked[DEPTH - 1].0.0 };
                }
            }
            self.floor[layer] = lowest.floor();
        }
        lowest.known()
    }

    /// What no resident of `layer` is worth less than; 0 where that is unknown.
    pub(super) fn floor(&self, layer: usize) -> u64 {
        self.floor[layer]
    }

    /// The least of `layer` that `is` right.
    pub(super) fn find(
        &self,
        layer: usize,
        worth: impl Fn(usize) -> Worth,
        is: impl Fn(u16) -> bool,
    ) -> Option<Ranked> {
        let listed = &self.listed[layer * self.experts..][..self.count[layer]];
        let right = listed.iter().filter(|expert| is(**expert));
        right.map(|expert| (worth(usize::from(*expert)), *expert)).min()
    }

    /// Nothing is resident.
    pub(super) fn clear(&mut self) {
        self.count.fill(0);
        self.held.fill(ABSENT);
        self.all_changed();
    }
}
