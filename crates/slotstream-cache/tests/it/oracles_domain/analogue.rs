//! `analogue` as it is described: all tokens are kept, everything is computed from them anew.

use std::collections::{BTreeMap, BTreeSet};

use slotstream_core::*;

/// Fixed point, as the policy's documentation gives it.
const ONE: u64 = 1 << 26;
const NULL: u64 = 1 << 16;

/// A token and what it used.
#[derive(Clone, Debug)]
struct Token {
    id: Option<u32>,
    session: SessionId,
    /// The number of the token that followed in its session.
    next: Option<usize>,
    /// By layer, at most a route.
    used: Vec<BTreeSet<u16>>,
}

/// A layer's tokens, and which of them used what.
type Uses = Vec<Vec<u16>>;

#[derive(Debug)]
pub(super) struct NaiveAnalogue {
    window: usize,
    half_life: f64,
    geometry: Geometry,
    tokens: Vec<Token>,
    /// By layer: what each of its tokens used, also what the rows above had no room for.
    uses: Vec<Uses>,
    /// The running pass: its session, its first token, the one before that, its first id.
    session: SessionId,
    first: usize,
    previous: Option<usize>,
    id: Option<u32>,
    reached: BTreeSet<usize>,
    /// By record: what analogues say, by whether its layer is passed.
    said: BTreeMap<(usize, u16, bool), u64>,
    /// By whether a layer is passed: what a frequency counts for.
    counts: [u64; 2],
    held: BTreeMap<SlotId, ExpertKey>,
    stamps: BTreeMap<ExpertKey, u64>,
    now: u64,
    at: Option<usize>,
    /// The layer that is being visited, and whether its routing was told.
    visit: Option<(LayerIdx, bool)>,
}

fn exp(x: f64) -> f64 {
    let small = x.clamp(-80.0, 80.0) / 1024.0;
    let (mut term, mut sum) = (1.0, 1.0);
    for n in 1..12 {
        term *= small / f64::from(n);
        sum += term;
    }
    (0..10).fold(sum, |power, _| power * power)
}

fn fixed(x: f64) -> u64 {
    (x * ONE as f64).round() as u64
}

/// 0.85 to the power of `steps`, in fixed point.
fn discount(steps: usize) -> u64 {
    fixed((0..steps).fold(1.0, |power, _| power * 0.85))
}

impl NaiveAnalogue {
    pub(super) fn new(window: usize, half_life: f64) -> Self {
        Self {
            window,
            half_life,
            geometry: Geometry::new(1, 1, 1).unwrap(),
            tokens: Vec::new(),
            uses: Vec::new(),
            session: SessionId::new(0),
            first: 0,
            previous: None,
            id: None,
            reached: BTreeSet::new(),
            said: BTreeMap::new(),
            counts: [0; 2],
            held: BTreeMap::new(),
            stamps: BTreeMap::new(),
            now: 0,
            at: None,
            visit: None,
        }
    }

    fn oldest(&self) -> usize {
        self.tokens.len().saturating_sub(self.window)
    }

    fn push(&mut self, id: Option<u32>) {
        let number = self.tokens.len();
        let previous = if number > self.first { Some(number - 1) } else { self.previous };
        let used = vec![BTreeSet::new(); self.geometry.layers()];
        self.tokens.push(Token { id, session: self.session, next: None, used });
        if let Some(previous) = previous.filter(|previous| *previous >= self.oldest()) {
            self.tokens[previous].next = Some(number);
        }
    }

    fn begin(&mut self, session: SessionId, ids: &[u32]) {
        let own = self.first..self.tokens.len();
        let of = |token: &usize| self.tokens[*token].session == session;
        self.previous = match own.last() {
            Some(last) if self.session == session => Some(last),
            _ => (self.oldest()..self.tokens.len()).rev().find(of),
        };
        self.session = session;
        self.first = self.tokens.len();
        self.id = ids.first().copied();
        self.reached.clear();
        ids.iter().for_each(|id| self.push(Some(*id)));
        self.look();
    }

    fn visited(&mut self, session: SessionId, layer: usize, rows: usize) {
        if session != self.session || self.reached.contains(&layer) {
            self.begin(session, &[]);
        }
        while self.tokens.len() - self.first < rows {
            self.push(None);
        }
        self.reached.insert(layer);
    }

    fn uses(&mut self, token: usize, key: ExpertKey) {
        let layer = key.layer().index();
        let known = token >= self.oldest();
        let used = &mut self.tokens[token].used[layer];
        if known && used.len() < self.geometry.top_k() {
            used.insert(key.expert().get());
        }
        self.uses[layer].last_mut().unwrap().push(key.expert().get());
        self.stamp(key);
    }

    fn stamp(&mut self, key: ExpertKey) {
        self.now += 1;
        self.stamps.insert(key, self.now);
    }

    /// How many records two tokens share in the layers that are `reached`, or in the others.
    fn shared(&self, a: usize, b: usize, reached: bool) -> u64 {
        let layers =
            (0..self.geometry.layers()).filter(|layer| self.reached.contains(layer) == reached);
        let used = |token: usize, layer: usize| &self.tokens[token].used[layer];
        layers.map(|layer| used(a, layer).intersection(used(b, layer)).count() as u64).sum()
    }

    /// The analogues and their weights.
    fn analogues(&self) -> Vec<(usize, u64)> {
        let own = self.tokens.len() - self.first;
        let mut all = Vec::new();
        for token in self.oldest()..self.tokens.len() {
            let Some(next) = self.tokens[token].next.filter(|next| *next < self.first) else {
                continue;
            };
            let known = |token: &usize| *token >= self.oldest();
            let here = if own == 1 { self.shared(self.first, next, true) } else { 0 };
            let behind = self.previous.filter(known);
            let behind = behind.map_or(0, |previous| self.shared(previous, token, false));
            all.push((here + behind, next));
        }
        let count = all.len() as f64;
        let mean = all.iter().map(|(shared, _)| shared).sum::<u64>() as f64 / count;
        let squares = all.iter().map(|(shared, _)| shared * shared).sum::<u64>() as f64 / count;
        let deviation = (squares - mean * mean).max(1.0).sqrt();
        let bonus = |token: usize| {
            let same = self.id.is_some() && self.tokens[token].id == self.id;
            if same { (4.0 * deviation * 16.0).round() as u64 } else { 0 }
        };
        let mut all: Vec<_> =
            all.into_iter().map(|(shared, token)| (16 * shared + bonus(token), token)).collect();
        all.sort_unstable_by(|a, b| b.cmp(a));
        all.truncate(32);
        let weight = |likeness: u64| {
            let above = (likeness as f64 / 16.0 - mean) / deviation - 2.0;
            ((exp(0.7 * above) * NULL as f64).round() as u64).min(1 << 36)
        };
        all.into_iter().map(|(likeness, token)| (token, weight(likeness))).collect()
    }

    /// The token `steps` after `token` in its session, if it is before the running pass.
    fn successor(&self, token: usize, steps: usize) -> Option<usize> {
        let successor = (0..steps).try_fold(token, |token, _| self.tokens[token].next)?;
        Some(successor).filter(|successor| *successor < self.first)
    }

    fn look(&mut self) {
        self.said.clear();
        let analogues = self.analogues();
        let rows = (self.tokens.len() - self.first).clamp(1, 8);
        for passed in [false, true] {
            let shift = if passed { rows } else { 0 };
            // What comes after eight steps.
            let mut counts = fixed((0..8).fold(1.0, |power, _| power * 0.85) / (1.0 - 0.85));
            for step in 0..8 {
                let there: Vec<(usize, u64)> = analogues
                    .iter()
                    .filter_map(|(token, weight)| {
                        Some((self.successor(*token, step + shift)?, *weight))
                    })
                    .collect();
                let sum = NULL + there.iter().map(|(_, weight)| weight).sum::<u64>();
                counts += discount(step) * NULL / sum;
                for (token, weight) in there {
                    for (layer, used) in self.tokens[token].used.iter().enumerate() {
                        for expert in used {
                            *self.said.entry((layer, *expert, passed)).or_default() +=
                                discount(step) * weight / sum;
                        }
                    }
                }
            }
            self.counts[usize::from(passed)] = counts;
        }
    }

    fn frequency(&self, key: ExpertKey) -> u64 {
        let keep = fixed(exp(-std::f64::consts::LN_2 / self.half_life));
        let mut frequency = 0;
        for token in &self.uses[key.layer().index()] {
            frequency = (frequency * keep) >> 26;
            for _ in token.iter().filter(|expert| **expert == key.expert().get()) {
                frequency = (frequency + ONE - keep).min(ONE);
            }
        }
        frequency
    }

    fn worth(&self, key: ExpertKey) -> (u64, u64) {
        let layer = key.layer().index();
        let passed = self.reached.contains(&layer);
        let said = self.said.get(&(layer, key.expert().get(), passed)).copied().unwrap_or(0);
        let value = said + ((self.frequency(key) * self.counts[usize::from(passed)]) >> 26);
        let layers = self.geometry.layers();
        let next = self.at.map_or(0, |at| at + 1);
        let ahead = (layer + layers - next) % layers + 1;
        let left = fixed(exp(-0.5 * (ahead as f64 / layers as f64)));
        (value * left, self.stamps[&key])
    }

    fn looked_up(&mut self, key: ExpertKey) {
        let layer = key.layer();
        if self.visit.is_none_or(|(visited, _)| visited != layer) {
            self.visit = Some((layer, false));
            self.at = Some(layer.index());
            self.visited(self.session, layer.index(), 1);
            self.uses[layer.index()].push(Vec::new());
        }
        if self.visit == Some((layer, false)) {
            self.uses(self.tokens.len() - 1, key);
        }
    }
}

impl EvictionPolicy for NaiveAnalogue {
    fn on_insert(&mut self, slot: SlotId, key: ExpertKey, _origin: Origin) {
        self.stamp(key);
        self.held.insert(slot, key);
    }

    fn on_hit(&mut self, _slot: SlotId, key: ExpertKey) {
        self.looked_up(key);
    }

    fn choose_victim(&mut self, _incoming: &Incoming, view: &SlotView<'_>) -> Option<SlotId> {
        let slots = self.held.iter().filter(|(slot, _)| view.is_evictable(**slot));
        slots.min_by_key(|(_, key)| self.worth(**key)).map(|(slot, _)| *slot)
    }

    fn bind(&mut self, geometry: &Geometry, _slots: usize) -> Result<(), BindError> {
        self.geometry = *geometry;
        self.uses = vec![Vec::new(); geometry.layers()];
        self.look();
        Ok(())
    }

    fn on_miss(&mut self, key: ExpertKey) {
        self.looked_up(key);
    }

    fn on_remove(&mut self, slot: SlotId, _key: ExpertKey, _cause: RemoveCause) {
        self.held.remove(&slot);
    }

    fn on_routing(&mut self, routing: &Routing<'_>) {
        let layer = routing.layer();
        self.visit = Some((layer, true));
        self.at = Some(layer.index());
        self.visited(routing.session(), layer.index(), routing.rows());
        for (row, ids) in routing.ids().chunks(routing.top_k()).enumerate() {
            self.uses[layer.index()].push(Vec::new());
            ids.iter().for_each(|id| self.uses(self.first + row, routing.key(*id)));
        }
        let (reached, layers) = (self.reached.len(), self.geometry.layers());
        let alone = self.tokens.len() - self.first == 1;
        if alone && reached < layers && reached == layers.div_ceil(2) {
            self.look();
        }
    }

    fn on_step(&mut self, step: &Step<'_>) {
        self.visit = None;
        self.begin(step.session, step.tokens);
    }

    fn reset(&mut self) {}
}
