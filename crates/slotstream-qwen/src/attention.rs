//! Indexed attention (spec section 5).

use candle_core::Tensor;
use slotstream_candle::{
    AffineWeight, AttentionInputs, Bf16Weight, BlockShape, CandleContext, Error, HeadLayout, Ops,
    PagedTensor, Rope,
};

use crate::QwenError;
use crate::load::Loader;
use crate::window::Window;

/// `model.layers.L.self_attn`.
#[derive(Debug)]
pub(crate) struct IndexedAttention {
    q: AffineWeight,
    k: AffineWeight,
    v: AffineWeight,
    o: AffineWeight,
    q_norm: Tensor,
    k_norm: Tensor,
    index_qk: Bf16Weight,
    index_q_norm: Tensor,
    index_k_norm: Tensor,
    rope: Rope,
    heads: usize,
    kv_heads: usize,
    dim: usize,
    index_heads: usize,
    index_dim: usize,
    ratio: usize,
    budget_blocks: usize,
    eps: f32,
}

/// The parts of a layer's state that attention grows.
pub(crate) struct AttentionState<'a> {
    pub(crate) keys: &'a mut PagedTensor,
    pub(crate) values: &'a mut PagedTensor,
    pub(crate) blocks: &'a mut PagedTensor,
    pub(crate) raw: &'a mut Window,
}

impl IndexedAttention {
    pub(crate) fn load(loader: &mut Loader<'_>, prefix: &str) -> Result<Self, QwenError> {
        let config = loader.checkpoint.config();
        let name = |part: &str| format!("{prefix}.self_attn.{part}");
        let (dim, index_dim) = (config.head_dim, config.indexer_head_dim);
        Ok(Self {
            q: loader.affine(&name("q_proj"))?,
            k: loader.affine(&name("k_proj"))?,
            v: loader.affine(&name("v_proj"))?,
            o: loader.affine(&name("o_proj"))?,
            q_norm: loader.floats(&name("q_norm.weight"), &[dim])?,
            k_norm: loader.floats(&name("k_norm.weight"), &[dim])?,
            index_qk: loader.bf16(&name("indexer.index_qk_proj.weight"))?,
            index_q_norm: loader.floats(&name("indexer.q_layernorm.weight"), &[index_dim])?,
            index_k_norm: loader.floats(&name("indexer.k_layernorm.weight"), &[index_dim])?,
            rope: Rope::new(config.rotary_dims, config.rope_theta),
            heads: config.num_attention_heads,
            kv_heads: config.num_key_value_heads,
            dim,
            index_heads: config.indexer_n_heads,
            index_dim,
            ratio: config.indexer_compress_ratio,
            budget_blocks: config.indexer_budget / config.indexer_compress_ratio,
            eps: config.rms_norm_eps as f32,
        })
    }

    /// The layer's output, and the blocks that were chosen where not all were.
    pub(crate) fn forward(
        &self,
        ops: &dyn Ops,
        x: &Tensor,
        state: AttentionState<'_>,
        position: u64,
    ) -> Result<(Tensor, Option<Tensor>), Error> {
        let Self { heads, kv_heads, dim, eps, .. } = *self;
        let q_gate = ops.affine_matmul(x, &self.q)?;
        let q_layout = HeadLayout { offset: 0, stride: 2 * dim, heads, dim };
        let queries = ops.norm_rope(&q_gate, q_layout, &self.q_norm, eps, &self.rope, position)?;
        let k_layout = HeadLayout { offset: 0, stride: dim, heads: kv_heads, dim };
        let k = ops.affine_matmul(x, &self.k)?;
        let rotated = ops.norm_rope(&k, k_layout, &self.k_norm, eps, &self.rope, position)?;
        state.keys.append(&rotated)?;
        let v = ops.affine_matmul(x, &self.v)?;
        state.values.append(&v)?;
        [k, rotated, v].into_iter().for_each(|done| ops.recycle(done));
        let selection = self.select(ops, x, state.blocks, state.raw, position)?;
        let y = ops.indexed_attention(&AttentionInputs {
            queries: &queries,
            keys: state.keys,
            values: state.values,
            gate: &q_gate,
            gate_layout: HeadLayout { offset: dim, ..q_layout },
            kv_heads,
            ratio: self.ratio,
            selection: selection.as_ref(),
            position,
        })?;
        let out = ops.affine_matmul(&y, &self.o)?;
        [q_gate, queries, y].into_iter().for_each(|done| ops.recycle(done));
        Ok((out, selection))
    }

    /// Finishes the blocks that the pass completes and chooses blocks for its queries; `None`
    /// while every query may see everything.
    fn select(
        &self,
        ops: &dyn Ops,
        x: &Tensor,
        blocks: &mut PagedTensor,
        raw: &mut Window,
        position: u64,
    ) -> Result<Option<Tensor>, Error> {
        let (heads, dim, ratio) = (self.index_heads, self.index_dim, self.ratio);
        let qk = ops.bf16_matmul(x, &self.index_qk)?;
        let keys = qk.narrow(1, heads * dim, dim).and_then(|t| t.contiguous()).within("indexer")?;
        let seen = raw.with(&keys)?;
        let rows = keys.dim(0).within("indexer")?;
        let visible = (position as usize + rows) / ratio;
        for block in blocks.len()..visible {
            // Row `need + i` of `seen` is the key at `position + i`.
            let first = block * ratio + raw.need() - position as usize;
            let own =
                seen.narrow(0, first, ratio).and_then(|t| t.contiguous()).within("indexer")?;
            let at = (block * ratio) as u64;
            let key = ops.block_key(&own, &self.index_k_norm, self.eps, &self.rope, at)?;
            blocks.append(&key)?;
            ops.recycle(key);
        }
        raw.push(&keys)?;
        if visible <= self.budget_blocks {
            ops.recycle(qk);
            return Ok(None);
        }
        let layout = HeadLayout { offset: 0, stride: dim, heads, dim };
        let queries =
            ops.norm_rope(&qk, layout, &self.index_q_norm, self.eps, &self.rope, position)?;
        let shape = BlockShape { heads, ratio, budget_blocks: self.budget_blocks };
        let selection = ops.block_select(&queries, blocks, shape, position)?;
        [qk, queries].into_iter().for_each(|done| ops.recycle(done));
        Ok(Some(selection))
    }
}
