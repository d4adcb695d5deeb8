//! An op set that measures another one.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError, RwLock};
use std::time::{Duration, Instant};

use slotstream::candle::Tensor;
use slotstream::core::RecordLayout;
use slotstream::kernels::Rope;
use slotstream::ops::{
    AffineWeight, AttentionInputs, Bf16Weight, BlockShape, DeltaInputs, DeltaRecord, DeltaWeight,
    Error, HcWeight, HeadLayout, MlpWeight, Ops, PagedTensor, PleGateWeight, Reading, SlotRows,
};

/// What the calls of one op took, and the bytes of weights and recurrent state they went through.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Part {
    pub(crate) calls: u64,
    pub(crate) time: Duration,
    pub(crate) bytes: u64,
}

/// Measures every call of another op set, which can be exchanged.
#[derive(Clone, Debug)]
pub(crate) struct Timed {
    inner: Arc<RwLock<Arc<dyn Ops>>>,
    parts: Arc<Mutex<BTreeMap<&'static str, Part>>>,
}

impl Timed {
    pub(crate) fn new(inner: Arc<dyn Ops>) -> Self {
        Self { inner: Arc::new(RwLock::new(inner)), parts: Arc::default() }
    }

    /// Goes on with these ops.
    pub(crate) fn exchange(&self, inner: &Arc<dyn Ops>) {
        *self.inner.write().unwrap_or_else(PoisonError::into_inner) = Arc::clone(inner);
    }

    fn inner(&self) -> Arc<dyn Ops> {
        Arc::clone(&self.inner.read().unwrap_or_else(PoisonError::into_inner))
    }

    /// What was measured since the last call, by op.
    pub(crate) fn take(&self) -> BTreeMap<&'static str, Part> {
        std::mem::take(&mut *self.parts.lock().unwrap_or_else(PoisonError::into_inner))
    }

    fn measure<T>(&self, op: &'static str, bytes: usize, call: impl FnOnce(&dyn Ops) -> T) -> T {
        let inner = self.inner();
        let begun = Instant::now();
        let result = call(&*inner);
        let time = begun.elapsed();
        let mut parts = self.parts.lock().unwrap_or_else(PoisonError::into_inner);
        let part = parts.entry(op).or_default();
        part.calls += 1;
        part.time += time;
        part.bytes += bytes as u64;
        result
    }
}

fn affine(w: &AffineWeight) -> usize {
    w.rows() * affine_row(w)
}

fn affine_row(w: &AffineWeight) -> usize {
    w.format().row_bytes(w.cols()) + 4 * w.format().row_groups(w.cols())
}

fn bf16(w: &Bf16Weight) -> usize {
    2 * w.rows() * w.cols()
}

impl Ops for Timed {
    fn name(&self) -> String {
        self.inner().name()
    }

    fn arithmetic(&self) -> &'static str {
        self.inner().arithmetic()
    }

    fn is_host(&self) -> bool {
        true
    }

    fn embed_rows(&self, w: &AffineWeight, ids: &[u32]) -> Result<Tensor, Error> {
        self.measure("embed_rows", ids.len() * affine_row(w), |ops| ops.embed_rows(w, ids))
    }

    fn affine_matmul(&self, x: &Tensor, w: &AffineWeight) -> Result<Tensor, Error> {
        self.measure("affine_matmul", affine(w), |ops| ops.affine_matmul(x, w))
    }

    fn bf16_matmul(&self, x: &Tensor, w: &Bf16Weight) -> Result<Tensor, Error> {
        self.measure("bf16_matmul", bf16(w), |ops| ops.bf16_matmul(x, w))
    }

    fn hc_mix(&self, h: &Tensor, w: &HcWeight) -> Result<(Tensor, Option<Tensor>), Error> {
        let bytes = affine(&w.down) + affine(&w.up) + w.inject.as_ref().map_or(0, bf16);
        self.measure("hc_mix", bytes, |ops| ops.hc_mix(h, w))
    }

    fn hc_inject(&self, h: &Tensor, inject: &Tensor, y: &Tensor) -> Result<(), Error> {
        self.measure("hc_inject", 0, |ops| ops.hc_inject(h, inject, y))
    }

    fn conv_silu(&self, window: &Tensor, w: &Tensor, dilation: usize) -> Result<Tensor, Error> {
        self.measure("conv_silu", 4 * w.elem_count(), |ops| ops.conv_silu(window, w, dilation))
    }

    fn gated_delta(
        &self,
        inputs: &DeltaInputs<'_>,
        w: &DeltaWeight,
        state: &Tensor,
        record: Option<DeltaRecord<'_>>,
    ) -> Result<Tensor, Error> {
        // Read once and written once.
        let bytes = 8 * state.elem_count();
        self.measure("gated_delta", bytes, |ops| ops.gated_delta(inputs, w, state, record))
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
        self.measure("norm_rope", 0, |ops| ops.norm_rope(x, heads, weight, eps, rope, position))
    }

    fn block_key(
        &self,
        raw: &Tensor,
        weight: &Tensor,
        eps: f32,
        rope: &Rope,
        position: u64,
    ) -> Result<Tensor, Error> {
        self.measure("block_key", 0, |ops| ops.block_key(raw, weight, eps, rope, position))
    }

    fn block_select(
        &self,
        queries: &Tensor,
        keys: &PagedTensor,
        shape: BlockShape,
        position: u64,
    ) -> Result<Tensor, Error> {
        self.measure("block_select", 0, |ops| ops.block_select(queries, keys, shape, position))
    }

    fn indexed_attention(&self, inputs: &AttentionInputs<'_>) -> Result<Tensor, Error> {
        self.measure("indexed_attention", 0, |ops| ops.indexed_attention(inputs))
    }

    fn route(&self, logits: &Tensor, top_k: usize) -> Result<(Tensor, Tensor), Error> {
        self.measure("route", 0, |ops| ops.route(logits, top_k))
    }

    fn read_back(
        &self,
        ids: &Tensor,
        floats: &[&Tensor],
    ) -> Result<(Vec<u32>, Vec<Vec<f32>>), Error> {
        self.measure("read_back", 0, |ops| ops.read_back(ids, floats))
    }

    fn expert_mlp(
        &self,
        layout: &RecordLayout,
        slots: &Reading,
        experts: &[SlotRows<'_>],
        x: &Tensor,
        out: &Tensor,
    ) -> Result<(), Error> {
        let bytes = experts.len() * layout.payload_len();
        self.measure("expert_mlp", bytes, |ops| ops.expert_mlp(layout, slots, experts, x, out))
    }

    fn rank_sum(&self, y: &Tensor, weights: &Tensor) -> Result<Tensor, Error> {
        self.measure("rank_sum", 0, |ops| ops.rank_sum(y, weights))
    }

    fn shared_expert(
        &self,
        x: &Tensor,
        mlp: &MlpWeight,
        gate: &Bf16Weight,
    ) -> Result<Tensor, Error> {
        let bytes = affine(&mlp.gate) + affine(&mlp.up) + affine(&mlp.down) + bf16(gate);
        self.measure("shared_expert", bytes, |ops| ops.shared_expert(x, mlp, gate))
    }

    fn ple_gate(
        &self,
        h: &Tensor,
        key: &Tensor,
        value: &Tensor,
        w: &PleGateWeight,
    ) -> Result<(Tensor, Tensor), Error> {
        self.measure("ple_gate", 0, |ops| ops.ple_gate(h, key, value, w))
    }

    fn add(&self, x: &Tensor, y: &Tensor) -> Result<(), Error> {
        self.measure("add", 0, |ops| ops.add(x, y))
    }

    fn scratch(&self, shape: (usize, usize)) -> Result<Tensor, Error> {
        self.inner().scratch(shape)
    }

    fn recycle(&self, tensor: Tensor) {
        self.inner().recycle(tensor);
    }
}
