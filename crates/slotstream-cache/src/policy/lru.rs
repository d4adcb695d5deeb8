//! LRU: a list of the slots by their last use.

use slotstream_core::{
    BindError, EvictionPolicy, ExpertKey, Geometry, Incoming, Origin, RemoveCause, SlotId, SlotView,
};

use super::options::Options;

const NONE: u32 = u32::MAX;

/// Least recently used: gives up the evictable slot whose last insert or hit is longest ago.
/// A doubly linked list through the slots, so every event takes constant time; the search skips
/// slots that cannot be evicted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Lru {
    /// By slot: `(older, newer)`; a slot outside the list points to itself.
    links: Vec<(u32, u32)>,
    oldest: u32,
    newest: u32,
}

impl Lru {
    /// `lru`.
    #[must_use]
    pub const fn new() -> Self {
        Self { links: Vec::new(), oldest: NONE, newest: NONE }
    }

    fn unlink(&mut self, slot: u32) {
        let Some(link) = self.links.get_mut(slot as usize) else { return };
        let (older, newer) = std::mem::replace(link, (slot, slot));
        if older == slot {
            return;
        }
        match self.links.get_mut(older as usize) {
            Some(link) => link.1 = newer,
            None => self.oldest = newer,
        }
        match self.links.get_mut(newer as usize) {
            Some(link) => link.0 = older,
            None => self.newest = older,
        }
    }

    fn touch(&mut self, slot: u32) {
        if slot == self.newest || slot as usize >= self.links.len() {
            return;
        }
        self.unlink(slot);
        self.links[slot as usize] = (self.newest, NONE);
        match self.links.get_mut(self.newest as usize) {
            Some(link) => link.1 = slot,
            None => self.oldest = slot,
        }
        self.newest = slot;
    }
}

impl Default for Lru {
    fn default() -> Self {
        Self::new()
    }
}

impl Options for Lru {}

impl EvictionPolicy for Lru {
    #[inline]
    fn on_insert(&mut self, slot: SlotId, _key: ExpertKey, _origin: Origin) {
        self.touch(slot.get());
    }

    #[inline]
    fn on_hit(&mut self, slot: SlotId, _key: ExpertKey) {
        self.touch(slot.get());
    }

    #[inline]
    fn choose_victim(&mut self, _incoming: &Incoming, view: &SlotView<'_>) -> Option<SlotId> {
        let mut slot = self.oldest;
        while let Some((_, newer)) = self.links.get(slot as usize) {
            if view.is_evictable(SlotId::new(slot)) {
                return Some(SlotId::new(slot));
            }
            slot = *newer;
        }
        None
    }

    fn bind(&mut self, _geometry: &Geometry, slots: usize) -> Result<(), BindError> {
        self.on_resize(slots);
        Ok(())
    }

    fn on_resize(&mut self, slots: usize) {
        let old = self.links.len();
        for slot in slots..old {
            self.unlink(u32::try_from(slot).unwrap_or(NONE));
        }
        self.links.truncate(slots);
        self.links.extend((old..slots).map(|slot| {
            let slot = u32::try_from(slot).unwrap_or(NONE);
            (slot, slot)
        }));
    }

    fn on_remove(&mut self, slot: SlotId, _key: ExpertKey, _cause: RemoveCause) {
        self.unlink(slot.get());
    }

    fn name(&self) -> String {
        "lru".into()
    }

    fn reset(&mut self) {
        let slots = self.links.len();
        self.links.clear();
        (self.oldest, self.newest) = (NONE, NONE);
        self.on_resize(slots);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use slotstream_core::{ExpertIdx, LayerIdx};

    fn order(lru: &Lru) -> Vec<u32> {
        let (mut forward, mut slot) = (Vec::new(), lru.oldest);
        while slot != NONE {
            forward.push(slot);
            slot = lru.links[slot as usize].1;
        }
        let (mut back, mut slot) = (Vec::new(), lru.newest);
        while slot != NONE {
            back.push(slot);
            slot = lru.links[slot as usize].0;
        }
        back.reverse();
        assert_eq!(forward, back, "one list, read both ways");
        forward
    }

    #[test]
    fn links_hold_from_both_ends() {
        let mut lru = Lru::new();
        let key = ExpertKey::new(LayerIdx::new(0), ExpertIdx::new(0));
        lru.bind(&Geometry::new(1, 8, 2).expect("legal"), 5).expect("any size");
        let (insert, hit) = (
            |lru: &mut Lru, slot| lru.on_insert(SlotId::new(slot), key, Origin::Demand),
            |lru: &mut Lru, slot| lru.on_hit(SlotId::new(slot), key),
        );
        let remove =
            |lru: &mut Lru, slot| lru.on_remove(SlotId::new(slot), key, RemoveCause::ReadFailed);
        for slot in 0..5 {
            insert(&mut lru, slot);
        }
        hit(&mut lru, 0);
        hit(&mut lru, 2);
        hit(&mut lru, 2);
        assert_eq!(order(&lru), [1, 3, 4, 0, 2]);
        remove(&mut lru, 1);
        remove(&mut lru, 2);
        remove(&mut lru, 4);
        remove(&mut lru, 4);
        assert_eq!(order(&lru), [3, 0]);
        insert(&mut lru, 4);
        lru.on_resize(3);
        assert_eq!(order(&lru), [0]);
        lru.on_resize(6);
        insert(&mut lru, 5);
        assert_eq!(order(&lru), [0, 5]);
        lru.reset();
        assert_eq!(order(&lru), Vec::<u32>::new());
        assert_eq!(lru.links.len(), 6);
    }
}
