//! What a layer used after what it used for the token before.

use slotstream_core::{
    ExpertIdx, Forecaster, Geometry, Prediction, Probe, ProbeResults, Routing, SessionId, Step, Tap,
};

use crate::options::{LEARNT_KEYS, spelled};
use crate::sessions::{Sessions, due_at};
use crate::transitions::Transitions;
use crate::{ForecastOptions, Turn};

/// Counts, layer by layer, which experts follow which from token to token.
#[derive(Clone, Debug)]
pub struct Markov {
    geometry: Geometry,
    options: ForecastOptions,
    turn: Turn,
    sessions: Sessions<Known>,
}

#[derive(Clone, Debug)]
struct Known {
    transitions: Transitions,
    /// By layer: the experts of the last token.
    last: Vec<Vec<ExpertIdx>>,
}

impl Markov {
    pub(crate) const NAME: &'static str = "markov";

    /// For a model of this shape.
    #[must_use]
    pub fn new(geometry: &Geometry, options: ForecastOptions) -> Self {
        let (geometry, turn, sessions) = (*geometry, Turn::default(), Sessions::default());
        Self { geometry, options, turn, sessions }
    }
}

impl Forecaster for Markov {
    fn on_step(&mut self, step: &Step<'_>) {
        self.turn.step(step);
    }

    fn probes(&mut self, at: Tap, _want: &mut Vec<Probe>) {
        self.turn.probes(at);
    }

    fn predict(&mut self, at: Tap, _results: &ProbeResults<'_>, out: &mut Vec<Prediction>) {
        let Some(session) = self.turn.session() else { return };
        let Some(Known { transitions, last }) = self.sessions.get_mut(session) else { return };
        for needed_by in due_at(at, self.geometry.layers(), self.options.ahead) {
            let given = &last[needed_by.layer.index()];
            transitions.predict(needed_by, given, &self.options, out);
        }
    }

    fn observe(&mut self, routing: &Routing<'_>) {
        self.turn.observe(routing);
        let geometry = &self.geometry;
        let known = self.sessions.of(routing.session(), || Known {
            transitions: Transitions::new(geometry),
            last: vec![Vec::new(); geometry.layers()],
        });
        let Some(last) = known.last.get_mut(routing.layer().index()) else { return };
        for row in routing.ids().chunks_exact(routing.top_k().max(1)) {
            known.transitions.learn(routing.layer(), last, row);
            last.clear();
            last.extend_from_slice(row);
        }
    }

    fn reset(&mut self, session: SessionId) {
        self.sessions.forget(session);
    }

    fn planned_bytes(&self, geometry: &Geometry) -> u64 {
        Transitions::planned_bytes(geometry)
    }

    fn name(&self) -> String {
        spelled(Self::NAME, LEARNT_KEYS, &ForecastOptions::learnt(), &self.options)
    }
}
