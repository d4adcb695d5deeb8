//! Checks that read payload, on damaged payload and through readers that fail.

use slotstream_checkpoint::{Checkpoint, CheckpointError, NormForm, verify_ngram_constants};
use slotstream_core::ErrorKind;
use slotstream_testkit::checkpoint::{CheckpointSpec, edit, small_config};
use slotstream_testkit::reader::{FaultyReader, Schedule};

use crate::{Files, chain};

#[test]
fn refused_reads_name_tensor_file_and_cause() {
    let folder = tempfile::tempdir().expect("a folder");
    CheckpointSpec::new(small_config()).write_random(folder.path(), 1).expect("written");
    let checkpoint = Checkpoint::open(folder.path()).expect("legal");
    let denied = std::io::ErrorKind::PermissionDenied;
    let denied = FaultyReader::new(Files::of(&checkpoint), Schedule::Always, denied);
    for error in [
        NormForm::detect(&checkpoint, &denied, None).expect_err("refused"),
        verify_ngram_constants(&checkpoint, &denied).expect_err("refused"),
    ] {
        assert!(matches!(error, CheckpointError::Read { .. }), "{error:?}");
        assert_eq!(error.kind(), ErrorKind::User);
        let text = chain(&error);
        for part in ["model.layers.", "model-00001.safetensors", "ermission denied"] {
            assert!(text.contains(part), "{text}");
        }
    }
}

#[test]
fn another_seed_is_found_out() {
    let folder = tempfile::tempdir().expect("a folder");
    CheckpointSpec::new(small_config()).write_sparse(folder.path()).expect("written");
    let open = || Checkpoint::open(folder.path()).expect("legal");
    let checkpoint = open();
    verify_ngram_constants(&checkpoint, &Files::of(&checkpoint)).expect("equal");
    edit::edit_json(&folder.path().join("config.json"), |config| {
        config["text_config"]["seed"] = 0.into();
    })
    .expect("edited");
    let checkpoint = open();
    let error =
        verify_ngram_constants(&checkpoint, &Files::of(&checkpoint)).expect_err("other constants");
    assert!(matches!(error, CheckpointError::NgramConstant { index: 0, .. }), "{error:?}");
    for part in ["layer_multipliers", "`seed`", "model-00001.safetensors"] {
        assert!(error.to_string().contains(part), "{error}");
    }
}

#[test]
fn norms_that_are_not_numbers_are_refused() {
    let folder = tempfile::tempdir().expect("a folder");
    CheckpointSpec::new(small_config()).write_random(folder.path(), 1).expect("written");
    let checkpoint = Checkpoint::open(folder.path()).expect("legal");
    let name = "model.layers.2.mlp_hyper_connection.hc_norm.weight";
    let extent = checkpoint.float(name).expect("there").extent;
    let path = &checkpoint.files()[extent.file().index()];
    let mut bytes = std::fs::read(path).expect("read");
    let at = extent.offset() as usize + 6;
    bytes[at..at + 2].copy_from_slice(&0x7FC0_u16.to_le_bytes());
    std::fs::write(path, bytes).expect("written");
    let error = NormForm::detect(&checkpoint, &Files::of(&checkpoint), None).expect_err("NaN");
    assert!(matches!(error, CheckpointError::NormNotFinite { .. }), "{error:?}");
    assert!(error.to_string().contains(name), "{error}");
}
