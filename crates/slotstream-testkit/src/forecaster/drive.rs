//! Plays a scenario in the role of graph and provider, and judges every answer.

use std::collections::HashSet;
use std::sync::atomic::{AtomicUsize, Ordering};

use slotstream_core::{
    Deadline, ExpertIdx, ExpertKey, Geometry, LayerIdx, PassId, Phase, Prediction, Probe,
    ProbeResult, ProbeResults, Routing, SessionId, Step, Tap,
};

use super::scenario::{Mix, Scenario};
use super::{Boxed, Broken, Subjects};
use crate::dice::Dice;

/// A layer that no model has.
const NO_LAYER: LayerIdx = LayerIdx::new(u16::MAX);

/// What `want` and `out` hold before some of the calls: nothing that a forecaster would say.
const OLD_PROBE: Probe = Probe { target: NO_LAYER, with_ple: true, keep_mixed: true };
const OLD_PREDICTION: Prediction = Prediction {
    key: ExpertKey::new(NO_LAYER, ExpertIdx::new(u16::MAX)),
    confidence: 0.25,
    needed_by: Deadline { passes_ahead: 3, layer: NO_LAYER },
};

/// A call to the forecaster.
#[derive(Clone, Copy)]
enum Event {
    Probes(Tap),
    Predict(Tap),
    Observe,
}

/// One model, its sessions, and the instances that are told of them.
struct Play {
    geometry: Geometry,
    hidden: usize,
    mix: Mix,
    subjects: Subjects,
    dice: Dice,
    passes: u64,
    /// The lead's lists, used again and again as a provider does.
    want: Vec<Probe>,
    out: Vec<Prediction>,
}

/// A pass in progress.
struct Pass<'a> {
    session: usize,
    step: Step<'a>,
    /// Probes of the layer's two taps that have no results yet.
    asked: Vec<(Tap, Vec<Probe>)>,
}

/// The answer to a probe.
struct Answer {
    probe: Probe,
    logits: Vec<f32>,
    mixed: Option<Vec<f32>>,
}

/// Plays `scenario`; `pass` counts the passes for whoever watches.
pub(super) fn drive(
    scenario: &Scenario,
    geometry: Geometry,
    hidden: usize,
    subjects: Subjects,
    pass: &AtomicUsize,
) -> Result<(), Broken> {
    let name = subjects.lead.name();
    if name.is_empty() || name.contains(char::is_whitespace) {
        return Err(Broken::Unnamed { name });
    }
    let (want, out) = (Vec::new(), Vec::new());
    let (mix, dice) = (scenario.mix, Dice::new(5));
    let mut play = Play { geometry, hidden, mix, subjects, dice, passes: 0, want, out };
    for _ in 0..scenario.passes {
        play.pass()?;
        pass.fetch_add(1, Ordering::Relaxed);
    }
    Ok(())
}

const fn session_id(session: usize) -> SessionId {
    SessionId::new(10 + session as u64)
}

fn layer_idx(layer: usize) -> LayerIdx {
    // A geometry counts its layers with 16 bits.
    LayerIdx::new(u16::try_from(layer).unwrap_or(u16::MAX))
}

/// The calls of one layer.
fn events(layer: LayerIdx, device: bool, taps: bool) -> Vec<Event> {
    use Event::{Observe, Predict, Probes};
    let (before, after) = (Tap::BeforeLayer(layer), Tap::AfterAttention(layer));
    match (taps, device) {
        (false, _) => vec![Observe],
        (true, false) => {
            vec![Probes(before), Predict(before), Probes(after), Observe, Predict(after)]
        }
        (true, true) => {
            vec![Probes(before), Probes(after), Observe, Predict(before), Predict(after)]
        }
    }
}

impl Play {
    fn pass(&mut self) -> Result<(), Broken> {
        self.passes += 1;
        let session = self.dice.below(self.mix.sessions);
        if self.dice.percent(self.mix.reset) {
            let other = self.dice.below(self.mix.sessions);
            self.subjects.reset(other, session_id(other));
            // One that nobody has heard of.
            let unknown = SessionId::new(u64::MAX);
            self.subjects.tell(session, |forecaster| forecaster.reset(unknown));
        }
        let rows = 1 + self.dice.below(self.mix.rows);
        let tokens: Vec<u32> = (0..rows).map(|_| self.dice.below(50) as u32).collect();
        let phase = if self.dice.percent(30) { Phase::Prefill } else { Phase::Decode };
        let (pass, position) = (PassId::new(self.passes), self.passes);
        let step = Step { pass, phase, session: session_id(session), position, tokens: &tokens };
        let device = self.dice.percent(self.mix.device);
        let taps = !self.dice.percent(self.mix.untapped);
        let all = (0..self.geometry.layers()).flat_map(|l| events(layer_idx(l), device, taps));
        let all: Vec<Event> = all.collect();
        let cut = self.dice.percent(self.mix.cut).then(|| self.dice.below(all.len()));
        self.subjects.tell(session, |forecaster| forecaster.on_step(&step));
        let mut pass = Pass { session, step, asked: Vec::new() };
        let mut layer = 0;
        for event in &all[..cut.unwrap_or(all.len())] {
            match *event {
                Event::Probes(at) => self.probes(&mut pass, at)?,
                Event::Predict(at) => self.predict(&mut pass, at)?,
                Event::Observe => {
                    self.observe(&pass, layer_idx(layer));
                    layer += 1;
                }
            }
        }
        Ok(())
    }

    fn probes(&mut self, pass: &mut Pass<'_>, at: Tap) -> Result<(), Broken> {
        let old = if self.dice.percent(30) { vec![OLD_PROBE; 2] } else { Vec::new() };
        self.want.clear();
        self.want.extend(&old);
        self.subjects.lead.probes(at, &mut self.want);
        let new = appended(at, "probes", &old, &self.want)?;
        self.judge_probes(at, new)?;
        bounded(at, "probes", &self.want, 4 * self.geometry.layers())?;
        let ask = |forecaster: &mut Boxed, list: &mut Vec<Probe>| forecaster.probes(at, list);
        self.subjects.compare(pass.session, at, new, ask)?;
        pass.asked.push((at, new.to_vec()));
        Ok(())
    }

    fn predict(&mut self, pass: &mut Pass<'_>, at: Tap) -> Result<(), Broken> {
        let asked = pass.asked.iter().position(|(tap, _)| *tap == at);
        let asked = asked.map_or_else(Vec::new, |i| pass.asked.remove(i).1);
        let rows = pass.step.tokens.len();
        let answers = self.answers(asked, rows);
        let results: Vec<ProbeResult<'_>> = answers
            .iter()
            .map(|Answer { probe, logits, mixed }| ProbeResult {
                probe: *probe,
                logits,
                mixed: mixed.as_deref(),
            })
            .collect();
        let results = ProbeResults { rows, results: &results };
        let old = if self.dice.percent(30) { vec![OLD_PREDICTION; 3] } else { Vec::new() };
        self.out.clear();
        self.out.extend(&old);
        self.subjects.lead.predict(at, &results, &mut self.out);
        let new = appended(at, "predict", &old, &self.out)?;
        self.judge_predictions(at, new)?;
        bounded(at, "predict", &self.out, self.geometry.records())?;
        self.subjects.compare(pass.session, at, new, |forecaster, list| {
            forecaster.predict(at, &results, list);
        })
    }

    fn observe(&mut self, pass: &Pass<'_>, layer: LayerIdx) {
        let (rows, top_k) = (pass.step.tokens.len(), self.geometry.top_k());
        let mut ids: Vec<ExpertIdx> = Vec::with_capacity(rows * top_k);
        for row in 0..rows {
            while ids.len() < (row + 1) * top_k {
                let expert = ExpertIdx::new(self.dice.below(self.geometry.experts()) as u16);
                if !ids[row * top_k..].contains(&expert) {
                    ids.push(expert);
                }
            }
        }
        let bare = self.dice.percent(self.mix.bare);
        let share = if self.dice.percent(self.mix.zero) { 0.0 } else { 1.0 / top_k as f32 };
        let weights = if bare { Vec::new() } else { vec![share; ids.len()] };
        let logits = self.numbers(rows * self.geometry.experts());
        let mut routing = Routing::new(&pass.step, layer, top_k, &ids, &weights);
        if !bare {
            routing = routing.with_logits(&logits);
        }
        self.subjects.tell(pass.session, |forecaster| forecaster.observe(&routing));
    }

    /// What a graph answers to probes, or to some of them.
    fn answers(&mut self, mut asked: Vec<Probe>, rows: usize) -> Vec<Answer> {
        if self.dice.percent(self.mix.unanswered) {
            asked.clear();
        }
        if !asked.is_empty() && self.dice.percent(self.mix.missing) {
            asked.remove(self.dice.below(asked.len()));
        }
        let answer = |probe: Probe| Answer {
            probe,
            logits: self.numbers(rows * self.geometry.experts()),
            mixed: probe.keep_mixed.then(|| self.numbers(rows * self.hidden)),
        };
        asked.into_iter().map(answer).collect()
    }

    /// Numbers from -4 to 4, some of which may not be finite, or all.
    fn numbers(&mut self, len: usize) -> Vec<f32> {
        let mut numbers: Vec<f32> =
            (0..len).map(|_| self.dice.below(2001) as f32 / 250.0 - 4.0).collect();
        if self.dice.percent(self.mix.not_finite) {
            let value = [f32::NAN, f32::INFINITY, f32::NEG_INFINITY][self.dice.below(3)];
            match self.dice.below(3) {
                0 => numbers.fill(value),
                _ => numbers[self.dice.below(len)] = value,
            }
        }
        numbers
    }

    fn judge_probes(&self, at: Tap, probes: &[Probe]) -> Result<(), Broken> {
        let layers = self.geometry.layers();
        let mut seen = HashSet::new();
        for probe in probes {
            let target = probe.target;
            if target.index() >= layers {
                return Err(Broken::TargetBeyond { at, target, layers });
            }
            if target < at.layer() {
                return Err(Broken::TargetPassed { at, target });
            }
            if !seen.insert(*probe) {
                return Err(Broken::ProbeTwice { at, probe: *probe });
            }
        }
        Ok(())
    }

    fn judge_predictions(&self, at: Tap, predictions: &[Prediction]) -> Result<(), Broken> {
        let mut seen = HashSet::new();
        for &prediction in predictions {
            let Prediction { key, confidence, needed_by } = prediction;
            if self.geometry.index(key).is_none() {
                return Err(Broken::RecordBeyond { at, prediction });
            }
            // Also false for NaN.
            if !(0.0..=1.0).contains(&confidence) {
                return Err(Broken::Confidence { at, prediction });
            }
            if needed_by.layer != key.layer() {
                return Err(Broken::OtherLayer { at, prediction });
            }
            let passed = match at {
                Tap::AfterAttention(layer) => needed_by.layer <= layer,
                _ => needed_by.layer < at.layer(),
            };
            if passed && needed_by.passes_ahead == 0 {
                return Err(Broken::Late { at, prediction });
            }
            if !seen.insert(key) {
                return Err(Broken::RecordTwice { at, prediction });
            }
        }
        Ok(())
    }
}

/// What a call added to a list that held `old`.
fn appended<'l, T: PartialEq>(
    at: Tap,
    call: &'static str,
    old: &[T],
    list: &'l [T],
) -> Result<&'l [T], Broken> {
    list.strip_prefix(old).ok_or(Broken::NotAppended { at, call })
}

/// Whether a list has memory in proportion to the `most` entries that may be lawful: one that
/// doubles when it is full has room for twice its entries.
fn bounded<T>(at: Tap, call: &'static str, list: &Vec<T>, most: usize) -> Result<(), Broken> {
    let (capacity, limit) = (list.capacity(), 4 * most + 64);
    if capacity > limit {
        return Err(Broken::TooMuchMemory { at, call, capacity, limit });
    }
    Ok(())
}
