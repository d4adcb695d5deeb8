//! Damaged checkpoints: each gives its own error, which names the file and the cause, within a
//! second.

use std::fs;
use std::path::Path;
use std::time::{Duration, Instant};

use serde_json::{Map, Value, json};
use slotstream_checkpoint::{Checkpoint, CheckpointError as E};
use slotstream_testkit::checkpoint::{CheckpointSpec, edit};

use crate::{chain, small_config};

const INDEX: &str = "model.safetensors.index.json";
const FIRST: &str = "model-00001.safetensors";

/// One damage: what is done to a good folder, and what the error must be and say.
type Row = (&'static str, fn(&Path), fn(&E) -> bool, &'static [&'static str]);

/// Writes a good folder of several files, applies the damage and opens it.
fn check((name, damage, is, says): &Row) {
    let folder = tempfile::tempdir().expect("a folder");
    let folder = folder.path().join("model");
    CheckpointSpec::new(small_config())
        .generation(json!({ "eos_token_id": 96 }))
        .file_limit(400_000)
        .write_sparse(&folder)
        .expect("written");
    Checkpoint::open(&folder).expect("good before the damage");
    damage(&folder);
    let start = Instant::now();
    let error = Checkpoint::open(&folder).expect_err(name);
    assert!(start.elapsed() < Duration::from_secs(1), "{name}: {:?}", start.elapsed());
    let text = chain(&error);
    assert!(is(&error), "{name}: {error:?}");
    for part in *says {
        assert!(text.contains(part), "{name}: `{text}` does not say `{part}`");
    }
}

fn config(folder: &Path, edit: impl FnOnce(&mut Value)) {
    edit::edit_json(&folder.join("config.json"), edit).expect("edited");
}

fn text(folder: &Path, field: &str, value: Value) {
    config(folder, |config| config["text_config"][field] = value);
}

fn quantization(folder: &Path, edit: impl FnOnce(&mut Value)) {
    config(folder, |config| {
        edit(&mut config["quantization"]);
        config["quantization_config"] = config["quantization"].clone();
    });
}

fn index(folder: &Path, edit: impl FnOnce(&mut Map<String, Value>)) {
    edit::edit_json(&folder.join(INDEX), |value| {
        edit(value["weight_map"].as_object_mut().expect("an object"));
    })
    .expect("edited");
}

/// The file that holds a tensor.
fn file_of(folder: &Path, tensor: &str) -> std::path::PathBuf {
    let value = crate::read_json(&folder.join(INDEX));
    folder.join(value["weight_map"][tensor].as_str().expect("indexed"))
}

/// Changes one tensor's entry of a header.
fn entry(folder: &Path, tensor: &str, edit: impl FnOnce(&mut Value)) {
    edit::edit_header(&file_of(folder, tensor), |header| {
        edit(header.get_mut(tensor).expect("there"));
    })
    .expect("edited");
}

/// Renames a tensor in its file and in the index.
fn rename(folder: &Path, from: &str, to: &str) {
    let path = file_of(folder, from);
    edit::edit_header(&path, |header| {
        let value = header.remove(from).expect("there");
        header.insert(to.to_owned(), value);
    })
    .expect("edited");
    index(folder, |map| {
        let file = map.remove(from).expect("there");
        map.insert(to.to_owned(), file);
    });
}

fn header(folder: &Path, bytes: &[u8]) {
    edit::replace_header(&folder.join(FIRST), bytes).expect("edited");
}

fn brackets(before: &str) -> Vec<u8> {
    [before.as_bytes(), &[b'['; 200_000]].concat()
}

const NORM: &str = "language_model.model.layers.0.linear_attn.norm.weight";
const ROUTER: &str = "language_model.model.layers.0.mlp.gate.weight";

#[test]
fn files() {
    let rows: &[Row] = &[
        (
            "shard cut by 1 KiB",
            |f| edit::cut_off(&f.join(FIRST), 1024).expect("cut"),
            |e| matches!(e, E::Truncated { expected, found, .. } if expected - found == 1024),
            &[FIRST, "download it again"],
        ),
        (
            "shard too long",
            |f| {
                let mut bytes = fs::read(f.join(FIRST)).expect("read");
                bytes.push(0);
                fs::write(f.join(FIRST), bytes).expect("written");
            },
            |e| matches!(e, E::TrailingBytes { .. }),
            &[FIRST],
        ),
        (
            "shards missing",
            |f| {
                fs::remove_file(f.join(FIRST)).expect("removed");
                fs::remove_file(f.join("model-00003.safetensors")).expect("removed");
            },
            |e| matches!(e, E::MissingShards { missing, .. } if missing.len() == 2),
            &["2 of ", FIRST, "model-00003.safetensors", "download them again"],
        ),
        (
            "shard missing without an index",
            |f| {
                fs::remove_file(f.join(INDEX)).expect("removed");
                fs::remove_file(f.join("model-00002.safetensors")).expect("removed");
            },
            |e| matches!(e, E::MissingShards { missing, .. } if missing.len() == 1),
            &["1 of ", "model-00002.safetensors"],
        ),
        (
            "shard is a folder",
            |f| {
                fs::remove_file(f.join(FIRST)).expect("removed");
                fs::create_dir(f.join(FIRST)).expect("made");
            },
            |e| matches!(e, E::FileType { .. }),
            &[FIRST, "a folder"],
        ),
        (
            "a folder named like a shard, no index",
            |f| {
                fs::remove_file(f.join(INDEX)).expect("removed");
                fs::create_dir(f.join("other.safetensors")).expect("made");
            },
            |e| matches!(e, E::FileType { .. }),
            &["other.safetensors", "a folder"],
        ),
        (
            "a loop of links",
            |f| {
                fs::remove_file(f.join(FIRST)).expect("removed");
                std::os::unix::fs::symlink(f.join(FIRST), f.join(FIRST)).expect("linked");
            },
            |e| matches!(e, E::Io { .. }),
            &[FIRST, "symbolic links"],
        ),
        (
            "a link to nowhere",
            |f| {
                fs::remove_file(f.join(FIRST)).expect("removed");
                std::os::unix::fs::symlink("/nowhere/at/all", f.join(FIRST)).expect("linked");
            },
            |e| matches!(e, E::MissingShards { .. }),
            &[FIRST],
        ),
        (
            "a socket in place of the config",
            |f| {
                fs::remove_file(f.join("config.json")).expect("removed");
                std::os::unix::net::UnixListener::bind(f.join("config.json")).expect("bound");
            },
            |e| matches!(e, E::FileType { .. }),
            &["config.json", "neither"],
        ),
        (
            "an empty folder",
            |f| {
                fs::remove_dir_all(f).expect("removed");
                fs::create_dir(f).expect("made");
            },
            |e| matches!(e, E::NoConfig { .. }),
            &["config.json"],
        ),
        (
            "only a config",
            |f| {
                let config = fs::read(f.join("config.json")).expect("read");
                fs::remove_dir_all(f).expect("removed");
                fs::create_dir(f).expect("made");
                fs::write(f.join("config.json"), config).expect("written");
            },
            |e| matches!(e, E::NoShards { .. }),
            &["no *.safetensors"],
        ),
        (
            "no folder",
            |f| fs::remove_dir_all(f).expect("removed"),
            |e| matches!(e, E::Io { .. }),
            &["model", "No such file"],
        ),
        (
            "a file in place of the folder",
            |f| {
                fs::remove_dir_all(f).expect("removed");
                fs::write(f, b"x").expect("written");
            },
            |e| matches!(e, E::FileType { .. }),
            &["expected a folder"],
        ),
        (
            "a huge config",
            |f| {
                let file = fs::File::create(f.join("config.json")).expect("made");
                file.set_len(1 << 40).expect("sized");
            },
            |e| matches!(e, E::FileTooLarge { .. }),
            &["config.json", "limit"],
        ),
    ];
    rows.iter().for_each(check);
}

#[test]
fn headers() {
    let rows: &[Row] = &[
        (
            "length 0",
            |f| edit::set_header_length(&f.join(FIRST), 0).expect("set"),
            |e| matches!(e, E::HeaderLength { length: 0, .. }),
            &[FIRST, "claims 0 bytes"],
        ),
        (
            "length past the end",
            |f| edit::set_header_length(&f.join(FIRST), 50_000_000).expect("set"),
            |e| matches!(e, E::HeaderLength { .. }),
            &[FIRST, "50000000"],
        ),
        (
            "length of all ones",
            |f| edit::set_header_length(&f.join(FIRST), u64::MAX).expect("set"),
            |e| matches!(e, E::HeaderLength { length: u64::MAX, .. }),
            &[FIRST],
        ),
        (
            "length over the cap in a file that is long enough",
            |f| {
                edit::set_header_length(&f.join(FIRST), 100_000_001).expect("set");
                let file = fs::OpenOptions::new().write(true).open(f.join(FIRST)).expect("open");
                file.set_len(300_000_000).expect("sized");
            },
            |e| matches!(e, E::HeaderLength { limit: 100_000_000, .. }),
            &[FIRST, "100000001"],
        ),
        (
            "a file of three bytes",
            |f| fs::write(f.join(FIRST), b"abc").expect("written"),
            |e| matches!(e, E::NoHeader { found: 3, .. }),
            &[FIRST, "download it again"],
        ),
        (
            "not UTF-8",
            |f| header(f, b"{\"a\xff\": 1}"),
            |e| matches!(e, E::Utf8 { offset: 3, .. }),
            &[FIRST, "UTF-8"],
        ),
        (
            "not JSON",
            |f| header(f, b"{\"a\": ]"),
            |e| matches!(e, E::Json { .. }),
            &[FIRST, "not valid JSON", "column"],
        ),
        (
            "a list",
            |f| header(f, b"[1, 2]"),
            |e| matches!(e, E::Json { .. }),
            &[FIRST, "the header"],
        ),
        (
            "200,000 brackets",
            |f| header(f, &brackets("")),
            |e| matches!(e, E::Json { .. }),
            &[FIRST],
        ),
        (
            "200,000 brackets in a tensor",
            |f| header(f, &brackets("{\"x\": {\"shape\": ")),
            |e| matches!(e, E::Json { .. }),
            &[FIRST, "`x`"],
        ),
        (
            "200,000 brackets in an unknown field",
            |f| header(f, &brackets("{\"x\": {\"other\": ")),
            |e| matches!(e, E::Json { .. }),
            &[FIRST, "`x`"],
        ),
        (
            "a tensor twice",
            |f| {
                let one = r#""a": {"dtype": "U8", "shape": [0], "data_offsets": [0, 0]}"#;
                header(f, format!("{{{one}, {one}}}").as_bytes());
            },
            // The data no longer fit either; the duplicate is found first.
            |e| matches!(e, E::DuplicateKey { .. }),
            &[FIRST, "`a` twice"],
        ),
        (
            "a field twice",
            |f| header(f, br#"{"a": {"dtype": "U8", "dtype": "U8"}}"#),
            |e| matches!(e, E::DuplicateKey { .. }),
            &[FIRST, "`a.dtype` twice"],
        ),
        (
            "no dtype",
            |f| entry(f, NORM, |t| drop(t.as_object_mut().expect("map").remove("dtype"))),
            |e| matches!(e, E::TensorField { field: "dtype", .. }),
            &[NORM, "dtype"],
        ),
        (
            "unknown dtype",
            |f| entry(f, NORM, |t| t["dtype"] = json!("Q4_K")),
            |e| matches!(e, E::UnknownDtype { .. }),
            &[NORM, "Q4_K"],
        ),
        (
            "negative offset",
            |f| entry(f, NORM, |t| t["data_offsets"][0] = json!(-8)),
            |e| matches!(e, E::TensorNumber { found: -8, .. }),
            &[NORM, "-8"],
        ),
        (
            "negative dimension",
            |f| entry(f, NORM, |t| t["shape"][0] = json!(-32)),
            |e| matches!(e, E::TensorNumber { field: "shape", .. }),
            &[NORM, "-32"],
        ),
        (
            "offset beyond 2^63",
            |f| entry(f, NORM, |t| t["data_offsets"] = json!([u64::MAX - 64, u64::MAX])),
            |e| matches!(e, E::TensorNumber { .. }),
            &[NORM, "18446744073709551551"],
        ),
        (
            "a dimension that is not whole",
            |f| entry(f, NORM, |t| t["shape"][0] = json!(32.5)),
            |e| matches!(e, E::Json { .. }),
            &[NORM, "whole number"],
        ),
        (
            "thousands of dimensions",
            |f| entry(f, NORM, |t| t["shape"] = json!(vec![1; 5000])),
            |e| matches!(e, E::Json { .. }),
            &[NORM, "at most 8"],
        ),
        (
            "shape product overflows",
            |f| entry(f, NORM, |t| t["shape"] = json!([1_u64 << 40, 1_u64 << 40])),
            |e| matches!(e, E::ShapeOverflow { .. }),
            &[NORM, "overflows"],
        ),
        (
            "shape and bytes disagree",
            |f| entry(f, NORM, |t| t["shape"] = json!([31])),
            |e| matches!(e, E::TensorBytes { expected: 62, .. }),
            &[NORM, "62"],
        ),
        (
            "end before begin",
            |f| {
                entry(f, NORM, |t| {
                    t["data_offsets"].as_array_mut().expect("a list").reverse();
                });
            },
            |e| matches!(e, E::TensorBytes { .. }),
            &[NORM],
        ),
        (
            "overlapping extents",
            |f| {
                entry(f, NORM, |t| {
                    let begin = t["data_offsets"][0].as_u64().expect("a number");
                    t["data_offsets"] = json!([begin - 2, begin + 62]);
                });
            },
            |e| matches!(e, E::TensorPlacement { .. }),
            &["overlap"],
        ),
        (
            "a gap",
            |f| {
                edit::edit_header(&file_of(f, NORM), |header| {
                    for tensor in header.values_mut() {
                        for offset in tensor["data_offsets"].as_array_mut().expect("a list") {
                            *offset = json!(offset.as_u64().expect("a number") + 2);
                        }
                    }
                })
                .expect("edited");
            },
            |e| matches!(e, E::TensorPlacement { expected: 0, found: 2, .. }),
            &["belong to no tensor"],
        ),
        (
            "an extent out of the file",
            |f| {
                edit::edit_header(&f.join(FIRST), |header| {
                    let end = header.values().filter_map(|t| t["data_offsets"][1].as_u64()).max();
                    let end = end.expect("tensors");
                    let value =
                        json!({"dtype": "U8", "shape": [9], "data_offsets": [end, end + 9]});
                    header.insert("far".to_owned(), value);
                })
                .expect("edited");
            },
            |e| matches!(e, E::Truncated { .. }),
            &[FIRST, "download it again"],
        ),
    ];
    rows.iter().for_each(check);
}

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

#[test]
fn configs() {
    let rows: &[Row] = &[
        (
            "another model",
            |f| config(f, |config| config["model_type"] = json!("llama")),
            |e| matches!(e, E::ModelType { .. }),
            &["config.json", "`llama`", "qwen4_exp"],
        ),
        (
            "no model type",
            |f| config(f, |config| drop(config.as_object_mut().expect("map").remove("model_type"))),
            |e| matches!(e, E::MissingField { .. }),
            &["config.json", "model_type"],
        ),
        (
            "no experts",
            |f| text(f, "num_experts", json!(0)),
            |e| matches!(e, E::Field { .. }),
            &["config.json", "text_config.num_experts", "is 0"],
        ),
        (
            "more experts a token than experts",
            |f| text(f, "num_experts_per_tok", json!(5)),
            |e| matches!(e, E::Field { .. }),
            &["text_config.num_experts_per_tok", "is 5", "from 1 to 4"],
        ),
        (
            "an absurd number",
            |f| text(f, "hidden_size", json!(1_u64 << 60)),
            |e| matches!(e, E::Field { .. }),
            &["text_config.hidden_size"],
        ),
        (
            "a text for a number",
            |f| text(f, "hc_count", json!("four")),
            |e| matches!(e, E::Field { .. }),
            &["text_config.hc_count", "\"four\""],
        ),
        (
            "a field missing",
            |f| text(f, "indexer_budget", json!(null)),
            |e| matches!(e, E::MissingField { .. }),
            &["text_config.indexer_budget"],
        ),
        (
            "layer types of another length",
            |f| text(f, "layer_types", json!(["linear_attention"])),
            |e| matches!(e, E::Field { .. }),
            &["text_config.layer_types", "4"],
        ),
        (
            "an unknown layer type",
            |f| {
                config(f, |c| c["text_config"]["layer_types"][2] = json!("sliding_attention"));
            },
            |e| matches!(e, E::Field { .. }),
            &["layer_types[2]", "sliding_attention"],
        ),
        (
            "an n-gram layer numbered from zero",
            |f| text(f, "ple_layer_ids", json!([0])),
            |e| matches!(e, E::Field { .. }),
            &["ple_layer_ids[0]", "from one"],
        ),
        (
            "a reset token out of the vocabulary",
            |f| text(f, "eos_token_id", json!(128)),
            |e| matches!(e, E::Field { .. }),
            &["eos_token_id", "below 128"],
        ),
        (
            "heads that do not divide",
            |f| text(f, "num_key_value_heads", json!(3)),
            |e| matches!(e, E::Field { .. }),
            &["num_key_value_heads", "divisor"],
        ),
        (
            "rope scaling",
            |f| {
                config(f, |c| c["text_config"]["rope_parameters"]["rope_type"] = json!("yarn"));
            },
            |e| matches!(e, E::Field { .. }),
            &["rope_parameters.rope_type", "yarn"],
        ),
        (
            "three bits",
            |f| quantization(f, |q| q["bits"] = json!(3)),
            |e| matches!(e, E::Quantization { bits: 3, .. }),
            &["config.json", "quantization", "3 bits", "4 or 8"],
        ),
        (
            "three bits in an override",
            |f| {
                quantization(f, |q| q["lm_head.x"] = json!({"bits": 3, "group_size": 64}));
            },
            |e| matches!(e, E::Quantization { bits: 3, .. }),
            &["quantization.lm_head.x"],
        ),
        (
            "another mode",
            |f| quantization(f, |q| q["mode"] = json!("mxfp4")),
            |e| matches!(e, E::Field { .. }),
            &["quantization.mode", "mxfp4"],
        ),
        (
            "an override that matches nothing",
            |f| {
                quantization(f, |q| {
                    q["model.layers.9.mlp.gate"] = json!({"bits": 8, "group_size": 64});
                });
            },
            |e| matches!(e, E::OverrideUnused { .. }),
            &["model.layers.9.mlp.gate", "matches no module"],
        ),
        (
            "an override of a module that is not quantized",
            |f| {
                quantization(f, |q| {
                    q["model.layers.0.mlp.gate"] = json!({"bits": 8, "group_size": 64});
                });
            },
            |e| matches!(e, E::OverrideUnused { .. }),
            &["model.layers.0.mlp.gate", "not quantized"],
        ),
        (
            "two quantization blocks that differ",
            |f| config(f, |c| c["quantization_config"]["bits"] = json!(8)),
            |e| matches!(e, E::Field { .. }),
            &["quantization_config", "the same as"],
        ),
        (
            "no quantization block",
            |f| {
                config(f, |c| {
                    c["quantization"] = json!(null);
                    c["quantization_config"] = json!(null);
                });
            },
            |e| matches!(e, E::MissingField { .. }),
            &["config.json", "quantization"],
        ),
        (
            "experts in two formats",
            |f| {
                quantization(f, |q| {
                    q["model.layers.2.mlp.switch_mlp.up_proj"] =
                        json!({"bits": 8, "group_size": 64});
                });
            },
            |e| matches!(e, E::MixedExperts { .. }),
            &["model.layers.2.mlp.switch_mlp.up_proj", "8 bits", "4 bits"],
        ),
        (
            "wide groups",
            |f| quantization(f, |q| q["lm_head"] = json!({"bits": 4, "group_size": 128})),
            |e| matches!(e, E::TensorShape { .. }),
            &["lm_head.scales", "[128, 1]", "[128, 2]"],
        ),
        (
            "rows that are not whole groups",
            |f| text(f, "hc_lowrank", json!(40)),
            |e| matches!(e, E::ModuleFormat { .. }),
            &["config.json", "input_mix_weight_up", "40"],
        ),
        (
            "a table that does not split evenly",
            |f| {
                text(f, "split_ngram_parts", json!(7));
                quantization(f, |q| *q = json!({"bits": 4, "group_size": 64}));
            },
            |e| matches!(e, E::NgramConfig { .. }),
            &["config.json", "split_ngram_parts = 7"],
        ),
        (
            "a key twice",
            |f| {
                let text = br#"{"model_type": "qwen4_exp", "a": {"b": 1, "b": 2}}"#;
                fs::write(f.join("config.json"), text).expect("written");
            },
            |e| matches!(e, E::DuplicateKey { .. }),
            &["config.json", "`b` twice"],
        ),
        (
            "200,000 brackets",
            |f| fs::write(f.join("config.json"), brackets("{\"a\": ")).expect("written"),
            |e| matches!(e, E::Json { .. }),
            &["config.json", "recursion limit"],
        ),
        (
            "not UTF-8",
            |f| fs::write(f.join("config.json"), b"{\"\xc3\x28\": 1}").expect("written"),
            |e| matches!(e, E::Utf8 { .. }),
            &["config.json", "UTF-8"],
        ),
        (
            "not JSON",
            |f| fs::write(f.join("config.json"), b"{").expect("written"),
            |e| matches!(e, E::Json { .. }),
            &["config.json", "line 1"],
        ),
        (
            "a stop token out of the vocabulary",
            |f| {
                let text = br#"{"eos_token_id": [1, 128]}"#;
                fs::write(f.join("generation_config.json"), text).expect("written");
            },
            |e| matches!(e, E::Field { .. }),
            &["generation_config.json", "eos_token_id", "128"],
        ),
        (
            "an impossible temperature",
            |f| {
                let text = br#"{"temperature": -1}"#;
                fs::write(f.join("generation_config.json"), text).expect("written");
            },
            |e| matches!(e, E::Field { .. }),
            &["generation_config.json", "temperature", "-1"],
        ),
    ];
    rows.iter().for_each(check);
}
