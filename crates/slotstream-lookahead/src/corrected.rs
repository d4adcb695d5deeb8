//! The attention tap, corrected by what this model's routers usually say otherwise.

use std::sync::Arc;

use slotstream_core::{
    Forecaster, Geometry, Prediction, Probe, ProbeResult, ProbeResults, Routing, Tap,
};

use crate::ForecastOptions;
use crate::attention_tap::next_probe;
use crate::choice::Choice;
use crate::correction::Correction;
use crate::options::{PROBE_KEYS, spelled};

/// [`AttentionTap`](crate::AttentionTap), with a [`Correction`] added to the logits before experts
/// are chosen. A layer without one is asked all the same.
#[derive(Clone, Debug)]
pub struct Corrected {
    layers: usize,
    top_k: usize,
    options: ForecastOptions,
    correction: Arc<Correction>,
    choice: Choice,
    /// Scratch: corrected logits, and the low-rank part of a row.
    logits: Vec<f32>,
    low: Vec<f32>,
}

impl Corrected {
    pub(crate) const NAME: &'static str = "corrected";

    /// For a model of this shape, which the correction must [fit](Correction::check).
    #[must_use]
    pub fn new(geometry: &Geometry, correction: Arc<Correction>, options: ForecastOptions) -> Self {
        Self {
            layers: geometry.layers(),
            top_k: geometry.top_k(),
            options,
            correction,
            choice: Choice::default(),
            logits: Vec::new(),
            low: Vec::new(),
        }
    }

    fn probe(&self, at: Tap) -> Option<Probe> {
        next_probe(at, self.layers, self.options.ple, true)
    }

    /// The corrected logits of the probe's result, if they can be had.
    fn correct(&mut self, probe: Probe, results: &ProbeResults<'_>) -> bool {
        let own = |result: &&ProbeResult<'_>| result.probe == probe && result.mixed.is_some();
        let Some(result) = results.results.iter().find(own) else { return false };
        let (Some(mixed), Some(one)) = (result.mixed, self.correction.target(probe.target)) else {
            return false;
        };
        let rows = results.rows;
        if rows == 0 || mixed.len() % rows != 0 || result.logits.len() % rows != 0 {
            return false;
        }
        self.logits.clear();
        self.logits.extend_from_slice(result.logits);
        let wide = (mixed.len() / rows).max(1);
        let experts = (result.logits.len() / rows).max(1);
        let inputs = mixed.chunks_exact(wide);
        for (mixed, logits) in inputs.zip(self.logits.chunks_exact_mut(experts)) {
            one.apply(mixed, logits, &mut self.low);
        }
        true
    }
}

impl Forecaster for Corrected {
    fn probes(&mut self, at: Tap, want: &mut Vec<Probe>) {
        want.extend(self.probe(at));
    }

    fn predict(&mut self, at: Tap, results: &ProbeResults<'_>, out: &mut Vec<Prediction>) {
        let Some(probe) = self.probe(at) else { return };
        if self.correct(probe, results) {
            let corrected = [ProbeResult { probe, logits: &self.logits, mixed: None }];
            let results = ProbeResults { rows: results.rows, results: &corrected };
            self.choice.predict(probe, self.top_k, &self.options, &results, out);
        } else {
            self.choice.predict(probe, self.top_k, &self.options, results, out);
        }
    }

    fn observe(&mut self, _routing: &Routing<'_>) {}

    fn planned_bytes(&self, _geometry: &Geometry) -> u64 {
        self.correction.bytes()
    }

    fn name(&self) -> String {
        spelled(Self::NAME, PROBE_KEYS, &ForecastOptions::probe(), &self.options)
    }
}
