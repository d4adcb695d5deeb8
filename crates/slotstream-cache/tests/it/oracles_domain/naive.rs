//! One model for all: it remembers everything that was told and searches all of it.

use std::collections::{BTreeMap, BTreeSet};

use slotstream_core::*;

/// Which victim is right.
#[derive(Clone, Copy, Debug)]
pub(super) enum Rule {
    /// Half-life.
    Lfu(f64),
    LeastStale,
    Cyclic,
    /// Share, passes.
    HotPin(f64, u64),
    /// State of the generator.
    Random(u64),
    /// LRU within equal shares.
    PerLayer,
    /// LRU within shares from counts: warm-up, passes.
    PerLayerCounts(u64, u64),
}

#[derive(Debug)]
pub(super) struct Naive {
    rule: Rule,
    geometry: Geometry,
    slots: usize,
    /// By slot: its record, when it was last used or inserted, in which visit of its layer.
    held: BTreeMap<SlotId, (ExpertKey, u64, u64)>,
    /// By record: at which token of its layer it was used, each time.
    uses: BTreeMap<ExpertKey, Vec<u64>>,
    /// By record: when it was last used or inserted.
    stamps: BTreeMap<ExpertKey, u64>,
    now: u64,
    /// By layer.
    tokens: Vec<u64>,
    visits: Vec<u64>,
    at: LayerIdx,
    /// The layer that is being visited, and whether its routing was told.
    visit: Option<(LayerIdx, bool)>,
    passes: u64,
    spared: BTreeSet<ExpertKey>,
    shares: Vec<usize>,
    /// Uses that shares are computed from.
    counts: BTreeMap<ExpertKey, u32>,
}

impl Naive {
    pub(super) fn new(rule: Rule) -> Self {
        Self {
            rule,
            geometry: Geometry::new(1, 1, 1).unwrap(),
            slots: 0,
            held: BTreeMap::new(),
            uses: BTreeMap::new(),
            stamps: BTreeMap::new(),
            now: 0,
            tokens: Vec::new(),
            visits: Vec::new(),
            at: LayerIdx::new(0),
            visit: None,
            passes: 0,
            spared: BTreeSet::new(),
            shares: Vec::new(),
            counts: BTreeMap::new(),
        }
    }

    fn stamp(&mut self) -> u64 {
        self.now += 1;
        self.now
    }

    fn begin(&mut self, layer: LayerIdx, routed: bool) {
        self.visits[layer.index()] += 1;
        self.at = layer;
        self.visit = Some((layer, routed));
    }

    fn used(&mut self, key: ExpertKey) {
        let token = self.tokens[key.layer().index()];
        self.uses.entry(key).or_default().push(token);
        *self.counts.entry(key).or_default() += 1;
        let stamp = self.stamp();
        self.stamps.insert(key, stamp);
    }

    fn looked_up(&mut self, key: ExpertKey) {
        let layer = key.layer();
        if self.visit.is_none_or(|(visited, _)| visited != layer) {
            self.begin(layer, false);
            self.tokens[layer.index()] += 1;
        }
        if self.visit == Some((layer, false)) {
            self.used(key);
        }
    }

    /// The logarithm of the frequency of `key`, in steps of 2^-32, from its whole history.
    fn frequency(&self, key: ExpertKey, half_life: f64) -> Option<i64> {
        let step = 2_f64.powi(32);
        let faded = |from: u64, to: u64| (to - from) as i64 * (step / half_life).round() as i64;
        let (mut level, mut at) = (None, 0);
        for token in self.uses.get(&key)? {
            let left =
                level.map_or(0.0, |level| ((level - faded(at, *token)) as f64 / step).exp2());
            level = Some(((left + 1.0).log2() * step).round() as i64);
            at = *token;
        }
        Some(level? - faded(at, self.tokens[key.layer().index()]))
    }

    /// Layers until that of `key` is visited again.
    fn ahead(&self, key: ExpertKey) -> usize {
        let mut layer = (self.at.index() + 1) % self.geometry.layers();
        let mut ahead = 0;
        while layer != key.layer().index() {
            layer = (layer + 1) % self.geometry.layers();
            ahead += 1;
        }
        ahead
    }

    fn held_by(&self, layer: usize) -> usize {
        self.held.values().filter(|(key, ..)| key.layer().index() == layer).count()
    }

    /// The least recently used of `slots` within shares.
    fn shared(&self, slots: &[SlotId], incoming: ExpertKey) -> Option<SlotId> {
        let layer_of = |slot: &SlotId| self.held[slot].0.layer().index();
        let own = incoming.layer().index();
        let mut choice = slots.to_vec();
        if self.held_by(own) >= self.shares[own] && slots.iter().any(|slot| layer_of(slot) == own) {
            choice.retain(|slot| layer_of(slot) == own);
        } else {
            let excess = |slot: &SlotId| {
                let layer = layer_of(slot);
                self.held_by(layer).saturating_sub(self.shares[layer])
            };
            let most = slots.iter().map(excess).max()?;
            if most > 0 {
                let first = slots.iter().filter(|slot| excess(slot) == most).map(layer_of).min();
                choice.retain(|slot| Some(layer_of(slot)) == first);
            }
        }
        choice.into_iter().min_by_key(|slot| self.held[slot].1)
    }

    fn draw(&mut self, slots: &[SlotId], all: usize) -> Option<SlotId> {
        for _ in 0..16 {
            let slot = SlotId::new(self.below(all) as u32);
            if slots.contains(&slot) {
                return Some(slot);
            }
        }
        if slots.is_empty() { None } else { Some(slots[self.below(slots.len())]) }
    }

    fn below(&mut self, n: usize) -> usize {
        let Rule::Random(state) = &mut self.rule else { unreachable!("the rule draws") };
        *state = state.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = *state;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^= z >> 31;
        ((u128::from(z >> 32) * n as u128) >> 32) as usize
    }

    fn split_evenly(&mut self) {
        let layers = self.geometry.layers();
        let up_to = |layer| layer * self.slots / layers;
        self.shares = (0..layers).map(|layer| up_to(layer + 1) - up_to(layer)).collect();
    }

    /// Slots one by one: a route for each layer, then the record with the highest count.
    fn share_out(&mut self) {
        let (layers, top_k) = (self.geometry.layers(), self.geometry.top_k());
        let Some(left) = self.slots.checked_sub(layers * top_k) else { return };
        let count = |key: &ExpertKey| self.counts.get(key).copied().unwrap_or(0);
        let mut further = Vec::new();
        for layer in 0..layers {
            let all = (0..self.geometry.records()).map(|index| self.geometry.key(index).unwrap());
            let mut own: Vec<_> = all.filter(|key| key.layer().index() == layer).collect();
            own.sort_by_key(|key| std::cmp::Reverse(count(key)));
            further.extend(own.split_off(top_k));
        }
        further.sort_by_key(|key| (std::cmp::Reverse(count(key)), key.expert(), key.layer()));
        self.shares = vec![top_k; layers];
        for key in further.iter().take(left) {
            self.shares[key.layer().index()] += 1;
        }
        self.counts.values_mut().for_each(|count| *count /= 2);
    }

    fn spare(&mut self, share: f64) {
        let mut records: Vec<_> = self.uses.iter().map(|(key, uses)| (uses.len(), *key)).collect();
        records.sort_by_key(|(uses, key)| (std::cmp::Reverse(*uses), *key));
        let most = (share * self.slots as f64) as usize;
        self.spared = records.into_iter().take(most).map(|(_, key)| key).collect();
    }
}

impl EvictionPolicy for Naive {
    fn on_insert(&mut self, slot: SlotId, key: ExpertKey, _origin: Origin) {
        let stamp = self.stamp();
        self.stamps.insert(key, stamp);
        self.held.insert(slot, (key, stamp, self.visits[key.layer().index()]));
    }

    fn on_hit(&mut self, slot: SlotId, key: ExpertKey) {
        self.looked_up(key);
        let stamp = self.stamp();
        self.held.insert(slot, (key, stamp, self.visits[key.layer().index()]));
    }

    fn choose_victim(&mut self, incoming: &Incoming, view: &SlotView<'_>) -> Option<SlotId> {
        let all = (0..view.len() as u32).map(SlotId::new);
        let slots: Vec<SlotId> = all.filter(|slot| view.is_evictable(*slot)).collect();
        let used = |slot: &SlotId| self.held[slot].1;
        match self.rule {
            Rule::Lfu(half_life) => slots.into_iter().min_by_key(|slot| {
                let key = self.held[slot].0;
                (self.frequency(key, half_life), self.stamps[&key])
            }),
            Rule::LeastStale => slots.into_iter().max_by_key(|slot| {
                let (key, stamp, visit) = self.held[slot];
                let missed = self.visits[key.layer().index()] - visit;
                (missed, self.ahead(key), std::cmp::Reverse(stamp))
            }),
            Rule::Cyclic => slots
                .into_iter()
                .max_by_key(|slot| (self.ahead(self.held[slot].0), std::cmp::Reverse(used(slot)))),
            Rule::HotPin(..) => slots
                .into_iter()
                .min_by_key(|slot| (self.spared.contains(&self.held[slot].0), used(slot))),
            Rule::Random(_) => self.draw(&slots, view.len()),
            Rule::PerLayer | Rule::PerLayerCounts(..) => self.shared(&slots, incoming.key),
        }
    }

    fn bind(&mut self, geometry: &Geometry, slots: usize) -> Result<(), BindError> {
        self.geometry = *geometry;
        self.tokens = vec![0; geometry.layers()];
        self.visits = vec![0; geometry.layers()];
        self.on_resize(slots);
        Ok(())
    }

    fn on_resize(&mut self, slots: usize) {
        self.slots = slots;
        self.split_evenly();
    }

    fn on_miss(&mut self, key: ExpertKey) {
        self.looked_up(key);
    }

    fn on_remove(&mut self, slot: SlotId, key: ExpertKey, _cause: RemoveCause) {
        assert_eq!(self.held.remove(&slot).map(|(held, ..)| held), Some(key));
    }

    fn on_routing(&mut self, routing: &Routing<'_>) {
        self.begin(routing.layer(), true);
        for row in routing.ids().chunks(routing.top_k()) {
            self.tokens[routing.layer().index()] += 1;
            row.iter().for_each(|expert| self.used(routing.key(*expert)));
        }
    }

    fn on_step(&mut self, _step: &Step<'_>) {
        self.visit = None;
        match self.rule {
            Rule::HotPin(share, every) if self.passes > 0 && self.passes.is_multiple_of(every) => {
                self.spare(share);
            }
            Rule::PerLayerCounts(warm_up, every)
                if self.passes >= warm_up && (self.passes - warm_up).is_multiple_of(every) =>
            {
                self.share_out();
            }
            _ => {}
        }
        self.passes += 1;
    }

    fn reset(&mut self) {}
}
