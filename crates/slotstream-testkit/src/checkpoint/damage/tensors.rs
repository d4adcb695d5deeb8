//! The index, and tensors that do not fit the config.

use crate::checkpoint::edit;
use serde_json::json;
use slotstream_checkpoint::CheckpointError as E;
use slotstream_core::ErrorKind::Corrupt;

use super::{
    FIRST, INDEX, NORM, ROUTER, Row, brackets, config, entry, get, index, put, remove, rename, text,
};

pub(super) const INDICES: &[Row] = &[
    (
        "a tensor is not in the index",
        Corrupt,
        |f| index(f, |map| drop(map.remove(NORM))),
        |e| matches!(e, E::NotInIndex { .. }),
        &[NORM],
    ),
    (
        "a tensor is only in the index",
        Corrupt,
        |f| index(f, |map| drop(map.insert("ghost".to_owned(), json!(FIRST)))),
        |e| matches!(e, E::NotInShard { .. }),
        &[FIRST, "ghost"],
    ),
    (
        "an absent shard",
        Corrupt,
        |f| index(f, |map| drop(map.insert("ghost".to_owned(), json!("b.safetensors")))),
        |e| matches!(e, E::MissingShards { .. }),
        &["1 of ", "b.safetensors"],
    ),
    (
        "out of the folder",
        Corrupt,
        |f| index(f, |map| drop(map.insert("x".to_owned(), json!("../b.safetensors")))),
        |e| matches!(e, E::ShardName { .. }),
        &[INDEX, "../b.safetensors"],
    ),
    (
        "an absolute name",
        Corrupt,
        |f| index(f, |map| drop(map.insert("x".to_owned(), json!("/etc/passwd")))),
        |e| matches!(e, E::ShardName { .. }),
        &[INDEX, "/etc/passwd"],
    ),
    (
        "a number for a name",
        Corrupt,
        |f| index(f, |map| drop(map.insert("x".to_owned(), json!(3)))),
        |e| matches!(e, E::Field { .. }),
        &[INDEX, "weight_map.x"],
    ),
    (
        "no weight map",
        Corrupt,
        |f| put(&f.join(INDEX), b"{}"),
        |e| matches!(e, E::MissingField { .. }),
        &[INDEX, "weight_map"],
    ),
    (
        "an empty weight map",
        Corrupt,
        |f| put(&f.join(INDEX), b"{\"weight_map\": {}}"),
        |e| matches!(e, E::Field { .. }),
        &[INDEX, "weight_map", "empty"],
    ),
    (
        "a tensor twice in the index",
        Corrupt,
        |f| {
            let text = br#"{"weight_map": {"a": "x.safetensors", "a": "y.safetensors"}}"#;
            put(&f.join(INDEX), text)
        },
        |e| matches!(e, E::DuplicateKey { .. }),
        &[INDEX, "`a` twice"],
    ),
    (
        "index of 200,000 brackets",
        Corrupt,
        |f| put(&f.join(INDEX), brackets("{\"a\": ")),
        |e| matches!(e, E::Json { .. }),
        &[INDEX, "recursion limit"],
    ),
    (
        "a tensor in two files",
        Corrupt,
        |f| {
            remove(&f.join(INDEX))?;
            put(&f.join("again.safetensors"), get(&f.join(FIRST))?)
        },
        |e| matches!(e, E::DuplicateTensor { .. }),
        &[FIRST, "again.safetensors"],
    ),
];

pub(super) const TENSORS: &[Row] = &[
    (
        "dtype",
        Corrupt,
        |f| entry(f, ROUTER, |t| t["dtype"] = json!("F16")),
        |e| matches!(e, E::TensorDtype { found: "F16", .. }),
        &[ROUTER, "expected BF16"],
    ),
    (
        "packed words as bytes",
        Corrupt,
        |f| {
            entry(f, "language_model.lm_head.weight", |t| {
                t["dtype"] = json!("U8");
                t["shape"] = json!([128, 64]);
            })
        },
        |e| matches!(e, E::TensorDtype { found: "U8", .. }),
        &["lm_head.weight", "U32"],
    ),
    (
        "shape",
        Corrupt,
        |f| entry(f, ROUTER, |t| t["shape"] = json!([128, 4])),
        |e| matches!(e, E::TensorShape { .. }),
        &[ROUTER, "[128, 4]", "[4, 128]"],
    ),
    (
        "scales missing",
        Corrupt,
        |f| rename(f, "language_model.lm_head.scales", "language_model.lm_head.scale"),
        |e| matches!(e, E::IncompleteModule { part: "scales", .. }),
        &["`lm_head`", "scales"],
    ),
    (
        "a tensor missing",
        Corrupt,
        |f| rename(f, ROUTER, "language_model.model.layers.0.mlp.router.weight"),
        |e| matches!(e, E::MissingTensors { tensors, .. } if tensors.len() == 1),
        &["model.layers.0.mlp.gate.weight"],
    ),
    (
        "a sidecar that nobody maps",
        Corrupt,
        |f| {
            let name = "language_model.model.layers.0.mlp.gate.biases";
            let path = &f.join(FIRST);
            edit::edit_header(path, |header| {
                let value = json!({"dtype": "BF16", "shape": [0], "data_offsets": [0, 0]});
                header.insert(name.to_owned(), value);
            })?;
            index(f, |map| drop(map.insert(name.to_owned(), json!(FIRST))))
        },
        |e| matches!(e, E::UnmappedTensors { tensors, .. } if tensors.len() == 1),
        &["model.layers.0.mlp.gate.biases"],
    ),
    (
        "more layers in the config",
        Corrupt,
        |f| {
            config(f, |config| {
                let text = &mut config["text_config"];
                text["num_hidden_layers"] = json!(5);
                let types = text["layer_types"].as_array_mut();
                types.into_iter().for_each(|list| list.push(json!("linear_attention")));
            })
        },
        |e| matches!(e, E::LayerCount { expected: 5, found: 4, .. }),
        &["config.json", "is 5", "4 layers"],
    ),
    (
        "fewer layers in the config",
        Corrupt,
        |f| {
            config(f, |config| {
                let text = &mut config["text_config"];
                text["num_hidden_layers"] = json!(3);
                text["layer_types"].as_array_mut().into_iter().for_each(|list| list.truncate(3));
            })
        },
        |e| matches!(e, E::LayerCount { expected: 3, found: 4, .. }),
        &["config.json"],
    ),
    (
        "other experts in the config",
        Corrupt,
        |f| text(f, "num_experts", json!(8)),
        |e| matches!(e, E::TensorShape { .. }),
        &["switch_mlp", "[8, 64, 16]"],
    ),
];
