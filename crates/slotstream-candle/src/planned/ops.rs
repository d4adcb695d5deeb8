//! Every operation as plans.

use std::sync::Arc;

use candle_core::{DType, Device, Tensor};
use slotstream_core::RecordLayout;
use slotstream_kernels::metal::{
    AttentionShape, AttentionViews, ConvShape, DeltaRing, DeltaShape, DeltaViews, Dispatch,
    Element, ExpertJobs, ExpertViews, HcScratch, HcView, HeadShape, PlanError, PleViews,
    SelectShape, SharedScratch, SharedView, SlotJob, affine_matmul, affine_rows, bf16_matmul,
    block_key, block_select, conv_silu, expert_mlp, gated_delta, hc_inject, hc_mix,
    indexed_attention, norm_rope, ple_gate, rank_sum, route, shared_expert,
};
use slotstream_kernels::{Arithmetic, Rope};

use super::view::{affine, bf16, bytes, floats, paged, slots, words};
use super::{PlannedOps, Resource};
use crate::checks::{self, check_range, matrix2, rows_of, wrong_shape};
use crate::device::SlotDevice;
use crate::lease::Reading;
use crate::ops::{AttentionInputs, BlockShape, DeltaInputs, DeltaRecord, HeadLayout, SlotRows};
use crate::{
    AffineWeight, Bf16Weight, CandleContext, DeltaWeight, Error, HcWeight, MlpWeight, Ops,
    PagedTensor, PleGateWeight,
};

/// A row of the delta rule whose state is not kept.
const NOT_KEPT: u32 = u32::MAX;

impl PlannedOps {
    fn matrix(&self, rows: usize, cols: usize) -> Result<Tensor, Error> {
        self.room(&[rows, cols], DType::F32)
    }

    fn encode(
        &self,
        op: &'static str,
        plan: Result<Vec<Dispatch<Resource<'_>>>, PlanError>,
    ) -> Result<(), Error> {
        self.encoder.encode(plan.map_err(|source| Error::Plan { op, source })?)
    }

    fn launch(
        &self,
        op: &'static str,
        plan: Result<Dispatch<Resource<'_>>, PlanError>,
    ) -> Result<(), Error> {
        self.encode(op, plan.map(|launch| vec![launch]))
    }

    /// A product whose activations are rounded on both sides.
    fn rounded_matmul(&self, x: &Tensor, m: usize, w: &AffineWeight) -> Result<Tensor, Error> {
        const OP: &str = "affine_matmul";
        let x = x.to_dtype(DType::BF16).within(OP)?;
        let out = self.room(&[m, w.rows()], DType::BF16)?;
        let half = |name, tensor| bytes(OP, name, tensor, DType::BF16);
        let (x, to) = (half("x", &x)?, half("out", &out)?);
        let plan = affine_matmul(Element::Bf16, m, x, &affine(OP, w)?, to);
        self.launch(OP, plan)?;
        out.to_dtype(DType::F32).within(OP)
    }
}

impl Ops for PlannedOps {
    fn name(&self) -> String {
        self.encoder.name()
    }

    fn arithmetic(&self) -> &'static str {
        Arithmetic::Fast.as_str()
    }

    fn is_host(&self) -> bool {
        false
    }

    fn device(&self) -> Device {
        self.encoder.device().clone()
    }

    fn slot_device(&self) -> Option<Arc<dyn SlotDevice>> {
        self.encoder.slot_device()
    }

    fn step(&self, work: &mut dyn FnMut()) {
        self.encoder.step(work);
    }

    fn embed_rows(&self, w: &AffineWeight, ids: &[u32]) -> Result<Tensor, Error> {
        const OP: &str = "embed_rows";
        check_range(OP, "id", ids, w.rows())?;
        let out = self.matrix(ids.len(), w.cols())?;
        let list = self.encoder.words(ids.to_vec())?;
        let (list, to) = (words(OP, "ids", &list)?, floats(OP, "out", &out)?);
        let plan = affine_rows(&affine(OP, w)?, ids.len(), list, to);
        self.launch(OP, plan)?;
        Ok(out)
    }

    fn affine_matmul(&self, x: &Tensor, w: &AffineWeight) -> Result<Tensor, Error> {
        const OP: &str = "affine_matmul";
        let m = rows_of(OP, "x", x, w.cols())?;
        if self.element == Element::Bf16 {
            return self.rounded_matmul(x, m, w);
        }
        let out = self.matrix(m, w.rows())?;
        let (x, to) = (floats(OP, "x", x)?, floats(OP, "out", &out)?);
        let plan = affine_matmul(Element::F32, m, x, &affine(OP, w)?, to);
        self.launch(OP, plan)?;
        Ok(out)
    }

    fn bf16_matmul(&self, x: &Tensor, w: &Bf16Weight) -> Result<Tensor, Error> {
        const OP: &str = "bf16_matmul";
        let m = rows_of(OP, "x", x, w.cols())?;
        let out = self.matrix(m, w.rows())?;
        let (x, to) = (floats(OP, "x", x)?, floats(OP, "out", &out)?);
        let plan = bf16_matmul(Element::F32, m, x, &bf16(OP, w)?, to);
        self.launch(OP, plan)?;
        Ok(out)
    }

    fn hc_mix(&self, h: &Tensor, w: &HcWeight) -> Result<(Tensor, Option<Tensor>), Error> {
        const OP: &str = "hc_mix";
        let width = w.up.rows();
        let m = rows_of(OP, "h", h, width)?;
        let mixed = self.matrix(m, width / w.streams.max(1))?;
        let gates = w.inject.as_ref().map(|_| self.matrix(m, w.streams)).transpose()?;
        let view = HcView {
            streams: w.streams,
            norm: floats(OP, "norm", &w.norm)?,
            down: affine(OP, &w.down)?,
            up: affine(OP, &w.up)?,
            inject: w.inject.as_ref().map(|w| bf16(OP, w)).transpose()?,
            eps: w.eps,
        };
        let scratch = HcScratch {
            normed: floats(OP, "normed", &self.matrix(m, width)?)?,
            low: floats(OP, "low", &self.matrix(m, w.down.rows())?)?,
            gates: floats(OP, "gates", &self.matrix(m, width)?)?,
        };
        let inject = gates.as_ref().map(|gates| floats(OP, "inject", gates)).transpose()?;
        let (h, to) = (floats(OP, "h", h)?, floats(OP, "mixed", &mixed)?);
        self.encode(OP, hc_mix(m, h, &view, &scratch, to, inject))?;
        Ok((mixed, gates))
    }

    fn hc_inject(&self, h: &Tensor, inject: &Tensor, y: &Tensor) -> Result<(), Error> {
        const OP: &str = "hc_inject";
        let (m, streams, hidden) = checks::hc_inject(h, inject, y)?;
        let (h, inject) = (floats(OP, "h", h)?, floats(OP, "inject", inject)?);
        let plan = hc_inject(m, streams, hidden, h, inject, floats(OP, "y", y)?);
        self.launch(OP, plan)
    }

    fn conv_silu(
        &self,
        window: &Tensor,
        weight: &Tensor,
        dilation: usize,
    ) -> Result<Tensor, Error> {
        const OP: &str = "conv_silu";
        let (m, channels, kernel) = checks::conv_silu(window, weight, dilation)?;
        let out = self.matrix(m, channels)?;
        let (window, weight) = (floats(OP, "window", window)?, floats(OP, "weight", weight)?);
        let shape = ConvShape { channels, kernel, dilation };
        let plan = conv_silu(m, shape, window, weight, floats(OP, "out", &out)?);
        self.launch(OP, plan)?;
        Ok(out)
    }

    fn gated_delta(
        &self,
        inputs: &DeltaInputs<'_>,
        w: &DeltaWeight,
        state: &Tensor,
        record: Option<DeltaRecord<'_>>,
    ) -> Result<Tensor, Error> {
        const OP: &str = "gated_delta";
        let (nk, nv, dk, dv) = (w.key_heads, w.value_heads, w.key_dim, w.value_dim);
        let m = checks::gated_delta(inputs, w, state, record)?;
        let views = DeltaViews {
            qkv: floats(OP, "qkv", inputs.qkv)?,
            a: floats(OP, "a", inputs.a)?,
            b: floats(OP, "b", inputs.b)?,
            z: floats(OP, "z", inputs.z)?,
            a_log: floats(OP, "A_log", &w.a_log)?,
            dt_bias: floats(OP, "dt_bias", &w.dt_bias)?,
            norm: floats(OP, "norm", &w.norm)?,
        };
        let shape = DeltaShape {
            key_heads: nk,
            value_heads: nv,
            key_dim: dk,
            value_dim: dv,
            sigmoid_gate: w.sigmoid_gate,
            eps: w.eps,
        };
        let ring = record.map(|record| self.ring(record)).transpose()?;
        let out = self.matrix(m, nv * dv)?;
        let (state, to) = (floats(OP, "state", state)?, floats(OP, "out", &out)?);
        let plan = gated_delta(m, &shape, &views, state, ring.as_ref(), to);
        self.launch(OP, plan)?;
        Ok(out)
    }

    fn norm_rope(
        &self,
        x: &Tensor,
        heads: HeadLayout,
        weight: &Tensor,
        eps: f32,
        rope: &Rope,
        position: u64,
    ) -> Result<Tensor, Error> {
        const OP: &str = "norm_rope";
        let (m, row_stride) = checks::norm_rope(x, heads)?;
        let out = self.matrix(m, heads.heads * heads.dim)?;
        let shape = HeadShape {
            row_stride,
            offset: heads.offset,
            head_stride: heads.stride,
            heads: heads.heads,
            dim: heads.dim,
            rotary: rope.dims(),
        };
        let angles = self.angles(rope, position, m)?;
        let (x, weight) = (floats(OP, "x", x)?, floats(OP, "weight", weight)?);
        let (angles, to) = (floats(OP, "angles", &angles)?, floats(OP, "out", &out)?);
        let plan = norm_rope(m, shape, eps, x, weight, angles, to);
        self.launch(OP, plan)?;
        Ok(out)
    }

    fn block_key(
        &self,
        raw: &Tensor,
        weight: &Tensor,
        eps: f32,
        rope: &Rope,
        position: u64,
    ) -> Result<Tensor, Error> {
        const OP: &str = "block_key";
        let (ratio, dim) = matrix2(OP, "raw", raw)?;
        let out = self.matrix(1, dim)?;
        let angles = self.angles(rope, position, 1)?;
        let (raw, weight) = (floats(OP, "raw", raw)?, floats(OP, "weight", weight)?);
        let (angles, to) = (floats(OP, "angles", &angles)?, floats(OP, "out", &out)?);
        let plan = block_key(1, ratio, dim, rope.dims(), eps, raw, weight, angles, to);
        self.launch(OP, plan)?;
        Ok(out)
    }

    fn block_select(
        &self,
        queries: &Tensor,
        keys: &PagedTensor,
        shape: BlockShape,
        position: u64,
    ) -> Result<Tensor, Error> {
        const OP: &str = "block_select";
        let (m, blocks) = checks::block_select(queries, keys, shape, position)?;
        let BlockShape { heads, ratio, budget_blocks } = shape;
        let out = self.room(&[m, budget_blocks], DType::U32)?;
        let scores = self.matrix(m, blocks)?;
        let shape = SelectShape {
            heads,
            dim: keys.width(),
            ratio,
            budget_blocks,
            position: position as usize,
        };
        let (queries, scores) = (floats(OP, "queries", queries)?, floats(OP, "scores", &scores)?);
        let to = words(OP, "out", &out)?;
        self.encode(OP, block_select(m, shape, queries, paged(keys), scores, to))?;
        Ok(out)
    }

    fn indexed_attention(&self, inputs: &AttentionInputs<'_>) -> Result<Tensor, Error> {
        const OP: &str = "indexed_attention";
        let AttentionInputs { keys, values, gate_layout: heads, position, .. } = *inputs;
        let (m, gate_row_stride) = checks::indexed_attention(inputs)?;
        let budget = inputs.selection.map(|selection| matrix2(OP, "selection", selection));
        let shape = AttentionShape {
            heads: heads.heads,
            kv_heads: inputs.kv_heads,
            head_dim: heads.dim,
            position: position as usize,
            ratio: inputs.ratio,
            budget_blocks: budget.transpose()?.map(|(_, budget)| budget),
        };
        let (out, partials) =
            (self.matrix(m, heads.heads * heads.dim)?, self.room(&[shape.scratch(m)], DType::F32)?);
        let selection = inputs.selection.map(|t| words(OP, "selection", t)).transpose()?;
        let views = AttentionViews {
            queries: floats(OP, "queries", inputs.queries)?,
            keys: paged(keys),
            values: paged(values),
            selection,
            gate: floats(OP, "gate", inputs.gate)?,
            gate_row_stride,
            gate_offset: heads.offset,
            gate_head_stride: heads.stride,
            partials: floats(OP, "partials", &partials)?,
        };
        self.encode(OP, indexed_attention(m, &shape, &views, floats(OP, "out", &out)?))?;
        Ok(out)
    }

    fn route(&self, logits: &Tensor, top_k: usize) -> Result<(Tensor, Tensor), Error> {
        const OP: &str = "route";
        let (m, experts) = checks::route(logits, top_k)?;
        let (ids, weights) = (self.room(&[m, top_k], DType::U32)?, self.matrix(m, top_k)?);
        let (logits, to) = (floats(OP, "logits", logits)?, floats(OP, "weights", &weights)?);
        let plan = route(m, experts, top_k, logits, words(OP, "ids", &ids)?, to);
        self.launch(OP, plan)?;
        Ok((ids, weights))
    }

    fn read_back(
        &self,
        ids: &Tensor,
        floats: &[&Tensor],
    ) -> Result<(Vec<u32>, Vec<Vec<f32>>), Error> {
        self.encoder.read_back(ids, floats, &mut || Ok(()))
    }

    fn read_back_while(
        &self,
        ids: &Tensor,
        floats: &[&Tensor],
        meanwhile: &mut dyn FnMut() -> Result<(), Error>,
    ) -> Result<(Vec<u32>, Vec<Vec<f32>>), Error> {
        self.encoder.read_back(ids, floats, meanwhile)
    }

    fn expert_mlp(
        &self,
        layout: &RecordLayout,
        reading: &Reading,
        experts: &[SlotRows<'_>],
        x: &Tensor,
        out: &Tensor,
    ) -> Result<(), Error> {
        const OP: &str = "expert_mlp";
        let (m, places) = checks::expert_mlp(layout, experts, x, out)?;
        let mut jobs = Vec::with_capacity(experts.len());
        for expert in experts {
            let Some(entry) = reading.slots().position(|slot| slot == expert.slot) else {
                return Err(checks::not_lent(expert.slot));
            };
            let (rows, places) = (expert.rows, expert.places);
            jobs.push(SlotJob { slot: entry as u32, rows, places });
        }
        let lists = ExpertJobs::new(&jobs).map_err(|source| Error::Plan { op: OP, source })?;
        if lists.rows() == 0 {
            return Ok(());
        }
        let jobs = words(OP, "jobs", &self.encoder.words(lists.jobs.clone())?)?;
        let batches = match &lists.batches[..] {
            [] => jobs.clone(),
            batches => words(OP, "batches", &self.encoder.words(batches.to_vec())?)?,
        };
        let act = self.matrix(lists.rows(), layout.shape().intermediate())?;
        let views = ExpertViews {
            slots: slots(reading),
            jobs,
            batches,
            x: floats(OP, "x", x)?,
            act: floats(OP, "act", &act)?,
            out: floats(OP, "out", out)?,
        };
        self.encode(OP, expert_mlp(layout, &lists, reading.slots().count(), (m, places), &views))
    }

    fn rank_sum(&self, y: &Tensor, weights: &Tensor) -> Result<Tensor, Error> {
        const OP: &str = "rank_sum";
        let (m, top_k, hidden) = checks::rank_sum(y, weights)?;
        let out = self.matrix(m, hidden)?;
        let (y, weights) = (floats(OP, "y", y)?, floats(OP, "weights", weights)?);
        let plan = rank_sum(m, top_k, hidden, y, weights, floats(OP, "out", &out)?);
        self.launch(OP, plan)?;
        Ok(out)
    }

    fn shared_expert(
        &self,
        x: &Tensor,
        mlp: &MlpWeight,
        gate: &Bf16Weight,
    ) -> Result<Tensor, Error> {
        const OP: &str = "shared_expert";
        let m = rows_of(OP, "x", x, mlp.gate.cols())?;
        let out = self.matrix(m, mlp.down.rows())?;
        let w = SharedView {
            gate: affine(OP, &mlp.gate)?,
            up: affine(OP, &mlp.up)?,
            down: affine(OP, &mlp.down)?,
            gate_row: bf16(OP, gate)?,
        };
        let scratch = SharedScratch {
            gate: floats(OP, "gate", &self.matrix(m, mlp.gate.rows())?)?,
            up: floats(OP, "up", &self.matrix(m, mlp.up.rows())?)?,
            gate_row: floats(OP, "gate row", &self.matrix(m, 1)?)?,
        };
        let (x, to) = (floats(OP, "x", x)?, floats(OP, "out", &out)?);
        self.encode(OP, shared_expert(m, x, &w, &scratch, to))?;
        Ok(out)
    }

    fn ple_gate(
        &self,
        h: &Tensor,
        key: &Tensor,
        value: &Tensor,
        w: &PleGateWeight,
    ) -> Result<(Tensor, Tensor), Error> {
        const OP: &str = "ple_gate";
        let (m, hidden) = matrix2(OP, "value", value)?;
        let width = w.streams * hidden;
        let (gated, normed) = (self.matrix(m, width)?, self.matrix(m, width)?);
        let views = PleViews {
            h: floats(OP, "h", h)?,
            key: floats(OP, "key", key)?,
            value: floats(OP, "value", value)?,
            norm_key: floats(OP, "norm_key", &w.norm_key)?,
            norm_query: floats(OP, "norm_query", &w.norm_query)?,
            norm_conv: floats(OP, "norm_conv", &w.norm_conv)?,
        };
        let (to, conv_in) = (floats(OP, "gated", &gated)?, floats(OP, "normed", &normed)?);
        let plan = ple_gate((m, w.streams, hidden), w.eps, &views, to, conv_in);
        self.launch(OP, plan)?;
        Ok((gated, normed))
    }

    /// The write of one stream whose gates are one: a product with one is exact.
    fn add(&self, x: &Tensor, y: &Tensor) -> Result<(), Error> {
        const OP: &str = "add";
        let (m, width) = matrix2(OP, "x", x)?;
        if y.dims() != x.dims() {
            return Err(wrong_shape(OP, "y", y.dims(), x.dims()));
        }
        let ones = self.encoder.floats(vec![1.0; m])?;
        let (x, ones) = (floats(OP, "x", x)?, floats(OP, "ones", &ones)?);
        let plan = hc_inject(m, 1, width, x, ones, floats(OP, "y", y)?);
        self.launch(OP, plan)
    }

    fn scratch(&self, shape: (usize, usize)) -> Result<Tensor, Error> {
        self.matrix(shape.0, shape.1)
    }
}

impl PlannedOps {
    fn ring(&self, record: DeltaRecord<'_>) -> Result<DeltaRing<Resource<'static>>, Error> {
        const OP: &str = "gated_delta";
        let DeltaRecord { ring, entries } = record;
        let count = ring.dim(0).within(OP)?;
        let kept: Vec<u32> = entries.iter().flatten().map(|entry| *entry as u32).collect();
        check_range(OP, "ring entry", &kept, count)?;
        let all = entries.iter().map(|entry| entry.map_or(NOT_KEPT, |entry| entry as u32));
        let entries = self.encoder.words(all.collect())?;
        let (entries, ring) = (words(OP, "entries", &entries)?, floats(OP, "ring", ring)?);
        Ok(DeltaRing { entries, ring, count })
    }
}
