//! Memory of the activations of a pass.

use slotstream_checkpoint::{LayerType, TextConfig};

use crate::model::QwenModel;
use crate::state::conv_channels;

/// Rows that the CPU kernels work on at a time; what they keep between calls is as large.
const KERNEL_ROWS: usize = 32;

/// Floats a row, by what is alive at the same time. Each follows the bindings of the code that it
/// names; `tests/allocations` compares the sum with what a pass really takes.
struct Widths {
    hidden: usize,
    streams: usize,
    /// The n-gram embedding, alive from its layer to the end of the pass.
    embedding: usize,
}

impl Widths {
    /// `Ple::output`: value, key, gated, normed, and either the window or what is convolved.
    const fn ple(&self) -> usize {
        if self.embedding == 0 { 0 } else { 4 * self.streams + 2 * self.hidden }
    }

    /// `DeltaNet::forward`: input, projected, with its window or convolved and with gates and
    /// results.
    fn delta(&self, config: &TextConfig) -> usize {
        let conv = conv_channels(config);
        let value = config.linear_num_value_heads * config.linear_value_head_dim;
        let convolving = 3 * conv;
        let advancing = 2 * conv + 2 * value + 2 * config.linear_num_value_heads + self.hidden;
        self.hidden + convolving.max(advancing)
    }

    /// `IndexedAttention::forward`: input, queries with gates, rotated queries, keys before and
    /// after, the selection, results.
    fn attention(&self, config: &TextConfig) -> usize {
        let all = config.num_attention_heads * config.head_dim;
        let keys = config.num_key_value_heads * config.head_dim;
        let index = config.indexer_n_heads * config.indexer_head_dim;
        let selecting = 2 * index + 3 * config.indexer_head_dim;
        let blocks = config.indexer_budget / config.indexer_compress_ratio.max(1);
        self.hidden + 3 * all + 2 * keys + blocks + selecting.max(all + self.hidden)
    }

    /// `Run::layer` from the router on, where input and result of the block are still alive: input,
    /// shared expert, an output for each rank, their sum; ids, weights and logits, also as read back.
    fn experts(&self, config: &TextConfig) -> usize {
        let routed = (config.num_experts_per_tok + 1) * self.hidden;
        let chosen = 4 * config.num_experts_per_tok + 2 * config.num_experts;
        4 * self.hidden + routed + chosen
    }
}

impl QwenModel {
    /// Bytes of everything that a pass of `rows` rows holds at its widest point beside weights,
    /// state and records, what the kernels keep included; with the logits of `logit_rows` rows, also
    /// as read back.
    #[must_use]
    pub fn planned_workspace(config: &TextConfig, rows: usize, logit_rows: usize) -> u64 {
        let streams = config.hc_count * config.hidden_size;
        let embedding = config.ple.as_ref().map_or(0, |ple| ple.ple_embed_dim);
        let widths = Widths { hidden: config.hidden_size, streams, embedding };
        let block = |kind: &LayerType| match kind {
            LayerType::LinearAttention => widths.delta(config),
            LayerType::IndexedAttention => widths.attention(config),
        };
        let widest = config.layer_types.iter().map(block).max().unwrap_or(0);
        let widest = widest.max(widths.experts(config)).max(widths.ple());
        let row = streams + embedding + widest;
        // Norm and gates of a mix, the packed input of the widest product, and as much again for
        // tensors of few rows that are kept for the next step.
        let kept = 2 * KERNEL_ROWS * (3 * streams + config.hc_lowrank);
        let logits = logit_rows * (2 * config.vocab_size + 2 * streams);
        let floats = (rows as u64).saturating_mul(row as u64) + (kept + logits) as u64;
        floats.saturating_mul(4)
    }
}
