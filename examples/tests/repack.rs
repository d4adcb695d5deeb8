//! `repack` as its users see it. Needs no engine, as the example itself.

use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};

use serde_json::Value;
use slotstream_checkpoint::Checkpoint;
use slotstream_checkpoint::container::Container;
use slotstream_core::CancelToken;
use slotstream_examples::{Console, Ended, Failure, describe, repack};
use slotstream_testkit::checkpoint::{CheckpointSpec, edit, small_config};

fn model() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("models/tiny-moe")
}

/// What the example writes, and how it ends.
fn run(model: &Path, out: &Path, flags: &[&str], stop: bool) -> (String, Result<Ended, Failure>) {
    let named = ["repack".into(), "--model".into(), model.into(), "--out".into(), out.into()];
    let arguments: Vec<OsString> = named.into_iter().chain(flags.iter().map(Into::into)).collect();
    let mut text = Vec::new();
    let mut console = Console::new(&mut text);
    if stop {
        console.cancel = CancelToken::new();
        console.cancel.cancel();
    }
    let result = repack::run(arguments, &mut console);
    (String::from_utf8(text).expect("UTF-8"), result)
}

#[track_caller]
fn done(out: &Path, flags: &[&str]) -> Value {
    let (text, result) = run(&model(), out, &[flags, &["--json"]].concat(), false);
    assert!(matches!(result, Ok(Ended::Done)), "{flags:?}: {result:?}");
    serde_json::from_str(text.lines().last().expect("a line")).expect("JSON on the last line")
}

#[test]
fn a_container_is_planned_written_verified_and_kept() {
    let parent = tempfile::tempdir().expect("a folder");
    let out = parent.path().join("container");
    let plan = done(&out, &["--dry-run"]);
    assert!(!out.exists() && plan["finished"] == false && plan["files"].as_array().is_some());
    let first = done(&out, &["--verify"]);
    assert_eq!((&first["bytes"], &first["finished"]), (&plan["bytes"], &true.into()));
    assert_eq!((&first["verified"], &first["records"]), (&true.into(), &672.into()));
    assert_eq!(first["record_stride"], 32_768);
    let sizes = ["experts.slots", "ngram.rows"].map(|name| fs::metadata(out.join(name)));
    let sizes: u64 = sizes.into_iter().map(|meta| meta.expect("a file").len()).sum();
    assert_eq!(first["bytes"].as_u64(), Some(sizes));
    Container::open(&out, &Checkpoint::open(&model()).expect("legal")).expect("legal");
    let again = done(&out, &["--verify"]);
    assert_eq!((&again["verified"], &again["write_gb_s"]), (&true.into(), &Value::Null));
    let (text, _) = run(&model(), &out, &[], false);
    assert!(text.contains("was finished before") && text.contains("is complete"), "{text}");
}

#[test]
fn interrupted_it_says_how_to_go_on() {
    let parent = tempfile::tempdir().expect("a folder");
    let [whole, out] = ["whole", "out"].map(|name| parent.path().join(name));
    done(&whole, &["--pad-rows"]);
    let (text, result) = run(&model(), &out, &["--pad-rows"], true);
    assert!(matches!(result, Ok(Ended::Interrupted)), "{result:?}");
    let last = text.lines().last().expect("a line");
    let (_, command) = last.split_once("to go on: repack ").expect("a command");
    let folders = format!("--model {} --out {} ", model().display(), out.display());
    assert_eq!(command.strip_prefix(&folders), Some("--pad-rows --resume"), "{text}");
    assert!(!out.join("experts.slots").exists());
    let (_, result) = run(&model(), &out, &["--pad-rows"], false);
    let error = describe(&result.expect_err("an unfinished run"));
    assert!(error.contains("experts.slots.part") && error.contains("--resume"), "{error}");
    let resumed = done(&out, &["--pad-rows", "--resume"]);
    assert!(resumed["files"][0]["kept"].as_u64() > Some(0), "{resumed}");
    for name in ["experts.slots", "ngram.rows"] {
        let read = |folder: &Path| fs::read(folder.join(name)).expect("a file");
        assert!(read(&whole) == read(&out), "{name}");
    }
    assert_eq!(fs::read_dir(&out).expect("a folder").count(), 2);
}

/// The container is complete, and that verifying was cut off is said.
#[test]
fn interrupted_verifying_is_told() {
    let parent = tempfile::tempdir().expect("a folder");
    let out = parent.path().join("out");
    done(&out, &["--ngram"]);
    let (text, result) = run(&model(), &out, &["--ngram", "--verify"], true);
    assert!(matches!(result, Ok(Ended::Interrupted)), "{result:?}");
    let last = text.lines().last().expect("a line");
    let (told, command) = last.split_once("to verify: repack ").expect("a command");
    assert!(told.contains("is complete; verifying was interrupted"), "{text}");
    let folders = format!("--model {} --out {} ", model().display(), out.display());
    assert_eq!(command.strip_prefix(&folders), Some("--ngram --verify"), "{text}");
    let (text, _) = run(&model(), &out, &["--ngram", "--verify", "--json"], true);
    let object: Value = serde_json::from_str(text.trim()).expect("JSON");
    assert_eq!((&object["finished"], &object["verified"]), (&true.into(), &false.into()));
    assert!(object["resume"].as_str().is_some_and(|to| to.ends_with("--verify")), "{object}");
    assert_eq!(done(&out, &["--ngram", "--verify"])["resume"], Value::Null);
}

/// A write past the limit of a file's size is an error with a message, not the end by a signal.
#[test]
fn the_limit_of_a_files_size_is_told() {
    let parent = tempfile::tempdir().expect("a folder");
    let out = parent.path().join("out");
    let test = std::env::current_exe().expect("this test");
    let folder = test.parent().and_then(Path::parent).expect("target/PROFILE/deps/TEST");
    let mut shell = std::process::Command::new("sh");
    shell.args(["-c", r#"ulimit -f 1000; exec "$0" --model "$1" --out "$2""#]);
    shell.arg(folder.join("examples/repack")).arg(model()).arg(&out);
    let output = shell.output().expect("a shell");
    let told = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{told}");
    assert!(told.contains("experts.slots.part") && told.contains("too large"), "{told}");
}

#[test]
fn halves_and_refusals() {
    let parent = tempfile::tempdir().expect("a folder");
    let out = parent.path().join("half");
    done(&out, &["--ngram"]);
    assert!(out.join("ngram.rows").exists() && !out.join("experts.slots").exists());
    let copy = parent.path().join("model");
    edit::copy_folder(&model(), &copy).expect("copied");
    let refused = |model: &Path, out: &Path, flags: &[&str], words: &str, code: u8| {
        let (_, result) = run(model, out, flags, false);
        let error = result.expect_err(words);
        let text = describe(&error);
        assert!(text.contains(words), "{words}: {text}");
        assert_eq!(error.exit_code(), code, "{text}");
    };
    refused(&parent.path().join("no"), &out, &[], "is no folder", 2);
    refused(&copy, &parent.path().join("a/b"), &[], "cannot make", 2);
    refused(&copy, &out, &["--dry-run", "--verify"], "cannot be used with", 2);
    fs::write(parent.path().join("file"), "x").expect("written");
    refused(&copy, &parent.path().join("file"), &[], "cannot open", 2);
    let shard = copy.join("model-00001.safetensors");
    edit::cut_off(&shard, 1).expect("cut");
    refused(&copy, &out, &[], "the file is cut off", 1);
}

#[test]
fn the_container_of_another_model_is_spared_unless_told_otherwise() {
    let parent = tempfile::tempdir().expect("a folder");
    let [other, out] = ["other", "out"].map(|name| parent.path().join(name));
    let spec = CheckpointSpec::new(small_config());
    spec.write_random(&other, 1).expect("written");
    let (_, result) = run(&other, &out, &[], false);
    assert!(matches!(result, Ok(Ended::Done)), "{result:?}");
    let before = fs::read(out.join("experts.slots")).expect("there");
    for flags in [&[][..], &["--dry-run"], &["--resume"]] {
        let (_, result) = run(&model(), &out, flags, false);
        let error = result.expect_err("of another model");
        assert_eq!(error.exit_code(), 2);
        let text = describe(&error);
        for words in ["made from other weights", "--replace", "this checkpoint has", "file is of"] {
            assert!(text.contains(words), "{words}: {text}");
        }
    }
    assert!(fs::read(out.join("experts.slots")).expect("there") == before);
    done(&out, &["--replace", "--verify"]);
}

#[test]
fn a_link_in_place_of_a_part_file_leads_nowhere() {
    let parent = tempfile::tempdir().expect("a folder");
    let [mine, out] = ["mine", "out"].map(|name| parent.path().join(name));
    fs::create_dir(&out).expect("made");
    let part = out.join("experts.slots.part");
    let refused = || {
        let (_, result) = run(&model(), &out, &["--resume"], false);
        let error = result.expect_err("a link");
        assert!(describe(&error).contains("experts.slots.part"), "{}", describe(&error));
        assert_eq!(fs::read(&mine).expect("still there"), b"precious");
    };
    fs::write(&mine, "precious").expect("written");
    std::os::unix::fs::symlink(&mine, &part).expect("linked");
    refused();
    fs::remove_file(&part).expect("removed");
    fs::hard_link(&mine, &part).expect("linked");
    refused();
}

#[test]
fn padded_rows_are_kept_where_nobody_asks_for_either() {
    let parent = tempfile::tempdir().expect("a folder");
    let out = parent.path().join("padded");
    done(&out, &["--pad-rows"]);
    let len = || fs::metadata(out.join("ngram.rows")).expect("there").len();
    let padded = len();
    assert_eq!(done(&out, &["--verify"])["verified"], true);
    assert_eq!(len(), padded);
    // Damage is named, with what helps.
    let path = out.join("experts.slots");
    let mut bytes = fs::read(&path).expect("there");
    let last = bytes.len() - 20_000;
    bytes[last] ^= 1;
    fs::write(&path, &bytes).expect("written");
    let (_, result) = run(&model(), &out, &["--verify"], false);
    let text = describe(&result.expect_err("damaged"));
    assert!(text.contains("repack it with --replace"), "{text}");
    assert_eq!(done(&out, &["--replace", "--verify"])["verified"], true);
}
