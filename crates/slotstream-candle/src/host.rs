//! The op set on the host: candle CPU tensors over any [`Kernels`].

mod view;

use std::sync::Arc;

use candle_core::{Device, Tensor};
use slotstream_kernels::{
    AttentionArgs, BlockSelectArgs, ConvArgs, ExpertRows, GatedDeltaArgs, HcWeights, Kernels,
    MlpWeights, NormRopeArgs, Paged, PleGateArgs, Rope,
};

use self::view::{AffineView, BytesView, View, in_place};
use crate::arena::Reading;
use crate::checks::{check_cols, check_heads, check_range, matrix2, wrong_shape};
use crate::ops::{AttentionInputs, BlockShape, DeltaInputs, DeltaRecord, HeadLayout, SlotRows};
use crate::{
    AffineWeight, Bf16Weight, CandleContext, DeltaWeight, Error, HcWeight, MlpWeight, Ops,
    PagedTensor, PleGateWeight,
};

/// The op set on the host.
#[derive(Clone, Debug)]
pub struct HostOps {
    kernels: Arc<dyn Kernels>,
}

impl HostOps {
    /// Ops over these kernels.
    #[must_use]
    pub fn new(kernels: Arc<dyn Kernels>) -> Self {
        Self { kernels }
    }
}

fn tensor(op: &'static str, values: Vec<f32>, shape: (usize, usize)) -> Result<Tensor, Error> {
    Tensor::from_vec(values, shape, &Device::Cpu).within(op)
}

impl HostOps {
    fn pages<'a>(op: &'static str, paged: &'a PagedTensor) -> Result<Vec<View<'a, f32>>, Error> {
        paged.pages().iter().map(|page| View::new(op, "page", page)).collect()
    }
}

impl Ops for HostOps {
    fn name(&self) -> String {
        self.kernels.name()
    }

    fn arithmetic(&self) -> &'static str {
        self.kernels.arithmetic().as_str()
    }

    fn is_host(&self) -> bool {
        true
    }

    fn embed_rows(&self, w: &AffineWeight, ids: &[u32]) -> Result<Tensor, Error> {
        const OP: &str = "embed_rows";
        check_range(OP, "id", ids, w.rows())?;
        let view = AffineView::new(OP, w)?;
        let mut out = vec![0.0; ids.len() * w.cols()];
        self.kernels.affine_rows(&view.matrix()?, ids, &mut out);
        tensor(OP, out, (ids.len(), w.cols()))
    }

    fn affine_matmul(&self, x: &Tensor, w: &AffineWeight) -> Result<Tensor, Error> {
        const OP: &str = "affine_matmul";
        let m = check_cols(OP, "x", matrix2(OP, "x", x)?, w.cols())?;
        let (view, x) = (AffineView::new(OP, w)?, View::new(OP, "x", x)?);
        let mut out = vec![0.0; m * w.rows()];
        self.kernels.affine_matmul(x.slice()?, &view.matrix()?, &mut out);
        tensor(OP, out, (m, w.rows()))
    }

    fn bf16_matmul(&self, x: &Tensor, w: &Bf16Weight) -> Result<Tensor, Error> {
        const OP: &str = "bf16_matmul";
        let m = check_cols(OP, "x", matrix2(OP, "x", x)?, w.cols())?;
        let (view, x) = (BytesView::bf16(OP, w.tensor())?, View::new(OP, "x", x)?);
        let mut out = vec![0.0; m * w.rows()];
        self.kernels.bf16_matmul(x.slice()?, &view.bf16_matrix(w.rows(), w.cols())?, &mut out);
        tensor(OP, out, (m, w.rows()))
    }

    fn hc_mix(&self, h: &Tensor, w: &HcWeight) -> Result<(Tensor, Option<Tensor>), Error> {
        const OP: &str = "hc_mix";
        let width = w.up.rows();
        let m = check_cols(OP, "h", matrix2(OP, "h", h)?, width)?;
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
        let mut mixed = vec![0.0; m * hidden];
        let mut gates = inject.as_ref().map(|_| vec![0.0; m * w.streams]);
        self.kernels.hc_mix(h.slice()?, &weights, &mut mixed, gates.as_deref_mut());
        let gates = gates.map(|g| tensor(OP, g, (m, w.streams))).transpose()?;
        Ok((tensor(OP, mixed, (m, hidden))?, gates))
    }

    fn hc_inject(&self, h: &Tensor, inject: &Tensor, y: &Tensor) -> Result<(), Error> {
        const OP: &str = "hc_inject";
        let (m, hidden) = matrix2(OP, "y", y)?;
        let (rows, streams) = matrix2(OP, "inject", inject)?;
        let expected = [m, streams * hidden];
        if rows != m || h.dims() != expected {
            return Err(wrong_shape(OP, "h", h.dims(), &expected));
        }
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
        let (channels, kernel) = matrix2(OP, "weight", weight)?;
        let history = kernel.saturating_sub(1) * dilation;
        let rows = check_cols(OP, "window", matrix2(OP, "window", window)?, channels)?;
        let m = rows
            .checked_sub(history)
            .filter(|_| kernel > 0)
            .ok_or_else(|| wrong_shape(OP, "window", window.dims(), &[history + 1, channels]))?;
        let (window, weight) = (View::new(OP, "window", window)?, View::new(OP, "weight", weight)?);
        let (window, weight) = (window.slice()?, weight.slice()?);
        let mut out = vec![0.0; m * channels];
        let args = ConvArgs { window, weight, channels, kernel, dilation };
        self.kernels.conv_silu(&args, &mut out);
        tensor(OP, out, (m, channels))
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
        let qkv_width = 2 * nk * dk + nv * dv;
        let m = check_cols(OP, "qkv", matrix2(OP, "qkv", inputs.qkv)?, qkv_width)?;
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
        if state.dims() != [nv, dk, dv] {
            return Err(wrong_shape(OP, "state", state.dims(), &[nv, dk, dv]));
        }
        let mut out = vec![0.0; m * nv * dv];
        let run = |state: &mut [f32], slots: &mut [Option<&mut [f32]>], out: &mut [f32]| {
            self.kernels.gated_delta(&args, state, slots, out);
        };
        in_place(OP, "state", state, |state| match record {
            None => {
                run(state, &mut (0..m).map(|_| None).collect::<Vec<_>>(), &mut out);
                Ok(())
            }
            Some(record) if record.entries.len() != m => {
                Err(wrong_shape(OP, "entries", &[record.entries.len()], &[m]))
            }
            Some(record) => in_place(OP, "ring", record.ring, |ring| {
                let mut slots = ring_slots(ring, nv * dk * dv, record.entries)?;
                run(state, &mut slots, &mut out);
                Ok(())
            }),
        })?;
        tensor(OP, out, (m, nv * dv))
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
        let (m, row_stride) = matrix2(OP, "x", x)?;
        check_heads(OP, heads, row_stride)?;
        let (x, weight) =
            (View::new(OP, "x", x)?, View::with_len(OP, "weight", weight, heads.dim)?);
        let mut out = vec![0.0; m * heads.heads * heads.dim];
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
        self.kernels.norm_rope(&args, &mut out);
        tensor(OP, out, (m, heads.heads * heads.dim))
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
        let mut out = vec![0.0; dim];
        self.kernels.block_key(raw.slice()?, weight.slice()?, eps, rope, position, &mut out);
        tensor(OP, out, (1, dim))
    }

    fn block_select(
        &self,
        queries: &Tensor,
        keys: &PagedTensor,
        shape: BlockShape,
        position: u64,
    ) -> Result<Tensor, Error> {
        const OP: &str = "block_select";
        let m = check_cols(
            OP,
            "queries",
            matrix2(OP, "queries", queries)?,
            shape.heads * keys.width(),
        )?;
        let queries = View::new(OP, "queries", queries)?;
        let pages = Self::pages(OP, keys)?;
        let pages = pages.iter().map(View::slice).collect::<Result<Vec<_>, _>>()?;
        let visible = (position + m as u64) / shape.ratio as u64;
        if visible > keys.len() as u64 {
            let (value, limit) = (visible, keys.len() as u64 + 1);
            return Err(Error::Range { op: OP, what: "visible blocks", value, limit });
        }
        let mut out = vec![u32::MAX; m * shape.budget_blocks];
        let args = BlockSelectArgs {
            queries: queries.slice()?,
            heads: shape.heads,
            dim: keys.width(),
            keys: Paged { pages: &pages, page_rows: keys.page_rows(), width: keys.width() },
            ratio: shape.ratio,
            budget_blocks: shape.budget_blocks,
            position,
        };
        self.kernels.block_select(&args, &mut out);
        Tensor::from_vec(out, (m, shape.budget_blocks), &Device::Cpu).within(OP)
    }

    fn indexed_attention(&self, inputs: &AttentionInputs<'_>) -> Result<Tensor, Error> {
        const OP: &str = "indexed_attention";
        let AttentionInputs { keys, values, gate_layout: heads, position, .. } = *inputs;
        let (m, gate_row_stride) = matrix2(OP, "gate", inputs.gate)?;
        check_heads(OP, heads, gate_row_stride)?;
        let queries = View::with_len(OP, "queries", inputs.queries, m * heads.heads * heads.dim)?;
        let width = inputs.kv_heads * heads.dim;
        for (name, paged) in [("keys", keys), ("values", values)] {
            let seen = position + m as u64;
            if paged.width() != width || (paged.len() as u64) < seen {
                let found = [paged.len(), paged.width()];
                return Err(wrong_shape(OP, name, &found, &[seen as usize, width]));
            }
        }
        let gate = View::new(OP, "gate", inputs.gate)?;
        let selection =
            inputs.selection.map(|t| View::<u32>::new(OP, "selection", t)).transpose()?;
        let (key_pages, value_pages) = (Self::pages(OP, keys)?, Self::pages(OP, values)?);
        let key_pages = key_pages.iter().map(View::slice).collect::<Result<Vec<_>, _>>()?;
        let value_pages = value_pages.iter().map(View::slice).collect::<Result<Vec<_>, _>>()?;
        let mut out = vec![0.0; m * heads.heads * heads.dim];
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
        self.kernels.indexed_attention(&args, &mut out);
        tensor(OP, out, (m, heads.heads * heads.dim))
    }

    fn route(&self, logits: &Tensor, top_k: usize) -> Result<(Tensor, Tensor), Error> {
        const OP: &str = "route";
        let (m, experts) = matrix2(OP, "logits", logits)?;
        if top_k > experts {
            let (value, limit) = (top_k as u64, experts as u64 + 1);
            return Err(Error::Range { op: OP, what: "top-k", value, limit });
        }
        let logits = View::new(OP, "logits", logits)?;
        let (mut ids, mut weights) = (vec![0; m * top_k], vec![0.0; m * top_k]);
        self.kernels.route(logits.slice()?, experts, top_k, &mut ids, &mut weights);
        let ids = Tensor::from_vec(ids, (m, top_k), &Device::Cpu).within(OP)?;
        Ok((ids, tensor(OP, weights, (m, top_k))?))
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
        layout: &slotstream_core::RecordLayout,
        slots: &Reading,
        experts: &[SlotRows<'_>],
        x: &Tensor,
        out: &Tensor,
    ) -> Result<(), Error> {
        const OP: &str = "expert_mlp";
        let hidden = layout.shape().hidden();
        let m = check_cols(OP, "x", matrix2(OP, "x", x)?, hidden)?;
        let places = check_cols(OP, "out", matrix2(OP, "out", out)?, hidden)?;
        let mut lent = Vec::with_capacity(experts.len());
        for expert in experts {
            check_range(OP, "row", expert.rows, m)?;
            check_range(OP, "place", expert.places, places)?;
            let record = slots.record(expert.slot).ok_or(Error::SlotBusy {
                slot: expert.slot,
                purpose: "reading",
                state: "not lent to this call",
            })?;
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
        let ((m, top_k), (places, hidden)) =
            (matrix2(OP, "weights", weights)?, matrix2(OP, "y", y)?);
        if places != m * top_k {
            return Err(wrong_shape(OP, "y", y.dims(), &[m * top_k, hidden]));
        }
        let (y, weights) = (View::new(OP, "y", y)?, View::new(OP, "weights", weights)?);
        let mut out = vec![0.0; m * hidden];
        self.kernels.rank_sum(y.slice()?, weights.slice()?, hidden, &mut out);
        tensor(OP, out, (m, hidden))
    }

    fn shared_expert(
        &self,
        x: &Tensor,
        mlp: &MlpWeight,
        gate: &Bf16Weight,
    ) -> Result<Tensor, Error> {
        const OP: &str = "shared_expert";
        let hidden = mlp.gate.cols();
        let m = check_cols(OP, "x", matrix2(OP, "x", x)?, hidden)?;
        let x = View::new(OP, "x", x)?;
        let views = [&mlp.gate, &mlp.up, &mlp.down].map(|w| AffineView::new(OP, w));
        let [gate_proj, up, down] = views;
        let (gate_proj, up, down) = (gate_proj?, up?, down?);
        let weights =
            MlpWeights { gate: gate_proj.matrix()?, up: up.matrix()?, down: down.matrix()? };
        let gate_view = BytesView::bf16(OP, gate.tensor())?;
        let mut out = vec![0.0; m * hidden];
        let gate = gate_view.bf16_matrix(1, hidden)?;
        self.kernels.shared_expert(x.slice()?, &weights, &gate, &mut out);
        tensor(OP, out, (m, hidden))
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
        let (mut value_out, mut conv_in) = (vec![0.0; m * width], vec![0.0; m * width]);
        self.kernels.ple_gate(&args, &mut value_out, &mut conv_in);
        Ok((tensor(OP, value_out, (m, width))?, tensor(OP, conv_in, (m, width))?))
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
