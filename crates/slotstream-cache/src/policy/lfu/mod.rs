//! LFU with frequencies that fade.

mod level;
mod state;

use slotstream_core::{
    BindError, EvictionPolicy, ExpertKey, Geometry, Incoming, LayerIdx, Origin, RemoveCause,
    Routing, SlotId, SlotView, Step,
};

use super::minima::{Minima, Rank};
use super::options::{Options, Setting, check, spelled};
use super::visits::Visits;
use level::{Level, fall_of};

/// Gives up the record that its layer's tokens have used least of late.
///
/// Every record of the model has a frequency, resident or not. It fades with each token that
/// visits the record's layer, by half in [`half_life`](Self::half_life) tokens, and grows by one
/// with each that uses the record: frequencies are told apart by layer, for a layer that is
/// visited more often does not use its records more. A pass of several rows counts as its tokens
/// one after the other, where its routing is told ([`EvictionPolicy::on_routing`], sweeps
/// included); where it is not, each record that a pass hits or misses counts once. So how a
/// prompt was split into passes makes no difference.
///
/// Of equals, the record goes whose last use (or insertion, if it was never used) is longest ago.
///
/// A use costs time in the logarithm of the experts of a layer, a choice in the number of layers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Lfu {
    half_life: HalfLife,
    geometry: Option<Geometry>,
    /// By which a level falls with each token.
    fall: i64,
    visits: Visits,
    /// By layer: tokens so far.
    tokens: Vec<u64>,
    records: Vec<Record>,
    resident: Minima,
    /// Uses and insertions so far.
    now: u64,
}

/// In tokens.
#[derive(Clone, Copy, Debug)]
struct HalfLife(f64);

impl PartialEq for HalfLife {
    fn eq(&self, other: &Self) -> bool {
        self.0.to_bits() == other.0.to_bits()
    }
}

impl Eq for HalfLife {}

/// What is known of a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Record {
    /// The frequency when `tokens` tokens had visited its layer.
    level: Level,
    tokens: u64,
    /// The slot it was last given.
    slot: u32,
}

const UNUSED: Record = Record { level: Level::NEVER, tokens: 0, slot: u32::MAX };

impl Lfu {
    /// `lfu`, with a half-life of 16 tokens.
    #[must_use]
    pub fn new() -> Self {
        Self::with_half_life(16.0)
    }

    /// `lfu:half-life=...`, in tokens; `bind` accepts 0.5 to 1,000,000.
    #[must_use]
    pub fn with_half_life(tokens: f64) -> Self {
        Self {
            half_life: HalfLife(tokens),
            geometry: None,
            fall: 0,
            visits: Visits::default(),
            tokens: Vec::new(),
            records: Vec::new(),
            resident: Minima::default(),
            now: 0,
        }
    }

    /// Tokens in which a frequency falls by half.
    #[must_use]
    pub const fn half_life(&self) -> f64 {
        self.half_life.0
    }

    /// The frequency of `key` now; `None` before `bind` and outside its geometry.
    #[must_use]
    pub fn frequency(&self, key: ExpertKey) -> Option<f64> {
        let record = self.records.get(self.geometry?.index(key)?)?;
        let tokens = self.tokens.get(key.layer().index())?;
        Some(record.level.fallen(self.fall, tokens - record.tokens).value())
    }

    fn token(&mut self, layer: LayerIdx) {
        if let Some(tokens) = self.tokens.get_mut(layer.index()) {
            *tokens += 1;
        }
    }

    /// The token that visits the layer of `key` uses it.
    fn uses(&mut self, key: ExpertKey) {
        let Some(index) = self.geometry.and_then(|geometry| geometry.index(key)) else { return };
        let tokens = self.tokens[key.layer().index()];
        let record = &mut self.records[index];
        let level = record.level.fallen(self.fall, tokens - record.tokens).used();
        (record.level, record.tokens) = (level, tokens);
        self.now += 1;
        if self.resident.contains(key.layer().index(), key.expert().index()) {
            self.enter(key, index);
        }
    }

    /// Ranks the resident record anew.
    fn enter(&mut self, key: ExpertKey, index: usize) {
        let Record { level, tokens, .. } = self.records[index];
        let rank = Rank(level.standing(self.fall, tokens), self.now);
        self.resident.set(key.layer().index(), key.expert().index(), rank);
    }

    /// Ranks every resident record anew: their levels came from elsewhere.
    fn rank_anew(&mut self) {
        let Some(geometry) = self.geometry else { return };
        for (index, key) in (0..).map_while(|index| Some((index, geometry.key(index)?))) {
            if self.resident.contains(key.layer().index(), key.expert().index()) {
                self.enter(key, index);
            }
        }
    }

    fn lookup(&mut self, key: ExpertKey) {
        let lookup = self.visits.lookup(key.layer());
        if lookup.begins {
            self.token(key.layer());
        }
        if lookup.counts {
            self.uses(key);
        }
    }

    /// The lowest record of `layer` that can be had, if it is lower than `below`.
    fn lowest(&self, layer: usize, below: Rank, view: &SlotView<'_>) -> Option<(Rank, SlotId)> {
        let geometry = self.geometry?;
        let records = &self.records[layer * geometry.experts()..][..geometry.experts()];
        // Ranks say what a level would be had it never fallen; now it has.
        let now = |Rank(standing, used)| {
            let fallen = Level::fall(self.fall, self.tokens[layer]);
            Rank(standing.saturating_sub(fallen), used)
        };
        if now(self.resident.least(layer)?) >= below {
            return None;
        }
        let is_evictable = |expert: usize| view.is_evictable(SlotId::new(records[expert].slot));
        let (rank, expert) = self.resident.find(layer, is_evictable)?;
        Some((now(rank), SlotId::new(records[expert].slot))).filter(|(rank, _)| *rank < below)
    }
}

impl Default for Lfu {
    fn default() -> Self {
        Self::new()
    }
}

impl Options for Lfu {
    const SETTINGS: &'static [Setting<Self>] = &[Setting::real(
        ("half-life", "tokens in which a frequency falls by half"),
        ((0.5, 1e6), "a number from 0.5 to 1000000"),
        |lfu| lfu.half_life.0,
        |lfu, half_life| lfu.half_life = HalfLife(half_life),
    )];
}

impl EvictionPolicy for Lfu {
    fn on_insert(&mut self, slot: SlotId, key: ExpertKey, _origin: Origin) {
        let Some(index) = self.geometry.and_then(|geometry| geometry.index(key)) else { return };
        self.records[index].slot = slot.get();
        self.now += 1;
        self.enter(key, index);
    }

    fn on_hit(&mut self, _slot: SlotId, key: ExpertKey) {
        self.lookup(key);
    }

    fn choose_victim(&mut self, _incoming: &Incoming, view: &SlotView<'_>) -> Option<SlotId> {
        let mut best = (Rank(i64::MAX, u64::MAX), None);
        for layer in 0..self.tokens.len() {
            let number = LayerIdx::new(u16::try_from(layer).ok()?);
            if view.evictable_in(number) > 0
                && let Some((rank, slot)) = self.lowest(layer, best.0, view)
            {
                best = (rank, Some(slot));
            }
        }
        best.1
    }

    fn bind(&mut self, geometry: &Geometry, _slots: usize) -> Result<(), BindError> {
        check(self)?;
        self.geometry = Some(*geometry);
        self.fall = fall_of(self.half_life.0);
        self.visits = Visits::new(geometry.layers());
        self.tokens = vec![0; geometry.layers()];
        self.records = vec![UNUSED; geometry.records()];
        self.resident = Minima::new(geometry.layers(), geometry.experts());
        Ok(())
    }

    fn on_miss(&mut self, key: ExpertKey) {
        self.lookup(key);
    }

    fn on_remove(&mut self, _slot: SlotId, key: ExpertKey, _cause: RemoveCause) {
        self.resident.remove(key.layer().index(), key.expert().index());
    }

    fn on_routing(&mut self, routing: &Routing<'_>) {
        self.visits.routing(routing);
        for row in routing.ids().chunks(routing.top_k()) {
            self.token(routing.layer());
            for expert in row {
                self.uses(routing.key(*expert));
            }
        }
    }

    fn on_step(&mut self, _step: &Step<'_>) {
        self.visits.step();
    }

    fn export(&self) -> Option<Vec<u8>> {
        state::export(self)
    }

    fn import(&mut self, state: &[u8]) -> Result<(), BindError> {
        state::import(self, state)
    }

    fn name(&self) -> String {
        spelled("lfu", self)
    }

    fn reset(&mut self) {
        self.visits.reset();
        self.tokens.fill(0);
        self.records.fill(UNUSED);
        self.resident.clear();
        self.now = 0;
    }
}
