//! The layers of a pass, one after the other.

use candle_core::Tensor;
use slotstream_candle::{CandleContext, DeltaRecord, Error, ExpertProvider, HcWeight, Ops};
use slotstream_core::{CancelToken, ErrorKind, ExpertIdx, Probe, ProbeResults, Routing, Tap};

use super::embedding::Embedding;
use super::probes::Probed;
use super::{Logits, Pass, PassOutput};
use crate::QwenError;
use crate::attention::AttentionState;
use crate::error::layer_idx;
use crate::model::{Block, Layer, QwenModel};
use crate::state::{LayerState, State};

/// A pass in progress.
pub(super) struct Run<'a, 'n> {
    pub(super) model: &'a QwenModel,
    pub(super) ops: &'a dyn Ops,
    pub(super) pass: &'a Pass<'a>,
    pub(super) embedding: Embedding<'n>,
    /// Reused list of probes.
    pub(super) probes: Vec<Probe>,
}

impl Run<'_, '_> {
    pub(super) fn layers(
        &mut self,
        state: &mut State,
        experts: &mut dyn ExpertProvider,
    ) -> Result<PassOutput, QwenError> {
        let (ops, step) = (self.ops, self.pass.step);
        let embedded = ops.embed_rows(&self.model.embed, step.tokens);
        let embedded = embedded.map_err(QwenError::layer(0))?;
        let streams = self.model.config.hc_count;
        let h = embedded.repeat((1, streams)).and_then(|t| t.contiguous()).within("embed");
        let h = h.map_err(QwenError::layer(0))?;
        ops.recycle(embedded);
        let rings = state.open_rings(step.tokens.len()).map_err(QwenError::layer(0))?;
        for (index, layer) in self.model.layers.iter().enumerate() {
            if self.pass.cancel.is_some_and(CancelToken::is_cancelled) {
                let during = format!("before {} at position {}", layer_idx(index), step.position);
                return Err(QwenError::Cancelled { during });
            }
            let _span = tracing::trace_span!("layer", index).entered();
            in_step(ops, index, || self.layer(index, layer, &h, state, &rings, experts))?;
        }
        self.output(&h)
    }

    fn layer(
        &mut self,
        index: usize,
        layer: &Layer,
        h: &Tensor,
        state: &mut State,
        rings: &[Option<usize>],
        experts: &mut dyn ExpertProvider,
    ) -> Result<(), QwenError> {
        let (ops, failed) = (self.ops, QwenError::layer(index));
        let before = self.probe(Tap::BeforeLayer(layer_idx(index)), h, state, experts)?;
        if let Some((at, ple)) = &self.model.ple
            && *at == index
        {
            let rows = self.pass.step.tokens.len();
            let embedding = self.embedding.join(self.model, rows, self.pass.cancel)?;
            let window = state.ple.as_mut().ok_or(QwenError::NgramStore { model: true })?;
            let (added, conv) = ple.output(ops, h, embedding, window).map_err(&failed)?;
            window.push(&conv).map_err(&failed)?;
            if let Some(observer) = self.pass.observer {
                observer.on_injection(layer_idx(index), None, &added);
            }
            ops.add(h, &added).map_err(&failed)?;
            [added, conv].into_iter().for_each(|done| ops.recycle(done));
        }
        let (x, inject) = mix(ops, h, &layer.attn_mixer).map_err(&failed)?;
        let y = self
            .block(index, &layer.block, &x, &mut state.layers[index], rings)
            .map_err(&failed)?;
        ops.hc_inject(h, &inject, &y).map_err(&failed)?;
        [x, inject, y].into_iter().for_each(|done| ops.recycle(done));
        let after = self.probe(Tap::AfterAttention(layer_idx(index)), h, state, experts)?;
        let (x, inject) = mix(ops, h, &layer.mlp_mixer).map_err(&failed)?;
        // While a device is waited for, else while the experts are.
        let share = || ops.shared_expert(&x, &layer.shared, &layer.shared_gate);
        let mut shared = None;
        let mut meanwhile = || share().map(|y| shared = Some(y));
        let weights = self.route(index, layer, &x, [before, after], experts, &mut meanwhile)?;
        let shared = shared.map_or_else(share, Ok).map_err(&failed)?;
        let y = experts.compute(&x, &weights).map_err(&failed)?;
        ops.add(&shared, &y).map_err(&failed)?;
        ops.hc_inject(h, &inject, &shared).map_err(&failed)?;
        [x, inject, y, shared, weights].into_iter().for_each(|done| ops.recycle(done));
        if let Some(observer) = self.pass.observer {
            observer.on_streams(layer_idx(index), h);
        }
        Ok(())
    }

    fn block(
        &self,
        index: usize,
        block: &Block,
        x: &Tensor,
        state: &mut LayerState,
        rings: &[Option<usize>],
    ) -> Result<Tensor, Error> {
        match (block, state) {
            (Block::Delta(net), LayerState::Delta { conv, recurrent, ring }) => {
                let record = ring.as_ref().map(|ring| DeltaRecord { ring, entries: rings });
                net.forward(self.ops, x, conv, recurrent, record)
            }
            (Block::Attention(net), LayerState::Attention { keys, values, blocks, raw }) => {
                let state = AttentionState { keys, values, blocks, raw };
                let (y, selection) = net.forward(self.ops, x, state, self.pass.step.position)?;
                if let Some(observer) = self.pass.observer {
                    observer.on_selection(layer_idx(index), selection.as_ref());
                }
                selection.into_iter().for_each(|done| self.ops.recycle(done));
                Ok(y)
            }
            (_, _) => Err(Error::provider(
                ErrorKind::Bug,
                "the state is of a model with other layer types",
            )),
        }
    }

    /// Chooses experts, tells the provider, and gives the weights `[m, top_k]`. Brings ids,
    /// weights, logits and what the probes of this layer gave to the host in one readback; where
    /// that is waited for, `meanwhile` is encoded.
    fn route(
        &mut self,
        index: usize,
        layer: &Layer,
        x: &Tensor,
        probed: [Probed; 2],
        experts: &mut dyn ExpertProvider,
        meanwhile: &mut dyn FnMut() -> Result<(), Error>,
    ) -> Result<Tensor, QwenError> {
        let (ops, step) = (self.ops, self.pass.step);
        let (top_k, layer_no) = (self.model.config.num_experts_per_tok, layer_idx(index));
        let failed = QwenError::layer(index);
        let logits = ops.bf16_matmul(x, &layer.router).map_err(&failed)?;
        let (ids, weights) = ops.route(&logits, top_k).map_err(&failed)?;
        let mut floats = vec![&weights, &logits];
        floats.extend(probed.iter().flat_map(Probed::tensors));
        let read = ops.read_back_while(&ids, &floats, meanwhile);
        let (chosen, floats) = read.map_err(&failed)?;
        [ids, logits].into_iter().for_each(|done| ops.recycle(done));
        if let Some(i) = floats[1].iter().position(|v| !v.is_finite()) {
            let row = i / self.model.config.num_experts;
            let position = step.position + row as u64;
            let (pass, value) = (step.pass, floats[1][i]);
            return Err(QwenError::NotFinite { layer: layer_no, pass, position, value });
        }
        let ids: Vec<ExpertIdx> = chosen.iter().map(|id| ExpertIdx::new(*id as u16)).collect();
        let routing =
            Routing::new(&step, layer_no, top_k, &ids, &floats[0]).with_logits(&floats[1]);
        experts.demand(&routing).map_err(&failed)?;
        let mut rest = floats[2..].iter();
        for probed in &probed {
            let results = probed.lend(&mut rest);
            // Before-layer probes were predicted at once where reading back is free.
            if !(ops.is_host() && matches!(probed.at, Tap::BeforeLayer(_))) {
                let rows = step.tokens.len();
                experts.predict(probed.at, &ProbeResults { rows, results: &results });
            }
        }
        Ok(weights)
    }

    fn output(&self, h: &Tensor) -> Result<PassOutput, QwenError> {
        let (model, step) = (self.model, self.pass.step);
        let rows = step.tokens.len();
        let failed = QwenError::layer(model.layers.len());
        let picked = match self.pass.logits {
            Logits::None => None,
            Logits::Last => Some(h.narrow(0, rows - 1, 1).and_then(|t| t.contiguous())),
            Logits::All => Some(Ok(h.clone())),
        };
        let logits = match picked.transpose().within("head").map_err(&failed)? {
            None => None,
            Some(h) => {
                let (z, _) = self.ops.hc_mix(&h, &model.mixer).map_err(&failed)?;
                let logits = self.ops.affine_matmul(&z, &model.head).map_err(&failed)?;
                self.ops.recycle(z);
                Some(logits)
            }
        };
        let streams = if self.pass.streams.is_empty() {
            None
        } else {
            let picked = self.pass.streams.iter().map(|row| h.narrow(0, *row, 1));
            let picked = picked.collect::<candle_core::Result<Vec<_>>>();
            let joined = picked.and_then(|rows| Tensor::cat(&rows, 0)?.contiguous());
            Some(joined.within("streams").map_err(&failed)?)
        };
        Ok(PassOutput { logits, streams })
    }
}

pub(super) fn mix(ops: &dyn Ops, h: &Tensor, weight: &HcWeight) -> Result<(Tensor, Tensor), Error> {
    let (mixed, inject) = ops.hc_mix(h, weight)?;
    let inject = inject
        .ok_or_else(|| Error::provider(ErrorKind::Bug, "a layer's mixer without write gates"))?;
    Ok((mixed, inject))
}

/// What `work` answers, run as a step of the op set.
pub(super) fn in_step<T>(
    ops: &dyn Ops,
    layer: usize,
    mut work: impl FnMut() -> Result<T, QwenError>,
) -> Result<T, QwenError> {
    let mut answer = None;
    ops.step(&mut || answer = Some(work()));
    answer.unwrap_or_else(|| {
        let why = "the op set did not run the step";
        Err(QwenError::layer(layer)(Error::provider(ErrorKind::Bug, why)))
    })
}
