//! Other lawful ways to lay out the same model.

use std::fs;
use std::path::Path;

use serde_json::json;
use slotstream_checkpoint::{
    Checkpoint, LayerType, NormForm, OutputGate, TensorClass, TextConfig, verify_ngram_constants,
};
use slotstream_core::{AffineFormat, RecordReader};
use slotstream_testkit::checkpoint::{CheckpointSpec, edit, small_config};

use crate::{Files, random_fixture};

fn write(spec: &CheckpointSpec) -> (tempfile::TempDir, Checkpoint) {
    let folder = tempfile::tempdir().expect("a folder");
    spec.write_random(folder.path(), 7).expect("written");
    let checkpoint = Checkpoint::open(folder.path()).expect("legal");
    (folder, checkpoint)
}

fn bytes_of(checkpoint: &Checkpoint, name: &str) -> Vec<u8> {
    let extent = checkpoint.float(name).expect("there").extent;
    let mut bytes = vec![0; extent.len() as usize];
    Files::of(checkpoint).read_exact_at(&extent, &mut bytes).expect("read");
    bytes
}

#[test]
fn prefix_index_cuts_and_starts_do_not_matter() {
    let spec = CheckpointSpec::new(small_config());
    let (_a, plain) = write(&spec);
    let (_b, other) =
        write(&spec.clone().without_prefix().without_index().file_limit(100_000).odd_starts());
    assert!(other.files().len() > 3);
    assert_eq!(plain.ledger(), other.ledger());
    assert!(other.tensors().iter().any(|tensor| tensor.extent.offset() % 2 == 1));
    for tensor in plain.tensors() {
        let other = other.float(&tensor.name).expect("there");
        assert_eq!((tensor.dtype, &tensor.shape), (other.dtype, &other.shape));
    }
    // Names differ in the prefix, and with them the random draw; constants do not.
    let name = "model.layers.1.ple.ple_embedding.layer_multipliers";
    assert_eq!(bytes_of(&plain, name), bytes_of(&other, name));
    let (_c, cut) = write(&spec.file_limit(100_000));
    for name in ["lm_head.weight", "model.layers.3.self_attn.q_proj.biases"] {
        assert_eq!(bytes_of(&plain, name), bytes_of(&cut, name));
    }
    for checkpoint in [&plain, &other, &cut] {
        let reader = Files::of(checkpoint);
        verify_ngram_constants(checkpoint, &reader).expect("equal");
        assert_eq!(NormForm::detect(checkpoint, &reader, None).expect("one"), NormForm::Folded);
    }
}

#[test]
fn the_fixture_opens_without_its_index() {
    let folder = tempfile::tempdir().expect("a folder");
    edit::copy_folder(&random_fixture(), folder.path()).expect("copied");
    fs::remove_file(folder.path().join("model.safetensors.index.json")).expect("removed");
    let with = Checkpoint::open(&random_fixture()).expect("legal");
    let without = Checkpoint::open(folder.path()).expect("legal");
    assert_eq!(with.ledger(), without.ledger());
    assert_eq!(with.tensors(), without.tensors());
}

#[test]
fn links_to_files_elsewhere_are_followed() {
    let folder = tempfile::tempdir().expect("a folder");
    for entry in fs::read_dir(random_fixture()).expect("a folder") {
        let path = entry.expect("an entry").path().canonicalize().expect("there");
        let link = folder.path().join(path.file_name().expect("a name"));
        std::os::unix::fs::symlink(path, link).expect("linked");
    }
    assert_eq!(Checkpoint::open(folder.path()).expect("legal").files().len(), 4);
}

#[test]
fn a_model_without_ngram_layer_is_lawful() {
    for empty in [json!([]), json!(null)] {
        let mut config = small_config();
        config["text_config"]["ple_layer_ids"] = empty;
        config["quantization"] = json!({ "group_size": 64, "bits": 4 });
        config["quantization_config"] = config["quantization"].clone();
        let (_folder, checkpoint) = write(&CheckpointSpec::new(config));
        assert_eq!(checkpoint.ngram(), None);
        assert_eq!(checkpoint.ledger().ngram_bytes, 0);
        verify_ngram_constants(&checkpoint, &Files::of(&checkpoint)).expect("nothing to compare");
    }
}

#[test]
fn eight_bits_and_overrides_with_prefix() {
    let mut config = small_config();
    config.as_object_mut().expect("an object").remove("quantization_config");
    let block = config["quantization"].as_object_mut().expect("an object");
    let format = json!({ "bits": 8, "group_size": 32 });
    block.insert("language_model.lm_head".to_owned(), format.clone());
    block.insert("model.layers.3.self_attn.q_proj".to_owned(), format);
    let (_folder, checkpoint) = write(&CheckpointSpec::new(config));
    let eight = AffineFormat::new(8, 32).expect("legal");
    for module in ["lm_head", "model.layers.3.self_attn.q_proj"] {
        let affine = checkpoint.affine(module).expect("there");
        assert_eq!((affine.format, affine.cols), (eight, 128));
        assert_eq!(affine.weight.len(), (affine.rows * affine.cols) as u64);
    }
    assert_eq!(checkpoint.affine("model.embed_tokens").expect("there").format.bits(), 4);
}

#[test]
fn a_draft_head_of_its_own_file_is_known_and_not_part_of_the_model() {
    let (folder, plain) = write(&CheckpointSpec::new(small_config()));
    let header = br#"{"mtp.fc.weight":{"dtype":"BF16","shape":[3,2],"data_offsets":[0,12]}}"#;
    let file = [&(header.len() as u64).to_le_bytes()[..], header, &[0; 12]].concat();
    fs::write(folder.path().join("mtp.safetensors"), &file).expect("written");
    fs::write(folder.path().join("consolidated.safetensors"), b"not looked at").expect("written");
    let checkpoint = Checkpoint::open(folder.path()).expect("legal");
    let row = checkpoint.ledger().row(TensorClass::DraftHead);
    assert_eq!((row.tensors, row.bytes), (1, 12));
    assert_eq!(checkpoint.ledger().resident_bytes, plain.ledger().resident_bytes);
    assert_eq!(checkpoint.ignored_files(), [folder.path().join("consolidated.safetensors")]);
}

#[test]
fn a_flat_config_and_defaults() {
    let config = small_config();
    let mut flat = config["text_config"].clone();
    flat["quantization"] = config["quantization"].clone();
    flat["model_type"] = json!("qwen4_exp");
    flat["eos_token_id"] = json!([96, 97]);
    flat["layer_types"][3] = json!("indexed_attention");
    let fields = flat.as_object_mut().expect("an object");
    fields.remove("output_gate_type");
    fields.remove("mtp_num_hidden_layers");
    let rope = fields["rope_parameters"].as_object_mut().expect("an object");
    rope.remove("partial_rotary_factor");
    let path = Path::new("config.json");
    let parsed = TextConfig::from_json(path, flat.to_string().as_bytes()).expect("legal");
    assert_eq!(parsed.output_gate, OutputGate::Silu);
    assert_eq!(parsed.eos_token_ids, [96, 97]);
    assert_eq!(parsed.layer_types[3], LayerType::IndexedAttention);
    assert_eq!(parsed.rotary_dims, 16);
    assert_eq!(parsed.ple.as_ref().map(|ple| ple.seed), Some(1234));
    assert_eq!(parsed.mtp_num_hidden_layers, 0);
}
