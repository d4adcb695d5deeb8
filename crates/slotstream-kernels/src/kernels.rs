//! The op set: one method an operation.

use std::fmt;

use slotstream_core::RecordLayout;

use crate::{AffineMatrix, Arithmetic, Bf16Matrix, reference};

/// The op set. All arrays are row-major f32 unless said otherwise; `m` is the number of rows
/// (tokens) of the pass. Outputs are overwritten whole, whatever they held.
///
/// Every method panics when a slice does not have the stated length: shapes are checked by
/// whoever owns the tensors.
pub trait Kernels: Send + Sync + fmt::Debug {
    /// The name under which figures are reported, e.g. `reference` or `avx2 x 2`.
    fn name(&self) -> String;

    /// The arithmetic of the products.
    fn arithmetic(&self) -> Arithmetic {
        Arithmetic::Exact
    }

    /// What the bits of its results depend on: two sets of the same identity give the same. What is
    /// kept of one run is of use to another by this. By default the arithmetic and the whole name.
    fn identity(&self) -> String {
        format!("{} {}", self.arithmetic().as_str(), self.name())
    }

    /// `out[m, n] = x[m, k] . w[n, k]^T`.
    fn affine_matmul(&self, x: &[f32], w: &AffineMatrix<'_>, out: &mut [f32]) {
        reference::affine_matmul(x, w, out);
    }

    /// `out[i] = dequantized row ids[i] of w`, `[ids, k]`. Ids are in range.
    fn affine_rows(&self, w: &AffineMatrix<'_>, ids: &[u32], out: &mut [f32]) {
        reference::affine_rows(w, ids, out);
    }

    /// `out[m, n] = x[m, k] . w[n, k]^T`.
    fn bf16_matmul(&self, x: &[f32], w: &Bf16Matrix<'_>, out: &mut [f32]) {
        reference::bf16_matmul(x, w, out);
    }

    /// For each expert, for each of its rows `i`:
    /// `out[places[i]] = down . (silu(gate . x[rows[i]]) * (up . x[rows[i]]))`.
    ///
    /// `x` is `[m, hidden]`, `out` `[places, hidden]`; places that no expert names keep their
    /// content.
    fn expert_mlp(
        &self,
        layout: &RecordLayout,
        x: &[f32],
        experts: &[ExpertRows<'_>],
        out: &mut [f32],
    ) {
        reference::expert_mlp(self, layout, x, experts, out);
    }

    /// `out[m, hidden] = sum over rank of weights[m, k] * y[m, k, hidden]`, from zero in rank
    /// order, product and sum rounded apart (no fused multiply-add).
    fn rank_sum(&self, y: &[f32], weights: &[f32], hidden: usize, out: &mut [f32]) {
        reference::rank_sum(y, weights, hidden, out);
    }

    /// The gated shared expert: `out[m, hidden] = sigmoid(gate . x) * mlp(x)`; `gate` is
    /// `[1, hidden]`.
    fn shared_expert(
        &self,
        x: &[f32],
        mlp: &MlpWeights<'_>,
        gate: &Bf16Matrix<'_>,
        out: &mut [f32],
    ) {
        reference::shared_expert(self, x, mlp, gate, out);
    }

    /// RMS norm over consecutive groups of `width`: `x * rsqrt(mean(x^2) + eps) * weight`, where
    /// `weight` has one value for each of the row's `weight.len()` columns.
    fn grouped_rms_norm(&self, x: &[f32], weight: &[f32], width: usize, eps: f32, out: &mut [f32]) {
        reference::grouped_rms_norm(x, weight, width, eps, out);
    }

    /// Hyper-connection read: mixes the `streams` residual streams `h[m, streams * hidden]` into
    /// `mixed[m, hidden]` and, where the mixer injects, the write gates `inject[m, streams]`.
    fn hc_mix(&self, h: &[f32], w: &HcWeights<'_>, mixed: &mut [f32], inject: Option<&mut [f32]>) {
        reference::hc_mix(self, h, w, mixed, inject);
    }

    /// Hyper-connection write: `h[m, s, hidden] += inject[m, s] * y[m, hidden]`.
    fn hc_inject(&self, h: &mut [f32], inject: &[f32], y: &[f32], hidden: usize) {
        reference::hc_inject(h, inject, y, hidden);
    }

    /// Causal depthwise convolution followed by SiLU: `out[m, channels]`.
    fn conv_silu(&self, args: &ConvArgs<'_>, out: &mut [f32]) {
        reference::conv_silu(args, out);
    }

    /// Gated delta rule over the rows of the pass, gated and normalised: `out[m, heads * dim]`.
    ///
    /// `state` (`[value_heads, key_dim, value_dim]`) is advanced in place. Where
    /// `record[row]` is given, the state after that row is copied there.
    fn gated_delta(
        &self,
        args: &GatedDeltaArgs<'_>,
        state: &mut [f32],
        record: &mut [Option<&mut [f32]>],
        out: &mut [f32],
    ) {
        reference::gated_delta(args, state, record, out);
    }

    /// Per head: RMS norm, then partial rotary embedding. `out[m, heads, head_dim]`.
    fn norm_rope(&self, args: &NormRopeArgs<'_>, out: &mut [f32]) {
        reference::norm_rope(args, out);
    }

    /// The key of one finished block: mean of its raw keys `[ratio, dim]`, RMS norm, rotary at
    /// the position of its first token. `out[dim]`.
    fn block_key(
        &self,
        raw: &[f32],
        weight: &[f32],
        eps: f32,
        rope: &Rope,
        position: u64,
        out: &mut [f32],
    ) {
        reference::block_key(raw, weight, eps, rope, position, out);
    }

    /// The best blocks of each query, ascending, padded with `u32::MAX`: `out[m, budget_blocks]`.
    fn block_select(&self, args: &BlockSelectArgs<'_>, out: &mut [u32]) {
        reference::block_select(args, out);
    }

    /// Causal attention over the selected tokens, gated: `out[m, heads * head_dim]`.
    fn indexed_attention(&self, args: &AttentionArgs<'_>, out: &mut [f32]) {
        reference::indexed_attention(args, out);
    }

    /// The `top_k` largest logits of each row in descending order (`ids[m, top_k]`) and the
    /// softmax over them (`weights[m, top_k]`). Ties: the lower expert first; NaN counts as
    /// less than everything.
    fn route(
        &self,
        logits: &[f32],
        experts: usize,
        top_k: usize,
        ids: &mut [u32],
        weights: &mut [f32],
    ) {
        reference::route(logits, experts, top_k, ids, weights);
    }

    /// The gate of the n-gram embedding: gated value streams `value_out[m, streams * hidden]` and
    /// their norm `conv_in[m, streams * hidden]`, the input of the dilated convolution.
    fn ple_gate(&self, args: &PleGateArgs<'_>, value_out: &mut [f32], conv_in: &mut [f32]) {
        reference::ple_gate(args, value_out, conv_in);
    }
}

/// Every operation as `reference/` has it.
#[derive(Clone, Copy, Debug, Default)]
#[expect(clippy::exhaustive_structs, reason = "there is nothing in it")]
pub struct Reference;

impl Kernels for Reference {
    fn name(&self) -> String {
        "reference".into()
    }
}

/// One expert and the rows that chose it.
#[derive(Clone, Copy, Debug)]
#[expect(clippy::exhaustive_structs, reason = "an argument list")]
pub struct ExpertRows<'a> {
    /// The record, as it lies in its slot; at least `record_len` bytes.
    pub record: &'a [u8],
    /// Rows of `x`.
    pub rows: &'a [u32],
    /// For each of them the row of `out`; no two experts share a place.
    pub places: &'a [u32],
}

/// A gated MLP: `down . (silu(gate . x) * (up . x))`.
#[derive(Clone, Copy, Debug)]
#[expect(clippy::exhaustive_structs, reason = "an argument list")]
pub struct MlpWeights<'a> {
    /// `[intermediate, hidden]`.
    pub gate: AffineMatrix<'a>,
    /// `[intermediate, hidden]`.
    pub up: AffineMatrix<'a>,
    /// `[hidden, intermediate]`.
    pub down: AffineMatrix<'a>,
}

/// Weights of a hyper-connection mixer (spec: `n = GroupedRMSNorm(h)`, `u = silu(down . n /
/// streams)`, `m = sigmoid(up . u)`, `mixed = mean over streams of m * n`,
/// `inject = 2 sigmoid(block_inject . n / streams)`).
#[derive(Clone, Copy, Debug)]
#[expect(clippy::exhaustive_structs, reason = "an argument list")]
pub struct HcWeights<'a> {
    /// Residual streams (`hc_count`).
    pub streams: usize,
    /// `hc_norm.weight`, `[streams * hidden]`.
    pub norm: &'a [f32],
    /// `input_mix_weight_down`, `[rank, streams * hidden]`.
    pub down: AffineMatrix<'a>,
    /// `input_mix_weight_up`, `[streams * hidden, rank]`.
    pub up: AffineMatrix<'a>,
    /// `block_inject_weight`, `[streams, streams * hidden]`; absent in the final mixer.
    pub inject: Option<Bf16Matrix<'a>>,
    /// `rms_norm_eps`.
    pub eps: f32,
}

/// A causal depthwise convolution:
/// `out[t, c] = silu(sum over j of weight[c, j] * window[t + j * dilation, c])`, so that tap
/// `kernel - 1` is the current row.
#[derive(Clone, Copy, Debug)]
#[expect(clippy::exhaustive_structs, reason = "an argument list")]
pub struct ConvArgs<'a> {
    /// The `(kernel - 1) * dilation` rows before the pass, then its `m` rows: `[.., channels]`.
    pub window: &'a [f32],
    /// `[channels, kernel]`.
    pub weight: &'a [f32],
    /// Channels.
    pub channels: usize,
    /// Taps.
    pub kernel: usize,
    /// Rows between taps.
    pub dilation: usize,
}

/// Inputs of the gated delta rule (spec section 4, steps 2 to 6).
#[derive(Clone, Copy, Debug)]
#[expect(clippy::exhaustive_structs, reason = "an argument list")]
pub struct GatedDeltaArgs<'a> {
    /// Convolved `q | k | v`, `[m, 2 * key_heads * key_dim + value_heads * value_dim]`.
    pub qkv: &'a [f32],
    /// `in_proj_a . x`, `[m, value_heads]`.
    pub a: &'a [f32],
    /// `in_proj_b . x`, `[m, value_heads]`.
    pub b: &'a [f32],
    /// Output gate `in_proj_z . x`, `[m, value_heads * value_dim]`.
    pub z: &'a [f32],
    /// `A_log`, `[value_heads]`.
    pub a_log: &'a [f32],
    /// `dt_bias`, `[value_heads]`.
    pub dt_bias: &'a [f32],
    /// `norm.weight`, `[value_dim]`.
    pub norm: &'a [f32],
    /// `linear_num_key_heads`; value head `h` uses key head `h * key_heads / value_heads`.
    pub key_heads: usize,
    /// `linear_num_value_heads`, a multiple of `key_heads`.
    pub value_heads: usize,
    /// `linear_key_head_dim`.
    pub key_dim: usize,
    /// `linear_value_head_dim`.
    pub value_dim: usize,
    /// `output_gate_type`: sigmoid when set, else SiLU.
    pub sigmoid_gate: bool,
    /// `rms_norm_eps`.
    pub eps: f32,
}

/// Rotary embedding of the first `2 * inv_freq.len()` dimensions, pairing `i` with `i + half`.
#[derive(Clone, Debug, PartialEq)]
pub struct Rope {
    inv_freq: Vec<f32>,
}

impl Rope {
    /// `dims` rotary dimensions (even) with base `theta` (`rope_theta`).
    #[must_use]
    pub fn new(dims: usize, theta: f64) -> Self {
        let inv_freq =
            (0..dims / 2).map(|i| theta.powf(-2.0 * i as f64 / dims as f64) as f32).collect();
        Self { inv_freq }
    }

    /// Rotary dimensions.
    #[must_use]
    pub fn dims(&self) -> usize {
        2 * self.inv_freq.len()
    }

    /// Cosine and sine of pair `i` at `position`. The angle is an f32 product, as in
    /// transformers.
    #[must_use]
    pub fn cos_sin(&self, position: u64, i: usize) -> (f32, f32) {
        let angle = f64::from(position as f32 * self.inv_freq[i]);
        (angle.cos() as f32, angle.sin() as f32)
    }
}

/// Heads to normalise and rotate, at any stride within `x`.
#[derive(Clone, Copy, Debug)]
#[expect(clippy::exhaustive_structs, reason = "an argument list")]
pub struct NormRopeArgs<'a> {
    /// The heads: head `h` of row `t` starts at `t * row_stride + offset + h * head_stride`.
    pub x: &'a [f32],
    /// Elements between rows.
    pub row_stride: usize,
    /// First head within a row.
    pub offset: usize,
    /// Elements between heads.
    pub head_stride: usize,
    /// Heads.
    pub heads: usize,
    /// Width of a head.
    pub head_dim: usize,
    /// Norm weight, `[head_dim]`.
    pub weight: &'a [f32],
    /// `rms_norm_eps`.
    pub eps: f32,
    /// The rotary embedding.
    pub rope: &'a Rope,
    /// Position of the first row; row `t` is at `position + t`.
    pub position: u64,
}

/// Rows kept in pages of equal size, so that they can grow without being copied.
#[derive(Clone, Copy, Debug)]
#[expect(clippy::exhaustive_structs, reason = "an argument list")]
pub struct Paged<'a> {
    /// The pages, each `[page_rows, width]`.
    pub pages: &'a [&'a [f32]],
    /// Rows a page.
    pub page_rows: usize,
    /// Elements a row.
    pub width: usize,
}

impl<'a> Paged<'a> {
    /// One row.
    #[must_use]
    pub fn row(&self, row: usize) -> &'a [f32] {
        let start = row % self.page_rows * self.width;
        &self.pages[row / self.page_rows][start..start + self.width]
    }
}

/// Inputs of the indexer's choice of blocks (spec section 5):
/// `score(t, b) = sum over heads of max(0, q . k_b) / sqrt(dim)`.
#[derive(Clone, Copy, Debug)]
#[expect(clippy::exhaustive_structs, reason = "an argument list")]
pub struct BlockSelectArgs<'a> {
    /// Normed, rotated queries, `[m, heads, dim]`.
    pub queries: &'a [f32],
    /// Indexer heads.
    pub heads: usize,
    /// Width of a head.
    pub dim: usize,
    /// Finished block keys, `[blocks, dim]`.
    pub keys: Paged<'a>,
    /// Tokens a block (`indexer_compress_ratio`).
    pub ratio: usize,
    /// Most blocks a query may use (`indexer_budget / indexer_compress_ratio`).
    pub budget_blocks: usize,
    /// Position of the first row. Row `t` sees the `(position + t + 1) / ratio` blocks that are
    /// complete at its own position; ties go to the lower block.
    pub position: u64,
}

/// Inputs of the attention over selected tokens.
#[derive(Clone, Copy, Debug)]
#[expect(clippy::exhaustive_structs, reason = "an argument list")]
pub struct AttentionArgs<'a> {
    /// Normed, rotated queries, `[m, heads, head_dim]`.
    pub queries: &'a [f32],
    /// Keys, `[tokens, kv_heads * head_dim]`.
    pub keys: Paged<'a>,
    /// Values, `[tokens, kv_heads * head_dim]`.
    pub values: Paged<'a>,
    /// Output gates before the sigmoid: head `h` of row `t` starts at
    /// `t * gate_row_stride + gate_offset + h * gate_head_stride` of this array.
    pub gate: &'a [f32],
    /// Elements between rows of `gate`.
    pub gate_row_stride: usize,
    /// First head within a row of `gate`.
    pub gate_offset: usize,
    /// Elements between heads of `gate`.
    pub gate_head_stride: usize,
    /// Query heads; query head `h` uses KV head `h * kv_heads / heads`.
    pub heads: usize,
    /// KV heads.
    pub kv_heads: usize,
    /// Width of a head; scores are scaled by its inverse square root.
    pub head_dim: usize,
    /// Position of the first row; row `t` sees tokens `0..=position + t`.
    pub position: u64,
    /// Tokens a block.
    pub ratio: usize,
    /// Chosen blocks, `[m, budget]`, ascending, padded with `u32::MAX`; the tokens after the last
    /// complete block are always seen. `None`: every token is seen.
    pub selection: Option<&'a [u32]>,
}

/// Inputs of the n-gram embedding's gate (spec section 6).
#[derive(Clone, Copy, Debug)]
#[expect(clippy::exhaustive_structs, reason = "an argument list")]
pub struct PleGateArgs<'a> {
    /// Residual streams, `[m, streams * hidden]`.
    pub h: &'a [f32],
    /// `key_proj . E`, `[m, streams * hidden]`.
    pub key: &'a [f32],
    /// `value_proj . E`, `[m, hidden]`.
    pub value: &'a [f32],
    /// `norm_key.weight`, `[streams * hidden]`.
    pub norm_key: &'a [f32],
    /// `norm_query.weight`, `[streams * hidden]`.
    pub norm_query: &'a [f32],
    /// `norm_conv.weight`, `[streams * hidden]`.
    pub norm_conv: &'a [f32],
    /// Residual streams.
    pub streams: usize,
    /// `rms_norm_eps`.
    pub eps: f32,
}
