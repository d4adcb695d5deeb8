//! `config.json`: every number that shapes the model, checked before anything is sized by it.

use std::path::{Path, PathBuf};

use slotstream_core::{ExpertShape, Geometry, LayerIdx};

use crate::json::{self, Fields};
use crate::{CheckpointError, Quantization};

/// The largest `config.json` that is read (the real one has 33,408 bytes).
pub(crate) const CONFIG_LIMIT: u64 = 4 << 20;

/// What mixes tokens in a layer (an entry of `layer_types`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[expect(clippy::exhaustive_enums, reason = "the architecture has exactly these")]
pub enum LayerType {
    /// `linear_attention`: gated delta net.
    LinearAttention,
    /// `full_attention`, which in this architecture means indexed (block-selecting) attention.
    IndexedAttention,
}

/// The activation of the gate on the gated delta net's output norm (`output_gate_type`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[expect(clippy::exhaustive_enums, reason = "the architecture has exactly these")]
pub enum OutputGate {
    /// `sigmoid`.
    Sigmoid,
    /// `silu` or `swish`.
    Silu,
}

/// The text model's part of `config.json`. Field names are the config's own.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct TextConfig {
    /// The file that this was read from, for messages.
    pub path: PathBuf,
    /// Width of one stream.
    pub hidden_size: usize,
    /// Number of layers.
    pub num_hidden_layers: usize,
    /// One entry a layer.
    pub layer_types: Vec<LayerType>,
    /// Rows of `embed_tokens` and `lm_head`.
    pub vocab_size: usize,
    /// `eos_token_id` of the text config. The first one resets the n-gram context; generation
    /// stops at those of `generation_config.json`.
    pub eos_token_ids: Vec<u32>,
    /// Parallel residual streams.
    pub hc_count: usize,
    /// Inner width of a hyper-connection mixer.
    pub hc_lowrank: usize,
    /// Query heads of indexed attention.
    pub num_attention_heads: usize,
    /// Key and value heads of indexed attention; divides the query heads.
    pub num_key_value_heads: usize,
    /// Width of one head of indexed attention.
    pub head_dim: usize,
    /// Base of the rotary angles.
    pub rope_theta: f64,
    /// Leading dimensions of a head that rotate: `head_dim * partial_rotary_factor`, even. The
    /// same number of an indexer head's dimensions rotates.
    pub rotary_dims: usize,
    /// Query heads of the indexer.
    pub indexer_n_heads: usize,
    /// Key heads of the indexer: 1.
    pub indexer_kv_heads: usize,
    /// Width of one head of the indexer.
    pub indexer_head_dim: usize,
    /// Tokens that a query may select; a multiple of `indexer_compress_ratio`.
    pub indexer_budget: usize,
    /// Tokens of one block.
    pub indexer_compress_ratio: usize,
    /// Key heads of the gated delta net; divides the value heads.
    pub linear_num_key_heads: usize,
    /// Value heads of the gated delta net.
    pub linear_num_value_heads: usize,
    /// Width of a key head of the gated delta net.
    pub linear_key_head_dim: usize,
    /// Width of a value head of the gated delta net.
    pub linear_value_head_dim: usize,
    /// Taps of the gated delta net's convolution.
    pub linear_conv_kernel_dim: usize,
    /// Gate of the gated delta net's output norm; absent means `hidden_act`.
    pub output_gate: OutputGate,
    /// Experts of a layer.
    pub num_experts: usize,
    /// Experts that a token uses.
    pub num_experts_per_tok: usize,
    /// Width of a routed expert.
    pub moe_intermediate_size: usize,
    /// Width of the shared expert.
    pub shared_expert_intermediate_size: usize,
    /// Whether the weights of the selected experts are divided by their sum; absent means true.
    pub norm_topk_prob: bool,
    /// The n-gram layer; `None` when `ple_layer_ids` is absent or empty.
    pub ple: Option<PleConfig>,
    /// Term in the root of every norm.
    pub rms_norm_eps: f64,
    /// Tokens of the longest context.
    pub max_position_embeddings: usize,
    /// Layers of the optional draft head; absent means 0.
    pub mtp_num_hidden_layers: usize,
    /// The quantization block.
    pub quantization: Quantization,
}

/// The n-gram (PLE) part of the text config.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct PleConfig {
    /// The layer before which the rows are added. Zero-based; `ple_layer_ids` counts from one.
    pub layer: LayerIdx,
    /// Width of all rows of one token together.
    pub ple_embed_dim: usize,
    /// Longest n-gram.
    pub ngram_size: usize,
    /// Heads of each n-gram order from 2 to `ngram_size`.
    pub heads_per_ngram: usize,
    /// Taps of the dilated convolution; its dilation is `ngram_size`.
    pub ple_conv_kernel_size: usize,
    /// The heads' row counts are the primes from here on.
    pub ngram_vocab_size_base: u64,
    /// The table's row count is rounded up to a multiple of this.
    pub make_ngram_vocab_size_divisible_by: u64,
    /// Shards of the table; divides the row count.
    pub split_ngram_parts: usize,
    /// Seed of the hash multipliers; absent means 1234.
    pub seed: u64,
}

impl PleConfig {
    /// Rows that one token reads: `heads_per_ngram` for each order from 2 to `ngram_size`.
    #[must_use]
    pub const fn heads(&self) -> usize {
        (self.ngram_size - 1) * self.heads_per_ngram
    }

    /// Values of one row: `ple_embed_dim / heads()`.
    #[must_use]
    pub const fn row_width(&self) -> usize {
        self.ple_embed_dim / self.heads()
    }
}

impl TextConfig {
    /// Reads and checks `config.json`.
    ///
    /// # Errors
    /// Names the file and the field, its value and what was expected.
    pub fn read(path: &Path) -> Result<Self, CheckpointError> {
        Self::from_json(path, &json::read_file(path, CONFIG_LIMIT)?)
    }

    /// Checks the bytes of a `config.json`; `path` is for messages.
    ///
    /// The text model's fields may lie at the top or under `text_config`. Unknown fields are
    /// ignored.
    ///
    /// # Errors
    /// Names the field, its value and what was expected.
    pub fn from_json(path: &Path, bytes: &[u8]) -> Result<Self, CheckpointError> {
        let map = json::parse_object(path, "the config", bytes)?;
        let top = Fields::new(path, &map);
        let text = top.object("text_config")?.unwrap_or_else(|| top.clone());
        check_family(&top, &text)?;
        check_fixed(&top)?;
        check_fixed(&text)?;
        let quantization = Quantization::parse(&top, &text)?;
        let config = parse_text(&text, quantization)?;
        config.check_divisions(&text)?;
        Ok(config)
    }

    /// Width of the residual: all streams together.
    #[must_use]
    pub const fn residual_width(&self) -> usize {
        self.hc_count * self.hidden_size
    }

    /// Channels of the gated delta net's convolution: queries, keys and values together.
    #[must_use]
    pub const fn linear_channels(&self) -> usize {
        2 * self.linear_key_width() + self.linear_value_width()
    }

    /// Width of all key heads of the gated delta net together.
    #[must_use]
    pub const fn linear_key_width(&self) -> usize {
        self.linear_num_key_heads * self.linear_key_head_dim
    }

    /// Width of all value heads of the gated delta net together.
    #[must_use]
    pub const fn linear_value_width(&self) -> usize {
        self.linear_num_value_heads * self.linear_value_head_dim
    }

    /// The token that ends an n-gram context.
    #[must_use]
    pub fn reset_token(&self) -> Option<u32> {
        self.eos_token_ids.first().copied()
    }

    /// Number of records and how they are asked for.
    ///
    /// # Errors
    /// [`CheckpointError::Shape`]; not after [`TextConfig::from_json`] accepted the numbers.
    pub fn geometry(&self) -> Result<Geometry, CheckpointError> {
        // from_json bounds all three far below the saturation point.
        let narrow = |n: usize| u16::try_from(n).unwrap_or(0);
        Geometry::new(
            narrow(self.num_hidden_layers),
            narrow(self.num_experts),
            narrow(self.num_experts_per_tok),
        )
        .map_err(|e| CheckpointError::shape(&self.path, e))
    }

    /// Shape of one record.
    ///
    /// # Errors
    /// [`CheckpointError::Shape`] when the experts do not consist of whole groups,
    /// [`CheckpointError::MixedExperts`] when the overrides give experts several formats.
    pub fn expert_shape(&self) -> Result<ExpertShape, CheckpointError> {
        let format = self.quantization.expert_format(&self.path, self.num_hidden_layers)?;
        ExpertShape::new(self.hidden_size, self.moe_intermediate_size, format)
            .map_err(|e| CheckpointError::shape(&self.path, e))
    }

    fn check_divisions(&self, text: &Fields<'_>) -> Result<(), CheckpointError> {
        let divides = |name: &str, number: usize, of: &str, whole: usize| {
            if number > 0 && whole.is_multiple_of(number) {
                return Ok(());
            }
            Err(text.bad(name, number.to_string(), format!("a divisor of {of} ({whole})")))
        };
        divides(
            "num_key_value_heads",
            self.num_key_value_heads,
            "num_attention_heads",
            self.num_attention_heads,
        )?;
        divides(
            "linear_num_key_heads",
            self.linear_num_key_heads,
            "linear_num_value_heads",
            self.linear_num_value_heads,
        )?;
        divides(
            "indexer_compress_ratio",
            self.indexer_compress_ratio,
            "indexer_budget",
            self.indexer_budget,
        )?;
        if let Some(ple) = &self.ple {
            let heads = ple.heads();
            if !ple.ple_embed_dim.is_multiple_of(heads) {
                let found = ple.ple_embed_dim.to_string();
                let expected = format!("a multiple of the {heads} n-gram heads");
                return Err(text.bad("ple_embed_dim", found, expected));
            }
        }
        Ok(())
    }
}

/// Refuses other model families by name.
fn check_family(top: &Fields<'_>, text: &Fields<'_>) -> Result<(), CheckpointError> {
    let Some(found) = top.opt_str("model_type")? else {
        return Err(top.missing("model_type", "`qwen4_exp`"));
    };
    for found in [Some(found), text.opt_str("model_type")?].into_iter().flatten() {
        if found != "qwen4_exp" && found != "qwen4_exp_text" {
            return Err(CheckpointError::ModelType {
                path: top.path().into(),
                found: found.to_owned(),
            });
        }
    }
    Ok(())
}

/// Refuses variants of the architecture that the graph does not compute.
fn check_fixed(text: &Fields<'_>) -> Result<(), CheckpointError> {
    for name in ["attention_bias", "tie_word_embeddings"] {
        if text.bool_or(name, false)? {
            return Err(text.bad(name, "true".to_owned(), "false: no such model is known"));
        }
    }
    match text.opt_str("mamba_ssm_dtype")? {
        None | Some("float32") => {}
        Some(other) => return Err(text.bad("mamba_ssm_dtype", other.to_owned(), "float32")),
    }
    match text.opt_str("hidden_act")? {
        None | Some("silu" | "swish") => Ok(()),
        Some(other) => Err(text.bad("hidden_act", other.to_owned(), "silu")),
    }
}

fn parse_text(
    text: &Fields<'_>,
    quantization: Quantization,
) -> Result<TextConfig, CheckpointError> {
    let num_hidden_layers = text.size("num_hidden_layers", 1024)?;
    let vocab_size = text.size("vocab_size", 1 << 24)?;
    let head_dim = text.size("head_dim", 4096)?;
    let indexer_head_dim = text.size("indexer_head_dim", 4096)?;
    let (rope_theta, rotary_dims) = parse_rope(text, head_dim, indexer_head_dim)?;
    let num_experts = text.size("num_experts", 1 << 14)?;
    Ok(TextConfig {
        path: text.path().into(),
        hidden_size: text.size("hidden_size", 1 << 17)?,
        num_hidden_layers,
        layer_types: parse_layer_types(text, num_hidden_layers)?,
        vocab_size,
        eos_token_ids: text.tokens("eos_token_id", vocab_size as u64)?,
        hc_count: text.size("hc_count", 32)?,
        hc_lowrank: text.size("hc_lowrank", 1 << 17)?,
        num_attention_heads: text.size("num_attention_heads", 1024)?,
        num_key_value_heads: text.size("num_key_value_heads", 1024)?,
        head_dim,
        rope_theta,
        rotary_dims,
        indexer_n_heads: text.size("indexer_n_heads", 1024)?,
        indexer_kv_heads: text.size("indexer_kv_heads", 1)?,
        indexer_head_dim,
        indexer_budget: text.size("indexer_budget", 1 << 24)?,
        indexer_compress_ratio: text.size("indexer_compress_ratio", 1 << 16)?,
        linear_num_key_heads: text.size("linear_num_key_heads", 1024)?,
        linear_num_value_heads: text.size("linear_num_value_heads", 1024)?,
        linear_key_head_dim: text.size("linear_key_head_dim", 4096)?,
        linear_value_head_dim: text.size("linear_value_head_dim", 4096)?,
        linear_conv_kernel_dim: text.size("linear_conv_kernel_dim", 64)?,
        output_gate: parse_output_gate(text)?,
        num_experts,
        num_experts_per_tok: text.size("num_experts_per_tok", num_experts)?,
        moe_intermediate_size: text.size("moe_intermediate_size", 1 << 17)?,
        shared_expert_intermediate_size: text.size("shared_expert_intermediate_size", 1 << 17)?,
        norm_topk_prob: text.bool_or("norm_topk_prob", true)?,
        ple: parse_ple(text, num_hidden_layers)?,
        rms_norm_eps: text
            .opt_float("rms_norm_eps", &(1e-12..=1e-1))?
            .ok_or_else(|| text.missing("rms_norm_eps", "a number from 1e-12 to 0.1"))?,
        max_position_embeddings: text.size("max_position_embeddings", 1 << 24)?,
        mtp_num_hidden_layers: text.opt_uint("mtp_num_hidden_layers", &(0..=64))?.unwrap_or(0)
            as usize,
        quantization,
    })
}

fn parse_layer_types(text: &Fields<'_>, layers: usize) -> Result<Vec<LayerType>, CheckpointError> {
    let name = "layer_types";
    let Some(list) = text.opt_list(name)? else {
        return Err(text.missing(name, format!("a list of {layers} layer types")));
    };
    if list.len() != layers {
        let found = format!("a list of {} items", list.len());
        return Err(text.bad(name, found, format!("num_hidden_layers = {layers} items")));
    }
    list.iter()
        .enumerate()
        .map(|(i, value)| match value.as_str() {
            Some("linear_attention") => Ok(LayerType::LinearAttention),
            Some("full_attention" | "indexed_attention") => Ok(LayerType::IndexedAttention),
            _ => Err(text.bad(
                &format!("{name}[{i}]"),
                json::show(value),
                "`linear_attention` or `full_attention`",
            )),
        })
        .collect()
}

/// Base of the angles and number of rotating dimensions.
fn parse_rope(
    text: &Fields<'_>,
    head_dim: usize,
    indexer_head_dim: usize,
) -> Result<(f64, usize), CheckpointError> {
    let rope = text.object("rope_parameters")?.unwrap_or_else(|| text.clone());
    match rope.opt_str("rope_type")? {
        None | Some("default") => {}
        Some(other) => {
            return Err(rope.bad("rope_type", other.to_owned(), "`default`: no scaling is known"));
        }
    }
    // Where both places give a number, they must agree: readers differ in which one they take.
    let number = |name: &str, range| {
        let (inner, outer) = (rope.opt_float(name, &range)?, text.opt_float(name, &range)?);
        match (inner, outer) {
            (Some(inner), Some(outer)) if inner != outer => {
                let expected = format!("the same as in rope_parameters ({inner})");
                Err(text.bad(name, outer.to_string(), expected))
            }
            _ => Ok(inner.or(outer)),
        }
    };
    let theta = number("rope_theta", 1.0..=1e12)?
        .ok_or_else(|| rope.missing("rope_theta", "a number from 1 to 1e12"))?;
    let name = "partial_rotary_factor";
    let factor = number(name, 0.0..=1.0)?.unwrap_or(1.0);
    let dims = head_dim as f64 * factor;
    if dims.fract() != 0.0 || dims < 2.0 || dims % 2.0 != 0.0 || dims > indexer_head_dim as f64 {
        let expected = format!(
            "a share of head_dim ({head_dim}) that is an even number of dimensions and at most \
             indexer_head_dim ({indexer_head_dim})"
        );
        return Err(rope.bad(name, factor.to_string(), expected));
    }
    Ok((theta, dims as usize))
}

fn parse_output_gate(text: &Fields<'_>) -> Result<OutputGate, CheckpointError> {
    let name = "output_gate_type";
    let gate = match text.opt_str(name)? {
        Some(gate) => Some(gate),
        None => text.opt_str("hidden_act")?,
    };
    match gate {
        Some("sigmoid") => Ok(OutputGate::Sigmoid),
        Some("silu" | "swish") | None => Ok(OutputGate::Silu),
        Some(other) => Err(text.bad(name, other.to_owned(), "`sigmoid` or `silu`")),
    }
}

fn parse_ple(text: &Fields<'_>, layers: usize) -> Result<Option<PleConfig>, CheckpointError> {
    let name = "ple_layer_ids";
    let id = match text.opt_list(name)?.unwrap_or_default() {
        [] => return Ok(None),
        [id] => id,
        list => {
            let found = format!("a list of {} layers", list.len());
            return Err(text.bad(name, found, "at most one layer: no model with more is known"));
        }
    };
    let layer = match id.as_u64() {
        Some(id @ 1..) if id <= layers as u64 => LayerIdx::new(u16::try_from(id - 1).unwrap_or(0)),
        _ => {
            let expected = format!("a layer number counted from one, at most {layers}");
            return Err(text.bad(&format!("{name}[0]"), json::show(id), expected));
        }
    };
    Ok(Some(PleConfig {
        layer,
        ple_embed_dim: text.size("ple_embed_dim", 1 << 17)?,
        ngram_size: text.uint("ngram_size", 2..=8)? as usize,
        heads_per_ngram: text.size("heads_per_ngram", 256)?,
        ple_conv_kernel_size: text.size("ple_conv_kernel_size", 64)?,
        ngram_vocab_size_base: text.uint("ngram_vocab_size_base", 2..=1 << 40)?,
        make_ngram_vocab_size_divisible_by: text
            .uint("make_ngram_vocab_size_divisible_by", 1..=1 << 20)?,
        split_ngram_parts: text.size("split_ngram_parts", 1 << 14)?,
        seed: text.opt_uint("seed", &(0..=i64::MAX as u64))?.unwrap_or(1234),
    }))
}
