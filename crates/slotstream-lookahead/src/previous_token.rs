//! What a layer used for one token it uses for the next one.

use slotstream_core::{
    ExpertIdx, Forecaster, Geometry, Prediction, Probe, ProbeResults, Routing, SessionId, Step, Tap,
};

use crate::options::{LEARNT_KEYS, spelled};
use crate::sessions::{Sessions, due_at, likeliest};
use crate::{ForecastOptions, Turn};

/// How fast a rate follows: the weight of the newest token.
const PACE: f32 = 1.0 / 32.0;

/// Names a layer's experts of the token before, as sure as the layer has repeated itself so far.
#[derive(Clone, Debug)]
pub struct PreviousToken {
    layers: usize,
    top_k: usize,
    options: ForecastOptions,
    turn: Turn,
    sessions: Sessions<Vec<Past>>,
    scored: Vec<(ExpertIdx, f32)>,
}

/// What a layer did last.
#[derive(Clone, Debug)]
struct Past {
    experts: Vec<ExpertIdx>,
    /// Share of a token's experts that the token before had, too.
    repeats: f32,
}

impl PreviousToken {
    pub(crate) const NAME: &'static str = "previous-token";

    /// The defaults: what is named is used once in four times or more often.
    pub(crate) const DEFAULTS: ForecastOptions = ForecastOptions::learnt().with_threshold(0.25);

    /// For a model of this shape.
    #[must_use]
    pub fn new(geometry: &Geometry, options: ForecastOptions) -> Self {
        Self {
            layers: geometry.layers(),
            top_k: geometry.top_k(),
            options,
            turn: Turn::default(),
            sessions: Sessions::default(),
            scored: Vec::new(),
        }
    }
}

impl Forecaster for PreviousToken {
    fn on_step(&mut self, step: &Step<'_>) {
        self.turn.step(step);
    }

    fn probes(&mut self, at: Tap, _want: &mut Vec<Probe>) {
        self.turn.probes(at);
    }

    fn predict(&mut self, at: Tap, _results: &ProbeResults<'_>, out: &mut Vec<Prediction>) {
        let Some(past) = self.sessions.get(self.turn.session()) else { return };
        for needed_by in due_at(at, self.layers, self.options.ahead) {
            let past = &past[needed_by.layer.index()];
            self.scored.clear();
            self.scored.extend(past.experts.iter().map(|expert| (*expert, past.repeats)));
            likeliest(&mut self.scored, needed_by, self.top_k, &self.options, out);
        }
    }

    fn observe(&mut self, routing: &Routing<'_>) {
        self.turn.observe(routing);
        let none = || vec![Past { experts: Vec::new(), repeats: 0.0 }; self.layers];
        let past = self.sessions.of(routing.session(), none);
        let Some(past) = past.get_mut(routing.layer().index()) else { return };
        for row in routing.ids().chunks_exact(routing.top_k().max(1)) {
            if !past.experts.is_empty() {
                let same = row.iter().filter(|expert| past.experts.contains(expert)).count();
                past.repeats += PACE * (same as f32 / row.len() as f32 - past.repeats);
            }
            past.experts.clear();
            past.experts.extend_from_slice(row);
        }
    }

    fn reset(&mut self, session: SessionId) {
        self.sessions.forget(session);
    }

    fn name(&self) -> String {
        spelled(Self::NAME, LEARNT_KEYS, &Self::DEFAULTS, &self.options)
    }
}
