//! Eviction by routing history: what followed tokens like this one.

mod fixed;
mod history;
mod likeness;
mod outlook;
mod residents;
mod state;
mod tally;

use slotstream_core::{
    BindError, EvictionPolicy, ExpertKey, Geometry, Incoming, LayerIdx, Origin, RemoveCause,
    Routing, SessionId, SlotId, SlotView, Step,
};

use super::options::{Options, Setting, check, spelled};
use super::visits::Visits;
use fixed::{BITS, ONE, exp, fixed};
use history::{History, Token};
use likeness::{Likeness, Query};
use outlook::Outlook;
use residents::{Residents, Worth};

/// By which power of `e` a record is worth less when its layer's next visit is a pass away.
const PATIENCE: f64 = 0.5;

/// Gives up the record that tokens like the running one, and those that followed them, used
/// least.
///
/// Tokens of the past that share many records with the running token, or whose predecessors do
/// with its predecessor, are its *analogues*. A record is worth what they and their successors
/// used of it, discounted by distance, over a frequency that fades as in [`Lfu`](super::Lfu);
/// a little less if its layer is visited later. Only ids are looked at, those of the tokens
/// included; a pass of several rows counts as its tokens one after the other, a sweep as well.
/// Where no routing is told, what a pass hits and misses is what its token used.
///
/// Everything is computed in fixed point or in operations that IEEE 754 defines exactly, so
/// victims are the same on every machine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Analogue {
    settings: Settings,
    geometry: Option<Geometry>,
    visits: Visits,
    pass: Pass,
    history: History,
    likeness: Likeness,
    outlook: Outlook,
    /// By what a frequency is multiplied with each token.
    keep: u64,
    /// By record: its uses, fading, of at most one a token.
    frequency: Vec<u32>,
    /// By record: when it was last used or inserted.
    used: Vec<u64>,
    /// Uses and insertions so far.
    now: u64,
    residents: Residents,
    /// By layers until the next visit, less one: what is left of a value.
    patience: Vec<u64>,
}

/// The running pass.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Pass {
    session: SessionId,
    first: Token,
    rows: u64,
    /// The token before the first one.
    previous: Option<Token>,
    /// The first one's id.
    id: Option<u32>,
    /// By layer: whether it was visited.
    reached: Vec<bool>,
}

impl Pass {
    fn new(layers: usize) -> Self {
        Self {
            session: SessionId::new(0),
            first: 0,
            rows: 0,
            previous: None,
            id: None,
            reached: vec![false; layers],
        }
    }
}

#[derive(Clone, Copy, Debug)]
struct Settings {
    window: u64,
    half_life: f64,
}

impl PartialEq for Settings {
    fn eq(&self, other: &Self) -> bool {
        (self.window, self.half_life.to_bits()) == (other.window, other.half_life.to_bits())
    }
}

impl Eq for Settings {}

impl Analogue {
    /// `analogue`: 1024 tokens of history, frequencies with a half-life of 16 tokens.
    #[must_use]
    pub fn new() -> Self {
        Self::with(1024, 16.0)
    }

    /// `analogue:window=...+half-life=...`, both in tokens; `bind` accepts windows of 1 to
    /// 65,536 and half-lives of 0.5 to 1,000,000.
    #[must_use]
    pub fn with(window: u64, half_life: f64) -> Self {
        Self {
            settings: Settings { window, half_life },
            geometry: None,
            visits: Visits::default(),
            pass: Pass::new(0),
            history: History::default(),
            likeness: Likeness::default(),
            outlook: Outlook::default(),
            keep: 0,
            frequency: Vec::new(),
            used: Vec::new(),
            now: 0,
            residents: Residents::default(),
            patience: Vec::new(),
        }
    }

    /// A pass of `session` begins, with these tokens.
    fn begin(&mut self, session: SessionId, tokens: &[u32]) {
        let own = self.pass.first..self.pass.first + self.pass.rows;
        self.pass.previous = match own.last() {
            Some(last) if self.pass.session == session => Some(last),
            _ => self.history.last_of(session),
        };
        self.pass.session = session;
        (self.pass.first, self.pass.rows) = (self.history.end(), 0);
        self.pass.id = tokens.first().copied();
        self.pass.reached.fill(false);
        for id in tokens {
            self.row(Some(*id));
        }
        self.look();
    }

    /// Forgets everything but what is resident.
    fn forget(&mut self) {
        self.visits.reset();
        let mut reached = std::mem::take(&mut self.pass.reached);
        reached.fill(false);
        self.pass = Pass { reached, ..Pass::new(0) };
        self.history.clear();
        self.likeness.clear();
        self.outlook.clear();
        self.frequency.fill(0);
    }

    /// One more token in the running pass.
    fn row(&mut self, id: Option<u32>) {
        let own = self.pass.first..self.pass.first + self.pass.rows;
        let previous = own.last().or(self.pass.previous);
        self.history.push(id, Some(self.pass.session), previous);
        self.pass.rows += 1;
    }

    /// The running pass visits `layer` with `rows` tokens.
    fn visit(&mut self, session: SessionId, layer: usize, rows: u64) {
        if session != self.pass.session || self.pass.reached[layer] {
            // Nobody said that a pass begins.
            self.begin(session, &[]);
        }
        while self.pass.rows < rows {
            self.row(None);
        }
        self.pass.reached[layer] = true;
        self.residents.changed(layer);
    }

    /// Finds the analogues of the running token and what they say.
    fn look(&mut self) {
        let Pass { first, rows, previous, id, .. } = self.pass;
        let current = (rows == 1).then_some(first);
        let query = Query { previous, current, reached: &self.pass.reached, id, before: first };
        self.likeness.find(&self.history, &query);
        self.outlook.look(&self.history, self.likeness.found(), first, rows);
        self.residents.all_changed();
    }

    /// Once half of the layers are known of a token that runs alone, its analogues are sought
    /// again.
    fn look_again(&mut self) {
        let layers = self.pass.reached.len();
        let reached = self.pass.reached.iter().filter(|reached| **reached).count();
        if self.pass.rows == 1 && reached < layers && reached == layers.div_ceil(2) {
            self.look();
        }
    }

    /// A token passes `layer`: its frequencies fade.
    fn fade(&mut self, layer: usize) {
        let experts = self.history.experts();
        for frequency in &mut self.frequency[layer * experts..][..experts] {
            // In range: `keep` is at most one.
            *frequency = ((u64::from(*frequency) * self.keep) >> BITS) as u32;
        }
    }

    /// `token` uses `key`.
    fn uses(&mut self, token: Token, key: ExpertKey) {
        let Some(index) = self.geometry.and_then(|geometry| geometry.index(key)) else { return };
        self.history.used(token, key.layer().index(), key.expert().get());
        let more = u64::from(self.frequency[index]) + ONE - self.keep;
        // In range: at most one.
        self.frequency[index] = more.min(ONE) as u32;
        self.stamp(index);
    }

    fn stamp(&mut self, index: usize) {
        self.now += 1;
        self.used[index] = self.now;
    }

    fn lookup(&mut self, key: ExpertKey) {
        let lookup = self.visits.lookup(key.layer());
        let layer = key.layer().index();
        if layer >= self.pass.reached.len() {
            return;
        }
        if lookup.begins {
            self.visit(self.pass.session, layer, 1);
            self.fade(layer);
        }
        if lookup.counts {
            let last = (self.pass.first + self.pass.rows).saturating_sub(1);
            self.uses(last, key);
            self.residents.changed(layer);
        }
    }

    /// The least valued record of `layer` that can be had, if it is less than `below`; `left` is
    /// what patience leaves of a value there.
    fn lowest(
        &mut self,
        (layer, left): (usize, u64),
        below: Worth,
        view: &SlotView<'_>,
    ) -> Option<(Worth, SlotId)> {
        let experts = self.history.experts();
        let frequency = &self.frequency[layer * experts..][..experts];
        let used = &self.used[layer * experts..][..experts];
        let values = self.outlook.of(layer, frequency, self.pass.reached[layer]);
        let value = |expert: usize| values.of(expert);
        let last_used = |expert: usize| used[expert];
        let worth = |expert: usize| Worth(value(expert), last_used(expert));
        // Patience is the same for the whole layer.
        let after = |Worth(value, used)| Worth(value * left, used);
        let (least, _) = *self.residents.lowest(layer, value, last_used).first()?;
        if after(least) >= below {
            return None;
        }
        let residents = &self.residents;
        let is_evictable = |expert| view.is_evictable(residents.slot(layer, expert));
        let known = residents.known(layer).iter().find(|(_, expert)| is_evictable(*expert));
        let (worth, expert) =
            known.copied().or_else(|| residents.find(layer, worth, is_evictable))?;
        let found = (after(worth), residents.slot(layer, expert));
        Some(found).filter(|(worth, _)| *worth < below)
    }
}

/// The most that the history of a policy may take.
const MOST_BYTES: u64 = 4 << 30;

impl Default for Analogue {
    fn default() -> Self {
        Self::new()
    }
}

impl Options for Analogue {
    const SETTINGS: &'static [Setting<Self>] = &[
        Setting::count(
            ("window", "tokens that are remembered"),
            ((1, 65_536), "a whole number from 1 to 65536"),
            |analogue| analogue.settings.window,
            |analogue, window| analogue.settings.window = window,
        ),
        Setting::real(
            ("half-life", "tokens in which a frequency falls by half"),
            ((0.5, 1e6), "a number from 0.5 to 1000000"),
            |analogue| analogue.settings.half_life,
            |analogue, half_life| analogue.settings.half_life = half_life,
        ),
    ];
}

impl EvictionPolicy for Analogue {
    fn on_insert(&mut self, slot: SlotId, key: ExpertKey, _origin: Origin) {
        let Some(index) = self.geometry.and_then(|geometry| geometry.index(key)) else { return };
        self.stamp(index);
        let (layer, experts) = (key.layer().index(), self.history.experts());
        let frequency = &self.frequency[layer * experts..][..experts];
        let values = self.outlook.of(layer, frequency, self.pass.reached[layer]);
        let worth = Worth(values.of(key.expert().index()), self.used[index]);
        self.residents.insert(key, slot, worth);
    }

    fn on_hit(&mut self, _slot: SlotId, key: ExpertKey) {
        self.lookup(key);
    }

    fn choose_victim(&mut self, _incoming: &Incoming, view: &SlotView<'_>) -> Option<SlotId> {
        let mut best = (Worth(u64::MAX, u64::MAX), None);
        let layers = self.pass.reached.len();
        let next = self.visits.layer().map_or(0, |layer| (layer.index() + 1) % layers.max(1));
        // The least is found early where the next visit is furthest away.
        for ahead in (0..layers).rev() {
            let layer = if next + ahead < layers { next + ahead } else { next + ahead - layers };
            let left = self.patience[ahead];
            let number = LayerIdx::new(u16::try_from(layer).ok()?);
            if self.residents.floor(layer) * left <= best.0.0
                && view.evictable_in(number) > 0
                && let Some((worth, slot)) = self.lowest((layer, left), best.0, view)
            {
                best = (worth, Some(slot));
            }
        }
        best.1
    }

    fn bind(&mut self, geometry: &Geometry, _slots: usize) -> Result<(), BindError> {
        check(self)?;
        if self.planned_bytes(geometry) > MOST_BYTES {
            let window = self.settings.window;
            return Err(BindError::parameter("window", window, "a history of at most 4 GiB: less"));
        }
        let (layers, records) = (geometry.layers(), geometry.records());
        // In range: at most 65,536.
        let window = self.settings.window as u32;
        self.geometry = Some(*geometry);
        self.visits = Visits::new(layers);
        self.pass = Pass::new(layers);
        self.history = History::new(geometry, window);
        self.likeness = Likeness::new(&self.history, layers * geometry.top_k());
        self.outlook = Outlook::new(geometry, self.history.places());
        self.keep = fixed(exp(-std::f64::consts::LN_2 / self.settings.half_life));
        self.frequency = vec![0; records];
        self.used = vec![0; records];
        self.now = 0;
        self.residents = Residents::new(geometry);
        let after = |layers_ahead: usize| layers_ahead as f64 / layers as f64;
        let left = |ahead| fixed(exp(-PATIENCE * after(ahead)));
        self.patience = (1..=layers).map(left).collect();
        Ok(())
    }

    fn on_miss(&mut self, key: ExpertKey) {
        self.lookup(key);
    }

    fn on_remove(&mut self, _slot: SlotId, key: ExpertKey, _cause: RemoveCause) {
        self.residents.remove(key);
    }

    fn on_routing(&mut self, routing: &Routing<'_>) {
        self.visits.routing(routing);
        let layer = routing.layer().index();
        if layer >= self.pass.reached.len() {
            return;
        }
        self.visit(routing.session(), layer, routing.rows() as u64);
        for (token, row) in (self.pass.first..).zip(routing.ids().chunks(routing.top_k().max(1))) {
            self.fade(layer);
            for expert in row {
                self.uses(token, routing.key(*expert));
            }
        }
        self.look_again();
    }

    fn on_step(&mut self, step: &Step<'_>) {
        self.visits.step();
        self.begin(step.session, step.tokens);
    }

    fn export(&self) -> Option<Vec<u8>> {
        state::export(self)
    }

    fn import(&mut self, state: &[u8]) -> Result<(), BindError> {
        state::import(self, state)
    }

    fn planned_bytes(&self, geometry: &Geometry) -> u64 {
        // Arrays by remembered token, by record, and by layer; a test compares it with what is
        // allocated.
        let places = u64::from(self.settings.window.max(1) as u32).next_power_of_two();
        let (layers, records) = (geometry.layers() as u64, geometry.records() as u64);
        let token = 2 * layers * geometry.top_k() as u64 + records.div_ceil(8) + 64;
        places.next_multiple_of(64) * token + 80 * records + 1024 * layers + (64 << 10)
    }

    fn name(&self) -> String {
        spelled("analogue", self)
    }

    fn reset(&mut self) {
        self.forget();
        self.used.fill(0);
        self.now = 0;
        self.residents.clear();
    }
}
