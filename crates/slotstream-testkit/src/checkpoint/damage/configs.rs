//! `config.json` and `generation_config.json`.

use serde_json::json;
use slotstream_checkpoint::CheckpointError as E;
use slotstream_core::ErrorKind::{Corrupt, User};

use super::{Row, brackets, config, put, quantization, text};

pub(super) const CONFIGS: &[Row] = &[
    (
        "another model",
        User,
        |f| config(f, |config| config["model_type"] = json!("llama")),
        |e| matches!(e, E::ModelType { .. }),
        &["config.json", "`llama`", "qwen4_exp"],
    ),
    (
        "no model type",
        Corrupt,
        |f| config(f, |config| config["model_type"] = json!(null)),
        |e| matches!(e, E::MissingField { .. }),
        &["config.json", "model_type"],
    ),
    (
        "no experts",
        Corrupt,
        |f| text(f, "num_experts", json!(0)),
        |e| matches!(e, E::Field { .. }),
        &["config.json", "text_config.num_experts", "is 0"],
    ),
    (
        "more experts a token than experts",
        Corrupt,
        |f| text(f, "num_experts_per_tok", json!(5)),
        |e| matches!(e, E::Field { .. }),
        &["text_config.num_experts_per_tok", "is 5", "from 1 to 4"],
    ),
    (
        "an absurd number",
        Corrupt,
        |f| text(f, "hidden_size", json!(1_u64 << 60)),
        |e| matches!(e, E::Field { .. }),
        &["text_config.hidden_size"],
    ),
    (
        "a text for a number",
        Corrupt,
        |f| text(f, "hc_count", json!("four")),
        |e| matches!(e, E::Field { .. }),
        &["text_config.hc_count", "\"four\""],
    ),
    (
        "a field missing",
        Corrupt,
        |f| text(f, "indexer_budget", json!(null)),
        |e| matches!(e, E::MissingField { .. }),
        &["text_config.indexer_budget"],
    ),
    (
        "layer types of another length",
        Corrupt,
        |f| text(f, "layer_types", json!(["linear_attention"])),
        |e| matches!(e, E::Field { .. }),
        &["text_config.layer_types", "4"],
    ),
    (
        "an unknown layer type",
        Corrupt,
        |f| config(f, |c| c["text_config"]["layer_types"][2] = json!("sliding_attention")),
        |e| matches!(e, E::Field { .. }),
        &["layer_types[2]", "sliding_attention"],
    ),
    (
        "an n-gram layer numbered from zero",
        Corrupt,
        |f| text(f, "ple_layer_ids", json!([0])),
        |e| matches!(e, E::Field { .. }),
        &["ple_layer_ids[0]", "from one"],
    ),
    (
        "a reset token out of the vocabulary",
        Corrupt,
        |f| text(f, "eos_token_id", json!(128)),
        |e| matches!(e, E::Field { .. }),
        &["eos_token_id", "below 128"],
    ),
    (
        "heads that do not divide",
        Corrupt,
        |f| text(f, "num_key_value_heads", json!(3)),
        |e| matches!(e, E::Field { .. }),
        &["num_key_value_heads", "divisor"],
    ),
    (
        "rope scaling",
        Corrupt,
        |f| config(f, |c| c["text_config"]["rope_parameters"]["rope_type"] = json!("yarn")),
        |e| matches!(e, E::Field { .. }),
        &["rope_parameters.rope_type", "yarn"],
    ),
    (
        "three bits",
        User,
        |f| quantization(f, |q| q["bits"] = json!(3)),
        |e| matches!(e, E::Quantization { bits: 3, .. }),
        &["config.json", "quantization", "3 bits", "4 or 8"],
    ),
    (
        "three bits in an override",
        User,
        |f| quantization(f, |q| q["lm_head.x"] = json!({"bits": 3, "group_size": 64})),
        |e| matches!(e, E::Quantization { bits: 3, .. }),
        &["quantization.lm_head.x"],
    ),
    (
        "another mode",
        Corrupt,
        |f| quantization(f, |q| q["mode"] = json!("mxfp4")),
        |e| matches!(e, E::Field { .. }),
        &["quantization.mode", "mxfp4"],
    ),
    (
        "an override that matches nothing",
        Corrupt,
        |f| {
            quantization(f, |q| {
                q["model.layers.9.mlp.gate"] = json!({"bits": 8, "group_size": 64});
            })
        },
        |e| matches!(e, E::OverrideUnused { .. }),
        &["model.layers.9.mlp.gate", "matches no module"],
    ),
    (
        "an override of a module that is not quantized",
        Corrupt,
        |f| {
            quantization(f, |q| {
                q["model.layers.0.mlp.gate"] = json!({"bits": 8, "group_size": 64});
            })
        },
        |e| matches!(e, E::OverrideUnused { .. }),
        &["model.layers.0.mlp.gate", "not quantized"],
    ),
    (
        "two quantization blocks that differ",
        Corrupt,
        |f| config(f, |c| c["quantization_config"]["bits"] = json!(8)),
        |e| matches!(e, E::Field { .. }),
        &["quantization_config", "the same as"],
    ),
    (
        "no quantization block",
        Corrupt,
        |f| {
            config(f, |c| {
                c["quantization"] = json!(null);
                c["quantization_config"] = json!(null);
            })
        },
        |e| matches!(e, E::MissingField { .. }),
        &["config.json", "quantization"],
    ),
    (
        "experts in two formats",
        Corrupt,
        |f| {
            quantization(f, |q| {
                q["model.layers.2.mlp.switch_mlp.up_proj"] = json!({"bits": 8, "group_size": 64});
            })
        },
        |e| matches!(e, E::MixedExperts { .. }),
        &["model.layers.2.mlp.switch_mlp.up_proj", "8 bits", "4 bits"],
    ),
    (
        "wide groups",
        Corrupt,
        |f| quantization(f, |q| q["lm_head"] = json!({"bits": 4, "group_size": 128})),
        |e| matches!(e, E::TensorShape { .. }),
        &["lm_head.scales", "[128, 1]", "[128, 2]"],
    ),
    (
        "rows that are not whole groups",
        Corrupt,
        |f| text(f, "hc_lowrank", json!(40)),
        |e| matches!(e, E::ModuleFormat { .. }),
        &["config.json", "input_mix_weight_up", "40"],
    ),
    (
        "a table that does not split evenly",
        Corrupt,
        |f| text(f, "split_ngram_parts", json!(11)),
        |e| matches!(e, E::NgramConfig { .. }),
        &["config.json", "split_ngram_parts = 11"],
    ),
    (
        "a key twice",
        Corrupt,
        |f| {
            let text = br#"{"model_type": "qwen4_exp", "a": {"b": 1, "b": 2}}"#;
            put(&f.join("config.json"), text)
        },
        |e| matches!(e, E::DuplicateKey { .. }),
        &["config.json", "`b` twice"],
    ),
    (
        "config of 200,000 brackets",
        Corrupt,
        |f| put(&f.join("config.json"), brackets("{\"a\": ")),
        |e| matches!(e, E::Json { .. }),
        &["config.json", "recursion limit"],
    ),
    (
        "config is not UTF-8",
        Corrupt,
        |f| put(&f.join("config.json"), b"{\"\xc3\x28\": 1}"),
        |e| matches!(e, E::Utf8 { .. }),
        &["config.json", "UTF-8"],
    ),
    (
        "config is not JSON",
        Corrupt,
        |f| put(&f.join("config.json"), b"{"),
        |e| matches!(e, E::Json { .. }),
        &["config.json", "line 1"],
    ),
    (
        "a key twice in the quantization block",
        Corrupt,
        |f| {
            quantization(f, |q| {
                q["lm_head"] = json!({"bits": 4, "group_size": 64});
                q["language_model.lm_head"] = json!({"bits": 4, "group_size": 64});
            })
        },
        |e| matches!(e, E::DuplicateKey { .. }),
        &["config.json", "quantization", "lm_head` twice"],
    ),
    (
        "two rotary factors",
        Corrupt,
        |f| text(f, "partial_rotary_factor", json!(0.5)),
        |e| matches!(e, E::Field { .. }),
        &["text_config.partial_rotary_factor", "is 0.5", "rope_parameters", "0.25"],
    ),
    (
        "a rotary factor that is no number",
        Corrupt,
        |f| text(f, "partial_rotary_factor", json!("half")),
        |e| matches!(e, E::Field { .. }),
        &["text_config.partial_rotary_factor", "half"],
    ),
    (
        "a key twice in the generation config",
        Corrupt,
        |f| put(&f.join("generation_config.json"), br#"{"top_k": 1, "top_k": 2}"#),
        |e| matches!(e, E::DuplicateKey { .. }),
        &["generation_config.json", "`top_k` twice"],
    ),
    (
        "a stop token out of the vocabulary",
        Corrupt,
        |f| {
            let text = br#"{"eos_token_id": [1, 128]}"#;
            put(&f.join("generation_config.json"), text)
        },
        |e| matches!(e, E::Field { .. }),
        &["generation_config.json", "eos_token_id", "128"],
    ),
    (
        "an impossible temperature",
        Corrupt,
        |f| {
            let text = br#"{"temperature": -1}"#;
            put(&f.join("generation_config.json"), text)
        },
        |e| matches!(e, E::Field { .. }),
        &["generation_config.json", "temperature", "-1"],
    ),
];
