//! The op seam: every operation with real arithmetic on a token's path, on candle tensors.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use candle_core::{Device, Tensor};
use slotstream_core::{RecordLayout, SlotId};
use slotstream_kernels::Rope;

use crate::device::SlotDevice;
use crate::lease::Reading;
use crate::{
    AffineWeight, Bf16Weight, DeltaWeight, Error, HcWeight, MlpWeight, PagedTensor, PleGateWeight,
};

/// The op set, handed to a graph as a value. Activations are f32 and row-major, `m` is the
/// number of rows (tokens) of the pass.
///
/// Every method checks the shapes of its arguments and answers with [`Error::Shape`] or
/// [`Error::Storage`] when they do not fit.
pub trait Ops: Send + Sync + fmt::Debug {
    /// The name under which figures are reported.
    fn name(&self) -> String;

    /// The name of the arithmetic; see [`Arithmetic`](slotstream_kernels::Arithmetic).
    fn arithmetic(&self) -> &'static str;

    /// How long threads that compute have waited for each other, on average; see
    /// [`Kernels::thread_wait`](slotstream_kernels::Kernels::thread_wait).
    fn thread_wait(&self) -> Duration {
        Duration::ZERO
    }

    /// What the bits of its results depend on: two op sets of the same identity give the same. What
    /// is kept of one run is of use to another by this. By default arithmetic and name.
    fn identity(&self) -> String {
        format!("{} {}", self.arithmetic(), self.name())
    }

    /// Whether tensors lie in host memory, so that reading one back costs no wait.
    fn is_host(&self) -> bool;

    /// Where weights, states and activations lie.
    fn device(&self) -> Device {
        Device::Cpu
    }

    /// The device that reads slots; `None` where the CPU does.
    fn slot_device(&self) -> Option<Arc<dyn SlotDevice>> {
        None
    }

    /// Runs a step of a graph: a layer, a pass. On a device, what its system lends for as long as a
    /// step is given back after it.
    fn step(&self, work: &mut dyn FnMut()) {
        work();
    }

    /// Dequantized rows `ids` of `w`: `[ids, cols]`.
    ///
    /// # Errors
    /// [`Error::Range`] when an id is not a row of `w`.
    fn embed_rows(&self, w: &AffineWeight, ids: &[u32]) -> Result<Tensor, Error>;

    /// `x[m, k] . w[n, k]^T`: `[m, n]`.
    ///
    /// # Errors
    /// See the trait.
    fn affine_matmul(&self, x: &Tensor, w: &AffineWeight) -> Result<Tensor, Error>;

    /// `x[m, k] . w[n, k]^T`: `[m, n]`.
    ///
    /// # Errors
    /// See the trait.
    fn bf16_matmul(&self, x: &Tensor, w: &Bf16Weight) -> Result<Tensor, Error>;

    /// Hyper-connection read of the streams `h[m, streams * hidden]`: the mix `[m, hidden]` and,
    /// where the mixer injects, the write gates `[m, streams]`.
    ///
    /// # Errors
    /// See the trait.
    fn hc_mix(&self, h: &Tensor, w: &HcWeight) -> Result<(Tensor, Option<Tensor>), Error>;

    /// Hyper-connection write, in place: `h[m, s, :] += inject[m, s] * y[m, :]`.
    ///
    /// # Errors
    /// See the trait.
    fn hc_inject(&self, h: &Tensor, inject: &Tensor, y: &Tensor) -> Result<(), Error>;

    /// Causal depthwise convolution and SiLU. `window` is
    /// `[(kernel - 1) * dilation + m, channels]`, `weight` `[channels, kernel]`; `[m, channels]`.
    ///
    /// # Errors
    /// See the trait.
    fn conv_silu(&self, window: &Tensor, weight: &Tensor, dilation: usize)
    -> Result<Tensor, Error>;

    /// Gated delta rule: `[m, value_heads * value_dim]`. Advances `state`
    /// (`[value_heads, key_dim, value_dim]`) in place. With `record`, the state after row `r` is
    /// also copied to entry `entries[r]` of the ring `[entries, value_heads, key_dim, value_dim]`.
    ///
    /// # Errors
    /// See the trait.
    fn gated_delta(
        &self,
        inputs: &DeltaInputs<'_>,
        w: &DeltaWeight,
        state: &Tensor,
        record: Option<DeltaRecord<'_>>,
    ) -> Result<Tensor, Error>;

    /// RMS norm per head, then partial rotary embedding, of heads at any stride within
    /// `x[m, row]`: `[m, heads * head_dim]`. Row `t` is at `position + t`.
    ///
    /// # Errors
    /// See the trait.
    fn norm_rope(
        &self,
        x: &Tensor,
        heads: HeadLayout,
        weight: &Tensor,
        eps: f32,
        rope: &Rope,
        position: u64,
    ) -> Result<Tensor, Error>;

    /// The key of one finished block from its raw keys `[ratio, dim]`: mean, RMS norm, rotary at
    /// `position`, the position of the block's first token. `[1, dim]`.
    ///
    /// # Errors
    /// See the trait.
    fn block_key(
        &self,
        raw: &Tensor,
        weight: &Tensor,
        eps: f32,
        rope: &Rope,
        position: u64,
    ) -> Result<Tensor, Error>;

    /// The best `budget_blocks` blocks of each query, ascending, padded with `u32::MAX`:
    /// `[m, budget_blocks]` u32.
    ///
    /// # Errors
    /// See the trait.
    fn block_select(
        &self,
        queries: &Tensor,
        keys: &PagedTensor,
        shape: BlockShape,
        position: u64,
    ) -> Result<Tensor, Error>;

    /// Causal attention over the selected tokens (all when there is no selection), gated:
    /// `[m, heads * head_dim]`.
    ///
    /// # Errors
    /// See the trait.
    fn indexed_attention(&self, inputs: &AttentionInputs<'_>) -> Result<Tensor, Error>;

    /// The `top_k` largest of the router logits `[m, experts]` in descending order and the
    /// softmax over them: ids `[m, top_k]` u32, weights `[m, top_k]`.
    ///
    /// # Errors
    /// See the trait.
    fn route(&self, logits: &Tensor, top_k: usize) -> Result<(Tensor, Tensor), Error>;

    /// Brings ids and float tensors to the host together: a layer's one readback.
    ///
    /// # Errors
    /// See the trait.
    fn read_back(
        &self,
        ids: &Tensor,
        floats: &[&Tensor],
    ) -> Result<(Vec<u32>, Vec<Vec<f32>>), Error>;

    /// The same; meanwhile, where a device is waited for, runs `meanwhile`, which encodes work that
    /// needs nothing of what is read. Where nothing is waited for it is not run.
    ///
    /// # Errors
    /// See the trait, and whatever `meanwhile` answers.
    fn read_back_while(
        &self,
        ids: &Tensor,
        floats: &[&Tensor],
        meanwhile: &mut dyn FnMut() -> Result<(), Error>,
    ) -> Result<(Vec<u32>, Vec<Vec<f32>>), Error> {
        let _ = meanwhile;
        self.read_back(ids, floats)
    }

    /// For each expert, the MLP of its rows of `x[m, hidden]`, written in place to its places of
    /// `out[places, hidden]`.
    ///
    /// # Errors
    /// See the trait.
    fn expert_mlp(
        &self,
        layout: &RecordLayout,
        slots: &Reading,
        experts: &[SlotRows<'_>],
        x: &Tensor,
        out: &Tensor,
    ) -> Result<(), Error>;

    /// `sum over rank of weights[m, k] * y[m * k, hidden]` from zero in rank order, without
    /// fused multiply-add: `[m, hidden]`.
    ///
    /// # Errors
    /// See the trait.
    fn rank_sum(&self, y: &Tensor, weights: &Tensor) -> Result<Tensor, Error>;

    /// The gated shared expert `sigmoid(gate . x) * mlp(x)`: `[m, hidden]`.
    ///
    /// # Errors
    /// See the trait.
    fn shared_expert(
        &self,
        x: &Tensor,
        mlp: &MlpWeight,
        gate: &Bf16Weight,
    ) -> Result<Tensor, Error>;

    /// The gate of the n-gram embedding: gated value streams and their norm, each
    /// `[m, streams * hidden]`, from `key[m, streams * hidden]` and `value[m, hidden]`.
    ///
    /// # Errors
    /// See the trait.
    fn ple_gate(
        &self,
        h: &Tensor,
        key: &Tensor,
        value: &Tensor,
        w: &PleGateWeight,
    ) -> Result<(Tensor, Tensor), Error>;

    /// `x += y`, in place, for two tensors of the same shape.
    ///
    /// # Errors
    /// See the trait.
    fn add(&self, x: &Tensor, y: &Tensor) -> Result<(), Error>;

    /// A tensor `[rows, cols]` of f32 with unspecified content, to be overwritten.
    ///
    /// # Errors
    /// [`Error::Candle`] when the device refuses.
    fn scratch(&self, shape: (usize, usize)) -> Result<Tensor, Error>;

    /// Takes back a tensor that an op gave and that nobody uses any more, for the output of a
    /// later op. A clone or a view that is still around would see its content change.
    fn recycle(&self, tensor: Tensor) {
        drop(tensor);
    }
}

/// Projections that enter the gated delta rule.
#[derive(Clone, Copy, Debug)]
#[expect(clippy::exhaustive_structs, reason = "an argument list")]
pub struct DeltaInputs<'a> {
    /// Convolved `q | k | v`, `[m, 2 * key_heads * key_dim + value_heads * value_dim]`.
    pub qkv: &'a Tensor,
    /// `in_proj_a . x`, `[m, value_heads]`.
    pub a: &'a Tensor,
    /// `in_proj_b . x`, `[m, value_heads]`.
    pub b: &'a Tensor,
    /// `in_proj_z . x`, `[m, value_heads * value_dim]`.
    pub z: &'a Tensor,
}

/// Where the states after the rows of a pass are kept.
#[derive(Clone, Copy, Debug)]
#[expect(clippy::exhaustive_structs, reason = "an argument list")]
pub struct DeltaRecord<'a> {
    /// `[entries, value_heads, key_dim, value_dim]`.
    pub ring: &'a Tensor,
    /// The entry of each row of the pass, where its state is kept.
    pub entries: &'a [Option<usize>],
}

/// Heads within a row.
#[derive(Clone, Copy, Debug)]
#[expect(clippy::exhaustive_structs, reason = "an argument list")]
pub struct HeadLayout {
    /// First element of the first head.
    pub offset: usize,
    /// Elements between heads.
    pub stride: usize,
    /// Heads.
    pub heads: usize,
    /// Width of a head.
    pub dim: usize,
}

/// Shape of the indexer.
#[derive(Clone, Copy, Debug)]
#[expect(clippy::exhaustive_structs, reason = "an argument list")]
pub struct BlockShape {
    /// Indexer heads.
    pub heads: usize,
    /// Tokens a block.
    pub ratio: usize,
    /// Most blocks of a query.
    pub budget_blocks: usize,
}

/// What attention needs.
#[derive(Clone, Copy, Debug)]
#[expect(clippy::exhaustive_structs, reason = "an argument list")]
pub struct AttentionInputs<'a> {
    /// Normed, rotated queries, `[m, heads * head_dim]`.
    pub queries: &'a Tensor,
    /// Keys, `[tokens, kv_heads * head_dim]`.
    pub keys: &'a PagedTensor,
    /// Values, `[tokens, kv_heads * head_dim]`.
    pub values: &'a PagedTensor,
    /// Holds the output gates, `[m, row]`.
    pub gate: &'a Tensor,
    /// Where the gates lie within a row; also says heads and head width.
    pub gate_layout: HeadLayout,
    /// KV heads.
    pub kv_heads: usize,
    /// Tokens a block.
    pub ratio: usize,
    /// Chosen blocks, `[m, budget_blocks]` u32.
    pub selection: Option<&'a Tensor>,
    /// Position of the first row.
    pub position: u64,
}

/// An expert in a slot and the rows that chose it.
#[derive(Clone, Copy, Debug)]
#[expect(clippy::exhaustive_structs, reason = "an argument list")]
pub struct SlotRows<'a> {
    /// The slot; one of those that the `Reading` holds.
    pub slot: SlotId,
    /// Rows of `x`.
    pub rows: &'a [u32],
    /// For each of them the row of `out`.
    pub places: &'a [u32],
}
