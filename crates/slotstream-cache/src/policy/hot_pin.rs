//! The records used most so far are spared.

use slotstream_core::{
    BindError, EvictionPolicy, ExpertKey, Geometry, Incoming, Origin, RemoveCause, Routing, SlotId,
    SlotView, Step,
};

use super::lists::Lists;
use super::options::{Options, Setting, check, spelled};
use super::visits::Visits;

/// Spares the records used most so far, as many as a [share](Self::with) of the slots; among the
/// others the least recently used goes. Which are spared is decided anew every so many passes;
/// until the first time it is plain LRU. Where only spared records can be had, the least recently
/// used of them goes.
///
/// Uses are counted over the whole life of the policy and do not fade: once for each token that
/// chose the record where the routing is told, else once for each hit or miss. Resident or not, a
/// record keeps its count; of equal counts the records with lower numbers are spared.
///
/// An event takes constant time; every so many passes a selection goes over all records of the
/// model.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HotPin {
    settings: Settings,
    geometry: Option<Geometry>,
    visits: Visits,
    passes: u64,
    /// By record: uses so far.
    uses: Vec<u64>,
    /// By record.
    spared: Vec<bool>,
    /// Scratch: the records, in the order that the last selection left behind.
    order: Vec<u32>,
    /// By slot.
    held: Vec<Held>,
    now: u64,
    /// Scratch: the slots by age.
    ages: Vec<(u64, u32)>,
    /// The slots of ordinary records, then those of spared ones.
    lists: Lists,
}

/// What a slot holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Held {
    record: u32,
    /// When it was used last.
    used: u64,
}

const NOTHING: Held = Held { record: u32::MAX, used: 0 };

#[derive(Clone, Copy, Debug)]
struct Settings {
    share: f64,
    every: u64,
}

impl PartialEq for Settings {
    fn eq(&self, other: &Self) -> bool {
        (self.share.to_bits(), self.every) == (other.share.to_bits(), other.every)
    }
}

impl Eq for Settings {}

const ORDINARY: usize = 0;
const SPARED: usize = 1;

impl HotPin {
    /// `hot-pin`: half of the slots, decided anew every 16 passes.
    #[must_use]
    pub fn new() -> Self {
        Self::with(0.5, 16)
    }

    /// `hot-pin:share=...+every=...`; `bind` accepts shares from 0.01 to 1 and 1 to 1,000,000
    /// passes.
    #[must_use]
    pub fn with(share: f64, every: u64) -> Self {
        Self {
            settings: Settings { share, every },
            geometry: None,
            visits: Visits::default(),
            passes: 0,
            uses: Vec::new(),
            spared: Vec::new(),
            order: Vec::new(),
            held: Vec::new(),
            now: 0,
            ages: Vec::new(),
            lists: Lists::default(),
        }
    }

    /// The records that are spared now.
    pub fn spared(&self) -> impl Iterator<Item = ExpertKey> + '_ {
        let keys = self.spared.iter().enumerate().filter(|(_, spared)| **spared);
        keys.filter_map(|(index, _)| self.geometry?.key(index))
    }

    fn index(&self, key: ExpertKey) -> Option<usize> {
        self.geometry.and_then(|geometry| geometry.index(key))
    }

    fn uses(&mut self, key: ExpertKey) {
        if let Some(index) = self.index(key) {
            self.uses[index] += 1;
        }
    }

    fn touch(&mut self, slot: SlotId, key: ExpertKey) {
        let Some(index) = self.index(key) else { return };
        self.now += 1;
        if let Some(held) = self.held.get_mut(slot.index()) {
            *held = Held { record: index as u32, used: self.now };
            self.lists.push(usize::from(self.spared[index]), slot.get());
        }
    }

    fn lookup(&mut self, key: ExpertKey) {
        if self.visits.lookup(key.layer()).counts {
            self.uses(key);
        }
    }

    /// Decides which records are spared, and sorts the slots accordingly.
    fn decide(&mut self) {
        self.spared.fill(false);
        // In range: at most the number of slots, of which there are no more than records.
        let most = (self.settings.share * self.held.len() as f64) as usize;
        if let Some(last) = most.min(self.order.len()).checked_sub(1) {
            let uses = &self.uses;
            let rank = |record: &u32| (std::cmp::Reverse(uses[*record as usize]), *record);
            self.order.select_nth_unstable_by_key(last, rank);
            for record in &self.order[..=last] {
                self.spared[*record as usize] = uses[*record as usize] > 0;
            }
        }
        self.ages.clear();
        for slot in [ORDINARY, SPARED].into_iter().flat_map(|list| self.lists.oldest_first(list)) {
            self.ages.push((self.held[slot as usize].used, slot));
        }
        self.ages.sort_unstable();
        for (_, slot) in &self.ages {
            let record = self.held[*slot as usize].record;
            self.lists.push(usize::from(self.spared[record as usize]), *slot);
        }
    }
}

impl Default for HotPin {
    fn default() -> Self {
        Self::new()
    }
}

impl Options for HotPin {
    const SETTINGS: &'static [Setting<Self>] = &[
        Setting::real(
            ("share", "of the slots, for spared records"),
            ((0.01, 1.0), "a number from 0.01 to 1"),
            |hot| hot.settings.share,
            |hot, share| hot.settings.share = share,
        ),
        Setting::count(
            ("every", "passes after which they are chosen anew"),
            ((1, 1_000_000), "a whole number from 1 to 1000000"),
            |hot| hot.settings.every,
            |hot, every| hot.settings.every = every,
        ),
    ];
}

impl EvictionPolicy for HotPin {
    fn on_insert(&mut self, slot: SlotId, key: ExpertKey, _origin: Origin) {
        self.touch(slot, key);
    }

    fn on_hit(&mut self, slot: SlotId, key: ExpertKey) {
        self.lookup(key);
        self.touch(slot, key);
    }

    fn choose_victim(&mut self, _incoming: &Incoming, view: &SlotView<'_>) -> Option<SlotId> {
        let mut slots = [ORDINARY, SPARED]
            .into_iter()
            .flat_map(|list| self.lists.oldest_first(list).map(SlotId::new));
        slots.find(|slot| view.is_evictable(*slot))
    }

    fn bind(&mut self, geometry: &Geometry, slots: usize) -> Result<(), BindError> {
        check(self)?;
        self.geometry = Some(*geometry);
        self.visits = Visits::new(geometry.layers());
        self.uses = vec![0; geometry.records()];
        self.spared = vec![false; geometry.records()];
        self.order = (0..).take(geometry.records()).collect();
        self.lists = Lists::new(2, slots);
        self.on_resize(slots);
        Ok(())
    }

    fn on_resize(&mut self, slots: usize) {
        self.held.resize(slots, NOTHING);
        self.ages.reserve(slots);
        self.lists.resize(slots);
    }

    fn on_miss(&mut self, key: ExpertKey) {
        self.lookup(key);
    }

    fn on_remove(&mut self, slot: SlotId, _key: ExpertKey, _cause: RemoveCause) {
        self.lists.remove(slot.get());
    }

    fn on_routing(&mut self, routing: &Routing<'_>) {
        self.visits.routing(routing);
        for expert in routing.ids() {
            self.uses(routing.key(*expert));
        }
    }

    fn on_step(&mut self, _step: &Step<'_>) {
        self.visits.step();
        if self.passes > 0 && self.passes.is_multiple_of(self.settings.every) {
            self.decide();
        }
        self.passes += 1;
    }

    fn name(&self) -> String {
        spelled("hot-pin", self)
    }

    fn reset(&mut self) {
        self.visits.reset();
        (self.passes, self.now) = (0, 0);
        self.uses.fill(0);
        self.spared.fill(false);
        self.held.fill(NOTHING);
        self.lists.clear();
    }
}
