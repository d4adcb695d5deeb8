//! The suite finds every kind of unlawful forecaster, and passes lawful ones.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicU16, Ordering};
use std::thread;

use slotstream_core::{
    Deadline, ExpertIdx, ExpertKey, LayerIdx, NoForecast, Prediction, Probe, ProbeResults, Routing,
    SessionId, Tap,
};

use super::*;

/// What the forecaster under test does wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fault {
    Nothing,
    AsksBeyond,
    AsksBehind,
    AsksTwice,
    SaysForeignRecord,
    SaysNotANumber,
    SaysAboveOne,
    SaysOtherLayer,
    SaysLate,
    SaysLateAfterAttention,
    SaysOncePerRow,
    SaysMoreAndMore,
    ClearsWant,
    ClearsOut,
    SortsOut,
    ReservesMore,
    SharesState,
    IgnoresSession,
    GuessesSession,
    ResetKeepsState,
    ResetsAll,
    PanicsOnUnknownReset,
    PanicsWithoutResults,
    PanicsOnMissingResults,
    PanicsOnNotANumber,
    PanicsWithoutWeights,
    PanicsOnZeroWeights,
    PanicsOnRows,
    PanicsOnOneLayer,
    PanicsWhenAllAreUsed,
    PanicsWithoutTaps,
    PanicsAfterCut,
    PanicsOnLatePredict,
    PanicsOnPrefill,
    Hangs,
    NoName,
}

static SHARED: AtomicU16 = AtomicU16::new(0);

/// Expects each row's best expert of the next layer, by its router, and what the session used in
/// its last pass; with a fault.
#[derive(Debug)]
struct Faulty {
    fault: Fault,
    geometry: Geometry,
    /// What each session used last, by layer.
    used: BTreeMap<SessionId, BTreeMap<LayerIdx, BTreeSet<ExpertIdx>>>,
    /// Whose pass it is, once that is known.
    session: Option<SessionId>,
    /// The layer and stage of the last tap.
    last: Option<(LayerIdx, &'static str)>,
    asked: usize,
    said: Vec<Prediction>,
}

fn make(fault: Fault) -> impl Fn(&Geometry) -> Boxed {
    move |geometry| {
        Box::new(Faulty {
            fault,
            geometry: *geometry,
            used: BTreeMap::new(),
            session: None,
            last: None,
            asked: 0,
            said: Vec::new(),
        })
    }
}

impl Faulty {
    /// What it expects, by record.
    fn expected(&self, at: Tap, results: &ProbeResults<'_>) -> BTreeMap<ExpertKey, f32> {
        let mut all = BTreeMap::new();
        for result in results.results {
            let target = result.probe.target;
            for row in result.logits.chunks(self.geometry.experts()) {
                let best = row.iter().enumerate().max_by(|a, b| a.1.total_cmp(b.1));
                let Some((expert, logit)) = best else { continue };
                let sum: f32 = row.iter().map(|other| (other - logit).exp()).sum();
                let sure = if sum.is_finite() { 1.0 / sum.max(1.0) } else { 0.0 };
                let sure = if self.fault == Fault::SaysNotANumber { 1.0 / sum } else { sure };
                all.insert(ExpertKey::new(target, ExpertIdx::new(expert as u16)), sure);
            }
        }
        let next = LayerIdx::new(at.layer().get() + 1);
        let session = match self.fault {
            Fault::IgnoresSession => self.used.keys().next().copied(),
            _ => self.session,
        };
        let used = session.and_then(|session| self.used.get(&session)?.get(&next));
        for expert in used.into_iter().flatten() {
            all.entry(ExpertKey::new(next, *expert)).or_insert(0.5);
        }
        all
    }
}

impl Forecaster for Faulty {
    fn probes(&mut self, at: Tap, want: &mut Vec<Probe>) {
        let layer = at.layer();
        if let Tap::BeforeLayer(_) = at
            && self.last.is_none_or(|(last, _)| layer <= last)
            && self.fault != Fault::GuessesSession
        {
            self.session = None;
        }
        if let Some((last, "probes")) = self.last {
            assert!(self.fault != Fault::PanicsAfterCut || layer >= last, "went back");
        }
        self.last = Some((layer, "probes"));
        if self.fault == Fault::ClearsWant {
            want.clear();
        }
        let last = usize::from(layer.get()) + 1 == self.geometry.layers();
        let mut ask = |target| {
            want.push(Probe { target: LayerIdx::new(target), with_ple: false, keep_mixed: true });
        };
        if !last || self.fault == Fault::AsksBeyond {
            ask(layer.get() + 1);
        }
        match self.fault {
            Fault::AsksBehind if layer.get() > 0 => ask(layer.get() - 1),
            Fault::AsksTwice if !last => ask(layer.get() + 1),
            Fault::SharesState if !last => {
                let odd = SHARED.fetch_add(1, Ordering::Relaxed) % 3 == 1;
                if odd {
                    ask(layer.get());
                }
            }
            Fault::Hangs => loop {
                thread::sleep(Duration::from_secs(60));
            },
            _ => {}
        }
        self.asked = usize::from(!last);
    }

    fn predict(&mut self, at: Tap, results: &ProbeResults<'_>, out: &mut Vec<Prediction>) {
        let (fault, count) = (self.fault, results.results.len());
        assert!(fault != Fault::PanicsWithoutResults || count > 0 || self.asked == 0, "no results");
        assert!(
            fault != Fault::PanicsOnMissingResults || count == self.asked,
            "a result is missing"
        );
        let mut numbers = results.results.iter().flat_map(|result| result.logits);
        assert!(fault != Fault::PanicsOnNotANumber || numbers.all(|x| x.is_finite()), "NaN");
        assert!(
            fault != Fault::PanicsOnLatePredict
                || self.last != Some((at.layer(), "observe"))
                || matches!(at, Tap::AfterAttention(_)),
            "observed already"
        );
        if fault == Fault::ClearsOut {
            out.clear();
        }
        if fault == Fault::ReservesMore {
            out.reserve(100_000);
        }
        let deadline = |layer| Deadline { passes_ahead: 0, layer };
        for (key, confidence) in self.expected(at, results) {
            let mut prediction = Prediction { key, confidence, needed_by: deadline(key.layer()) };
            match fault {
                Fault::SaysForeignRecord => {
                    let beyond = ExpertIdx::new(self.geometry.experts() as u16);
                    prediction.key = ExpertKey::new(key.layer(), beyond);
                }
                Fault::SaysAboveOne => prediction.confidence += 1.5,
                Fault::SaysOtherLayer => {
                    prediction.needed_by = deadline(LayerIdx::new(key.layer().get() + 1));
                }
                Fault::SaysLate if at.layer().get() > 0 => {
                    let layer = LayerIdx::new(at.layer().get() - 1);
                    prediction.key = ExpertKey::new(layer, key.expert());
                    prediction.needed_by = deadline(layer);
                }
                Fault::SaysLateAfterAttention => {
                    prediction.key = ExpertKey::new(at.layer(), key.expert());
                    prediction.needed_by = deadline(at.layer());
                }
                _ => {}
            }
            let times = if fault == Fault::SaysOncePerRow { results.rows } else { 1 };
            out.extend(std::iter::repeat_n(prediction, times));
            self.said.push(prediction);
        }
        if fault == Fault::SaysMoreAndMore {
            let later = |said: &&Prediction| said.key.layer() > at.layer();
            out.extend(self.said.iter().filter(later));
        }
        if fault == Fault::SortsOut {
            out.sort_by_key(|prediction| prediction.key);
        }
    }

    fn observe(&mut self, routing: &Routing<'_>) {
        let fault = self.fault;
        let (weights, shape) = (routing.weights(), self.geometry);
        assert!(fault != Fault::PanicsWithoutWeights || !weights.is_empty(), "no weights");
        assert!(fault != Fault::PanicsOnZeroWeights || weights.is_empty() || weights[0] > 0.0, "0");
        assert!(fault != Fault::PanicsOnRows || routing.rows() < 64, "64 rows");
        assert!(fault != Fault::PanicsOnOneLayer || shape.layers() > 1, "one layer");
        assert!(fault != Fault::PanicsWhenAllAreUsed || shape.experts() > shape.top_k(), "all");
        let taps = matches!(self.last, Some((layer, "probes")) if layer == routing.layer());
        assert!(fault != Fault::PanicsWithoutTaps || taps, "no tap");
        let prefill = routing.phase() == slotstream_core::Phase::Prefill;
        assert!(fault != Fault::PanicsOnPrefill || !prefill, "a prefill");
        self.last = Some((routing.layer(), "observe"));
        self.session = Some(routing.session());
        let used = self.used.entry(routing.session()).or_default().entry(routing.layer());
        *used.or_default() = routing.ids().iter().copied().collect();
    }

    fn reset(&mut self, session: SessionId) {
        assert!(
            self.fault != Fault::PanicsOnUnknownReset || self.used.contains_key(&session),
            "who?"
        );
        match self.fault {
            Fault::ResetKeepsState => {}
            Fault::ResetsAll => self.used.clear(),
            _ => {
                self.used.remove(&session);
            }
        }
    }

    fn name(&self) -> String {
        if self.fault == Fault::NoName { "no name".into() } else { "faulty".into() }
    }
}

fn violations(fault: Fault) -> Vec<Violation> {
    match check(make(fault)) {
        Ok(()) => panic!("{fault:?} was not found"),
        Err(violations) => violations,
    }
}

/// Asserts that `fault` breaks this rule and no other.
fn breaks_only(fault: Fault, rule: fn(&Broken) -> bool) -> Vec<Violation> {
    let found = violations(fault);
    assert!(found.iter().all(|violation| rule(&violation.what)), "{fault:?}: {found:?}");
    found
}

#[test]
fn lawful_forecasters_pass() {
    assert_lawful(make(Fault::Nothing));
    assert_lawful(|_| Box::new(NoForecast));
    assert_eq!(check(|_| Box::new(NoForecast)), Ok(()));
    let geometry = Geometry::new(2, 7, 3).expect("legal");
    let suite = Conformance::new().geometry(geometry).hidden(5);
    suite.assert(|given| {
        assert_eq!(*given, geometry);
        make(Fault::Nothing)(given)
    });
}

#[test]
fn unlawful_probes_are_found() {
    let found = breaks_only(Fault::AsksBeyond, |what| matches!(what, Broken::TargetBeyond { .. }));
    assert_eq!(found.len(), SCENARIOS.len(), "every model has a last layer");
    breaks_only(Fault::AsksBehind, |what| matches!(what, Broken::TargetPassed { .. }));
    breaks_only(Fault::AsksTwice, |what| matches!(what, Broken::ProbeTwice { .. }));
    breaks_only(Fault::ClearsWant, |what| {
        matches!(what, Broken::NotAppended { call: "probes", .. })
    });
}

#[test]
fn unlawful_predictions_are_found() {
    breaks_only(Fault::SaysForeignRecord, |what| matches!(what, Broken::RecordBeyond { .. }));
    breaks_only(Fault::SaysAboveOne, |what| matches!(what, Broken::Confidence { .. }));
    let nan = breaks_only(Fault::SaysNotANumber, |what| matches!(what, Broken::Confidence { .. }));
    assert!(nan.iter().any(|v| v.scenario == "numbers that are not finite"), "{nan:?}");
    breaks_only(Fault::SaysOtherLayer, |what| matches!(what, Broken::OtherLayer { .. }));
    breaks_only(Fault::SaysLate, |what| matches!(what, Broken::Late { .. }));
    breaks_only(Fault::SaysLateAfterAttention, |what| {
        matches!(what, Broken::Late { at: Tap::AfterAttention(_), .. })
    });
    breaks_only(Fault::SaysOncePerRow, |what| matches!(what, Broken::RecordTwice { .. }));
    breaks_only(Fault::SaysMoreAndMore, |what| matches!(what, Broken::RecordTwice { .. }));
    for fault in [Fault::ClearsOut, Fault::SortsOut] {
        breaks_only(fault, |what| matches!(what, Broken::NotAppended { call: "predict", .. }));
    }
    breaks_only(Fault::ReservesMore, |what| matches!(what, Broken::TooMuchMemory { .. }));
}

#[test]
fn hidden_state_is_found() {
    breaks_only(Fault::SharesState, |what| matches!(what, Broken::NotDeterministic { .. }));
    for fault in [Fault::IgnoresSession, Fault::GuessesSession] {
        let mixed = breaks_only(fault, |what| matches!(what, Broken::SessionsMix { .. }));
        assert!(mixed.iter().any(|v| v.scenario == "sessions in turn"), "{mixed:?}");
    }
    breaks_only(Fault::ResetsAll, |what| matches!(what, Broken::SessionsMix { .. }));
    let kept =
        breaks_only(Fault::ResetKeepsState, |what| matches!(what, Broken::ResetKeepsState { .. }));
    assert!(kept.iter().any(|v| v.scenario == "resets"), "{kept:?}");
}

#[test]
fn panics_are_found_where_they_lie() {
    for (fault, scenario) in [
        (Fault::PanicsOnUnknownReset, "resets"),
        (Fault::PanicsWithoutResults, "unanswered probes"),
        (Fault::PanicsOnMissingResults, "missing answers"),
        (Fault::PanicsOnNotANumber, "numbers that are not finite"),
        (Fault::PanicsWithoutWeights, "zero and unknown weights"),
        (Fault::PanicsOnZeroWeights, "zero and unknown weights"),
        (Fault::PanicsOnRows, "prompts of many rows"),
        (Fault::PanicsOnOneLayer, "one layer"),
        (Fault::PanicsWhenAllAreUsed, "every expert is used"),
        (Fault::PanicsWithoutTaps, "no taps"),
        (Fault::PanicsAfterCut, "passes that end early"),
        (Fault::PanicsOnLatePredict, "one readback a layer"),
        (Fault::PanicsOnPrefill, "tokens"),
    ] {
        let found = breaks_only(fault, |what| matches!(what, Broken::Panicked { .. }));
        assert!(found.iter().any(|v| v.scenario == scenario), "{fault:?}: {found:?}");
    }
}

#[test]
fn hangs_and_namelessness_are_found() {
    let patience = Duration::from_millis(200);
    let hangs = Conformance::new().patience(patience).check(make(Fault::Hangs));
    let hangs = hangs.expect_err("it hangs");
    assert_eq!(hangs.len(), 1, "the rest of the suite is not tried");
    assert_eq!(hangs[0].what, Broken::Hangs { patience });
    breaks_only(Fault::NoName, |what| matches!(what, Broken::Unnamed { .. }));
}

#[test]
#[should_panic(expected = "of a model with 5 layers")]
fn the_assertion_lists_what_it_found() {
    assert_lawful(make(Fault::AsksBeyond));
}
