//! `inspect`: both fixtures, damaged folders, plans.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;
use slotstream_core::CancelToken;
use slotstream_examples::inspect::run;
use slotstream_examples::{Console, Ended};

use super::{assert_user_error, bundled, fixture, last_object, output, utf8};

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
    // Not the whole plan: what this process has in memory beside, other tests change meanwhile.
    let row = |name: &str, flags: &[&str]| {
        let object = inspected(&bundled(), flags);
        let rows = object["plan"]["rows"].as_array().expect("rows");
        rows.iter().find(|row| row["name"] == name).expect("a row").clone()
    };
    let state = |context| row("retained state", &["--context", context])["bytes"].as_u64();
    assert!(state("4096") > state("64"));
    let reader = |flags: &[&str]| {
        let what = row("fixed", flags)["what"].to_string();
        let (_, bytes) = what.split_once("files or pages of the reader ").expect("named");
        bytes.split(' ').next().and_then(|bytes| bytes.parse::<u64>().ok()).expect("bytes")
    };
    assert_eq!(reader(&["--reader", "buffered"]), 0);
    assert!(reader(&["--reader", "memory"]) > 20_000_000);
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

/// A copy of the bundled model, and the digests of its files as coreutils sees them.
fn listed() -> (tempfile::TempDir, PathBuf, PathBuf) {
    let parent = tempfile::tempdir().unwrap();
    let (model, list) = (parent.path().join("model"), parent.path().join("list"));
    fs::create_dir(&model).unwrap();
    for entry in fs::read_dir(bundled()).unwrap().map(Result::unwrap) {
        if entry.path().is_file() {
            fs::copy(entry.path(), model.join(entry.file_name())).unwrap();
        }
    }
    let names = fs::read_dir(&model).unwrap().map(|entry| entry.unwrap().file_name());
    let sums = Command::new("sha256sum").current_dir(&model).args(names).output().unwrap();
    assert!(sums.status.success());
    fs::write(&list, [b"# digests\n\n", &sums.stdout[..]].concat()).unwrap();
    (parent, model, list)
}

#[test]
fn digests_are_those_of_coreutils() {
    let (_parent, model, list) = listed();
    let flags = ["--sha256", utf8(&list)];
    let object = inspected(&model, &flags);
    let digests = object["digests"].as_array().expect("a list");
    assert!(digests.len() > 10 && object["valid"] == true);
    for digest in digests {
        assert_eq!((&digest["state"], &digest["resumed"]), (&"same".into(), &false.into()));
        assert_eq!(digest["expected"], digest["found"]);
    }
    assert!(!list.with_extension("verified").exists(), "nothing is left to resume");
    // The form of `sha256sum --binary`, from another folder, in capitals.
    let text = fs::read_to_string(&list).unwrap();
    let lines = text.lines().filter_map(|line| line.split_once("  "));
    let other: String =
        lines.map(|(sum, name)| format!("{} *./{name}\r\n", sum.to_uppercase())).collect();
    fs::write(&list, other).unwrap();
    assert_eq!(inspected(&model, &flags)["digests"], object["digests"]);
    let (text, _) = output(run, &["--model", utf8(&model), "--sha256", utf8(&list)]);
    assert!(text.contains("\nsha256\n  14 of 14 files have the digest listed, "), "{text}");
}

#[test]
fn a_truncated_and_a_missing_file_are_named_and_the_rest_is_not_read_again() {
    let (_parent, model, list) = listed();
    let shard = model.join("model-00003.safetensors");
    let whole = fs::read(&shard).unwrap();
    fs::write(&shard, &whole[..whole.len() - 1]).unwrap();
    fs::remove_file(model.join("generation_config.json")).unwrap();
    let flags = ["--model", utf8(&model), "--json", "--sha256", utf8(&list)];
    let (text, result) = output(run, &flags);
    let error = result.expect_err("damaged");
    assert_eq!(error.exit_code(), 1);
    let words = error.to_string();
    assert!(words.starts_with("2 of 14 files are not those of "), "{words}");
    assert!(words.contains("model-00003.safetensors has 4,218,255 bytes with digest "), "{words}");
    assert!(words.contains("generation_config.json is missing"), "{words}");
    let object = last_object(&text);
    assert_eq!((&object["valid"], &object["config"]), (&false.into(), &Value::Null));
    // Repaired, only these two are read.
    fs::write(&shard, &whole).unwrap();
    fs::copy(bundled().join("generation_config.json"), model.join("generation_config.json"))
        .unwrap();
    let object = inspected(&model, &flags[3..]);
    let read =
        object["digests"].as_array().expect("a list").iter().filter(|d| d["resumed"] == false);
    let mut read: Vec<&str> = read.filter_map(|digest| digest["file"].as_str()).collect();
    read.sort_unstable();
    assert_eq!(read, ["generation_config.json", "model-00003.safetensors"]);
    // What was noted of a file that has changed since does not count.
    fs::write(&shard, &whole[..10]).unwrap();
    assert!(output(run, &flags).1.is_err());
    fs::write(&shard, &whole).unwrap();
    inspected(&model, &flags[3..]);
}

#[test]
fn digests_that_were_interrupted_go_on() {
    let (parent, model, list) = listed();
    let notes = parent.path().join("list.verified");
    let mut shown = Vec::new();
    let mut console = Console::new(&mut shown);
    console.cancel = CancelToken::new();
    console.cancel.cancel();
    let flags = ["inspect", "--model", utf8(&model), "--sha256", utf8(&list)];
    let ended = run(flags.into_iter().map(Into::into), &mut console);
    assert!(matches!(ended, Ok(Ended::Interrupted)), "{ended:?}");
    let shown = String::from_utf8(shown).unwrap();
    assert!(shown.ends_with("interrupted: valid as far as it was looked at\n"), "{shown}");
    assert!(
        shown.contains("0 of 14 files have the digest listed, 0 bytes; 14 not looked at"),
        "{shown}"
    );
    assert!(!notes.exists());
    // A note that a kill cut is as if it were not there.
    fs::write(&notes, "{\"file\":\"config.json\",\"bytes\":1,").unwrap();
    let object = inspected(&model, &["--sha256", utf8(&list)]);
    assert!(object["digests"].as_array().unwrap().iter().all(|d| d["resumed"] == false));
    assert!(!notes.exists());
    // A file of somebody else's stays as it is.
    fs::write(&notes, "mine\n").unwrap();
    inspected(&model, &["--sha256", utf8(&list)]);
    assert_eq!(fs::read_to_string(&notes).unwrap(), "mine\n");
}

#[test]
fn lists_of_digests_that_are_none() {
    let parent = tempfile::tempdir().unwrap();
    let list = parent.path().join("list");
    let sum = "a".repeat(64);
    for (text, words) in [
        (String::new(), "line 1: expected at least one line"),
        ("# nothing\n".to_owned(), "at least one line"),
        ("config.json\n".to_owned(), "line 1: expected 64 hexadecimal digits, two spaces"),
        (format!("\n{}  config.json\n", &sum[1..]), "line 2: expected 64 hexadecimal digits first"),
        (format!("{}g  config.json\n", &sum[1..]), "64 hexadecimal digits first"),
        (format!("{sum}  ../config.json\n"), "a file within the model folder"),
        (format!("{sum}  /etc/passwd\n"), "a file within the model folder"),
        (format!("{sum}  \n"), "64 hexadecimal digits, two spaces"),
        (format!("{sum}  a\n{sum} *a\n"), "line 2: expected every file once"),
    ] {
        fs::write(&list, &text).unwrap();
        assert_user_error(run, &["--sha256", utf8(&list)], words);
    }
    fs::write(&list, [0xff, 0xfe]).unwrap();
    assert_user_error(run, &["--sha256", utf8(&list)], "cannot be read as text");
    assert_user_error(run, &["--sha256", "no/such/list"], "no/such/list");
    // The model was not looked at, and is not called valid.
    let (text, _) = output(run, &["--sha256", utf8(&list)]);
    assert!(text.trim_end().ends_with("\nnot looked at: the request itself is wrong"), "{text}");
    let (text, _) = output(run, &["--sha256", utf8(&list), "--json"]);
    assert_eq!(last_object(&text)["valid"], Value::Null);
    // A pipe, which would be waited for for ever.
    let pipe = list.with_file_name("pipe");
    assert!(Command::new("mkfifo").arg(&pipe).status().unwrap().success());
    assert_user_error(run, &["--sha256", utf8(&pipe)], "expected a regular file");
}
