//! One pass of the graph over the next tokens of a sequence.

use std::fmt;

use candle_core::{DType, Tensor};
use slotstream_candle::{CandleContext, DeltaRecord, Error, ExpertProvider, Ops};
use slotstream_core::{
    CancelToken, ErrorKind, ExpertIdx, LayerIdx, Probe, ProbeResult, ProbeResults, Routing, Step,
    Tap,
};
use slotstream_ngram::{NgramStore, NgramTicket};

use crate::QwenError;
use crate::attention::AttentionState;
use crate::error::layer_idx;
use crate::model::{Block, Layer, QwenModel};
use crate::state::{LayerState, State};

/// Which rows' logits a pass computes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[expect(clippy::exhaustive_enums, reason = "these are all the choices there are")]
pub enum Logits {
    /// None: a prompt's chunk that is not its last.
    None,
    /// The last row's.
    #[default]
    Last,
    /// Every row's.
    All,
}

/// What to run and what to give back.
#[derive(Clone, Debug)]
pub struct Pass<'a> {
    step: Step<'a>,
    logits: Logits,
    streams: &'a [usize],
    cancel: Option<&'a CancelToken>,
    observer: Option<&'a dyn Observer>,
}

/// Looks at the inside of a pass: for tests, dumps and research. Changes nothing. Tensors are lent
/// for the call: their memory is used again.
pub trait Observer: fmt::Debug {
    /// The residual streams after a layer, `[m, hc_count * hidden_size]`.
    fn on_streams(&self, layer: LayerIdx, streams: &Tensor) {
        let _ = (layer, streams);
    }

    /// What an n-gram (PLE) layer adds to the streams, `[m, hc_count * hidden_size]`: in the pass
    /// itself, or on a copy for a probe at this tap.
    fn on_injection(&self, layer: LayerIdx, at: Option<Tap>, added: &Tensor) {
        let _ = (layer, at, added);
    }

    /// The blocks that the indexer of a layer chose, `[m, budget]` u32 ascending and padded with
    /// `u32::MAX`; `None` when every row sees everything.
    fn on_selection(&self, layer: LayerIdx, selection: Option<&Tensor>) {
        let _ = (layer, selection);
    }
}

impl<'a> Pass<'a> {
    /// A pass over the tokens of `step`, which start at the state's position; gives the last
    /// row's logits.
    #[must_use]
    pub const fn new(step: Step<'a>) -> Self {
        Self { step, logits: Logits::Last, streams: &[], cancel: None, observer: None }
    }

    /// Chooses the rows whose logits to compute.
    #[must_use]
    pub const fn with_logits(mut self, logits: Logits) -> Self {
        self.logits = logits;
        self
    }

    /// Also gives the residual streams of these rows before the final mixer.
    #[must_use]
    pub const fn with_streams(mut self, rows: &'a [usize]) -> Self {
        self.streams = rows;
        self
    }

    /// Shows the inside of the pass to `observer`.
    #[must_use]
    pub const fn with_observer(mut self, observer: &'a dyn Observer) -> Self {
        self.observer = Some(observer);
        self
    }

    /// Lets the pass end with [`QwenError::Cancelled`] when `token` is set; looked at before
    /// every layer.
    #[must_use]
    pub const fn with_cancel(mut self, token: &'a CancelToken) -> Self {
        self.cancel = Some(token);
        self
    }
}

/// What a pass gave.
#[derive(Debug)]
#[non_exhaustive]
pub struct PassOutput {
    /// Logits, `[rows asked for, vocab_size]`; `None` when none were asked for.
    pub logits: Option<Tensor>,
    /// Pre-mixer streams, `[rows asked for, hc_count * hidden_size]`.
    pub streams: Option<Tensor>,
}

impl QwenModel {
    /// Runs a pass and advances `state`.
    ///
    /// # Errors
    /// Before anything is computed: [`QwenError::Position`], [`QwenError::Token`],
    /// [`QwenError::Context`], [`QwenError::Row`], [`QwenError::Dirty`],
    /// [`QwenError::ForeignState`], [`QwenError::NgramStore`]; the state is as it was. Midway:
    /// [`QwenError::Layer`], [`QwenError::Ngram`], [`QwenError::NotFinite`],
    /// [`QwenError::Cancelled`]; the state is then dirty ([`State::is_dirty`]).
    pub fn forward(
        &self,
        state: &mut State,
        pass: &Pass<'_>,
        experts: &mut dyn ExpertProvider,
        ngram: Option<&mut NgramStore>,
    ) -> Result<PassOutput, QwenError> {
        self.check(state, pass, ngram.is_some())?;
        state.set_dirty(true);
        let mut run = Run {
            model: self,
            ops: &*self.ops,
            pass,
            embedding: Embedding::request(state, pass, ngram)?,
            probes: Vec::new(),
        };
        let begun = experts.begin_pass(&pass.step).map_err(QwenError::layer(0));
        let output = begun.and_then(|()| in_step(&*self.ops, 0, || run.layers(state, experts)));
        experts.end_pass();
        let output = output?;
        state.advance(pass.step.tokens);
        state.set_dirty(false);
        Ok(output)
    }

    fn check(&self, state: &State, pass: &Pass<'_>, store: bool) -> Result<(), QwenError> {
        let Step { position, tokens, .. } = pass.step;
        if state.layers.len() != self.layers.len() {
            let (expected, found) = (self.layers.len(), state.layers.len());
            return Err(QwenError::ForeignState { expected, found });
        }
        if store != self.ple.is_some() {
            return Err(QwenError::NgramStore { model: self.ple.is_some() });
        }
        if state.is_dirty() {
            return Err(QwenError::Dirty { position: state.position() });
        }
        if tokens.is_empty() || position != state.position() {
            let (tokens, expected) = (tokens.len(), state.position());
            return Err(QwenError::Position { tokens, position, expected });
        }
        if position + tokens.len() as u64 > state.context() as u64 {
            let (tokens, context) = (tokens.len(), state.context());
            return Err(QwenError::Context { position, tokens, context });
        }
        let vocab_size = self.config.vocab_size;
        if let Some(i) = tokens.iter().position(|t| *t as usize >= vocab_size) {
            let (token, position) = (tokens[i], position + i as u64);
            return Err(QwenError::Token { token, position, vocab_size });
        }
        let rows = tokens.len();
        match pass.streams.iter().find(|row| **row >= rows) {
            Some(row) => Err(QwenError::Row { row: *row, rows }),
            None => Ok(()),
        }
    }
}

/// The n-gram rows of a pass: requested when it begins, joined where they are first needed.
enum Embedding<'n> {
    Absent,
    Requested(&'n mut NgramStore, Option<NgramTicket>),
    Joined(Tensor),
}

impl<'n> Embedding<'n> {
    fn request(
        state: &State,
        pass: &Pass<'_>,
        store: Option<&'n mut NgramStore>,
    ) -> Result<Self, QwenError> {
        let Some(store) = store else { return Ok(Self::Absent) };
        let ticket = store
            .request(state.token_window(), pass.step.tokens)
            .map_err(|e| QwenError::Ngram { source: Box::new(e) })?;
        Ok(Self::Requested(store, Some(ticket)))
    }

    /// `[m, ple_embed_dim]`.
    fn join(
        &mut self,
        model: &QwenModel,
        rows: usize,
        cancel: Option<&CancelToken>,
    ) -> Result<&Tensor, QwenError> {
        if let Self::Requested(store, ticket) = self
            && let Some(ticket) = ticket.take()
        {
            let width = ticket.values() / rows.max(1);
            let mut values = vec![0.0; ticket.values()];
            let joined = match cancel {
                Some(cancel) => store.join_unless(cancel, ticket, &mut values),
                None => store.join(ticket, &mut values),
            };
            joined.map_err(|e| QwenError::Ngram { source: Box::new(e) })?;
            let joined = Tensor::from_vec(values, (rows, width), &model.device).within("ngram");
            *self = Self::Joined(joined.map_err(QwenError::layer(0))?);
        }
        match self {
            Self::Joined(tensor) => Ok(tensor),
            _ => Err(QwenError::NgramStore { model: model.ple.is_some() }),
        }
    }
}

/// A pass in progress.
struct Run<'a, 'n> {
    model: &'a QwenModel,
    ops: &'a dyn Ops,
    pass: &'a Pass<'a>,
    embedding: Embedding<'n>,
    /// Reused list of probes.
    probes: Vec<Probe>,
}

/// Probes of one tap with their logits and, where kept, their mixes.
struct Probed {
    at: Tap,
    results: Vec<(Probe, Tensor, Option<Tensor>)>,
}

impl Probed {
    /// The device tensors, in the order in which they are read back.
    fn tensors(&self) -> impl Iterator<Item = &Tensor> {
        self.results.iter().flat_map(|(_, logits, mixed)| std::iter::once(logits).chain(mixed))
    }

    /// The results as read back: takes as many arrays from `read` as there are tensors.
    fn lend<'f>(&self, read: &mut impl Iterator<Item = &'f Vec<f32>>) -> Vec<ProbeResult<'f>> {
        let result = |(probe, _, mixed): &(Probe, Tensor, Option<Tensor>)| {
            let logits = read.next()?;
            let mixed = mixed.as_ref().and_then(|_| read.next()).map(Vec::as_slice);
            Some(ProbeResult { probe: *probe, logits, mixed })
        };
        self.results.iter().filter_map(result).collect()
    }
}

impl Run<'_, '_> {
    fn layers(
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

    /// Computes what the forecaster asks for at a tap: the target layer's own MLP mix and router
    /// on the streams as they are now. On the host a tap before a layer is answered at once.
    fn probe(
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

fn mix(
    ops: &dyn Ops,
    h: &Tensor,
    weight: &slotstream_candle::HcWeight,
) -> Result<(Tensor, Tensor), Error> {
    let (mixed, inject) = ops.hc_mix(h, weight)?;
    let inject = inject
        .ok_or_else(|| Error::provider(ErrorKind::Bug, "a layer's mixer without write gates"))?;
    Ok((mixed, inject))
}

/// What `work` answers, run as a step of the op set.
fn in_step<T>(
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
