//! The streams after a layer's attention, for the layer after it.

use slotstream_core::{
    Forecaster, Geometry, LayerIdx, Prediction, Probe, ProbeResults, Routing, Tap,
};

use crate::ForecastOptions;
use crate::choice::Choice;
use crate::options::{PROBE_KEYS, spelled};

/// Asks the next layer's router once this layer's attention was added: what it misses is this
/// layer's experts and the next one's attention. The answer comes when this layer's experts are
/// demanded, so the reads have those experts and the next attention to hide behind.
#[derive(Clone, Debug)]
pub struct AttentionTap {
    layers: usize,
    top_k: usize,
    options: ForecastOptions,
    choice: Choice,
}

impl AttentionTap {
    pub(crate) const NAME: &'static str = "attention-tap";

    /// For a model of this shape.
    #[must_use]
    pub fn new(geometry: &Geometry, options: ForecastOptions) -> Self {
        let (layers, top_k) = (geometry.layers(), geometry.top_k());
        Self { layers, top_k, options, choice: Choice::default() }
    }

    fn probe(&self, at: Tap) -> Option<Probe> {
        next_probe(at, self.layers, self.options.ple, false)
    }
}

/// The probe of the layer after a layer's attention, if the model has one.
pub(crate) fn next_probe(
    at: Tap,
    layers: usize,
    with_ple: bool,
    keep_mixed: bool,
) -> Option<Probe> {
    let Tap::AfterAttention(layer) = at else { return None };
    let target = layer.get().checked_add(1)?;
    let target = (usize::from(target) < layers).then(|| LayerIdx::new(target))?;
    Some(Probe { target, with_ple, keep_mixed })
}

impl Forecaster for AttentionTap {
    fn probes(&mut self, at: Tap, want: &mut Vec<Probe>) {
        want.extend(self.probe(at));
    }

    fn predict(&mut self, at: Tap, results: &ProbeResults<'_>, out: &mut Vec<Prediction>) {
        if let Some(probe) = self.probe(at) {
            self.choice.predict(probe, self.top_k, &self.options, results, out);
        }
    }

    fn observe(&mut self, _routing: &Routing<'_>) {}

    fn name(&self) -> String {
        spelled(Self::NAME, PROBE_KEYS, &ForecastOptions::probe(), &self.options)
    }
}
