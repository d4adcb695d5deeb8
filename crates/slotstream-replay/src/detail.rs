//! Looking on: what each layer got, how old records were when they went, single lookups.

use slotstream_cache::{Found, SlotPool};
use slotstream_core::{EvictionPolicy, ExpertKey, Geometry, LayerIdx, PassId, SlotId};

use crate::{Call, Histogram, Observer, Phases};

/// An [`Observer`] that keeps a table of the layers and the ages of evicted records.
#[derive(Clone, Debug)]
pub struct Detail {
    geometry: Geometry,
    phases: Phases,
    /// By layer.
    lookups: Vec<u64>,
    hits: Vec<u64>,
    occupancy: Occupancy,
    victims: Victims,
    /// By record: the pass and the visit that used it last.
    used: Vec<(u32, u32)>,
    passes: Histogram,
    visits: Histogram,
}

/// What one layer got. Occupancies are means over the counted passes, taken at their ends.
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub struct LayerRow {
    /// The layer.
    pub layer: LayerIdx,
    /// Distinct (layer, expert) of each counted pass.
    pub lookups: u64,
    /// Those that owned a slot.
    pub hits: u64,
    /// Slots that the layer's records owned.
    pub occupancy: f64,
    /// Slots beyond an equal share of the pool.
    pub borrowed: f64,
    /// Slots of an equal share that other layers had.
    pub lent: f64,
}

impl LayerRow {
    /// `hits / lookups`; `None` without lookups.
    #[must_use]
    pub fn hit_rate(&self) -> Option<f64> {
        (self.lookups > 0).then(|| self.hits as f64 / self.lookups as f64)
    }
}

impl Detail {
    /// A table of the lookups of `phases`.
    #[must_use]
    pub fn new(geometry: Geometry, phases: Phases) -> Self {
        Self {
            geometry,
            phases,
            lookups: vec![0; geometry.layers()],
            hits: vec![0; geometry.layers()],
            occupancy: Occupancy::new(geometry.layers()),
            victims: Victims::default(),
            used: vec![(0, 0); geometry.records()],
            passes: Histogram::new(),
            visits: Histogram::new(),
        }
    }

    /// One row a layer.
    #[must_use]
    pub fn layers(&self) -> Vec<LayerRow> {
        let occupancy = self.occupancy.with_last();
        (0_u16..)
            .map(LayerIdx::new)
            .zip(self.lookups.iter().zip(&self.hits))
            .map(|(layer, (lookups, hits))| {
                let [owned, borrowed, lent] = occupancy.means(layer.index());
                let (lookups, hits, occupancy) = (*lookups, *hits, owned);
                LayerRow { layer, lookups, hits, occupancy, borrowed, lent }
            })
            .collect()
    }

    /// Passes since a record was last used, when it was evicted.
    #[must_use]
    pub const fn eviction_age_passes(&self) -> &Histogram {
        &self.passes
    }

    /// Visits of layers (of any layer) since a record was last used, when it was evicted.
    #[must_use]
    pub const fn eviction_age_visits(&self) -> &Histogram {
        &self.visits
    }
}

impl<P: EvictionPolicy> Observer<P> for Detail {
    fn on_call(&mut self, call: &Call<'_>, pool: &SlotPool<P>) {
        let counted = call.counted && self.phases.include(call.step.phase);
        self.occupancy.pass(call.pass, counted, pool.slots());
        let layer = call.layer.index();
        let base = layer * self.geometry.experts();
        let (pass, visit) = (short(call.pass), short(call.visit));
        for entry in call.entries {
            let key = ExpertKey::new(call.layer, entry.expert);
            let hit = is_hit(entry.found);
            if counted {
                self.lookups[layer] += 1;
                self.hits[layer] += u64::from(hit);
            }
            if !hit {
                self.occupancy.owned[layer] += 1;
                if let Some(victim) = self.victims.replace(entry.slot, key) {
                    self.occupancy.owned[victim.layer().index()] -= 1;
                    let used = self.geometry.index(victim).map(|index| self.used[index]);
                    if let (Some((last_pass, last_visit)), true) = (used, counted) {
                        self.passes.add((pass - last_pass) as usize);
                        self.visits.add((visit - last_visit) as usize);
                    }
                }
            }
            self.used[base + entry.expert.index()] = (pass, visit);
        }
    }
}

fn short(number: usize) -> u32 {
    u32::try_from(number).unwrap_or(u32::MAX)
}

fn is_hit(found: Found) -> bool {
    matches!(found, Found::Hit | Found::Pending)
}

/// Slots by layer, summed up over passes.
#[derive(Clone, Debug)]
struct Occupancy {
    owned: Vec<u32>,
    /// By layer: owned, borrowed, lent.
    sums: Vec<[f64; 3]>,
    passes: u64,
    slots: usize,
    /// The running pass, if it is counted.
    pass: Option<usize>,
}

impl Occupancy {
    fn new(layers: usize) -> Self {
        Self {
            owned: vec![0; layers],
            sums: vec![[0.0; 3]; layers],
            passes: 0,
            slots: 0,
            pass: None,
        }
    }

    /// A call of pass `pass` comes.
    fn pass(&mut self, pass: usize, counted: bool, slots: usize) {
        self.slots = slots;
        if self.pass != Some(pass) {
            self.end_pass();
            self.pass = counted.then_some(pass);
        }
    }

    fn end_pass(&mut self) {
        if self.pass.take().is_none() {
            return;
        }
        self.passes += 1;
        let share = self.slots as f64 / self.owned.len() as f64;
        for (owned, sums) in self.owned.iter().zip(&mut self.sums) {
            let owned = f64::from(*owned);
            let beyond = owned - share;
            for (sum, slots) in sums.iter_mut().zip([owned, beyond.max(0.0), (-beyond).max(0.0)]) {
                *sum += slots;
            }
        }
    }

    /// With the pass that was running.
    fn with_last(&self) -> Self {
        let mut ended = self.clone();
        ended.end_pass();
        ended
    }

    fn means(&self, layer: usize) -> [f64; 3] {
        self.sums[layer].map(|sum| if self.passes == 0 { 0.0 } else { sum / self.passes as f64 })
    }
}

/// Which record each slot holds, to know whom a miss drives out.
#[derive(Clone, Debug, Default)]
struct Victims {
    held: Vec<Option<ExpertKey>>,
}

impl Victims {
    /// `key` takes `slot`; who had it?
    fn replace(&mut self, slot: SlotId, key: ExpertKey) -> Option<ExpertKey> {
        if slot.index() >= self.held.len() {
            self.held.resize(slot.index() + 1, None);
        }
        self.held[slot.index()].replace(key)
    }
}

/// What one lookup found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct LookupEvent {
    /// The pass.
    pub pass: PassId,
    /// The record.
    pub key: ExpertKey,
    /// Whether it owned a slot.
    pub hit: bool,
    /// The record that a miss drove out.
    pub victim: Option<ExpertKey>,
}

/// An [`Observer`] that is told every counted lookup.
pub struct Lookups<F> {
    phases: Phases,
    victims: Victims,
    told: F,
}

impl<F: FnMut(&LookupEvent)> Lookups<F> {
    /// Tells `told` the lookups of `phases` in order.
    pub fn new(phases: Phases, told: F) -> Self {
        Self { phases, victims: Victims::default(), told }
    }
}

impl<F> std::fmt::Debug for Lookups<F> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Lookups").field("phases", &self.phases).finish_non_exhaustive()
    }
}

impl<P: EvictionPolicy, F: FnMut(&LookupEvent)> Observer<P> for Lookups<F> {
    fn on_call(&mut self, call: &Call<'_>, _pool: &SlotPool<P>) {
        let counted = call.counted && self.phases.include(call.step.phase);
        for entry in call.entries {
            let key = ExpertKey::new(call.layer, entry.expert);
            let hit = is_hit(entry.found);
            let victim = if hit { None } else { self.victims.replace(entry.slot, key) };
            if counted {
                (self.told)(&LookupEvent { pass: call.step.pass, key, hit, victim });
            }
        }
    }
}
