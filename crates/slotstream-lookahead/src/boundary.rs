//! The streams before a layer, or before the one ahead of it, as if nothing came in between.

use slotstream_core::{
    Forecaster, Geometry, LayerIdx, Prediction, Probe, ProbeResults, Routing, Tap,
};

use crate::ForecastOptions;
use crate::choice::Choice;
use crate::options::{PROBE_KEYS, spelled};

/// Asks a layer's own router before the layer is computed, or so many layers earlier. What it
/// misses is the attention of the layers in between, and their experts but for the first stride.
///
/// At stride 1 the reads have the layer's attention to hide behind, at stride 2 a whole layer
/// more.
#[derive(Clone, Debug)]
pub struct Boundary {
    stride: u16,
    layers: usize,
    top_k: usize,
    options: ForecastOptions,
    choice: Choice,
}

impl Boundary {
    /// Names of strides 1 and 2.
    pub(crate) const NAMES: [&'static str; 2] = ["boundary-1", "boundary-2"];

    /// From the streams after layer `target - stride`; 0 is taken as 1.
    #[must_use]
    pub fn new(geometry: &Geometry, stride: u16, options: ForecastOptions) -> Self {
        let (layers, top_k) = (geometry.layers(), geometry.top_k());
        Self { stride: stride.max(1), layers, top_k, options, choice: Choice::default() }
    }

    fn probe(&self, at: Tap) -> Option<Probe> {
        let Tap::BeforeLayer(layer) = at else { return None };
        let target = layer.get().checked_add(self.stride - 1)?;
        (usize::from(target) < self.layers).then_some(Probe {
            target: LayerIdx::new(target),
            with_ple: self.options.ple,
            keep_mixed: false,
        })
    }
}

impl Forecaster for Boundary {
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
        let name = format!("boundary-{}", self.stride);
        spelled(&name, PROBE_KEYS, &ForecastOptions::probe(), &self.options)
    }
}
