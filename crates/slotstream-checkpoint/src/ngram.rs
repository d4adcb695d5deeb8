//! Where the rows of the n-gram table lie and how tokens are hashed to them.

use slotstream_core::{AffineFormat, Extent, LayerIdx};

/// The n-gram (PLE) table of one layer: constants of the hash and extents of the shards.
///
/// Source: `model.layers.L.ple.ple_embedding.*` and the config fields `ngram_size`,
/// `heads_per_ngram`, `ple_embed_dim`, `split_ngram_parts`, `seed`.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct NgramPlan {
    /// The layer whose streams the rows are injected into (zero-based).
    pub layer: LayerIdx,
    /// Longest n-gram (`ngram_size`, 3): a token and the two before it.
    pub ngram_size: usize,
    /// Heads of each n-gram order (`heads_per_ngram`, 8); heads are ordered by order, then number.
    pub heads_per_ngram: usize,
    /// The token that ends a context (`eos_token_id` of the text config).
    pub reset_token: u32,
    /// One multiplier a token of the window (`layer_multipliers`, `[ngram_size]`).
    pub multipliers: Vec<i64>,
    /// Rows of each head's table (`ngram_heads_vocab_sizes`, `[heads]`): primes.
    pub head_sizes: Vec<i64>,
    /// First row of each head's table (`ngram_heads_offsets`, `[heads]`).
    pub head_offsets: Vec<i64>,
    /// Values of one row (`ple_embed_dim / heads`, 160).
    pub row_width: usize,
    /// Quantization of a row: 4 bits in groups of 32.
    pub format: AffineFormat,
    /// Rows of each shard; global row `r` lies in shard `r / rows_per_shard`.
    pub rows_per_shard: u64,
    /// The shards in order.
    pub shards: Vec<NgramShard>,
}

/// The three arrays of one shard of the table, each `[rows_per_shard, ..]`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(clippy::exhaustive_structs, reason = "affine quantization has exactly these arrays")]
pub struct NgramShard {
    /// Packed words, `[rows, row_width / 8]` u32.
    pub weight: Extent,
    /// bf16 scales, `[rows, row_width / group_size]`.
    pub scales: Extent,
    /// bf16 biases, `[rows, row_width / group_size]`.
    pub biases: Extent,
}
