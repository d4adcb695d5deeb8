//! Every operation by the kernels.

use std::time::Duration;

use candle_core::{DType, Tensor};
use slotstream_core::RecordLayout;
use slotstream_kernels::{
    AttentionArgs, BlockSelectArgs, ConvArgs, ExpertRows, GatedDeltaArgs, HcWeights, MlpWeights,
    NormRopeArgs, Paged, PleGateArgs, Rope,
};

use super::HostOps;
use super::view::{AffineView, BytesView, View, in_place};
use crate::checks::{self, check_range, matrix2, rows_of};
use crate::lease::Reading;
use crate::ops::{AttentionInputs, BlockShape, DeltaInputs, DeltaRecord, HeadLayout, SlotRows};
use crate::{
    AffineWeight, Bf16Weight, DeltaWeight, Error, HcWeight, MlpWeight, Ops, PagedTensor,
    PleGateWeight,
};

impl Ops for HostOps {
    fn name(&self) -> String {
        self.kernels.name()
    }

    fn arithmetic(&self) -> &'static str {
        self.kernels.arithmetic().as_str()
    }

    fn thread_wait(&self) -> Duration {
        self.kernels.thread_wait()
    }

    fn identity(&self) -> String {
        self.kernels.identity()
    }

    fn is_host(&self) -> bool {
        true
    }

    fn embed_rows(&self, w: &AffineWeight, ids: &[u32]) -> Result<Tensor, Error> {
        const OP: &str = "embed_rows";
        check_range(OP, "id", ids, w.rows())?;
        let view = AffineView::new(OP, w)?;
        let matrix = view.matrix()?;
        self.output(OP, (ids.len(), w.cols()), |out| self.kernels.affine_rows(&matrix, ids, out))
    }

    fn affine_matmul(&self, x: &Tensor, w: &AffineWeight) -> Result<Tensor, Error> {
        const OP: &str = "affine_matmul";
        let m = rows_of(OP, "x", x, w.cols())?;
        let (view, x) = (AffineView::new(OP, w)?, View::new(OP, "x", x)?);
        let (x, matrix) = (x.slice()?, view.matrix()?);
        self.output(OP, (m, w.rows()), |out| self.kernels.affine_matmul(x, &matrix, out))
    }

    fn bf16_matmul(&self, x: &Tensor, w: &Bf16Weight) -> Result<Tensor, Error> {
        const OP: &str = "bf16_matmul";
        let m = rows_of(OP, "x", x, w.cols())?;
        let (view, x) = (BytesView::bf16(OP, w.tensor())?, View::new(OP, "x", x)?);
        let (x, matrix) = (x.slice()?, view.bf16_matrix(w.rows(), w.cols())?);
        self.output(OP, (m, w.rows()), |out| self.kernels.bf16_matmul(x, &matrix, out))
    }

    fn hc_mix(&self, h: &Tensor, w: &HcWeight) -> Result<(Tensor, Option<Tensor>), Error> {
        const OP: &str = "hc_mix";
        let width = w.up.rows();
        let m = rows_of(OP, "h", h, width)?;
        let hidden = width / w.streams.max(1);
        let (h, norm) = (View::new(OP, "h", h)?, View::with_len(OP, "norm", &w.norm, width)?);
        let (down, up) = (AffineView::new(OP, &w.down)?, AffineView::new(OP, &w.up)?);
        let inject = w.inject.as_ref().map(|w| BytesView::bf16(OP, w.tensor())).transpose()?;
        let weights = HcWeights {
            streams: w.streams,
            norm: norm.slice()?,
            down: down.matrix()?,
            up: up.matrix()?,
            inject: inject.as_ref().map(|i| i.bf16_matrix(w.streams, width)).transpose()?,
            eps: w.eps,
        };
        let (h, mut gates) = (h.slice()?, None);
        let mixed = if inject.is_none() {
            self.output(OP, (m, hidden), |mixed| self.kernels.hc_mix(h, &weights, mixed, None))?
        } else {
            let (mixed, inject) =
                self.outputs(OP, [(m, hidden), (m, w.streams)], |mixed, inject| {
                    self.kernels.hc_mix(h, &weights, mixed, Some(inject));
                })?;
            gates = Some(inject);
            mixed
        };
        Ok((mixed, gates))
    }

    fn hc_inject(&self, h: &Tensor, inject: &Tensor, y: &Tensor) -> Result<(), Error> {
        const OP: &str = "hc_inject";
        let (_, _, hidden) = checks::hc_inject(h, inject, y)?;
        let (inject, y) = (View::new(OP, "inject", inject)?, View::new(OP, "y", y)?);
        let (inject, y) = (inject.slice()?, y.slice()?);
        in_place(OP, "h", h, |h| {
            self.kernels.hc_inject(h, inject, y, hidden);
            Ok(())
        })
    }

    fn conv_silu(
        &self,
        window: &Tensor,
        weight: &Tensor,
        dilation: usize,
    ) -> Result<Tensor, Error> {
        const OP: &str = "conv_silu";
        let (m, channels, kernel) = checks::conv_silu(window, weight, dilation)?;
        let (window, weight) = (View::new(OP, "window", window)?, View::new(OP, "weight", weight)?);
        let (window, weight) = (window.slice()?, weight.slice()?);
        let args = ConvArgs { window, weight, channels, kernel, dilation };
        self.output(OP, (m, channels), |out| self.kernels.conv_silu(&args, out))
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
        let view = |name, t, cols| View::with_len(OP, name, t, m * cols);
        let qkv = View::new(OP, "qkv", inputs.qkv)?;
        let (a, b) = (view("a", inputs.a, nv)?, view("b", inputs.b, nv)?);
        let z = view("z", inputs.z, nv * dv)?;
        let a_log = View::with_len(OP, "A_log", &w.a_log, nv)?;
        let dt_bias = View::with_len(OP, "dt_bias", &w.dt_bias, nv)?;
        let norm = View::with_len(OP, "norm", &w.norm, dv)?;
        let args = GatedDeltaArgs {
            qkv: qkv.slice()?,
            a: a.slice()?,
            b: b.slice()?,
            z: z.slice()?,
            a_log: a_log.slice()?,
            dt_bias: dt_bias.slice()?,
            norm: norm.slice()?,
            key_heads: nk,
            value_heads: nv,
            key_dim: dk,
            value_dim: dv,
            sigmoid_gate: w.sigmoid_gate,
            eps: w.eps,
        };
        let out = self.spare.take(OP, (m, nv * dv), DType::F32)?;
        let run = |state: &mut [f32], slots: &mut [Option<&mut [f32]>]| {
            in_place(OP, "out", &out, |out| {
                self.kernels.gated_delta(&args, state, slots, out);
                Ok(())
            })
        };
        in_place(OP, "state", state, |state| match record {
            None => run(state, &mut []),
            Some(record) => in_place(OP, "ring", record.ring, |ring| {
                run(state, &mut ring_slots(ring, nv * dk * dv, record.entries)?)
            }),
        })?;
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
        let (x, weight) =
            (View::new(OP, "x", x)?, View::with_len(OP, "weight", weight, heads.dim)?);
        let args = NormRopeArgs {
            x: x.slice()?,
            row_stride,
            offset: heads.offset,
            head_stride: heads.stride,
            heads: heads.heads,
            head_dim: heads.dim,
            weight: weight.slice()?,
            eps,
            rope,
            position,
        };
        self.output(OP, (m, heads.heads * heads.dim), |out| self.kernels.norm_rope(&args, out))
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
        let (_, dim) = matrix2(OP, "raw", raw)?;
        let (raw, weight) =
            (View::new(OP, "raw", raw)?, View::with_len(OP, "weight", weight, dim)?);
        let (raw, weight) = (raw.slice()?, weight.slice()?);
        self.output(OP, (1, dim), |out| {
            self.kernels.block_key(raw, weight, eps, rope, position, out);
        })
    }

    fn block_select(
        &self,
        queries: &Tensor,
        keys: &PagedTensor,
        shape: BlockShape,
        position: u64,
    ) -> Result<Tensor, Error> {
        const OP: &str = "block_select";
        let (m, _) = checks::block_select(queries, keys, shape, position)?;
        let queries = View::new(OP, "queries", queries)?;
        let pages = Self::pages(OP, keys)?;
        let pages = pages.iter().map(View::slice).collect::<Result<Vec<_>, _>>()?;
        let args = BlockSelectArgs {
            queries: queries.slice()?,
            heads: shape.heads,
            dim: keys.width(),
            keys: Paged { pages: &pages, page_rows: keys.page_rows(), width: keys.width() },
            ratio: shape.ratio,
            budget_blocks: shape.budget_blocks,
            position,
        };
        let out = self.spare.take(OP, (m, shape.budget_blocks), DType::U32)?;
        in_place(OP, "out", &out, |out| {
            self.kernels.block_select(&args, out);
            Ok(())
        })?;
        Ok(out)
    }

    fn indexed_attention(&self, inputs: &AttentionInputs<'_>) -> Result<Tensor, Error> {
        const OP: &str = "indexed_attention";
        let AttentionInputs { keys, values, gate_layout: heads, position, .. } = *inputs;
        let (m, gate_row_stride) = checks::indexed_attention(inputs)?;
        let queries = View::with_len(OP, "queries", inputs.queries, m * heads.heads * heads.dim)?;
        let width = inputs.kv_heads * heads.dim;
        let gate = View::new(OP, "gate", inputs.gate)?;
        let selection =
            inputs.selection.map(|t| View::<u32>::new(OP, "selection", t)).transpose()?;
        let (key_pages, value_pages) = (Self::pages(OP, keys)?, Self::pages(OP, values)?);
        let key_pages = key_pages.iter().map(View::slice).collect::<Result<Vec<_>, _>>()?;
        let value_pages = value_pages.iter().map(View::slice).collect::<Result<Vec<_>, _>>()?;
        let args = AttentionArgs {
            queries: queries.slice()?,
            keys: Paged { pages: &key_pages, page_rows: keys.page_rows(), width },
            values: Paged { pages: &value_pages, page_rows: values.page_rows(), width },
            gate: gate.slice()?,
            gate_row_stride,
            gate_offset: heads.offset,
            gate_head_stride: heads.stride,
            heads: heads.heads,
            kv_heads: inputs.kv_heads,
            head_dim: heads.dim,
            position,
            ratio: inputs.ratio,
            selection: selection.as_ref().map(View::slice).transpose()?,
        };
        self.output(OP, (m, heads.heads * heads.dim), |out| {
            self.kernels.indexed_attention(&args, out);
        })
    }

    fn route(&self, logits: &Tensor, top_k: usize) -> Result<(Tensor, Tensor), Error> {
        const OP: &str = "route";
        let (m, experts) = checks::route(logits, top_k)?;
        let logits = View::new(OP, "logits", logits)?;
        let logits = logits.slice()?;
        let ids = self.spare.take(OP, (m, top_k), DType::U32)?;
        let weights = self.spare.take(OP, (m, top_k), DType::F32)?;
        in_place(OP, "ids", &ids, |ids| {
            in_place(OP, "weights", &weights, |weights| {
                self.kernels.route(logits, experts, top_k, ids, weights);
                Ok(())
            })
        })?;
        Ok((ids, weights))
    }

    fn read_back(
        &self,
        ids: &Tensor,
        floats: &[&Tensor],
    ) -> Result<(Vec<u32>, Vec<Vec<f32>>), Error> {
        const OP: &str = "read_back";
        let ids = View::<u32>::new(OP, "ids", ids)?.slice()?.to_vec();
        let floats = floats.iter().map(|t| Ok(View::new(OP, "float", t)?.slice()?.to_vec()));
        Ok((ids, floats.collect::<Result<_, Error>>()?))
    }

    fn expert_mlp(
        &self,
        layout: &RecordLayout,
        slots: &Reading,
        experts: &[SlotRows<'_>],
        x: &Tensor,
        out: &Tensor,
    ) -> Result<(), Error> {
        const OP: &str = "expert_mlp";
        checks::expert_mlp(layout, experts, x, out)?;
        let mut lent = Vec::with_capacity(experts.len());
        for expert in experts {
            let record = slots.record(expert.slot).ok_or_else(|| checks::not_lent(expert.slot))?;
            lent.push(ExpertRows { record, rows: expert.rows, places: expert.places });
        }
        let x = View::new(OP, "x", x)?;
        let x = x.slice()?;
        in_place(OP, "out", out, |out| {
            self.kernels.expert_mlp(layout, x, &lent, out);
            Ok(())
        })
    }

    fn rank_sum(&self, y: &Tensor, weights: &Tensor) -> Result<Tensor, Error> {
        const OP: &str = "rank_sum";
        let (m, _, hidden) = checks::rank_sum(y, weights)?;
        let (y, weights) = (View::new(OP, "y", y)?, View::new(OP, "weights", weights)?);
        let (y, weights) = (y.slice()?, weights.slice()?);
        self.output(OP, (m, hidden), |out| self.kernels.rank_sum(y, weights, hidden, out))
    }

    fn shared_expert(
        &self,
        x: &Tensor,
        mlp: &MlpWeight,
        gate: &Bf16Weight,
    ) -> Result<Tensor, Error> {
        const OP: &str = "shared_expert";
        let hidden = mlp.gate.cols();
        let m = rows_of(OP, "x", x, hidden)?;
        let x = View::new(OP, "x", x)?;
        let views = [&mlp.gate, &mlp.up, &mlp.down].map(|w| AffineView::new(OP, w));
        let [gate_proj, up, down] = views;
        let (gate_proj, up, down) = (gate_proj?, up?, down?);
        let weights =
            MlpWeights { gate: gate_proj.matrix()?, up: up.matrix()?, down: down.matrix()? };
        let gate_view = BytesView::bf16(OP, gate.tensor())?;
        let (x, gate) = (x.slice()?, gate_view.bf16_matrix(1, hidden)?);
        self.output(OP, (m, hidden), |out| self.kernels.shared_expert(x, &weights, &gate, out))
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
        let view = |name, t, len| View::with_len(OP, name, t, len);
        let (h, key) = (view("h", h, m * width)?, view("key", key, m * width)?);
        let value = View::new(OP, "value", value)?;
        let norm_key = view("norm_key", &w.norm_key, width)?;
        let norm_query = view("norm_query", &w.norm_query, width)?;
        let norm_conv = view("norm_conv", &w.norm_conv, width)?;
        let args = PleGateArgs {
            h: h.slice()?,
            key: key.slice()?,
            value: value.slice()?,
            norm_key: norm_key.slice()?,
            norm_query: norm_query.slice()?,
            norm_conv: norm_conv.slice()?,
            streams: w.streams,
            eps: w.eps,
        };
        self.outputs(OP, [(m, width); 2], |value_out, conv_in| {
            self.kernels.ple_gate(&args, value_out, conv_in);
        })
    }

    fn add(&self, x: &Tensor, y: &Tensor) -> Result<(), Error> {
        const OP: &str = "add";
        let y = View::with_len(OP, "y", y, x.elem_count())?;
        let y = y.slice()?;
        in_place(OP, "x", x, |x: &mut [f32]| {
            for (x, y) in x.iter_mut().zip(y) {
                *x += y;
            }
            Ok(())
        })
    }

    fn scratch(&self, shape: (usize, usize)) -> Result<Tensor, Error> {
        self.spare.take("scratch", shape, DType::F32)
    }

    fn recycle(&self, tensor: Tensor) {
        self.spare.put(tensor);
    }
}

/// Hands out the ring's entries to the rows that keep their state.
fn ring_slots<'a>(
    ring: &'a mut [f32],
    state_len: usize,
    entries: &[Option<usize>],
) -> Result<Vec<Option<&'a mut [f32]>>, Error> {
    let mut free: Vec<_> = ring.chunks_exact_mut(state_len).map(Some).collect();
    let limit = free.len() as u64;
    let take = |entry: &Option<usize>| {
        let Some(entry) = *entry else { return Ok(None) };
        let taken = free.get_mut(entry).and_then(Option::take);
        let (op, what, value) = ("gated_delta", "ring entry", entry as u64);
        taken.map(Some).ok_or(Error::Range { op, what, value, limit })
    };
    entries.iter().map(take).collect()
}
