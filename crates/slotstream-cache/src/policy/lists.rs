//! Lists of slots, or of records, by age, all in one array of links.

use slotstream_core::{SlotId, SlotView};

const NONE: u32 = u32::MAX;

/// Doubly linked lists of slots, oldest first; a slot is in one of them or in none. Every
/// operation but the searches takes constant time, and nothing is allocated. Where a policy
/// remembers records, their dense numbers take the place of slots.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Lists {
    links: Vec<Link>,
    ends: Vec<Ends>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Link {
    older: u32,
    newer: u32,
    list: u32,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Ends {
    oldest: u32,
    newest: u32,
    len: u32,
}

const UNLINKED: Link = Link { older: NONE, newer: NONE, list: NONE };
const EMPTY: Ends = Ends { oldest: NONE, newest: NONE, len: 0 };

impl Lists {
    /// `lists` empty lists for slots below `slots`.
    pub(super) fn new(lists: usize, slots: usize) -> Self {
        Self { links: vec![UNLINKED; slots], ends: vec![EMPTY; lists] }
    }

    /// Takes `slot` out of the list it is in, if any.
    #[inline]
    pub(super) fn remove(&mut self, slot: u32) {
        let Some(entry) = self.links.get_mut(slot as usize) else { return };
        let Link { older, newer, list } = std::mem::replace(entry, UNLINKED);
        let Some(ends) = self.ends.get_mut(list as usize) else { return };
        ends.len -= 1;

        match self.links.get_mut(older as usize) {
            Some(link) => link.newer = newer,
            None => ends.oldest = newer,
        }
        match self.links.get_mut(newer as usize) {
            Some(link) => link.older = older,
            None => ends.newest = older,
        }
    }

    /// Makes `slot` the newest of `list`, wherever it was before.
    #[inline]
    pub(super) fn push(&mut self, list: usize, slot: u32) {
        self.remove(slot);
        let (Some(ends), Some(link)) = (self.ends.get_mut(list), self.links.get_mut(slot as usize))
        else {
            return;
        };
        let older = std::mem::replace(&mut ends.newest, slot);
        ends.len += 1;

        *link = Link { older, newer: NONE, list: list as u32 };
        match self.links.get_mut(older as usize) {
            Some(link) => link.newer = slot,
            None => self.ends[list].oldest = slot,
        }
    }

    /// Moves the oldest slots of `from` to the new end of `to` until at most `most` are left.
    #[inline]
    pub(super) fn overflow(&mut self, from: usize, to: usize, most: usize) {
        while self.len(from) > most
            && let Some(slot) = self.oldest(from)
        {
            self.push(to, slot);
        }
    }

    /// Number of slots in `list`.
    #[inline]
    pub(super) fn len(&self, list: usize) -> usize {
        self.ends.get(list).map_or(0, |ends| ends.len as usize)
    }

    /// The list that `slot` is in.
    #[inline]
    pub(super) fn list_of(&self, slot: u32) -> Option<usize> {
        self.links
            .get(slot as usize)
            .filter(|link| link.list != NONE)
            .map(|link| link.list as usize)
    }

    /// The oldest slot of `list`.
    #[inline]
    pub(super) fn oldest(&self, list: usize) -> Option<u32> {
        self.ends.get(list).map(|ends| ends.oldest).filter(|slot| *slot != NONE)
    }

    /// The slot that is next younger than `slot` in its list.
    #[inline]
    pub(super) fn newer(&self, slot: u32) -> Option<u32> {
        self.links.get(slot as usize).map(|link| link.newer).filter(|slot| *slot != NONE)
    }

    /// The slots of `list`, oldest first.
    #[inline]
    pub(super) fn oldest_first(&self, list: usize) -> impl Iterator<Item = u32> + '_ {
        self.from(self.oldest(list))
    }

    /// `slot` and what is younger in its list.
    #[inline]
    fn from(&self, slot: Option<u32>) -> impl Iterator<Item = u32> + '_ {
        std::iter::successors(slot, |slot| self.newer(*slot))
    }

    /// The oldest slot of `list` that may be given up.
    #[inline]
    pub(super) fn oldest_evictable(&self, list: usize, view: &SlotView<'_>) -> Option<SlotId> {
        self.evictable_from(self.oldest(list), view).map(SlotId::new)
    }

    /// The first slot from `slot` on towards the younger ones that may be given up.
    #[inline]
    pub(super) fn evictable_from(&self, slot: Option<u32>, view: &SlotView<'_>) -> Option<u32> {
        self.from(slot).find(|slot| view.is_evictable(SlotId::new(*slot)))
    }

    /// The pool has `slots` slots; those beyond leave their lists.
    pub(super) fn resize(&mut self, slots: usize) {
        for slot in slots..self.links.len() {
            self.remove(slot as u32);
        }
        self.links.resize(slots, UNLINKED);
    }

    /// No slot is in a list.
    pub(super) fn clear(&mut self) {
        self.links.fill(UNLINKED);
        self.ends.fill(EMPTY);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn order(lists: &Lists, list: usize) -> Vec<u32> {
        let forward: Vec<u32> = lists.oldest_first(list).collect();
        let (mut back, mut slot) = (Vec::new(), lists.ends[list].newest);
        while slot != NONE {
            back.push(slot);
            slot = lists.links[slot as usize].older;
        }
        back.reverse();
        assert_eq!(lists.len(list), forward.len());
        assert_eq!(forward, back, "one list, read both ways");

        forward
    }

    #[test]
    fn links_hold_from_both_ends() {
        let mut lists = Lists::new(2, 5);
        for slot in [0, 1, 2, 3, 4, 0, 2, 2] {
            lists.push(1, slot);
        }
        assert_eq!(order(&lists, 1), [1, 3, 4, 0, 2]);
        for slot in [1, 2, 4, 4, 99] {
            lists.remove(slot);
        }
        assert_eq!(order(&lists, 1), [3, 0]);
        lists.push(0, 3);
        lists.push(1, 4);
        lists.push(7, 4);
        lists.push(0, 9);
        assert_eq!((order(&lists, 0), order(&lists, 1)), (vec![3], vec![0]));
        lists.push(0, 4);
        lists.resize(3);
        assert_eq!((order(&lists, 0), order(&lists, 1)), (vec![], vec![0]));
        lists.resize(6);
        lists.push(1, 5);
        assert_eq!(order(&lists, 1), [0, 5]);
        assert_eq!((lists.list_of(5), lists.list_of(1), lists.list_of(6)), (Some(1), None, None));
        lists.push(1, 1);
        lists.overflow(1, 0, 2);
        assert_eq!((order(&lists, 0), order(&lists, 1)), (vec![0], vec![5, 1]));
        lists.overflow(0, 1, 0);
        assert_eq!((lists.oldest(0), lists.oldest(1)), (None, Some(5)));
        assert_eq!((lists.newer(5), lists.newer(0), lists.newer(9)), (Some(1), None, None));
        lists.clear();
        assert_eq!((order(&lists, 1), lists.links.len()), (vec![], 6));
    }
}
