//! SIEVE: a queue, a bit a slot, and a hand that stays where it found something.

use slotstream_core::{
    BindError, EvictionPolicy, ExpertKey, Geometry, Incoming, Origin, RemoveCause, SlotId, SlotView,
};

use super::lists::Lists;
use super::options::Options;

/// SIEVE (Y. Zhang, J. Yang, Y. Yue, Y. Vigfusson, K. V. Rashmi, *SIEVE is Simpler than LRU: an
/// Efficient Turn-Key Eviction Algorithm for Web Caches*, NSDI 2024): a queue in the order of
/// arrival and a hand that goes from old to new. A record that was hit since the hand last
/// passed loses its bit and stays *where it is*; the first one without is the victim, and the
/// hand stays behind it. At the new end the hand starts again at the old one. So new records
/// are sifted quickly, and those that are used stay.
///
/// A record that cannot be evicted keeps its bit. An event takes constant time; a choice passes
/// a slot at most three times.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Sieve {
    lists: Lists,
    /// By slot: hit since the hand passed.
    visited: Vec<bool>,
    /// Where the next search begins; nowhere is the old end.
    hand: Option<u32>,
}

impl Sieve {
    /// `sieve`.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Takes `slot` out of the queue, the hand out of its way.
    fn remove(&mut self, slot: u32) {
        if self.hand == Some(slot) {
            self.hand = self.lists.newer(slot);
        }
        self.lists.remove(slot);
    }

    fn set(&mut self, slot: SlotId, bit: bool) {
        if let Some(visited) = self.visited.get_mut(slot.index()) {
            *visited = bit;
        }
    }
}

impl Options for Sieve {}

impl EvictionPolicy for Sieve {
    #[inline]
    fn on_insert(&mut self, slot: SlotId, _key: ExpertKey, _origin: Origin) {
        self.remove(slot.get());
        self.lists.push(0, slot.get());
        self.set(slot, false);
    }

    #[inline]
    fn on_hit(&mut self, slot: SlotId, _key: ExpertKey) {
        self.set(slot, true);
    }

    #[inline]
    fn choose_victim(&mut self, _incoming: &Incoming, view: &SlotView<'_>) -> Option<SlotId> {
        let mut at = self.hand;
        // From the hand to the new end, the whole queue, and once more for the bits cleared.
        for _ in 0..3 {
            at = at.or_else(|| self.lists.oldest(0));
            while let Some(slot) = self.lists.evictable_from(at, view) {
                if !std::mem::replace(&mut self.visited[slot as usize], false) {
                    self.hand = Some(slot);
                    return Some(SlotId::new(slot));
                }
                at = self.lists.newer(slot);
                if at.is_none() {
                    break;
                }
            }
            at = None;
        }
        None
    }

    fn bind(&mut self, _geometry: &Geometry, slots: usize) -> Result<(), BindError> {
        self.lists = Lists::new(1, slots);
        self.visited = vec![false; slots];
        self.hand = None;
        Ok(())
    }

    fn on_resize(&mut self, slots: usize) {
        for slot in slots..self.visited.len() {
            self.remove(slot as u32);
        }
        self.lists.resize(slots);
        self.visited.resize(slots, false);
    }

    fn on_remove(&mut self, slot: SlotId, _key: ExpertKey, _cause: RemoveCause) {
        self.remove(slot.get());
    }

    fn name(&self) -> String {
        "sieve".into()
    }

    fn reset(&mut self) {
        self.lists.clear();
        self.visited.fill(false);
        self.hand = None;
    }
}
