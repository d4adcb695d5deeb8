//! A recording of the same run.

use std::collections::HashMap;

use slotstream_core::{
    Deadline, ExpertIdx, ExpertKey, Forecaster, Geometry, LayerIdx, PassId, Prediction, Probe,
    ProbeResults, Routing, SessionId, Step, Tap,
};

use crate::options::{KNOWN_KEYS, spelled};
use crate::sessions::due_at;
use crate::{ForecastOptions, Turn};

/// The routes of a run, as they were recorded: what an [`Oracle`] knows.
#[derive(Clone, Debug, Default)]
pub struct OracleRoutes {
    passes: HashMap<PassId, RecordedPass>,
    /// By session: its last pass so far.
    last: HashMap<SessionId, PassId>,
}

#[derive(Clone, Debug, Default)]
struct RecordedPass {
    /// The next pass of the session.
    next: Option<PassId>,
    layers: HashMap<LayerIdx, Vec<ExpertIdx>>,
}

impl OracleRoutes {
    /// Nothing is known.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds what the router decided. Routings come in the order of the run.
    pub fn add(&mut self, routing: &Routing<'_>) {
        let (pass, session) = (routing.pass(), routing.session());
        let before = self.last.insert(session, pass);
        if let Some(before) = before.filter(|before| *before != pass)
            && let Some(before) = self.passes.get_mut(&before)
        {
            before.next = Some(pass);
        }
        let layers = &mut self.passes.entry(pass).or_default().layers;
        let experts = layers.entry(routing.layer()).or_default();
        experts.clear();
        for expert in routing.ids() {
            if !experts.contains(expert) {
                experts.push(*expert);
            }
        }
    }

    /// Passes that are known.
    #[must_use]
    pub fn len(&self) -> usize {
        self.passes.len()
    }

    /// Whether nothing is known.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.passes.is_empty()
    }
}

/// Names what a recording of the same run used: the bound that no forecaster passes. In a run
/// that takes other ways it is wrong, and harmless like any other.
#[derive(Clone, Debug)]
pub struct Oracle {
    geometry: Geometry,
    routes: OracleRoutes,
    options: ForecastOptions,
    turn: Turn,
}

impl Oracle {
    pub(crate) const NAME: &'static str = "oracle";

    /// Names the `ahead` layers after each.
    #[must_use]
    pub fn new(geometry: &Geometry, routes: OracleRoutes, options: ForecastOptions) -> Self {
        Self { geometry: *geometry, routes, options, turn: Turn::default() }
    }

    fn experts(&self, pass: PassId, due: Deadline) -> &[ExpertIdx] {
        let known = self.routes.passes.get(&pass);
        let known = match due.passes_ahead {
            0 => known,
            _ => known.and_then(|pass| self.routes.passes.get(&pass.next?)),
        };
        known.and_then(|pass| pass.layers.get(&due.layer)).map_or(&[], Vec::as_slice)
    }
}

impl Forecaster for Oracle {
    fn on_step(&mut self, step: &Step<'_>) {
        self.turn.step(step);
    }

    fn probes(&mut self, at: Tap, _want: &mut Vec<Probe>) {
        self.turn.probes(at);
    }

    fn predict(&mut self, at: Tap, _results: &ProbeResults<'_>, out: &mut Vec<Prediction>) {
        let Some(pass) = self.turn.pass() else { return };
        for needed_by in due_at(at, self.geometry.layers(), self.options.ahead) {
            out.extend(self.experts(pass, needed_by).iter().filter_map(|expert| {
                let key = ExpertKey::new(needed_by.layer, *expert);
                // A recording may be of another model.
                self.geometry.index(key).map(|_| Prediction { key, confidence: 1.0, needed_by })
            }));
        }
    }

    fn observe(&mut self, routing: &Routing<'_>) {
        self.turn.observe(routing);
    }

    fn name(&self) -> String {
        spelled(Self::NAME, KNOWN_KEYS, &ForecastOptions::known(), &self.options)
    }
}
