//! 2Q: a queue that sifts, and an LRU list for what came back.

use slotstream_core::{
    BindError, EvictionPolicy, ExpertKey, Geometry, Incoming, Origin, RemoveCause, SlotId, SlotView,
};

use super::ghosts::Ghosts;
use super::lists::Lists;
use super::options::{Options, SHARE, SHARES, Setting, check, part, spelled};

/// 2Q in its full version (T. Johnson, D. Shasha, *2Q: A Low Overhead High Performance Buffer
/// Management Replacement Algorithm*, VLDB 1994). A new record enters a first-in-first-out queue
/// (A1in), where hits change nothing. While that queue holds more than its share (Kin), its
/// oldest record is the victim, and is remembered in a queue of records without a slot (A1out,
/// Kout of them); else the victim is the least recently used record of the main list (Am). A
/// record that is missed while it is remembered enters the main list.
///
/// Where the queue whose turn it is has nothing evictable, the other one gives a record up.
///
/// An event takes constant time; the search skips slots that cannot be evicted.
#[derive(Clone, Debug, PartialEq)]
pub struct TwoQ {
    shares: (f64, f64),
    slots: usize,
    lists: Lists,
    ghosts: Ghosts,
}

const IN: usize = 0;
const MAIN: usize = 1;

impl TwoQ {
    /// `2q`: Kin is a quarter and Kout half of the slots, as the paper recommends.
    #[must_use]
    pub fn new() -> Self {
        Self::with(0.25, 0.5)
    }

    /// `2q:in=...+out=...`: Kin and Kout as shares of the slots, rounded down, but at least one;
    /// `bind` accepts `kin` from 0 to 1 and `kout` from 0 to 64.
    #[must_use]
    pub fn with(kin: f64, kout: f64) -> Self {
        let (lists, ghosts) = (Lists::default(), Ghosts::default());
        Self { shares: (kin, kout), slots: 0, lists, ghosts }
    }

    fn kin(&self) -> usize {
        part(self.slots, self.shares.0).max(1)
    }

    fn kout(&self) -> usize {
        part(self.slots, self.shares.1).max(1)
    }
}

impl Default for TwoQ {
    fn default() -> Self {
        Self::new()
    }
}

impl Options for TwoQ {
    const SETTINGS: &'static [Setting<Self>] = &[
        Setting::real(
            ("in", "Kin, the first queue, as a share of the slots"),
            SHARE,
            |two_q| two_q.shares.0,
            |two_q, share| two_q.shares.0 = share,
        ),
        Setting::real(
            ("out", "Kout, the records remembered, as a share of the slots"),
            SHARES,
            |two_q| two_q.shares.1,
            |two_q, share| two_q.shares.1 = share,
        ),
    ];
}

impl EvictionPolicy for TwoQ {
    #[inline]
    fn on_insert(&mut self, slot: SlotId, key: ExpertKey, _origin: Origin) {
        let list = if self.ghosts.returns(key) { MAIN } else { IN };
        self.lists.push(list, slot.get());
    }

    #[inline]
    fn on_hit(&mut self, slot: SlotId, _key: ExpertKey) {
        if self.lists.list_of(slot.get()) == Some(MAIN) {
            self.lists.push(MAIN, slot.get());
        }
    }

    #[inline]
    fn choose_victim(&mut self, _incoming: &Incoming, view: &SlotView<'_>) -> Option<SlotId> {
        let full = self.lists.len(IN) > self.kin();
        let (first, second) = if full { (IN, MAIN) } else { (MAIN, IN) };
        let lists = &self.lists;
        lists.oldest_evictable(first, view).or_else(|| lists.oldest_evictable(second, view))
    }

    fn bind(&mut self, geometry: &Geometry, slots: usize) -> Result<(), BindError> {
        check(self)?;
        self.slots = slots;
        self.lists = Lists::new(2, slots);
        self.ghosts = Ghosts::new(1, geometry);
        Ok(())
    }

    fn on_resize(&mut self, slots: usize) {
        self.slots = slots;
        self.lists.resize(slots);
        self.ghosts.trim(0, self.kout());
    }

    #[inline]
    fn on_miss(&mut self, key: ExpertKey) {
        self.ghosts.missed(key);
    }

    fn on_remove(&mut self, slot: SlotId, key: ExpertKey, cause: RemoveCause) {
        if cause == RemoveCause::Evicted && self.lists.list_of(slot.get()) == Some(IN) {
            self.ghosts.remember(0, key);
            self.ghosts.trim(0, self.kout());
        }
        self.lists.remove(slot.get());
    }

    fn name(&self) -> String {
        spelled("2q", self)
    }

    fn reset(&mut self) {
        self.lists.clear();
        self.ghosts.clear();
    }
}
