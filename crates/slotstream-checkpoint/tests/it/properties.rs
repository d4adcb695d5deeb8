//! Random damage never panics and never passes for something that does not fit its file.

use std::path::Path;

use proptest::prelude::*;
use proptest::sample::Index as Pick;
use serde_json::{Value, json};
use slotstream_checkpoint::{
    Checkpoint, GenerationConfig, Header, Index, TextConfig, expected_tensors,
};
use slotstream_testkit::checkpoint::{CheckpointSpec, edit, small_config};
use slotstream_testkit::mutate::{Edit, JSON, Material};

use crate::random_fixture;

fn config() -> ProptestConfig {
    ProptestConfig { cases: 200, failure_persistence: None, ..ProptestConfig::default() }
}

/// The same edits as those of the fuzzer.
fn edits() -> impl Strategy<Value = Vec<Edit>> {
    prop::collection::vec(any::<[u32; 4]>().prop_map(Edit), 1..6)
}

fn damage(mut bytes: Vec<u8>, edits: &[Edit]) -> Vec<u8> {
    let other = fixture("generation_config.json");
    for edit in edits {
        edit.apply(&mut bytes, &Material { words: JSON, other: &other });
    }
    bytes
}

fn odd_value() -> impl Strategy<Value = Value> {
    prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<u64>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        (0_u64..300).prop_map(Value::from),
        (0_u32..64).prop_map(|shift| Value::from(1_u64 << shift)),
        any::<f64>().prop_map(Value::from),
        ".{0,8}".prop_map(Value::from),
        Just(json!([])),
        Just(json!({})),
        Just(json!([1, 2, 3])),
    ]
}

fn check_config(bytes: &[u8]) {
    let path = Path::new("config.json");
    if let Ok(config) = TextConfig::from_json(path, bytes) {
        let _ = expected_tensors(&config);
        let _ = config.geometry().expect("accepted numbers are a geometry");
        let _ = config.expert_shape();
    }
    let _ = GenerationConfig::from_json(path, bytes, 100);
}

fn fixture(name: &str) -> Vec<u8> {
    std::fs::read(random_fixture().join(name)).expect("there")
}

proptest! {
    #![proptest_config(config())]

    #[test]
    fn damaged_config_bytes(edits in edits()) {
        check_config(&damage(fixture("config.json"), &edits));
    }

    #[test]
    fn odd_config_values(at in any::<Pick>(), value in odd_value()) {
        let mut config = small_config();
        let text = config["text_config"].as_object_mut().expect("an object");
        let name = text.keys().nth(at.index(text.len())).expect("in range").clone();
        text[&name] = value;
        check_config(config.to_string().as_bytes());
    }

    #[test]
    fn damaged_index_bytes(edits in edits()) {
        let bytes = damage(fixture("model.safetensors.index.json"), &edits);
        if let Ok(index) = Index::from_json(Path::new("index"), &bytes) {
            prop_assert!(index.files.keys().all(|name| !name.contains('/')));
        }
    }

    #[test]
    fn damaged_header_bytes(edits in edits()) {
        let file = fixture("model-00002.safetensors");
        let length = u64::from_le_bytes(file[..8].try_into().expect("eight")) as usize;
        let data_len = (file.len() - 8 - length) as u64;
        let bytes = damage(file[8..8 + length].to_vec(), &edits);
        if let Ok(header) = Header::from_json(Path::new("shard"), &bytes, data_len) {
            // What passes covers the data exactly.
            let sum: u64 = header.tensors.iter().map(|t| t.end - t.begin).sum();
            prop_assert_eq!(sum, data_len);
        }
    }

    #[test]
    fn random_bytes(bytes in prop::collection::vec(any::<u8>(), 0..400)) {
        let path = Path::new("x");
        let _ = Header::from_json(path, &bytes, 1000);
        let _ = Index::from_json(path, &bytes);
        check_config(&bytes);
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 40, ..config() })]

    #[test]
    fn a_folder_with_one_damaged_header(edits in edits()) {
        let folder = tempfile::tempdir().expect("a folder");
        CheckpointSpec::new(small_config()).write_sparse(folder.path()).expect("written");
        let path = folder.path().join("model-00001.safetensors");
        let bytes = std::fs::read(&path).expect("there");
        let length = u64::from_le_bytes(bytes[..8].try_into().expect("eight")) as usize;
        let header = damage(bytes[8..8 + length].to_vec(), &edits);
        edit::replace_header(&path, &header).expect("edited");
        if let Err(error) = Checkpoint::open(folder.path()) {
            prop_assert!(!error.to_string().is_empty());
        }
    }
}
