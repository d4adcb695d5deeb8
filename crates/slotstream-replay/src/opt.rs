//! OPT: the policy that knows the future.

use slotstream_core::{
    BindError, EvictionPolicy, ExpertKey, Geometry, Incoming, Origin, RemoveCause, SlotId, SlotView,
};

use crate::Requests;

/// Distance to a use that never comes.
const NEVER: u32 = u32::MAX;

/// Belady's OPT (1966) for pools whose calls pin several records: gives up the record whose next
/// use, counted in calls, is furthest away. No policy misses less often on these requests.
///
/// It knows the requests that it was made for, and works in a replay of exactly these, in a pool
/// of any fixed size; elsewhere it stays lawful but its guesses are void. An event takes
/// O(log slots), `bind` O(lookups).
#[derive(Clone, Debug)]
pub struct Opt<'a> {
    requests: &'a Requests,
    geometry: Geometry,
    /// By record: where its uses begin in `uses`, ascending; one more at the end.
    begins: Vec<usize>,
    /// Numbers of the calls that use a record.
    uses: Vec<u32>,
    /// By record: the use in `uses` that comes next.
    next: Vec<usize>,
    /// By slot: when its record is used next; a maximum tournament.
    tree: Tournament,
    /// The running call, and the slots that it pins with the next use of each: they enter the
    /// tournament when the next call begins.
    call: u32,
    pinned: Vec<(SlotId, u32)>,
}

impl<'a> Opt<'a> {
    /// OPT for a replay of `requests`.
    #[must_use]
    pub fn new(requests: &'a Requests) -> Self {
        Self {
            requests,
            geometry: *requests.geometry(),
            begins: Vec::new(),
            uses: Vec::new(),
            next: Vec::new(),
            tree: Tournament::default(),
            call: 0,
            pinned: Vec::new(),
        }
    }

    /// Lists the calls of each record, for a pool that takes `capacity` records a call.
    fn look_ahead(&mut self, capacity: usize) {
        let experts = self.geometry.experts();
        let mut begins = vec![0; self.geometry.records() + 1];
        for visit in self.requests.passes().flat_map(|pass| pass.visits()) {
            let base = visit.layer().index() * experts;
            for expert in visit.experts() {
                begins[base + expert.index() + 1] += 1;
            }
        }
        for at in 1..begins.len() {
            begins[at] += begins[at - 1];
        }
        self.uses = vec![0; begins.last().copied().unwrap_or(0)];
        self.next = begins[..begins.len() - 1].to_vec();
        let (mut call, mut ascending) = (0_u32, Vec::new());
        for visit in self.requests.passes().flat_map(|pass| pass.visits()) {
            let base = visit.layer().index() * experts;
            let mut list = visit.experts();
            if list.len() > capacity {
                ascending.clear();
                ascending.extend_from_slice(list);
                ascending.sort_unstable();
                list = &ascending;
            }
            for wave in list.chunks(capacity.max(1)) {
                call += 1;
                for expert in wave {
                    let at = &mut self.next[base + expert.index()];
                    self.uses[*at] = call;
                    *at += 1;
                }
            }
        }
        self.next.copy_from_slice(&begins[..begins.len() - 1]);
        self.begins = begins;
    }

    /// The call that uses `key` next.
    #[inline]
    fn next_use(&self, key: ExpertKey) -> Option<u32> {
        let index = self.geometry.index(key)?;
        let next = *self.next.get(index)?;
        (next < *self.begins.get(index + 1)?).then(|| self.uses[next])
    }

    /// `key` is used in `slot`: by a hit, or by an insert.
    #[inline]
    fn used(&mut self, slot: SlotId, key: ExpertKey) {
        let Some(index) = self.geometry.index(key) else { return };
        let (Some(next), Some(end)) = (self.next.get_mut(index), self.begins.get(index + 1)) else {
            return;
        };
        let left = &self.uses[(*next).min(*end)..*end];
        let call = left.first().copied().unwrap_or(self.call);
        let then = left.get(1).copied().unwrap_or(NEVER);
        *next = (*next + 1).min(*end);
        self.begin(call);
        self.tree.set(slot.index(), None);
        self.pinned.push((slot, then));
    }

    /// Unless `call` is the running one, that is over: its slots may be given up again.
    #[inline]
    fn begin(&mut self, call: u32) {
        if call != self.call {
            self.call = call;
            for (slot, then) in self.pinned.drain(..) {
                self.tree.set(slot.index(), Some(then));
            }
        }
    }
}

impl EvictionPolicy for Opt<'_> {
    #[inline]
    fn on_insert(&mut self, slot: SlotId, key: ExpertKey, origin: Origin) {
        if matches!(origin, Origin::Demand | Origin::Prefetch) {
            self.used(slot, key);
        } else {
            let then = self.next_use(key).unwrap_or(NEVER);
            self.tree.set(slot.index(), Some(then));
        }
    }

    #[inline]
    fn on_hit(&mut self, slot: SlotId, key: ExpertKey) {
        self.used(slot, key);
    }

    fn choose_victim(&mut self, incoming: &Incoming, view: &SlotView<'_>) -> Option<SlotId> {
        // A call without hits begins here.
        if incoming.origin == Origin::Demand
            && let Some(call) = self.next_use(incoming.key)
        {
            self.begin(call);
        }
        let best = self.tree.best().filter(|slot| view.is_evictable(*slot));
        // Outside a replay of its requests the tournament may be wrong about the pins.
        best.or_else(|| {
            (0..view.len())
                .filter_map(|slot| u32::try_from(slot).ok().map(SlotId::new))
                .filter(|slot| view.is_evictable(*slot))
                .max_by_key(|slot| self.tree.get(slot.index()))
        })
    }

    fn bind(&mut self, geometry: &Geometry, slots: usize) -> Result<(), BindError> {
        if *geometry != self.geometry {
            return Err(BindError::parameter(
                "geometry",
                format!("{} x {}", geometry.layers(), geometry.experts()),
                "the geometry of the requests that OPT was made for",
            ));
        }
        self.look_ahead(slots);
        self.on_resize(slots);
        self.pinned.reserve(geometry.experts());
        Ok(())
    }

    fn on_resize(&mut self, slots: usize) {
        self.pinned.retain(|(slot, _)| slot.index() < slots);
        self.tree.resize(slots);
    }

    fn on_remove(&mut self, slot: SlotId, _key: ExpertKey, cause: RemoveCause) {
        // A victim is never pinned.
        if cause != RemoveCause::Evicted {
            self.pinned.retain(|(pinned, _)| *pinned != slot);
        }
        self.tree.set(slot.index(), None);
    }

    fn name(&self) -> String {
        "opt".into()
    }

    fn reset(&mut self) {
        if let Some((_, begins)) = self.begins.split_last() {
            self.next.copy_from_slice(begins);
        }
        self.call = 0;
        self.pinned.clear();
        self.tree.clear();
    }
}

/// By slot a number or nothing; finds the slot with the largest number in constant time and
/// changes one in O(log slots).
#[derive(Clone, Debug, Default)]
struct Tournament {
    slots: usize,
    /// A power of two.
    leaves: usize,
    /// Node `i` has the children `2i` and `2i + 1`; leaf `s` is node `leaves + s`. A number is
    /// kept one higher, nothing is 0.
    nodes: Vec<u64>,
}

impl Tournament {
    fn resize(&mut self, slots: usize) {
        let old: Vec<u64> = (0..slots).map(|slot| self.get(slot)).collect();
        self.slots = slots;
        self.leaves = slots.next_power_of_two();
        self.nodes = vec![0; 2 * self.leaves];
        for (slot, value) in old.into_iter().enumerate() {
            self.put(slot, value);
        }
    }

    fn clear(&mut self) {
        self.nodes.fill(0);
    }

    fn get(&self, slot: usize) -> u64 {
        if slot < self.slots { self.nodes[self.leaves + slot] } else { 0 }
    }

    #[inline]
    fn set(&mut self, slot: usize, value: Option<u32>) {
        if slot < self.slots {
            self.put(slot, value.map_or(0, |value| u64::from(value) + 1));
        }
    }

    #[inline]
    fn put(&mut self, slot: usize, value: u64) {
        let mut node = self.leaves + slot;
        if self.nodes[node] == value {
            return;
        }
        self.nodes[node] = value;
        while node > 1 {
            let best = self.nodes[node].max(self.nodes[node ^ 1]);
            node /= 2;
            if self.nodes[node] == best {
                return;
            }
            self.nodes[node] = best;
        }
    }

    /// The first slot with the largest number.
    #[inline]
    fn best(&self) -> Option<SlotId> {
        let best = *self.nodes.get(1)?;
        if best == 0 {
            return None;
        }
        let mut node = 1;
        while node < self.leaves {
            node *= 2;
            node += usize::from(self.nodes[node] != best);
        }
        u32::try_from(node - self.leaves).ok().map(SlotId::new)
    }
}
