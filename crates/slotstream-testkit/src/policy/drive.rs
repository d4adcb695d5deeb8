//! Plays a scenario: a slot table without any cleverness, and several instances of the policy
//! that must agree.

use std::sync::atomic::{AtomicUsize, Ordering};

use slotstream_core::{
    BindError, Deadline, EvictionPolicy, ExpertIdx, ExpertKey, Geometry, Incoming, LayerIdx,
    Origin, PassId, Phase, Prediction, RemoveCause, Routing, SessionId, SlotId, SlotView, Step,
};

use super::scenario::Scenario;
use super::{Boxed, Broken};
use crate::dice::Dice;

/// The instances of one scenario.
pub(super) struct Subjects {
    lead: Boxed,
    twin: Boxed,
    /// Does other work first and is reset.
    reset: Boxed,
    /// Imports what the lead exports.
    heir: Boxed,
}

impl Subjects {
    pub(super) fn new(make: &impl Fn() -> Boxed) -> Self {
        Self { lead: make(), twin: make(), reset: make(), heir: make() }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Slot {
    Free,
    /// A record with all its bytes.
    Owned(ExpertKey),
    /// A demanded record on its way.
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
    let Subjects { lead, twin, mut reset, mut heir } = subjects;
    let name = lead.name();
    if name.is_empty() || name.contains(char::is_whitespace) {
        return Err(Broken::Unnamed { name });
    }
    let (geometry, slots) = (scenario.geometry(), scenario.slots());
    let small = slots < geometry.floor_slots();
    let mut warm_up = Play::new(geometry, slots, 77);
    if !warm_up.add(reset, small)? {
        return Ok(()); // Smaller than any lawful pool, and refused as such.
    }
    for _ in 0..scenario.steps / 2 {
        warm_up.step(scenario)?;
        step.fetch_add(1, Ordering::Relaxed);
    }
    warm_up.resize(slots);
    reset = warm_up.policies.remove(0);
    reset.reset();

    let mut play = Play::new(geometry, slots, 1);
    play.add(lead, small)?;
    play.add(twin, small)?;
    play.policies.push(reset);
    for _ in 0..scenario.steps {
        play.step(scenario)?;
        step.fetch_add(1, Ordering::Relaxed);
    }
    if let Some(state) = play.policies[0].export() {
        let mut later = Play::new(geometry, slots, 2);
        bind(&mut heir, &geometry, slots)?;
        // What it did not export it may refuse or take, but must survive.
        for foreign in [&state[..state.len() / 2], &[], &[255; 33]] {
            let _ = heir.import(foreign);
        }
        heir.reset();
        heir.import(&state).map_err(|error| Broken::ImportRefused { error })?;
        later.policies.push(heir);
        for _ in 0..scenario.steps / 4 {
            later.step(scenario)?;
            step.fetch_add(1, Ordering::Relaxed);
        }
    }
    Ok(())
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

    /// Binds `policy`; `false` when the pool is `small` and too small for it.
    fn add(&mut self, mut policy: Boxed, small: bool) -> Result<bool, Broken> {
        match bind(&mut policy, &self.geometry, self.slots.len()) {
            Err(Broken::Refused { error: BindError::TooFewSlots { .. }, .. }) if small => Ok(false),
            Err(broken) => Err(broken),
            Ok(()) => {
                self.policies.push(policy);
                Ok(true)
            }
        }
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

    /// One pass over some of the layers.
    fn pass(&mut self, scenario: &Scenario) -> Result<(), Broken> {
        self.pass += 1;
        let rows = 1 + self.dice.below(scenario.mix.rows as usize);
        let tokens: Vec<u32> = (0..rows).map(|_| self.dice.below(50) as u32).collect();
        let phase = if rows > 2 { Phase::Prefill } else { Phase::Decode };
        let (pass, session) = (PassId::new(self.pass), SessionId::new(self.pass % 3));
        let step = Step { pass, phase, session, position: self.pass, tokens: &tokens };
        self.each(|policy| policy.on_step(&step));
        for layer in 0..self.geometry.layers() {
            if self.dice.percent(70) {
                self.layer(scenario, &step, LayerIdx::new(layer as u16))?;
            }
        }
        Ok(())
    }

    fn any_layer(&mut self) -> LayerIdx {
        LayerIdx::new(self.dice.below(self.geometry.layers()) as u16)
    }

    /// An expert; the first ones are the most popular.
    fn any_expert(&mut self) -> ExpertIdx {
        let experts = self.geometry.experts();
        ExpertIdx::new(self.dice.below(experts).min(self.dice.below(experts)) as u16)
    }

    fn layer(
        &mut self,
        scenario: &Scenario,
        step: &Step<'_>,
        layer: LayerIdx,
    ) -> Result<(), Broken> {
        let top_k = self.geometry.top_k();
        let mut ids: Vec<ExpertIdx> = Vec::new();
        for row in 0..step.tokens.len() {
            while ids.len() < (row + 1) * top_k {
                let expert = self.any_expert();
                if !ids[row * top_k..].contains(&expert) {
                    ids.push(expert);
                }
            }
        }
        let logits = vec![0.25; step.tokens.len() * self.geometry.experts()];
        let mut routing = Routing::new(step, layer, top_k, &ids, &[]);
        if self.dice.percent(50) {
            routing = routing.with_logits(&logits);
        }
        self.each(|policy| policy.on_routing(&routing));
        let mut wanted: Vec<ExpertIdx> = Vec::new();
        for id in &ids {
            if !wanted.contains(id) {
                wanted.push(*id);
            }
        }
        // A forecast is dropped before a demand lacks room.
        while self.reserved() > 0 && self.reserved() + wanted.len() > self.slots.len() {
            self.expire();
        }
        let capacity = self.slots.len() - self.reserved();
        if wanted.len() > capacity {
            wanted.sort_unstable();
        }
        for wave in wanted.chunks(capacity) {
            self.call(scenario, layer, wave)?;
        }
        Ok(())
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
            match self.slots.iter().position(|slot| *slot == Slot::Owned(key)) {
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
        if let Some(key) = owner(self.slots[at]) {
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
        !self.slots.iter().any(|slot| owner(*slot) == Some(key) || *slot == Slot::Reserved(key))
    }

    /// Forecasts a record and reserves a slot for it, if the policy admits it.
    fn reserve(&mut self) -> Result<(), Broken> {
        let key = ExpertKey::new(self.any_layer(), self.any_expert());
        let needed_by = Deadline { passes_ahead: 0, layer: key.layer() };
        let predictions = [Prediction { key, confidence: 0.5, needed_by }];
        self.each(|policy| policy.on_forecast(&predictions));
        let room = self.reserved() + self.geometry.top_k() < self.slots.len();
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

    fn reserved(&self) -> usize {
        self.count(|slot| matches!(slot, Slot::Reserved(_)))
    }

    /// Offers a record that nobody demanded.
    fn admit(&mut self) -> Result<(), Broken> {
        let key = ExpertKey::new(self.any_layer(), self.any_expert());
        let origin = if self.dice.percent(50) { Origin::PromptHot } else { Origin::WarmStart };
        let room = self.reserved() < self.slots.len();
        if room && self.is_absent(key) && self.is_admitted(key, origin)? {
            let at = self.free_or_victim(key, origin)?;
            self.slots[at] = Slot::Owned(key);
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
