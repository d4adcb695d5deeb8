//! Lists of slots by age, all in one array of links.

const NONE: u32 = u32::MAX;

/// Doubly linked lists of slots, oldest first; a slot is in one of them or in none. Every
/// operation takes constant time and allocates nothing.
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
}

const UNLINKED: Link = Link { older: NONE, newer: NONE, list: NONE };
const EMPTY: Ends = Ends { oldest: NONE, newest: NONE };

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

        *link = Link { older, newer: NONE, list: list as u32 };
        match self.links.get_mut(older as usize) {
            Some(link) => link.newer = slot,
            None => self.ends[list].oldest = slot,
        }
    }

    /// The slots of `list`, oldest first.
    #[inline]
    pub(super) fn oldest_first(&self, list: usize) -> impl Iterator<Item = u32> + '_ {
        let mut at = self.ends.get(list).map_or(NONE, |ends| ends.oldest);
        std::iter::from_fn(move || {
            let slot = at;
            at = self.links.get(slot as usize)?.newer;
            Some(slot)
        })
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
        lists.clear();
        assert_eq!((order(&lists, 1), lists.links.len()), (vec![], 6));
    }
}
