//! Other shapes than those of the two fixtures, with random weights written on the spot. The
//! tokens were computed by an independent numpy forward pass over the written files (f32, one
//! token at a time, weights dequantized).

use std::path::Path;
use std::sync::Arc;

use serde_json::{Value, json};
use slotstream_kernels::{Cpu, Reference};
use slotstream_testkit::checkpoint::CheckpointSpec;

use crate::rig::{Rig, assert_close, random_model};

/// The random fixture's config with some fields replaced or, by null, removed.
fn config(changes: &Value) -> Value {
    let bytes = std::fs::read(random_model().join("config.json")).expect("a fixture");
    let mut config: Value = serde_json::from_slice(&bytes).expect("json");
    let text = config["text_config"].as_object_mut().expect("an object");
    for (name, value) in changes.as_object().expect("an object") {
        match value {
            Value::Null => drop(text.remove(name)),
            value => drop(text.insert(name.clone(), value.clone())),
        }
    }
    if text.get("ple_layer_ids").is_none() {
        // Overrides of a table that is not there would match nothing.
        for block in ["quantization", "quantization_config"] {
            let block = config[block].as_object_mut().expect("an object");
            block.retain(|name, _| !name.contains("ngram_embedding"));
        }
    }
    config
}

/// Writes the checkpoint, runs 40 tokens whole, in chunks and through both kernel sets, and
/// generates the golden tokens after them.
fn check(
    what: &str,
    changes: &Value,
    edit: impl FnOnce(CheckpointSpec) -> CheckpointSpec,
    golden: &[u32],
) {
    let folder = tempfile::tempdir().expect("a temporary folder");
    edit(CheckpointSpec::new(config(changes))).write_random(folder.path(), 11).expect("writes");
    let vocab = 1024_u32;
    let tokens: Vec<u32> = (0..40_u32).map(|i| (i * i * 37 + 5) % vocab).collect();
    let run = |path: &Path, share, chunk| {
        Rig::new(path, Arc::new(Cpu::new(1).expect("one thread")), share).all_logits(&tokens, chunk)
    };
    let whole = run(folder.path(), 1.0, 40);
    assert!(whole.iter().all(|v| v.is_finite()), "{what}");
    assert!(run(folder.path(), 0.0, 40) == whole, "{what}: at the floor");
    assert!(run(folder.path(), 0.5, 3) == whole, "{what}: chunks of 3");
    let reference = Rig::new(folder.path(), Arc::new(Reference), 1.0).all_logits(&tokens, 40);
    assert_close(what, &whole, &reference, 1e-3);
    let mut rig = Rig::new(folder.path(), Arc::new(Cpu::new(1).expect("one thread")), 0.5);
    assert_eq!(rig.greedy(&tokens, 40, golden.len()), golden, "{what}");
}

#[test]
fn a_model_without_an_ngram_layer() {
    let changes = json!({"ple_layer_ids": null});
    let golden = [823, 342, 434, 137, 527, 905, 264, 665, 642, 570, 552, 142, 227, 53, 434, 122];
    check("no ple", &changes, |spec| spec, &golden);
}

#[test]
fn names_without_prefix_and_no_index() {
    let bare = |spec: CheckpointSpec| spec.without_prefix().without_index().odd_starts();
    check("bare names", &json!({}), bare, &[]);
}

#[test]
fn one_key_head_a_value_head_and_silu_gates() {
    let changes = json!({
        "linear_num_key_heads": 4,
        "linear_num_value_heads": 4,
        "output_gate_type": "swish",
        "layer_types": ["linear_attention", "full_attention", "linear_attention"],
        "num_hidden_layers": 3,
        "num_experts_per_tok": 1,
    });
    let golden = [727, 493, 893, 36, 627, 962, 624, 53, 631, 821, 311, 1008, 805, 214, 944, 214];
    check("one to one", &changes, |spec| spec.file_limit(300_000), &golden);
}

#[test]
fn attention_only_with_small_blocks() {
    let changes = json!({
        "layer_types": ["full_attention", "full_attention"],
        "num_hidden_layers": 2,
        "indexer_compress_ratio": 2,
        "indexer_budget": 6,
        "num_attention_heads": 6,
        "num_key_value_heads": 1,
        "head_dim": 64,
        "hidden_size": 192,
        "num_experts": 5,
        "num_experts_per_tok": 5,
    });
    let golden = [967, 929, 165, 981, 695, 992, 811, 197, 262, 103, 24, 888, 651, 238, 274, 377];
    check("attention only", &changes, |spec| spec, &golden);
}

#[test]
fn delta_nets_only_with_two_streams_and_bigrams() {
    let changes = json!({
        "layer_types": ["linear_attention", "linear_attention"],
        "num_hidden_layers": 2,
        "hc_count": 2,
        "linear_conv_kernel_dim": 2,
        "linear_value_head_dim": 64,
        "ngram_size": 2,
        "heads_per_ngram": 4,
        "ple_embed_dim": 128,
        "ple_layer_ids": [2],
        "ple_conv_kernel_size": 3,
        "shared_expert_intermediate_size": 128,
    });
    let golden = [556, 461, 647, 145, 734, 532, 531, 735, 382, 345, 382, 443, 374, 545, 106, 626];
    check("delta only", &changes, |spec| spec, &golden);
}
