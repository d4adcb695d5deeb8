//! SIEVE.

use slotstream_core::*;

use super::keys::{Keys, evictable};

/// The queue with a bit a key; the hand is a position.
#[derive(Debug, Default)]
pub(super) struct NaiveSieve {
    keys: Keys,
    visited: Keys,
    hand: usize,
}

impl EvictionPolicy for NaiveSieve {
    fn on_insert(&mut self, _slot: SlotId, key: ExpertKey, _origin: Origin) {
        // A hand that has passed the newest starts again.
        self.hand %= self.keys.len().max(1);
        self.keys.push(key);
    }
    fn on_hit(&mut self, _slot: SlotId, key: ExpertKey) {
        self.visited.push(key);
    }
    fn choose_victim(&mut self, _incoming: &Incoming, view: &SlotView<'_>) -> Option<SlotId> {
        if !self.keys.iter().any(|key| evictable(view, *key).is_some()) {
            return None;
        }
        loop {
            self.hand %= self.keys.len();
            let key = self.keys[self.hand];
            if let Some(slot) = evictable(view, key) {
                if !self.visited.contains(&key) {
                    return Some(slot);
                }
                self.visited.retain(|other| *other != key);
            }
            self.hand += 1;
        }
    }
    fn on_remove(&mut self, _slot: SlotId, key: ExpertKey, _cause: RemoveCause) {
        let at = self.keys.iter().position(|other| *other == key).unwrap();
        self.keys.remove(at);
        self.visited.retain(|other| *other != key);
        self.hand -= usize::from(at < self.hand);
    }
    fn reset(&mut self) {}
}
