//! Queues of keys, oldest first.

use slotstream_core::*;

pub(super) type Keys = Vec<ExpertKey>;

/// The slot of `key`, if it may be given up.
pub(super) fn evictable(view: &SlotView<'_>, key: ExpertKey) -> Option<SlotId> {
    let mut slots = (0..view.len() as u32).map(SlotId::new);
    slots.find(|slot| view.key(*slot) == Some(key) && view.is_evictable(*slot))
}

/// The oldest of `keys` that may be given up.
pub(super) fn first(keys: &[ExpertKey], view: &SlotView<'_>) -> Option<(ExpertKey, SlotId)> {
    keys.iter().find_map(|key| Some((*key, evictable(view, *key)?)))
}

/// The slot of the oldest of `keys` that may be given up.
pub(super) fn first_slot(keys: &[ExpertKey], view: &SlotView<'_>) -> Option<SlotId> {
    first(keys, view).map(|(_, slot)| slot)
}

/// Takes `key` out; whether it was in.
pub(super) fn take(keys: &mut Keys, key: ExpertKey) -> bool {
    let before = keys.len();
    keys.retain(|other| *other != key);
    keys.len() < before
}

/// `key` is the newest, wherever it was.
pub(super) fn renew(keys: &mut Keys, key: ExpertKey) {
    take(keys, key);
    keys.push(key);
}

/// `share` of the slots.
pub(super) fn part(slots: usize, share: f64) -> usize {
    (share * slots as f64).floor() as usize
}

/// Drops the oldest until `most` are left.
pub(super) fn trim(keys: &mut Keys, most: usize) {
    keys.drain(..keys.len().saturating_sub(most));
}
