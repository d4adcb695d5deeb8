//! Plays a scenario: a slot table without any cleverness, and several instances of the policy
//! that must agree.

mod imports;
mod passes;

use std::sync::atomic::{AtomicUsize, Ordering};

use slotstream_core::{
    BindError, Deadline, EvictionPolicy, ExpertIdx, ExpertKey, Geometry, Incoming, LayerIdx,
    Origin, PassId, Prediction, RemoveCause, SlotId, SlotView,
};

use super::scenario::Scenario;
use super::{Boxed, Broken};
use crate::dice::Dice;

/// The instances of one scenario.
pub(super) struct Subjects {
    /// Tells which pools the policy accepts.
    scout: Boxed,
    lead: Boxed,
    twin: Boxed,
    /// Does other work first and is reset.
    reset: Boxed,
    /// Imports what the lead exports.
    heir: Boxed,
    /// Import what nobody exported.
    victims: Vec<Boxed>,
}

impl Subjects {
    pub(super) fn new(make: &impl Fn() -> Boxed) -> Self {
        let victims = (0..imports::ROUNDS).map(|_| make()).collect();
        Self { scout: make(), lead: make(), twin: make(), reset: make(), heir: make(), victims }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Slot {
    Free,
    /// A record with all its bytes.
    Owned(ExpertKey),
    /// A record on its way of which the policy was told.
    Claimed(ExpertKey),
    /// A forecast record, of which the policy does not know.
    Reserved(ExpertKey),
}

/// One pool and the instances that watch it.
struct Play {
    geometry: Geometry,
    slots: Vec<Slot>,
    /// Pinned by the running call.
    pinned: Vec<bool>,
    /// What else is blocked for the moment.
    squeezed: Vec<bool>,
    policies: Vec<Boxed>,
    pass: u64,
    dice: Dice,
}

/// Plays `scenario`; `step` counts the requests for whoever watches.
pub(super) fn drive(
    scenario: &Scenario,
    subjects: Subjects,
    step: &AtomicUsize,
) -> Result<(), Broken> {
    let Subjects { scout, lead, twin, mut reset, mut heir, victims } = subjects;
    let name = lead.name();
    if name.is_empty() || name.contains(char::is_whitespace) {
        return Err(Broken::Unnamed { name });
    }
    let geometry = scenario.geometry();
    let slots = accepted(scout, &geometry, scenario.slots())?;
    let play_on = |play: &mut Play, steps| {
        (0..steps).try_for_each(|_| {
            step.fetch_add(1, Ordering::Relaxed);
            play.step(scenario)
        })
    };
    let mut warm_up = Play::new(geometry, slots, 77);
    warm_up.add(reset)?;
    play_on(&mut warm_up, scenario.steps / 2)?;
    warm_up.resize(slots);
    reset = warm_up.policies.remove(0);
    reset.reset();

    let mut play = Play::new(geometry, slots, 1);
    play.add(lead)?;
    play.add(twin)?;
    play.policies.push(reset);
    play_on(&mut play, scenario.steps)?;
    if let Some(state) = play.policies[0].export() {
        bind(&mut heir, &geometry, slots)?;
        heir.import(&state).map_err(|error| Broken::ImportRefused { error })?;
        let mut later = Play::new(geometry, slots, 2);
        later.policies.push(heir);
        play_on(&mut later, scenario.steps / 4)?;
        for (round, victim) in victims.into_iter().enumerate() {
            let mut later = Play::new(geometry, slots, 3);
            later.add(victim)?;
            // What was not exported may be refused or taken, but must be survived.
            let _ = later.policies[0].import(&imports::foreign(&state, round));
            play_on(&mut later, scenario.steps / 20)?;
        }
    }
    Ok(())
}

/// The scenario's pool, or where `policy` refuses that as too small, the smallest one that it
/// says it accepts. It may ask for the floor, or for a route of every layer, whatever is more.
fn accepted(mut policy: Boxed, geometry: &Geometry, slots: usize) -> Result<usize, Broken> {
    match policy.bind(geometry, slots) {
        Ok(()) => Ok(slots),
        Err(BindError::TooFewSlots { needed, .. })
            if needed > slots
                && needed <= geometry.floor_slots().max(geometry.layers() * geometry.top_k()) =>
        {
            Ok(needed)
        }
        Err(error) => Err(Broken::Refused { slots, error }),
    }
}

fn bind(policy: &mut Boxed, geometry: &Geometry, slots: usize) -> Result<(), Broken> {
    policy.bind(geometry, slots).map_err(|error| Broken::Refused { slots, error })
}

impl Play {
    fn new(geometry: Geometry, slots: usize, seed: u64) -> Self {
        Self {
            geometry,
            slots: vec![Slot::Free; slots],
            pinned: vec![false; slots],
            squeezed: vec![false; slots],
            policies: Vec::new(),
            pass: 0,
            dice: Dice::new(seed),
        }
    }

    fn add(&mut self, mut policy: Boxed) -> Result<(), Broken> {
        bind(&mut policy, &self.geometry, self.slots.len())?;
        self.policies.push(policy);
        Ok(())
    }

    fn step(&mut self, scenario: &Scenario) -> Result<(), Broken> {
        let mix = &scenario.mix;
        if self.dice.percent(mix.clear) {
            self.clear();
        }
        if self.dice.percent(mix.resize) {
            let floor = self.geometry.floor_slots();
            let more = self.geometry.records() + 1 - floor;
            let slots = floor + self.dice.below(more);
            self.resize(slots);
        }
        if self.dice.percent(mix.all_pinned) {
            self.all_pinned()?;
        }
        if self.dice.percent(mix.reserve) {
            self.reserve()?;
        }
        if self.dice.percent(mix.expire) {
            self.expire();
        }
        if self.dice.percent(mix.admit) {
            self.admit()?;
        }
        self.pass(scenario)
    }

    fn each(&mut self, tell: impl Fn(&mut Boxed)) {
        self.policies.iter_mut().for_each(tell);
    }

    /// One call: hits, then misses, each in order; then its reads arrive or fail.
    fn call(
        &mut self,
        scenario: &Scenario,
        layer: LayerIdx,
        wanted: &[ExpertIdx],
    ) -> Result<(), Broken> {
        let mut misses = Vec::new();
        for expert in wanted {
            let key = ExpertKey::new(layer, *expert);
            let is_there =
                |slot: &Slot| matches!(*slot, Slot::Owned(k) | Slot::Claimed(k) if k == key);
            match self.slots.iter().position(is_there) {
                Some(at) => {
                    self.pinned[at] = true;
                    self.each(|policy| policy.on_hit(slot_id(at), key));
                }
                None => misses.push(key),
            }
        }
        let adopted = |slots: &[Slot], key| slots.contains(&Slot::Reserved(key));
        let needed = misses.iter().filter(|key| !adopted(&self.slots, **key)).count();
        if self.dice.percent(scenario.mix.squeeze) {
            self.squeeze(needed);
        }
        for key in &misses {
            self.each(|policy| policy.on_miss(*key));
            let (at, origin) = match self.slots.iter().position(|s| *s == Slot::Reserved(*key)) {
                Some(at) => (at, Origin::Prefetch),
                None => (self.take(scenario, *key, Origin::Demand)?, Origin::Demand),
            };
            self.slots[at] = Slot::Claimed(*key);
            self.each(|policy| policy.on_insert(slot_id(at), *key, origin));
        }
        self.squeezed.fill(false);
        for at in 0..self.slots.len() {
            if let Slot::Claimed(key) = self.slots[at] {
                self.slots[at] = Slot::Owned(key);
                if self.dice.percent(scenario.mix.fail) {
                    self.remove(at, RemoveCause::ReadFailed);
                }
            }
        }
        self.pinned.fill(false);
        Ok(())
    }

    /// A slot for `key`: a free one, or a victim.
    fn take(
        &mut self,
        scenario: &Scenario,
        key: ExpertKey,
        origin: Origin,
    ) -> Result<usize, Broken> {
        if let Some(at) = self.slots.iter().rposition(|slot| *slot == Slot::Free) {
            return Ok(at);
        }
        let only = self.dice.percent(scenario.mix.one_layer).then(|| self.any_layer());
        if let Some(at) = self.ask(key, origin, only)? {
            self.remove(at, RemoveCause::Evicted);
            return Ok(at);
        }
        // Nothing of that one layer was evictable.
        let at = self.ask(key, origin, None)?.ok_or(Broken::NoVictim { evictable: 0 })?;
        self.remove(at, RemoveCause::Evicted);
        Ok(at)
    }

    /// Asks every instance for a victim and verifies the answers.
    fn ask(
        &mut self,
        key: ExpertKey,
        origin: Origin,
        only: Option<LayerIdx>,
    ) -> Result<Option<usize>, Broken> {
        let keys: Vec<_> = self.slots.iter().map(|slot| owner(*slot)).collect();
        let blocked: Vec<bool> = (0..keys.len()).map(|at| self.is_blocked(at)).collect();
        let mut evictable = vec![0; self.geometry.layers()];
        for (key, blocked) in keys.iter().zip(&blocked) {
            if let (Some(key), false) = (key, blocked) {
                evictable[key.layer().index()] += 1;
            }
        }
        let free = self.count(|slot| *slot == Slot::Free);
        let mut view = SlotView::new(&keys, &blocked, &evictable, free);
        if let Some(layer) = only {
            view = view.only_layer(layer);
        }
        let incoming = Incoming { key, origin, pass: PassId::new(self.pass) };
        let mut answers =
            self.policies.iter_mut().map(|policy| policy.choose_victim(&incoming, &view));
        let first = answers.next().flatten();
        let rest: Vec<_> = answers.collect();
        self.judge(first, &view)?;
        if let Some(&second) = rest.first().filter(|second| **second != first) {
            return Err(Broken::NotDeterministic { first, second });
        }
        if let Some(&reset) = rest.get(1).filter(|reset| **reset != first) {
            return Err(Broken::ResetKeepsState { fresh: first, reset });
        }
        Ok(first.map(SlotId::index))
    }

    /// Whether `answer` is lawful.
    fn judge(&self, answer: Option<SlotId>, view: &SlotView<'_>) -> Result<(), Broken> {
        let Some(slot) = answer else {
            let evictable = (0..view.len()).filter(|at| view.is_evictable(slot_id(*at))).count();
            return if evictable > 0 { Err(Broken::NoVictim { evictable }) } else { Ok(()) };
        };
        if view.is_evictable(slot) {
            return Ok(());
        }
        Err(match self.slots.get(slot.index()) {
            None => Broken::OutOfRange { slot },
            Some(Slot::Free) => Broken::Free { slot },
            Some(_) if self.is_blocked(slot.index()) => Broken::Blocked { slot },
            Some(_) => Broken::OtherLayer { slot },
        })
    }

    fn is_blocked(&self, at: usize) -> bool {
        let claimed = matches!(self.slots[at], Slot::Claimed(_) | Slot::Reserved(_));
        claimed || self.pinned[at] || self.squeezed[at]
    }

    fn count(&self, is: impl Fn(&Slot) -> bool) -> usize {
        self.slots.iter().filter(|slot| is(slot)).count()
    }

    fn remove(&mut self, at: usize, cause: RemoveCause) {
        if let Slot::Owned(key) | Slot::Claimed(key) = self.slots[at] {
            self.slots[at] = Slot::Free;
            self.each(|policy| policy.on_remove(slot_id(at), key, cause));
        }
    }

    /// Blocks evictable slots until only `needed` slots can be had.
    fn squeeze(&mut self, needed: usize) {
        let mut left = self.count(|slot| *slot == Slot::Free);
        let start = self.dice.below(self.slots.len());
        for at in (0..self.slots.len()).map(|i| (start + i) % self.slots.len()) {
            if owner(self.slots[at]).is_some() && !self.pinned[at] {
                self.squeezed[at] = left >= needed;
                left += usize::from(!self.squeezed[at]);
            }
        }
    }

    /// With everything blocked there is no victim.
    fn all_pinned(&mut self) -> Result<(), Broken> {
        let key = ExpertKey::new(self.any_layer(), self.any_expert());
        self.squeezed.fill(true);
        let answer = self.ask(key, Origin::Demand, None);
        self.squeezed.fill(false);
        answer.map(|_| ())
    }

    fn is_absent(&self, key: ExpertKey) -> bool {
        !self.slots.iter().any(|slot| match *slot {
            Slot::Free => false,
            Slot::Owned(held) | Slot::Claimed(held) | Slot::Reserved(held) => held == key,
        })
    }

    /// Forecasts a record and reserves a slot for it, if the policy admits it.
    fn reserve(&mut self) -> Result<(), Broken> {
        let key = ExpertKey::new(self.any_layer(), self.any_expert());
        let passes_ahead = self.dice.below(3) as u32;
        let needed_by = Deadline { passes_ahead, layer: key.layer() };
        let confidence = self.dice.below(5) as f32 / 4.0;
        let predictions = [Prediction { key, confidence, needed_by }; 3];
        let told = self.dice.below(3);
        self.each(|policy| policy.on_forecast(&predictions[..told]));
        let room = self.claimed() + self.geometry.top_k() < self.slots.len();
        if room && self.is_absent(key) && self.is_admitted(key, Origin::Prefetch)? {
            let at = self.free_or_victim(key, Origin::Prefetch)?;
            self.slots[at] = Slot::Reserved(key);
        }
        Ok(())
    }

    /// A forecast that no layer demanded in time: the policy hears nothing.
    fn expire(&mut self) {
        if let Some(at) = self.slots.iter().position(|slot| matches!(slot, Slot::Reserved(_))) {
            self.slots[at] = Slot::Free;
        }
    }

    /// Slots on whose record somebody waits.
    fn claimed(&self) -> usize {
        self.count(|slot| matches!(slot, Slot::Reserved(_) | Slot::Claimed(_)))
    }

    fn reserved(&self) -> usize {
        self.count(|slot| matches!(slot, Slot::Reserved(_)))
    }

    /// Offers a record that nobody demanded.
    fn admit(&mut self) -> Result<(), Broken> {
        let key = ExpertKey::new(self.any_layer(), self.any_expert());
        let origin = if self.dice.percent(50) { Origin::PromptHot } else { Origin::WarmStart };
        let room = self.slots.iter().any(|slot| matches!(slot, Slot::Free | Slot::Owned(_)));
        if room && self.is_absent(key) && self.is_admitted(key, origin)? {
            let at = self.free_or_victim(key, origin)?;
            // It arrives at once, or during the next call.
            let late = self.claimed() + self.geometry.top_k() < self.slots.len();
            let is_late = late && self.dice.percent(50);
            self.slots[at] = if is_late { Slot::Claimed(key) } else { Slot::Owned(key) };
            self.each(|policy| policy.on_insert(slot_id(at), key, origin));
        }
        Ok(())
    }

    fn free_or_victim(&mut self, key: ExpertKey, origin: Origin) -> Result<usize, Broken> {
        if let Some(at) = self.slots.iter().rposition(|slot| *slot == Slot::Free) {
            return Ok(at);
        }
        let at = self.ask(key, origin, None)?.ok_or(Broken::NoVictim { evictable: 0 })?;
        self.remove(at, RemoveCause::Evicted);
        Ok(at)
    }

    fn is_admitted(&mut self, key: ExpertKey, origin: Origin) -> Result<bool, Broken> {
        let mut answers = self.policies.iter_mut().map(|policy| policy.admit(key, origin));
        let first = answers.next().unwrap_or(false);
        let rest: Vec<bool> = answers.collect();
        if rest.iter().all(|answer| *answer == first) {
            Ok(first)
        } else {
            Err(Broken::AdmitDiffers)
        }
    }

    fn resize(&mut self, slots: usize) {
        // A slot is not removed while its record is on its way.
        for slot in &mut self.slots {
            if let Slot::Claimed(key) = *slot {
                *slot = Slot::Owned(key);
            }
        }
        for at in slots..self.slots.len() {
            self.remove(at, RemoveCause::Shrunk);
        }
        self.slots.resize(slots, Slot::Free);
        self.pinned.resize(slots, false);
        self.squeezed.resize(slots, false);
        self.each(|policy| policy.on_resize(slots));
    }

    fn clear(&mut self) {
        for at in 0..self.slots.len() {
            self.remove(at, RemoveCause::Cleared);
        }
        self.slots.fill(Slot::Free);
    }
}

const fn owner(slot: Slot) -> Option<ExpertKey> {
    match slot {
        Slot::Owned(key) => Some(key),
        _ => None,
    }
}

/// Slots of a scenario are few.
fn slot_id(at: usize) -> SlotId {
    SlotId::new(u32::try_from(at).unwrap_or(u32::MAX))
}
