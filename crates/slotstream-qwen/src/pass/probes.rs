//! What the forecaster asks of a pass, and its answers.

use candle_core::{DType, Tensor};
use slotstream_candle::{CandleContext, ExpertProvider};
use slotstream_core::{Probe, ProbeResult, ProbeResults, Tap};

use super::run::{Run, mix};
use crate::QwenError;
use crate::error::layer_idx;
use crate::state::State;

/// Probes of one tap with their logits and, where kept, their mixes.
pub(super) struct Probed {
    pub(super) at: Tap,
    results: Vec<(Probe, Tensor, Option<Tensor>)>,
}

impl Probed {
    /// The device tensors, in the order in which they are read back.
    pub(super) fn tensors(&self) -> impl Iterator<Item = &Tensor> {
        self.results.iter().flat_map(|(_, logits, mixed)| std::iter::once(logits).chain(mixed))
    }

    /// The results as read back: takes as many arrays from `read` as there are tensors.
    pub(super) fn lend<'f>(
        &self,
        read: &mut impl Iterator<Item = &'f Vec<f32>>,
    ) -> Vec<ProbeResult<'f>> {
        let result = |(probe, _, mixed): &(Probe, Tensor, Option<Tensor>)| {
            let logits = read.next()?;
            let mixed = mixed.as_ref().and_then(|_| read.next()).map(Vec::as_slice);
            Some(ProbeResult { probe: *probe, logits, mixed })
        };
        self.results.iter().filter_map(result).collect()
    }
}

impl Run<'_, '_> {
    /// Computes what the forecaster asks for at a tap: the target layer's own MLP mix and router
    /// on the streams as they are now. On the host a tap before a layer is answered at once.
    pub(super) fn probe(
        &mut self,
        at: Tap,
        h: &Tensor,
        state: &State,
        experts: &mut dyn ExpertProvider,
    ) -> Result<Probed, QwenError> {
        let mut want = std::mem::take(&mut self.probes);
        want.clear();
        experts.probes(at, &mut want);
        let mut probed = Probed { at, results: Vec::with_capacity(want.len()) };
        for probe in &want {
            let target = probe.target.index();
            let Some(layer) = self.model.layers.get(target) else { continue };
            // Each once, whatever the forecaster asks: there are few that differ.
            if probed.results.iter().any(|(known, _, _)| known == probe) {
                continue;
            }
            let failed = QwenError::layer(target);
            let streams = if probe.with_ple { self.with_ple(at, target, h, state)? } else { None };
            let h = streams.as_ref().unwrap_or(h);
            let (mixed, _) = mix(self.ops, h, &layer.mlp_mixer).map_err(&failed)?;
            let logits = self.ops.bf16_matmul(&mixed, &layer.router).map_err(&failed)?;
            probed.results.push((*probe, logits, probe.keep_mixed.then_some(mixed)));
        }
        self.probes = want;
        if self.ops.is_host() && matches!(at, Tap::BeforeLayer(_)) {
            self.predict_now(&probed, experts)?;
            probed.results.clear();
        }
        Ok(probed)
    }

    fn predict_now(
        &self,
        probed: &Probed,
        experts: &mut dyn ExpertProvider,
    ) -> Result<(), QwenError> {
        let failed = QwenError::layer(probed.at.layer().index());
        let none = Tensor::zeros(0, DType::U32, &self.model.device).within("probe");
        let none = none.map_err(&failed)?;
        let floats: Vec<&Tensor> = probed.tensors().collect();
        let (_, floats) = self.ops.read_back(&none, &floats).map_err(&failed)?;
        let results = probed.lend(&mut floats.iter());
        let rows = self.pass.step.tokens.len();
        experts.predict(probed.at, &ProbeResults { rows, results: &results });
        Ok(())
    }

    /// A copy of the streams with the output of the n-gram layer between `at` and `target`, when
    /// there is one. Its convolution window is not advanced.
    fn with_ple(
        &mut self,
        at: Tap,
        target: usize,
        h: &Tensor,
        state: &State,
    ) -> Result<Option<Tensor>, QwenError> {
        let (model, rows) = (self.model, self.pass.step.tokens.len());
        let (Some((layer, ple)), Some(window)) = (&model.ple, &state.ple) else { return Ok(None) };
        let first = match at {
            Tap::BeforeLayer(tap) => tap.index(),
            _ => at.layer().index() + 1,
        };
        if !(first..=target).contains(layer) {
            return Ok(None);
        }
        let embedding = self.embedding.join(model, rows, self.pass.cancel)?;
        let failed = QwenError::layer(*layer);
        let (added, _) = ple.output(self.ops, h, embedding, window).map_err(&failed)?;
        if let Some(observer) = self.pass.observer {
            observer.on_injection(layer_idx(*layer), Some(at), &added);
        }
        self.ops.add(&added, h).map_err(&failed)?;
        Ok(Some(added))
    }
}
