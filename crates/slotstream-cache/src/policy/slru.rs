//! SLRU: LRU in two segments.

use slotstream_core::{
    BindError, EvictionPolicy, ExpertKey, Geometry, Incoming, Origin, RemoveCause, SlotId, SlotView,
};

use super::lists::Lists;
use super::options::{Options, SHARE, Setting, check, part, spelled};

/// Segmented LRU (R. Karedla, J. S. Love, B. G. Wherry, *Caching Strategies to Improve Disk
/// System Performance*, Computer, March 1994): two LRU lists. A new record is on probation; a
/// hit protects it. At most a share of the slots is protected: beyond it the least recently used
/// protected record is on probation again, as the newest. The victim is the least recently used
/// record on probation, and a protected one only where there is no other.
///
/// While the pool fills, a new record is protected when probation has its share already and
/// protection has not: this is libCacheSim's rule, the paper says nothing about it.
///
/// An event takes constant time; the search skips slots that cannot be evicted.
#[derive(Clone, Debug, PartialEq)]
pub struct Slru {
    share: f64,
    slots: usize,
    lists: Lists,
}

const PROBATION: usize = 0;
const PROTECTED: usize = 1;

impl Slru {
    /// `slru`: half of the slots may be protected.
    #[must_use]
    pub fn new() -> Self {
        Self::with_protected(0.5)
    }

    /// `slru:protected=...`: this share of the slots, rounded down, may be protected; `bind`
    /// accepts 0 to 1.
    #[must_use]
    pub fn with_protected(share: f64) -> Self {
        Self { share, slots: 0, lists: Lists::default() }
    }

    fn most_protected(&self) -> usize {
        part(self.slots, self.share)
    }
}

impl Default for Slru {
    fn default() -> Self {
        Self::new()
    }
}

impl Options for Slru {
    const SETTINGS: &'static [Setting<Self>] = &[Setting::real(
        ("protected", "share of the slots that may be protected"),
        SHARE,
        |slru| slru.share,
        |slru, share| slru.share = share,
    )];
}

impl EvictionPolicy for Slru {
    #[inline]
    fn on_insert(&mut self, slot: SlotId, _key: ExpertKey, _origin: Origin) {
        let most = self.most_protected();
        let full = self.lists.len(PROBATION) >= self.slots.saturating_sub(most);
        let list = if full && self.lists.len(PROTECTED) < most { PROTECTED } else { PROBATION };
        self.lists.push(list, slot.get());
    }

    #[inline]
    fn on_hit(&mut self, slot: SlotId, _key: ExpertKey) {
        self.lists.push(PROTECTED, slot.get());
        self.lists.overflow(PROTECTED, PROBATION, self.most_protected());
    }

    #[inline]
    fn choose_victim(&mut self, _incoming: &Incoming, view: &SlotView<'_>) -> Option<SlotId> {
        let lists = &self.lists;
        lists.oldest_evictable(PROBATION, view).or_else(|| lists.oldest_evictable(PROTECTED, view))
    }

    fn bind(&mut self, _geometry: &Geometry, slots: usize) -> Result<(), BindError> {
        check(self)?;
        self.slots = slots;
        self.lists = Lists::new(2, slots);
        Ok(())
    }

    fn on_resize(&mut self, slots: usize) {
        self.slots = slots;
        self.lists.resize(slots);
        self.lists.overflow(PROTECTED, PROBATION, self.most_protected());
    }

    fn on_remove(&mut self, slot: SlotId, _key: ExpertKey, _cause: RemoveCause) {
        self.lists.remove(slot.get());
    }

    fn name(&self) -> String {
        spelled("slru", self)
    }

    fn reset(&mut self) {
        self.lists.clear();
    }
}
