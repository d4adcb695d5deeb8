//! ARC: recency and frequency in a balance that adapts.

use slotstream_core::{
    BindError, EvictionPolicy, ExpertKey, Geometry, Incoming, Origin, RemoveCause, SlotId, SlotView,
};

use super::ghosts::Ghosts;
use super::lists::Lists;
use super::options::Options;

/// The adaptive replacement cache (N. Megiddo, D. S. Modha, *ARC: A Self-Tuning, Low Overhead
/// Replacement Cache*, FAST 2003). Two LRU lists: records used once of late (T1), and those used
/// again (T2). Each has a list of records that it gave up (B1, B2). T1 gives up its oldest while
/// it is longer than a target, else T2. A miss of a record in B1 raises the target, one in B2
/// lowers it, the more the longer the other of these two is, and the record enters T2. T1 and B1
/// together are at most as many as the slots, all four at most twice as many. No parameters.
///
/// The target is a real number, as in libCacheSim. Where the list whose turn it is has nothing
/// evictable, the other one gives a record up. Only what an eviction took is remembered.
///
/// An event takes constant time; the search skips slots that cannot be evicted.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Arc {
    slots: usize,
    /// T1 and T2.
    lists: Lists,
    /// B1 and B2.
    ghosts: Ghosts,
    /// How long T1 should be.
    target: f64,
}

const ONCE: usize = 0;
const AGAIN: usize = 1;

impl Arc {
    /// `arc`.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// How many slots the records used once should have; for displays.
    #[must_use]
    pub const fn target(&self) -> f64 {
        self.target
    }

    /// Forgets what is too much.
    fn trim(&mut self) {
        let (once, again) = (self.lists.len(ONCE), self.lists.len(AGAIN));
        self.ghosts.trim(ONCE, self.slots.saturating_sub(once));
        let rest = 2 * self.slots - (once + again + self.ghosts.len(ONCE)).min(2 * self.slots);
        self.ghosts.trim(AGAIN, rest);
    }
}

impl Options for Arc {}

impl EvictionPolicy for Arc {
    #[inline]
    fn on_insert(&mut self, slot: SlotId, key: ExpertKey, _origin: Origin) {
        let list = if self.ghosts.forget(key).is_some() { AGAIN } else { ONCE };
        self.lists.push(list, slot.get());
        self.trim();
    }

    #[inline]
    fn on_hit(&mut self, slot: SlotId, _key: ExpertKey) {
        self.lists.push(AGAIN, slot.get());
    }

    #[inline]
    fn choose_victim(&mut self, incoming: &Incoming, view: &SlotView<'_>) -> Option<SlotId> {
        let once = self.lists.len(ONCE) as f64;
        let ties = self.ghosts.queue_of(incoming.key) == Some(AGAIN);
        let over = once > self.target || (ties && once >= self.target);
        let (first, second) = if over { (ONCE, AGAIN) } else { (AGAIN, ONCE) };
        let lists = &self.lists;
        lists.oldest_evictable(first, view).or_else(|| lists.oldest_evictable(second, view))
    }

    fn bind(&mut self, geometry: &Geometry, slots: usize) -> Result<(), BindError> {
        self.slots = slots;
        self.lists = Lists::new(2, slots);
        self.ghosts = Ghosts::new(2, geometry);
        self.target = 0.0;
        Ok(())
    }

    fn on_resize(&mut self, slots: usize) {
        self.slots = slots;
        self.lists.resize(slots);
        self.target = self.target.min(slots as f64);
        self.trim();
    }

    #[inline]
    fn on_miss(&mut self, key: ExpertKey) {
        let Some(queue) = self.ghosts.queue_of(key) else { return };
        let (own, other) = (self.ghosts.len(queue), self.ghosts.len(1 - queue));
        let step = (other as f64 / own as f64).max(1.0);
        self.target = if queue == ONCE {
            (self.target + step).min(self.slots as f64)
        } else {
            (self.target - step).max(0.0)
        };
    }

    fn on_remove(&mut self, slot: SlotId, key: ExpertKey, cause: RemoveCause) {
        if cause == RemoveCause::Evicted
            && let Some(list) = self.lists.list_of(slot.get())
        {
            self.ghosts.remember(list, key);
        }
        self.lists.remove(slot.get());
    }

    fn name(&self) -> String {
        "arc".into()
    }

    fn reset(&mut self) {
        self.lists.clear();
        self.ghosts.clear();
        self.target = 0.0;
    }
}
