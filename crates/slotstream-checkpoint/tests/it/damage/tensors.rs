//! The index, and tensors that do not fit the config.

use std::fs;

use serde_json::json;
use slotstream_checkpoint::CheckpointError as E;
use slotstream_testkit::checkpoint::edit;

use super::{FIRST, INDEX, NORM, ROUTER, Row, brackets, check, config, entry, index, rename, text};

#[test]
fn indices() {
    let rows: &[Row] = &[
        (
            "a tensor is not in the index",
            |f| index(f, |map| drop(map.remove(NORM))),
            |e| matches!(e, E::NotInIndex { .. }),
            &[NORM],
        ),
        (
            "a tensor is only in the index",
            |f| index(f, |map| drop(map.insert("ghost".to_owned(), json!(FIRST)))),
            |e| matches!(e, E::NotInShard { .. }),
            &[FIRST, "ghost"],
        ),
        (
            "an absent shard",
            |f| index(f, |map| drop(map.insert("ghost".to_owned(), json!("b.safetensors")))),
            |e| matches!(e, E::MissingShards { .. }),
            &["1 of ", "b.safetensors"],
        ),
        (
            "out of the folder",
            |f| index(f, |map| drop(map.insert("x".to_owned(), json!("../b.safetensors")))),
            |e| matches!(e, E::ShardName { .. }),
            &[INDEX, "../b.safetensors"],
        ),
        (
            "an absolute name",
            |f| index(f, |map| drop(map.insert("x".to_owned(), json!("/etc/passwd")))),
            |e| matches!(e, E::ShardName { .. }),
            &[INDEX, "/etc/passwd"],
        ),
        (
            "a number for a name",
            |f| index(f, |map| drop(map.insert("x".to_owned(), json!(3)))),
            |e| matches!(e, E::Field { .. }),
            &[INDEX, "weight_map.x"],
        ),
        (
            "no weight map",
            |f| fs::write(f.join(INDEX), b"{}").expect("written"),
            |e| matches!(e, E::MissingField { .. }),
            &[INDEX, "weight_map"],
        ),
        (
            "an empty weight map",
            |f| fs::write(f.join(INDEX), b"{\"weight_map\": {}}").expect("written"),
            |e| matches!(e, E::Field { .. }),
            &[INDEX, "weight_map", "empty"],
        ),
        (
            "a tensor twice",
            |f| {
                let text = br#"{"weight_map": {"a": "x.safetensors", "a": "y.safetensors"}}"#;
                fs::write(f.join(INDEX), text).expect("written");
            },
            |e| matches!(e, E::DuplicateKey { .. }),
            &[INDEX, "`a` twice"],
        ),
        (
            "200,000 brackets",
            |f| fs::write(f.join(INDEX), brackets("{\"a\": ")).expect("written"),
            |e| matches!(e, E::Json { .. }),
            &[INDEX, "recursion limit"],
        ),
        (
            "a tensor in two files",
            |f| {
                fs::remove_file(f.join(INDEX)).expect("removed");
                fs::copy(f.join(FIRST), f.join("again.safetensors")).expect("copied");
            },
            |e| matches!(e, E::DuplicateTensor { .. }),
            &[FIRST, "again.safetensors"],
        ),
    ];
    rows.iter().for_each(check);
}

#[test]
fn tensors() {
    let rows: &[Row] = &[
        (
            "dtype",
            |f| entry(f, ROUTER, |t| t["dtype"] = json!("F16")),
            |e| matches!(e, E::TensorDtype { found: "F16", .. }),
            &[ROUTER, "expected BF16"],
        ),
        (
            "packed words as bytes",
            |f| {
                entry(f, "language_model.lm_head.weight", |t| {
                    t["dtype"] = json!("U8");
                    t["shape"] = json!([128, 64]);
                });
            },
            |e| matches!(e, E::TensorDtype { found: "U8", .. }),
            &["lm_head.weight", "U32"],
        ),
        (
            "shape",
            |f| entry(f, ROUTER, |t| t["shape"] = json!([128, 4])),
            |e| matches!(e, E::TensorShape { .. }),
            &[ROUTER, "[128, 4]", "[4, 128]"],
        ),
        (
            "scales missing",
            |f| rename(f, "language_model.lm_head.scales", "language_model.lm_head.scale"),
            |e| matches!(e, E::IncompleteModule { part: "scales", .. }),
            &["`lm_head`", "scales"],
        ),
        (
            "a tensor missing",
            |f| rename(f, ROUTER, "language_model.model.layers.0.mlp.router.weight"),
            |e| matches!(e, E::MissingTensors { tensors, .. } if tensors.len() == 1),
            &["model.layers.0.mlp.gate.weight"],
        ),
        (
            "a sidecar that nobody maps",
            |f| {
                let name = "language_model.model.layers.0.mlp.gate.biases";
                let path = f.join(FIRST);
                edit::edit_header(&path, |header| {
                    let value = json!({"dtype": "BF16", "shape": [0], "data_offsets": [0, 0]});
                    header.insert(name.to_owned(), value);
                })
                .expect("edited");
                index(f, |map| drop(map.insert(name.to_owned(), json!(FIRST))));
            },
            |e| matches!(e, E::UnmappedTensors { tensors, .. } if tensors.len() == 1),
            &["model.layers.0.mlp.gate.biases"],
        ),
        (
            "more layers in the config",
            |f| {
                config(f, |config| {
                    let text = &mut config["text_config"];
                    text["num_hidden_layers"] = json!(5);
                    let types = text["layer_types"].as_array_mut().expect("a list");
                    types.push(json!("linear_attention"));
                });
            },
            |e| matches!(e, E::LayerCount { expected: 5, found: 4, .. }),
            &["config.json", "is 5", "4 layers"],
        ),
        (
            "fewer layers in the config",
            |f| {
                config(f, |config| {
                    let text = &mut config["text_config"];
                    text["num_hidden_layers"] = json!(3);
                    text["layer_types"].as_array_mut().expect("a list").truncate(3);
                });
            },
            |e| matches!(e, E::LayerCount { expected: 3, found: 4, .. }),
            &["config.json"],
        ),
        (
            "other experts in the config",
            |f| text(f, "num_experts", json!(8)),
            |e| matches!(e, E::TensorShape { .. }),
            &["switch_mlp", "[8, 64, 16]"],
        ),
    ];
    rows.iter().for_each(check);
}
