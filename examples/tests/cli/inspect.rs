//! `inspect`: both fixtures, damaged folders, plans.

use std::fs;
use std::path::Path;

use serde_json::Value;
use slotstream_examples::Ended;
use slotstream_examples::inspect::run;

use super::{assert_user_error, bundled, fixture, last_object, output};

fn inspected(folder: &Path, flags: &[&str]) -> Value {
    let model = folder.to_str().expect("UTF-8");
    let (text, result) = output(run, &[&["--model", model, "--json"], flags].concat());
    assert!(matches!(result, Ok(Ended::Done)), "{result:?}");
    last_object(&text)
}

#[test]
fn the_bundled_model() {
    let object = inspected(&bundled(), &[]);
    assert_eq!((&object["valid"], &object["error"]), (&true.into(), &Value::Null));
    assert_eq!(object["ledger"]["record_bytes"], 27_648);
    assert_eq!(object["ledger"]["expert_bytes"], 672 * 27_648);
    assert_eq!(object["norms"]["form"], "folded");
    assert!(object["norms"]["lowest_mean"].as_f64() <= object["norms"]["highest_mean"].as_f64());
    assert_eq!(object["ngram"]["rows"], 40_320);
    assert_eq!(object["ngram"]["multipliers"].as_array().map(Vec::len), Some(3));
    assert_eq!(object["geometry"]["floor_slots"], 18);
    assert_eq!(object["record"]["pieces"].as_array().map(Vec::len), Some(9));
    assert_eq!(object["plan"]["slots"], 201);
    let rows = object["plan"]["rows"].as_array().expect("rows");
    let sum: u64 = rows.iter().map(|row| row["bytes"].as_u64().expect("bytes")).sum();
    assert_eq!(object["plan"]["total_bytes"], sum);
    assert_eq!(object["files"].as_array().map(Vec::len), Some(6));
    assert!(object["tokenizer"].is_string() && object["chat_template"].is_string());
    assert!(object["checks"].as_array().is_some_and(|checks| checks.len() >= 8));
    for part in object["optional"].as_array().expect("parts") {
        assert_eq!(part["found"], false, "{part}");
    }
}

#[test]
fn the_random_fixture_has_a_vision_tower() {
    let object = inspected(&fixture("random/checkpoint"), &[]);
    let vision = &object["optional"][0];
    assert_eq!((&vision["part"], &vision["found"]), (&"vision tower".into(), &true.into()));
    assert!(vision["bytes"].as_u64().is_some_and(|bytes| bytes > 0));
    assert_eq!(object["chat_template"], Value::Null);
}

#[test]
fn the_text_has_every_section() {
    let (text, result) = output(run, &[]);
    assert!(matches!(result, Ok(Ended::Done)));
    for title in [
        "\nconfig\n",
        "\nfiles\n",
        "\nbytes by class\n",
        "\noptional parts\n",
        "\nn-gram layer\n",
        "\nrecords\n",
        "\nchecks passed\n",
        "\nmemory plan\n",
        "planned peak",
    ] {
        assert!(text.contains(title), "{title} in {text}");
    }
    assert_eq!(text.lines().last(), Some("valid"));
}

#[test]
fn the_plan_follows_the_flags() {
    let slots = |flags: &[&str]| inspected(&bundled(), flags)["plan"]["slots"].as_u64();
    assert_eq!(slots(&["--slots", "40"]), Some(40));
    assert_eq!(slots(&["--slots", "5000"]), Some(672));
    assert_eq!(slots(&["--memory", "4GiB"]), Some(672));
    let total = |flags: &[&str]| inspected(&bundled(), flags)["plan"]["total_bytes"].as_u64();
    assert!(total(&["--context", "4096"]) > total(&["--context", "64"]));
    assert!(total(&["--reader", "memory"]) > total(&[]));
}

#[test]
fn a_plan_that_does_not_fit_leaves_the_model_valid() {
    let (text, result) = output(run, &["--memory", "1MiB", "--json"]);
    assert_eq!(result.expect_err("too little").exit_code(), 2);
    let object = last_object(&text);
    assert_eq!((&object["valid"], &object["error"]["kind"]), (&true.into(), &"user".into()));
    assert_eq!(object["plan"]["slots"], 18);
}

/// A copy of the bundled model with one file changed.
fn changed(file: &str, change: impl FnOnce(Vec<u8>) -> Vec<u8>) -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    for entry in fs::read_dir(bundled()).unwrap() {
        let entry = entry.unwrap();
        // The traces beside the model are no part of the checkpoint.
        if entry.file_type().unwrap().is_file() {
            fs::copy(entry.path(), folder.path().join(entry.file_name())).unwrap();
        }
    }
    let path = folder.path().join(file);
    let bytes = fs::read(&path).unwrap();
    fs::write(&path, change(bytes)).unwrap();
    folder
}

#[test]
fn damage_is_named_with_code_1() {
    let cut = changed("model-00003.safetensors", |mut bytes| {
        bytes.truncate(bytes.len() - 5);
        bytes
    });
    let seed = changed("config.json", |bytes| {
        let text = String::from_utf8(bytes).unwrap();
        text.replacen("\"ngram_size\"", "\"seed\": 7, \"ngram_size\"", 1).into_bytes()
    });
    let tokenizer = changed("tokenizer.json", |_| b"{}".to_vec());
    for (folder, words, found) in [
        (&cut, "the file is cut off; download it again", false),
        (&seed, "the config's `seed`", true),
        (&tokenizer, "tokenizer.json", true),
    ] {
        let model = folder.path().to_str().expect("UTF-8");
        let (text, result) = output(run, &["--model", model, "--json"]);
        let error = result.expect_err(words);
        assert_eq!(error.exit_code(), 1, "{error}");
        let object = last_object(&text);
        assert_eq!(
            (&object["valid"], &object["error"]["kind"]),
            (&false.into(), &"corrupt".into())
        );
        assert!(object["error"]["message"].as_str().is_some_and(|m| m.contains(words)), "{object}");
        assert_eq!(object["ledger"].is_object(), found, "what was found before is there");
        let (text, _) = output(run, &["--model", model]);
        assert_eq!(text.lines().last(), Some("NOT VALID"));
    }
}

#[test]
fn every_mistake_is_named() {
    let other = changed("config.json", |bytes| {
        String::from_utf8(bytes).unwrap().replace("qwen4_exp", "llama").into_bytes()
    });
    let other = other.path().to_str().expect("UTF-8");
    for (arguments, words) in [
        (&["--model", "no/such/model"][..], "no/such/model is no folder"),
        (&["--model", "src"], "no config.json"),
        (&["--model", other], "this is another model"),
        (&["--slots", "3"], "18"),
        (&["--context", "0"], "context = 0"),
        (&["--policy", "x"], "no eviction policy"),
        (&["--stop", "x"], "--stop"),
    ] {
        assert_user_error(run, arguments, words);
    }
}
