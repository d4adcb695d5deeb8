//! Damaged checkpoints: each gives its own error, which names the file and the cause, within a
//! second.

use std::path::Path;
use std::time::{Duration, Instant};

use serde_json::{Map, Value, json};
use slotstream_checkpoint::{Checkpoint, CheckpointError as E};
use slotstream_testkit::checkpoint::{CheckpointSpec, edit};

use crate::{chain, small_config};

mod configs;
mod files;
mod headers;
mod tensors;

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
