//! Which tensors a config asks for: names, dtypes and shapes.

use slotstream_core::{AffineFormat, LayerIdx, Matrix};

use crate::names::expert_module;
use crate::ngram::NgramConstants;
use crate::{CheckpointError, Dtype, LayerType, PleConfig, TensorClass, TextConfig};

/// What dtype a tensor may have.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum DtypeRule {
    /// Packed words: `U32`.
    Packed,
    /// `BF16` alone: matrices, scales and biases, which kernels read as they lie in the file.
    Bf16,
    /// `BF16`, `F16` or `F32`: small tensors that are widened when loaded.
    Float,
    /// `I64`.
    Int64,
}

impl DtypeRule {
    /// Whether a tensor of this dtype is accepted.
    #[must_use]
    pub const fn accepts(self, dtype: Dtype) -> bool {
        match self {
            Self::Packed => matches!(dtype, Dtype::U32),
            Self::Bf16 => matches!(dtype, Dtype::BF16),
            Self::Float => matches!(dtype, Dtype::BF16 | Dtype::F16 | Dtype::F32),
            Self::Int64 => matches!(dtype, Dtype::I64),
        }
    }

    /// The dtype that published checkpoints use.
    #[must_use]
    pub const fn usual(self) -> Dtype {
        match self {
            Self::Packed => Dtype::U32,
            Self::Bf16 | Self::Float => Dtype::BF16,
            Self::Int64 => Dtype::I64,
        }
    }

    /// The accepted dtypes, for messages.
    #[must_use]
    pub const fn describe(self) -> &'static str {
        match self {
            Self::Packed => "U32 (packed words)",
            Self::Bf16 => "BF16",
            Self::Float => "BF16, F16 or F32",
            Self::Int64 => "I64",
        }
    }
}

/// A tensor that a config asks for.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct ExpectedTensor {
    /// Its name without `language_model.`.
    pub name: String,
    /// What it is for.
    pub class: TensorClass,
    /// Number of the layer, mixer or shard within its class.
    pub unit: u32,
    /// What dtype it may have.
    pub dtype: DtypeRule,
    /// Its dimensions.
    pub shape: Vec<u64>,
}

/// All tensors that a config asks for: the final mixer, the layers in order, `embed_tokens`,
/// `lm_head`. Vision tower and draft head are optional and not among them.
///
/// # Errors
/// [`CheckpointError::ModuleFormat`] when rows do not consist of whole groups or an override
/// leaves a matrix unquantized; [`CheckpointError::NgramConfig`].
pub fn expected_tensors(config: &TextConfig) -> Result<Vec<ExpectedTensor>, CheckpointError> {
    let mut schema = Schema { config, tensors: Vec::new() };
    let layers = config.num_hidden_layers as u32;
    schema.mixer("model.hyper_connection_mixer", 2 * layers)?;
    for (layer, kind) in (0_u32..).zip(&config.layer_types) {
        schema.layer(layer, *kind)?;
    }
    let (vocab, hidden) = (config.vocab_size, config.hidden_size);
    schema.affine(TensorClass::Embedding, 0, "model.embed_tokens", &[vocab, hidden])?;
    schema.affine(TensorClass::Head, 0, "lm_head", &[vocab, hidden])?;
    Ok(schema.tensors)
}

struct Schema<'a> {
    config: &'a TextConfig,
    tensors: Vec<ExpectedTensor>,
}

impl Schema<'_> {
    fn push(
        &mut self,
        class: TensorClass,
        unit: u32,
        name: String,
        dtype: DtypeRule,
        shape: &[usize],
    ) {
        let shape = shape.iter().map(|n| *n as u64).collect();
        self.tensors.push(ExpectedTensor { name, class, unit, dtype, shape });
    }

    fn format(&self, module: &str, cols: usize) -> Result<AffineFormat, CheckpointError> {
        let bad = |reason: String| CheckpointError::ModuleFormat {
            path: self.config.path.clone(),
            module: module.to_owned(),
            cols: cols as u64,
            reason,
        };
        match self.config.quantization.format(module) {
            None => Err(bad("must be quantized, an override says that it is not".to_owned())),
            Some(format) if format.divides(cols) => Ok(format),
            Some(format) => {
                Err(bad(format!("does not consist of groups of {}", format.group_size())))
            }
        }
    }

    /// A quantized matrix or a stack of them; the last dimension is packed.
    fn affine(
        &mut self,
        class: TensorClass,
        unit: u32,
        module: &str,
        shape: &[usize],
    ) -> Result<(), CheckpointError> {
        let [lead @ .., cols] = shape else { return Ok(()) };
        let format = self.format(module, *cols)?;
        let (words, groups) = (format.row_bytes(*cols) / 4, format.row_groups(*cols));
        for (part, dtype, last) in [
            ("weight", DtypeRule::Packed, words),
            ("scales", DtypeRule::Bf16, groups),
            ("biases", DtypeRule::Bf16, groups),
        ] {
            let shape: Vec<_> = lead.iter().copied().chain([last]).collect();
            self.push(class, unit, format!("{module}.{part}"), dtype, &shape);
        }
        Ok(())
    }

    fn mixer(&mut self, name: &str, unit: u32) -> Result<(), CheckpointError> {
        let class = TensorClass::HyperConnection;
        let (width, rank) = (self.config.residual_width(), self.config.hc_lowrank);
        self.affine(class, unit, &format!("{name}.input_mix_weight_down"), &[rank, width])?;
        self.affine(class, unit, &format!("{name}.input_mix_weight_up"), &[width, rank])?;
        self.push(class, unit, format!("{name}.hc_norm.weight"), DtypeRule::Float, &[width]);
        Ok(())
    }

    fn layer(&mut self, layer: u32, kind: LayerType) -> Result<(), CheckpointError> {
        let base = format!("model.layers.{layer}");
        for (i, block) in (0..).zip(["attn_hyper_connection", "mlp_hyper_connection"]) {
            let (name, unit) = (format!("{base}.{block}"), 2 * layer + i);
            self.mixer(&name, unit)?;
            let shape = [self.config.hc_count, self.config.residual_width()];
            let name = format!("{name}.block_inject_weight.weight");
            self.push(TensorClass::BlockInject, unit, name, DtypeRule::Bf16, &shape);
        }
        match kind {
            LayerType::LinearAttention => self.linear_attention(layer, &base)?,
            LayerType::IndexedAttention => self.indexed_attention(layer, &base)?,
        }
        if let Some(ple) = self.config.ple.as_ref().filter(|p| u32::from(p.layer.get()) == layer) {
            self.ple(layer, &base, ple)?;
        }
        self.experts(layer, &base)
    }

    fn linear_attention(&mut self, unit: u32, base: &str) -> Result<(), CheckpointError> {
        let config = self.config;
        let (hidden, channels) = (config.hidden_size, config.linear_channels());
        let (heads, values) = (config.linear_num_value_heads, config.linear_value_width());
        let name = |part: &str| format!("{base}.linear_attn.{part}");
        self.affine(TensorClass::LinearQkv, unit, &name("in_proj_qkv"), &[channels, hidden])?;
        self.affine(TensorClass::LinearZ, unit, &name("in_proj_z"), &[values, hidden])?;
        self.affine(TensorClass::LinearOut, unit, &name("out_proj"), &[hidden, values])?;
        for part in ["in_proj_a.weight", "in_proj_b.weight"] {
            let class = TensorClass::LinearAb;
            self.push(class, unit, name(part), DtypeRule::Bf16, &[heads, hidden]);
        }
        let taps = [channels, config.linear_conv_kernel_dim, 1];
        self.push(TensorClass::LinearConv, unit, name("conv1d.weight"), DtypeRule::Float, &taps);
        for (part, len) in
            [("A_log", heads), ("dt_bias", heads), ("norm.weight", config.linear_value_head_dim)]
        {
            self.push(TensorClass::LinearSmall, unit, name(part), DtypeRule::Float, &[len]);
        }
        Ok(())
    }

    fn indexed_attention(&mut self, unit: u32, base: &str) -> Result<(), CheckpointError> {
        let config = self.config;
        let hidden = config.hidden_size;
        let queries = config.num_attention_heads * config.head_dim;
        let keys = config.num_key_value_heads * config.head_dim;
        let name = |part: &str| format!("{base}.self_attn.{part}");
        // Each query head brings its output gate.
        self.affine(TensorClass::AttentionQ, unit, &name("q_proj"), &[2 * queries, hidden])?;
        self.affine(TensorClass::AttentionKv, unit, &name("k_proj"), &[keys, hidden])?;
        self.affine(TensorClass::AttentionKv, unit, &name("v_proj"), &[keys, hidden])?;
        self.affine(TensorClass::AttentionOut, unit, &name("o_proj"), &[hidden, queries])?;
        let heads = config.indexer_n_heads + config.indexer_kv_heads;
        let shape = [heads * config.indexer_head_dim, hidden];
        let part = name("indexer.index_qk_proj.weight");
        self.push(TensorClass::Indexer, unit, part, DtypeRule::Bf16, &shape);
        for (part, len) in [
            ("q_norm.weight", config.head_dim),
            ("k_norm.weight", config.head_dim),
            ("indexer.q_layernorm.weight", config.indexer_head_dim),
            ("indexer.k_layernorm.weight", config.indexer_head_dim),
        ] {
            self.push(TensorClass::AttentionNorms, unit, name(part), DtypeRule::Float, &[len]);
        }
        Ok(())
    }

    fn ple(&mut self, unit: u32, base: &str, ple: &PleConfig) -> Result<(), CheckpointError> {
        let constants = NgramConstants::from_config(self.config, ple)?;
        let (width, embed) = (self.config.residual_width(), ple.ple_embed_dim);
        let name = |part: &str| format!("{base}.ple.{part}");
        let class = TensorClass::PleProjections;
        self.affine(class, unit, &name("key_proj"), &[width, embed])?;
        self.affine(class, unit, &name("value_proj"), &[self.config.hidden_size, embed])?;
        let class = TensorClass::PleSmall;
        for part in ["norm_key.weight", "norm_query.weight", "norm_conv.weight"] {
            self.push(class, unit, name(part), DtypeRule::Float, &[width]);
        }
        let taps = [width, ple.ple_conv_kernel_size, 1];
        self.push(class, unit, name("conv1d.weight"), DtypeRule::Float, &taps);
        for (part, len) in [
            ("layer_multipliers", ple.ngram_size),
            ("ngram_heads_offsets", ple.heads()),
            ("ngram_heads_vocab_sizes", ple.heads()),
        ] {
            let part = name(&format!("ple_embedding.{part}"));
            self.push(TensorClass::NgramConstants, unit, part, DtypeRule::Int64, &[len]);
        }
        let rows = usize::try_from(constants.rows_per_shard).unwrap_or(usize::MAX);
        for shard in 0..ple.split_ngram_parts {
            let module = name(&format!("ple_embedding.ngram_embedding.shard_{shard}"));
            let shape = [rows, ple.row_width()];
            self.affine(TensorClass::NgramTable, shard as u32, &module, &shape)?;
        }
        Ok(())
    }

    fn experts(&mut self, unit: u32, base: &str) -> Result<(), CheckpointError> {
        let config = self.config;
        let (experts, hidden) = (config.num_experts, config.hidden_size);
        let name = |part: &str| format!("{base}.mlp.{part}");
        let layer = LayerIdx::new(u16::try_from(unit).unwrap_or(u16::MAX));
        let wide = config.moe_intermediate_size;
        for matrix in [Matrix::Gate, Matrix::Up, Matrix::Down] {
            let shape = match matrix {
                Matrix::Gate | Matrix::Up => [experts, wide, hidden],
                Matrix::Down => [experts, hidden, wide],
            };
            let module = expert_module(layer, matrix);
            self.affine(TensorClass::RoutedExperts, unit, &module, &shape)?;
        }
        self.push(
            TensorClass::Router,
            unit,
            name("gate.weight"),
            DtypeRule::Bf16,
            &[experts, hidden],
        );
        let wide = config.shared_expert_intermediate_size;
        for (part, shape) in [
            ("gate_proj", [wide, hidden]),
            ("up_proj", [wide, hidden]),
            ("down_proj", [hidden, wide]),
        ] {
            let module = name(&format!("shared_expert.{part}"));
            self.affine(TensorClass::SharedExpert, unit, &module, &shape)?;
        }
        let part = name("shared_expert_gate.weight");
        self.push(TensorClass::SharedExpertGate, unit, part, DtypeRule::Bf16, &[1, hidden]);
        Ok(())
    }
}
