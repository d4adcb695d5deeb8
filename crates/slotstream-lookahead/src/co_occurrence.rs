//! What a layer used with what the layer before it used.

use slotstream_core::{
    Deadline, ExpertIdx, Forecaster, Geometry, LayerIdx, Prediction, Probe, ProbeResults, Routing,
    SessionId, Step, Tap,
};

use crate::options::{LEARNT_KEYS, spelled};
use crate::sessions::{Sessions, due_at};
use crate::transitions::Transitions;
use crate::{ForecastOptions, Turn};

/// Counts which experts of a layer come together with which of an earlier one, for the same
/// token; the idea of Edge0. Each distance of layers has counts of its own.
#[derive(Clone, Debug)]
pub struct CoOccurrence {
    geometry: Geometry,
    options: ForecastOptions,
    turn: Turn,
    sessions: Sessions<Vec<Transitions>>,
    /// By layer: the experts of all rows of the running pass, `[rows, top_k]`.
    routed: Vec<Vec<ExpertIdx>>,
}

impl CoOccurrence {
    pub(crate) const NAME: &'static str = "co-occurrence";

    /// For a model of this shape.
    #[must_use]
    pub fn new(geometry: &Geometry, options: ForecastOptions) -> Self {
        Self {
            geometry: *geometry,
            options,
            turn: Turn::default(),
            sessions: Sessions::default(),
            routed: vec![Vec::new(); geometry.layers()],
        }
    }

    fn begin(&mut self) {
        self.routed.iter_mut().for_each(Vec::clear);
    }

    /// Distances within the model.
    fn distances(&self) -> usize {
        self.options.ahead.min(self.geometry.layers() - 1)
    }
}

impl Forecaster for CoOccurrence {
    fn on_step(&mut self, step: &Step<'_>) {
        self.turn.step(step);
    }

    fn probes(&mut self, at: Tap, _want: &mut Vec<Probe>) {
        if self.turn.probes(at) {
            self.begin();
        }
    }

    fn predict(&mut self, at: Tap, _results: &ProbeResults<'_>, out: &mut Vec<Prediction>) {
        let (Tap::AfterAttention(layer), Some(session)) = (at, self.turn.session()) else { return };
        let distances = self.distances();
        let Some(known) = self.sessions.get_mut(session) else { return };
        let given = &self.routed[layer.index()];
        // What lies beyond the last layer is another token's.
        let within = |due: &Deadline| due.passes_ahead == 0;
        let targets = due_at(at, self.geometry.layers(), distances).filter(within);
        for (needed_by, transitions) in targets.zip(known) {
            transitions.predict(needed_by, given, &self.options, out);
        }
    }

    fn observe(&mut self, routing: &Routing<'_>) {
        if self.turn.observe(routing) {
            self.begin();
        }
        let (layer, top_k) = (routing.layer().index(), routing.top_k().max(1));
        let (geometry, distances) = (&self.geometry, self.distances());
        let new = || vec![Transitions::new(geometry); distances];
        let known = self.sessions.of(routing.session(), new);
        for (distance, transitions) in (1..).zip(known) {
            let Some(before) = layer.checked_sub(distance).and_then(|at| self.routed.get(at))
            else {
                break;
            };
            let rows = before.chunks_exact(top_k).zip(routing.ids().chunks_exact(top_k));
            let target: LayerIdx = routing.layer();
            rows.for_each(|(given, next)| transitions.learn(target, given, next));
        }
        if let Some(routed) = self.routed.get_mut(layer) {
            routed.clear();
            routed.extend_from_slice(routing.ids());
        }
    }

    fn reset(&mut self, session: SessionId) {
        self.sessions.forget(session);
    }

    fn planned_bytes(&self, geometry: &Geometry) -> u64 {
        self.distances() as u64 * Transitions::planned_bytes(geometry)
    }

    fn name(&self) -> String {
        spelled(Self::NAME, LEARNT_KEYS, &ForecastOptions::learnt(), &self.options)
    }
}
