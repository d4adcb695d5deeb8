//! `inspect` finds every damage and every request that cannot be met, in the library's own words,
//! without loading the model.

use std::path::{Path, PathBuf};

use allocation_counter::measure;
use serde_json::Value;
use slotstream::checkpoint::Checkpoint;
use slotstream::core::ErrorKind;
use slotstream::{Engine, Error};
use slotstream_examples::inspect::run;
use slotstream_examples::{Ended, Failure, describe};
use slotstream_testkit::checkpoint::damage::{self, Damage, Found};

use super::{assert_user_error, last_object, output};

/// The most that looking at a damaged folder may hold at any moment.
const MOST_BYTES: u64 = 32 << 20;

/// Damages that leave no folder to look at.
const NO_FOLDER: [&str; 2] = ["no folder", "a file in place of the folder"];

fn good() -> (tempfile::TempDir, PathBuf) {
    let parent = tempfile::tempdir().unwrap();
    let folder = parent.path().join("model");
    damage::write_good(&folder).unwrap();
    (parent, folder)
}

/// What the library says of a damaged folder, causes included.
fn library(damage: &Damage, folder: &Path) -> Option<Vec<String>> {
    let error = match damage.found() {
        Found::Opening => Error::from(Checkpoint::open(folder).unwrap_err()),
        Found::Text => Engine::builder(folder).context(64).threads(1).build().unwrap_err(),
        _ => return None,
    };
    let causes = std::iter::successors(Some(&error as &dyn std::error::Error), |e| e.source());
    Some(causes.map(ToString::to_string).collect())
}

/// Message and causes of a report.
fn words(object: &Value) -> Vec<String> {
    let text = |value: &Value| value.as_str().expect("a text").to_owned();
    let causes = object["error"]["causes"].as_array().expect("a list").iter().map(text);
    std::iter::once(text(&object["error"]["message"])).chain(causes).collect()
}

fn check(damage: &Damage) {
    let name = damage.name();
    let (_parent, folder) = good();
    damage.apply(&folder).unwrap();
    let model = folder.to_str().expect("UTF-8");
    let mut ran = None;
    let memory = measure(|| {
        ran = Some(output(run, &["--model", model, "--json", "--values"]));
    });
    let (text, result) = ran.expect("it ran");
    let error = result.expect_err(name);
    assert_eq!(error.kind(), damage.kind(), "{name}: {error}");
    assert_eq!(error.exit_code(), if error.kind() == ErrorKind::User { 2 } else { 1 }, "{name}");
    assert!(memory.bytes_max < MOST_BYTES, "{name}: held {} bytes", memory.bytes_max);
    if NO_FOLDER.contains(&name) {
        assert!(matches!(error, Failure::NoModel { .. }), "{name}: {error:?}");
        assert!(error.to_string().contains(model), "{name}: {error}");
        return;
    }
    let object = last_object(&text);
    assert_eq!(object["valid"], false, "{name}: {object}");
    let found = words(&object);
    for says in damage.says() {
        assert!(found.join(": ").contains(says), "{name}: {found:?} does not say `{says}`");
    }
    if let Some(own) = library(damage, &folder) {
        assert_eq!(found, own, "{name}");
    }
    let opened = damage.found() != Found::Opening;
    assert_eq!(object["ledger"].is_object(), opened, "{name}: what was found before is there");
}

#[test]
fn every_damage_is_found_without_loading() {
    let damages: Vec<_> = damage::all().collect();
    assert!(damages.len() > 110, "{} damages", damages.len());
    damages.iter().for_each(check);
}

#[test]
fn values_are_looked_at_on_request_only() {
    for damage in damage::all().filter(|damage| damage.found() == Found::Values) {
        let (_parent, folder) = good();
        damage.apply(&folder).unwrap();
        let model = folder.to_str().expect("UTF-8");
        let (text, result) = output(run, &["--model", model]);
        assert!(matches!(result, Ok(Ended::Done)), "{}: {result:?}", damage.name());
        let line = text.lines().find(|line| line.trim_start().starts_with("values"));
        assert!(line.is_some_and(|line| line.contains("not looked at: --values")), "{text}");
    }
    let (_parent, folder) = good();
    let model = folder.to_str().expect("UTF-8");
    let (text, result) = output(run, &["--model", model, "--values", "--json"]);
    assert!(matches!(result, Ok(Ended::Done)), "{result:?}");
    let object = last_object(&text);
    assert!(object["values_bytes"].as_u64().is_some_and(|bytes| bytes > 100_000), "{object}");
    let (text, _) = output(run, &["--model", model, "--values"]);
    assert!(text.contains("are finite numbers"), "{text}");
}

#[test]
fn requests_are_checked_against_model_and_plan() {
    let (_parent, folder) = good();
    let model = folder.to_str().expect("UTF-8");
    fn with<'a>(model: &'a str, flags: &[&'a str]) -> Vec<&'a str> {
        [&["--model", model, "--context", "64"], flags].concat()
    }
    for (flags, says) in [
        (&["--prompt-ids", "1,128"][..], "token 128 at position 1: the vocabulary has 128"),
        (&["--prompt-ids", "1,,2"], "item 2"),
        (&["--prompt-tokens", "0"], "the prompt is empty"),
        (&["--prompt-tokens", "64"], "the prompt has 64 tokens and the context has room for 64"),
        (&["--prompt-tokens", "64"], "--context up to 4096"),
        (&["--prompt", &"a ".repeat(40)], "the prompt has 80 tokens"),
        (&["--prompt", ""], "the prompt is empty"),
        (&["--prompt-file", "no/such/file"], "no/such/file"),
        (&["--prompt", "a", "--prompt-tokens", "1"], "cannot be used with"),
        (&["--slots", "3"], "3"),
        (&["--memory", "1MiB"], "1048576 bytes are not enough"),
        (&["--memory", "1ZiB"], "PiB or EiB"),
    ] {
        assert_user_error(run, &with(model, flags), says);
    }
    for flags in [
        &["--prompt-ids", "1,127"][..],
        &["--prompt-tokens", "63"],
        &["--prompt", "Hello, world"],
        &["--chat", "--prompt", "Hello"],
    ] {
        let (text, result) = output(run, &with(model, flags));
        assert!(matches!(result, Ok(Ended::Done)), "{flags:?}: {result:?}");
        let line = text.lines().find(|line| line.trim_start().starts_with("prompt"));
        assert!(line.is_some_and(|line| line.contains("the context has room for 64")), "{text}");
    }
    // A prompt that does not fit leaves the model valid; a text needs a tokenizer.
    let (text, _) = output(run, &with(model, &["--prompt-tokens", "64", "--json"]));
    assert_eq!(last_object(&text)["valid"], true);
    std::fs::remove_file(folder.join("tokenizer.json")).unwrap();
    assert_user_error(run, &with(model, &["--prompt", "Hello"]), "tokenizer.json is missing");
    let (_, result) = output(run, &with(model, &["--prompt-ids", "5"]));
    assert!(matches!(result, Ok(Ended::Done)), "{result:?}");
}

#[test]
fn what_is_less_than_asked_for_is_said() {
    let (_parent, folder) = good();
    let model = folder.to_str().expect("UTF-8");
    for (flags, note) in [
        (["--slots", "5000"], "--slots 5000: the model has 16 records, 16 are used"),
        (["--memory", "1PiB"], "--memory 1.00 PiB: all 16 records fit in "),
    ] {
        let (text, result) = output(run, &[&["--model", model][..], &flags].concat());
        assert!(matches!(result, Ok(Ended::Done)), "{}", describe(&result.unwrap_err()));
        assert!(text.lines().any(|line| line.trim_start().starts_with(note)), "{note}: {text}");
        let generate = ["--prompt-ids", "1", "--max-tokens", "1", "--json"];
        let all = [&["--model", model, "--context", "64"][..], &flags, &generate].concat();
        let (text, result) = output(slotstream_examples::generate::run, &all);
        assert!(matches!(result, Ok(Ended::Done)), "{}", describe(&result.unwrap_err()));
        let notes = last_object(&text)["notes"].clone();
        assert!(notes[0].as_str().is_some_and(|text| text.starts_with(note)), "{notes}");
    }
    let (text, _) = output(run, &["--model", model, "--json", "--slots", "8"]);
    assert_eq!(last_object(&text)["notes"], serde_json::json!([]));
}
