//! Raw and folded norm weights.

use slotstream_checkpoint::{Checkpoint, CheckpointError, NormForm, is_centred_norm, read_floats};
use slotstream_testkit::checkpoint::rewrite_raw_norms;

use crate::{Files, random_fixture, tiny_model};

#[test]
fn raw_rewrites_are_raw_and_hold_one_less() {
    for folder in [random_fixture(), tiny_model()] {
        let target = tempfile::tempdir().expect("a folder");
        rewrite_raw_norms(&folder, target.path(), |_| false).expect("written");
        let (folded, raw) =
            [folder.as_path(), target.path()].map(|f| Checkpoint::open(f).expect("legal")).into();
        let (from, to) = (Files::of(&folded), Files::of(&raw));
        assert_eq!(NormForm::detect(&raw, &to, None).expect("one form"), NormForm::Raw);
        let mut norms = 0;
        for tensor in folded.tensors() {
            let name = tensor.canonical_name();
            if !name.contains("norm") || name.starts_with("vision_tower") {
                continue;
            }
            let other = raw.float(name).expect("there");
            let old = read_floats(&folded, tensor, &from).expect("read");
            let new = read_floats(&raw, other, &to).expect("read");
            let add = if NormForm::Raw.adds_one(name) { 1.0 } else { 0.0 };
            assert_eq!(add == 0.0, name.ends_with("linear_attn.norm.weight"), "{name}");
            let sums: Vec<f32> = new.iter().map(|value| value + add).collect();
            assert_eq!(sums, old, "{name}");
            norms += 1;
        }
        let layers = folded.config().num_hidden_layers;
        let indexed = layers / 4;
        assert_eq!(norms, 2 * layers + 1 + 4 * indexed + (layers - indexed) + 3);
    }
}

#[test]
fn a_mixed_set_is_refused_and_an_override_is_obeyed() {
    let target = tempfile::tempdir().expect("a folder");
    let keep = |name: &str| name.starts_with("model.layers.2.");
    rewrite_raw_norms(&random_fixture(), target.path(), keep).expect("written");
    let checkpoint = Checkpoint::open(target.path()).expect("legal");
    let reader = Files::of(&checkpoint);
    match NormForm::detect(&checkpoint, &reader, None) {
        Err(error @ CheckpointError::MixedNorms { .. }) => {
            assert!(error.to_string().contains("model.layers.2."), "{error}");
            assert!(error.to_string().contains("(raw)"), "{error}");
        }
        other => panic!("{other:?}"),
    }
    for form in [NormForm::Raw, NormForm::Folded] {
        assert_eq!(NormForm::detect(&checkpoint, &reader, Some(form)).expect("obeyed"), form);
        assert_eq!(form.to_string().parse::<NormForm>().expect("a name"), form);
    }
    assert!("shifted".parse::<NormForm>().is_err());
}

#[test]
fn the_final_mixer_does_not_vote() {
    let target = tempfile::tempdir().expect("a folder");
    let keep = |name: &str| !name.starts_with("model.hyper_connection_mixer");
    rewrite_raw_norms(&random_fixture(), target.path(), keep).expect("written");
    let checkpoint = Checkpoint::open(target.path()).expect("legal");
    let form = NormForm::detect(&checkpoint, &Files::of(&checkpoint), None);
    assert_eq!(form.expect("one form"), NormForm::Folded);
}

#[test]
fn only_the_models_own_norms_are_centred() {
    assert!(is_centred_norm("model.layers.3.self_attn.indexer.k_layernorm.weight"));
    for name in [
        "model.layers.0.linear_attn.norm.weight",
        "vision_tower.blocks.0.q_norm.weight",
        "model.layers.1.ple.conv1d.weight",
    ] {
        assert!(!is_centred_norm(name), "{name}");
    }
}
