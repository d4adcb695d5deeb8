//! A small engine without a model: it asks a pool as the real one does, at random, and everything
//! that can befall a pool does.

use rand::rngs::SmallRng;
use rand::seq::SliceRandom;
use rand::{Rng, SeedableRng};
use slotstream_cache::{Abort, Claim, Demand, Ensured, Found, SlotPool};
use slotstream_core::{
    Attached, Deadline, EventSink, EvictionPolicy, ExpertIdx, ExpertKey, Geometry, LayerIdx,
    Origin, Outcome, PassId, Phase, Prediction, Routing, SessionId, Step, Tap,
};

/// What an engine does besides its passes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Habits {
    /// One read in so many fails.
    pub(crate) fails: u32,
    /// One call in so many is abandoned.
    pub(crate) abandons: u32,
    /// Reads ahead, admits, resizes, sweeps, clears.
    pub(crate) speculates: bool,
}

pub(crate) const CALM: Habits = Habits { fails: u32::MAX, abandons: u32::MAX, speculates: false };
pub(crate) const WILD: Habits = Habits { fails: 15, abandons: 12, speculates: true };

pub(crate) struct Engine<'s> {
    pool: SlotPool,
    sink: &'s mut dyn EventSink,
    dice: SmallRng,
    habits: Habits,
    demand: Demand,
    ensured: Ensured,
    reserved: Vec<Claim>,
    passes: u64,
    positions: [u64; 3],
    /// A layer's favourites, so that there are hits.
    favourites: Vec<Vec<u16>>,
}

impl<'s> Engine<'s> {
    pub(crate) fn new(
        geometry: Geometry,
        slots: usize,
        policy: Box<dyn EvictionPolicy>,
        (seed, habits): (u64, Habits),
        sink: &'s mut dyn EventSink,
    ) -> Self {
        let pool = SlotPool::new(geometry, slots, policy).expect("at the floor");
        sink.on_attach(&Attached {
            geometry,
            record_bytes: 1000,
            slots: pool.slots(),
            floor: geometry.floor_slots(),
            policy: &pool.policy().name(),
        });
        let mut dice = SmallRng::seed_from_u64(seed);
        let experts: Vec<u16> = (0..geometry.experts() as u16).collect();
        let favourites = (0..geometry.layers()).map(|_| {
            let mut experts = experts.clone();
            experts.shuffle(&mut dice);
            experts
        });
        Self {
            favourites: favourites.collect(),
            pool,
            sink,
            dice,
            habits,
            demand: Demand::new(),
            ensured: Ensured::new(),
            reserved: Vec::new(),
            passes: 0,
            positions: [0; 3],
        }
    }

    pub(crate) const fn pool(&self) -> &SlotPool {
        &self.pool
    }

    /// Runs `passes` passes.
    pub(crate) fn run(&mut self, passes: usize) {
        for _ in 0..passes {
            self.pass();
        }
        self.pool.validate().expect("consistent");
    }

    fn one_in(&mut self, n: u32) -> bool {
        n < u32::MAX && self.dice.random_ratio(1, n)
    }

    fn tell(&mut self, outcome: Outcome) {
        self.sink.on_outcome(&outcome);
    }

    fn pass(&mut self) {
        self.passes += 1;
        let session = self.dice.random_range(0..3_usize);
        let rows = if self.one_in(8) { self.dice.random_range(2..24) } else { 1 };
        let tokens: Vec<u32> = (0..rows).map(|_| self.dice.random()).collect();
        let step = Step {
            pass: PassId::new(self.passes),
            phase: if rows > 1 { Phase::Prefill } else { Phase::Decode },
            session: SessionId::new(session as u64),
            position: self.positions[session],
            tokens: &tokens,
        };
        self.positions[session] += rows as u64;
        self.pool.begin_step(&step).expect("sane");
        self.sink.on_step(&step);
        for layer in 0..self.pool.geometry().layers() as u16 {
            if !self.layer(&step, LayerIdx::new(layer)) {
                break;
            }
        }
        if self.habits.speculates {
            self.between();
        }
    }

    fn route(&mut self, layer: LayerIdx, rows: usize) -> (Vec<ExpertIdx>, Vec<f32>, Vec<f32>) {
        let (experts, top_k) = (self.pool.geometry().experts(), self.pool.geometry().top_k());
        let (mut ids, mut weights, mut logits) = (Vec::new(), Vec::new(), Vec::new());
        for _ in 0..rows {
            let mut row: Vec<f32> = (0..experts).map(|_| self.dice.random::<f32>()).collect();
            for (rank, expert) in self.favourites[layer.index()].iter().enumerate() {
                row[usize::from(*expert)] += 2.0 / (rank + 1) as f32;
            }
            let mut order: Vec<u16> = (0..experts as u16).collect();
            order.sort_by(|a, b| row[usize::from(*b)].total_cmp(&row[usize::from(*a)]));
            ids.extend(order[..top_k].iter().map(|id| ExpertIdx::new(*id)));
            weights.extend(order[..top_k].iter().map(|id| row[usize::from(*id)] / 10.0));
            logits.extend(row);
        }
        (ids, weights, logits)
    }

    /// One layer; `false` when its call failed, which ends the pass.
    fn layer(&mut self, step: &Step<'_>, layer: LayerIdx) -> bool {
        let top_k = self.pool.geometry().top_k();
        let (ids, weights, logits) = self.route(layer, step.tokens.len());
        let routing = Routing::new(step, layer, top_k, &ids, &weights).with_logits(&logits);
        self.pool.routing(&routing).expect("lawful");
        self.sink.on_routing(&routing);
        if self.habits.speculates && step.tokens.len() > 1 && self.one_in(6) {
            self.tell(Outcome::Swept { layer, records: ids.len() });
            return true;
        }
        self.demand.read(&routing);
        // What was only forecast gives way to a demand.
        while self.pool.capacity() < top_k && !self.reserved.is_empty() {
            let claim = self.reserved.remove(0);
            let key = claim.key();
            self.pool.abort(claim, Abort::Withdrawn).expect("open");
            self.tell(Outcome::Cancelled { key });
        }
        let capacity = self.pool.capacity();
        self.demand.split(capacity);
        let waves: Vec<(Vec<ExpertIdx>, Vec<u32>)> = self
            .demand
            .experts()
            .chunks(capacity)
            .zip(self.demand.counts().chunks(capacity))
            .map(|(experts, counts)| (experts.to_vec(), counts.to_vec()))
            .collect();
        let abandoned =
            self.one_in(self.habits.abandons).then(|| self.dice.random_range(0..waves.len()));
        for (number, (experts, counts)) in waves.iter().enumerate() {
            let left = waves.len() - number - 1;
            let mut ok = self.wave(layer, experts, counts, step.phase);
            if number == 0 && self.habits.speculates {
                self.forecast(layer);
            }
            ok &= self.land();
            self.pool.release();
            if !ok || abandoned == Some(number) || left == 0 {
                self.tell(Outcome::Ended { layer, waves: left });
                return ok;
            }
        }
        true
    }

    /// Claims a wave; gives up what there is no memory for.
    fn wave(
        &mut self,
        layer: LayerIdx,
        experts: &[ExpertIdx],
        counts: &[u32],
        phase: Phase,
    ) -> bool {
        let ensured = &mut self.ensured;
        if self.pool.ensure_counted(layer, experts, counts, phase, ensured).is_err() {
            self.tell(Outcome::Refused { layer });
            return false;
        }
        let adopted: Vec<_> = self
            .ensured
            .entries()
            .iter()
            .filter(|entry| entry.found == Found::Adopted)
            .map(|entry| (entry.slot, ExpertKey::new(layer, entry.expert)))
            .collect();
        for (slot, key) in adopted {
            let late = self.one_in(2);
            self.tell(if late { Outcome::Late { key } } else { Outcome::Adopted { slot, key } });
        }
        if !self.one_in(self.habits.fails.saturating_mul(4)) {
            return true;
        }
        let claims: Vec<Claim> = self.ensured.take_claims().collect();
        for claim in claims {
            let (slot, key, origin) = (claim.slot(), claim.key(), claim.origin());
            self.pool.abort(claim, Abort::Withdrawn).expect("open");
            self.tell(Outcome::Withdrawn { slot, key, origin });
        }
        false
    }

    /// The reads of the wave come back in any order; some fail.
    fn land(&mut self) -> bool {
        let mut claims: Vec<Claim> = self.ensured.take_claims().collect();
        let adopted: Vec<ExpertKey> = self
            .ensured
            .entries()
            .iter()
            .filter(|entry| entry.found == Found::Adopted)
            .filter_map(|entry| {
                self.pool.running().map(|layer| ExpertKey::new(layer, entry.expert))
            })
            .collect();
        claims.extend(self.reserved.extract_if(.., |claim| adopted.contains(&claim.key())));
        claims.shuffle(&mut self.dice);
        let mut ok = true;
        for claim in claims {
            let (slot, key, origin) = (claim.slot(), claim.key(), claim.origin());
            if self.one_in(self.habits.fails) {
                self.pool.abort(claim, Abort::ReadFailed).expect("open");
                self.tell(Outcome::Failed { slot, key, origin });
                ok = false;
            } else {
                self.pool.publish(claim).expect("open");
            }
        }
        ok
    }

    fn forecast(&mut self, at: LayerIdx) {
        let (layers, experts) = (self.pool.geometry().layers(), self.pool.geometry().experts());
        let target = LayerIdx::new((at.index() + 1) as u16 % layers as u16);
        let passes_ahead = u32::from(target < at);
        let predictions: Vec<Prediction> = (0..2)
            .map(|_| {
                let expert = ExpertIdx::new(self.dice.random_range(0..experts as u16));
                let needed_by = Deadline { passes_ahead, layer: target };
                Prediction { key: ExpertKey::new(target, expert), confidence: 0.5, needed_by }
            })
            .collect();
        self.pool.forecast(&predictions).expect("lawful");
        self.sink.on_forecast(Tap::AfterAttention(at), &predictions);
        for prediction in predictions {
            if self.reserved.len() < 3
                && let Ok(claim) = self.pool.claim(prediction.key, Origin::Prefetch)
            {
                self.tell(Outcome::Reserved { slot: claim.slot(), key: claim.key() });
                self.reserved.push(claim);
            }
        }
    }

    /// What happens between two passes.
    fn between(&mut self) {
        if !self.reserved.is_empty() && self.one_in(4) {
            let claim = self.reserved.remove(0);
            let key = claim.key();
            self.pool.abort(claim, Abort::Withdrawn).expect("open");
            self.tell(Outcome::Expired { key });
        }
        if self.one_in(10) {
            let key =
                self.pool.geometry().key(self.dice.random_range(0..self.pool.geometry().records()));
            let origin = if self.one_in(2) { Origin::PromptHot } else { Origin::WarmStart };
            if let Ok(claim) = self.pool.claim(key.expect("in range"), origin) {
                let (slot, key) = (claim.slot(), claim.key());
                self.pool.publish(claim).expect("open");
                self.tell(Outcome::Admitted { slot, key, origin });
            }
        }
        let (floor, records) = (self.pool.geometry().floor_slots(), self.pool.geometry().records());
        if self.one_in(12) {
            let slots = self.dice.random_range(floor..=records);
            // Not while a slot that would go is claimed.
            if self.pool.resize(slots).is_ok() {
                self.tell(Outcome::Resized { slots });
            }
        }
        if self.one_in(40) {
            self.reserved.clear();
            self.pool.clear();
            self.tell(Outcome::Cleared);
        }
        if self.one_in(40) {
            self.pool.reset_counters();
            self.tell(Outcome::CountersReset);
        }
    }
}
