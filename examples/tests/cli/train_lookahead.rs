//! `train_lookahead`: what it writes, what it says, what it refuses; and what `--lookahead` makes of
//! good and bad files.

use std::fs;
use std::path::{Path, PathBuf};

use serde_json::Value;
use slotstream::lookahead::Correction;
use slotstream_examples::train_lookahead::run;
use slotstream_examples::{Console, Ended, Failure, describe, generate};

use super::{assert_user_error, bundled, ids, last_object, output, utf8};

/// Four short documents of different words.
fn texts(folder: &Path) -> Vec<PathBuf> {
    let write = |(number, text): (usize, String)| {
        let path = folder.join(format!("{number}.txt"));
        fs::write(&path, text).unwrap();
        path
    };
    let first = ["The ship ", "A vector of ", "To select rows ", "Sir, I hope "];
    let texts =
        first.iter().map(|begin| format!("{begin}{}", "is here and there again. ".repeat(6)));
    texts.enumerate().map(write).collect()
}

/// Trains from those texts into `out`.
fn train(texts: &[PathBuf], out: &Path, flags: &[&str]) -> (String, Result<Ended, Failure>) {
    let texts: Vec<&str> = texts.iter().map(|path| utf8(path)).collect();
    output(run, &[&texts[..], &["--out", utf8(out), "--slots", "672"], flags].concat())
}

fn trained(texts: &[PathBuf], out: &Path, flags: &[&str]) -> Value {
    let (text, result) = train(texts, out, &[flags, &["--json"]].concat());
    assert!(matches!(result, Ok(Ended::Done)), "{flags:?}: {result:?}");
    last_object(&text)
}

fn generated(lookahead: &str) -> (String, Result<Ended, Failure>) {
    let flags = ["--json", "--quiet", "--max-tokens", "6", "--slots", "60", "--lookahead-always"];
    output(generate::run, &[&flags[..], &["--lookahead", lookahead]].concat())
}

#[test]
fn what_it_writes_is_used_and_changes_no_token() {
    let folder = tempfile::tempdir().unwrap();
    let (texts, out) = (texts(folder.path()), folder.path().join("own.safetensors"));
    let object = trained(&texts, &out, &["--rank", "4"]);
    assert_eq!((&object["rank"], &object["notes"]), (&4.into(), &Value::Array(Vec::new())));
    assert_eq!((&object["documents"], &object["held_out"]), (&3.into(), &1.into()));
    let layers = object["layers"].as_array().expect("a list");
    assert_eq!(layers.len(), 11, "every layer but the first");
    for layer in layers {
        for share in ["kept", "before", "after"] {
            let share = layer[share].as_f64().expect("a number");
            assert!((0.0..=1.0).contains(&share), "{layer}");
        }
        assert!(layer["rows"].as_u64() > Some(30) && layer["held_out_rows"].as_u64() > Some(10));
    }
    let bytes = fs::read(&out).unwrap();
    assert_eq!(object["bytes"], bytes.len());
    let correction = Correction::from_bytes(&bytes).expect("whole");
    assert_eq!(correction.identity(), object["identity"].as_str().expect("a text"));
    let plain = last_object(&generated("none").0);
    let (text, result) = generated(&format!("corrected:threshold=0.01:{}", out.display()));
    assert!(matches!(result, Ok(Ended::Done)), "{result:?}");
    let corrected = last_object(&text);
    assert_eq!(ids(&plain), ids(&corrected));
    assert!(corrected["lookahead"]["total"]["issued"].as_u64() > Some(0), "{corrected}");
    // The same texts give the same correction, in place of the old one.
    trained(&texts, &out, &["--rank", "4"]);
    let again = Correction::from_bytes(&fs::read(&out).unwrap()).expect("whole");
    assert_eq!(again, correction);
    let left = fs::read_dir(folder.path()).unwrap().count();
    assert_eq!(left, texts.len() + 1, "nothing else is left behind");
}

#[test]
fn what_is_less_than_asked_for_is_said() {
    let folder = tempfile::tempdir().unwrap();
    let (mut texts, out) = (texts(folder.path()), folder.path().join("own.safetensors"));
    let again = folder.path().join("again.txt");
    fs::copy(&texts[0], &again).unwrap();
    texts.push(again);
    let object = trained(&texts, &out, &["--rank", "128", "--tokens", "20"]);
    assert_eq!(
        (&object["cut"], &object["skipped"], &object["rank"]),
        (&4.into(), &1.into(), &56.into())
    );
    let notes: Vec<&str> =
        object["notes"].as_array().expect("a list").iter().filter_map(Value::as_str).collect();
    assert!(notes[0].starts_with("--rank 128: a layer has 56 experts, 56 is used"), "{notes:?}");
    assert!(notes[1].starts_with("4 of 5 texts were cut"), "{notes:?}");
    assert!(notes[2].starts_with("1 of 5 texts were not read"), "{notes:?}");
    let (text, result) = train(&texts, &out, &["--rank", "128", "--tokens", "20"]);
    assert!(matches!(result, Ok(Ended::Done)), "{result:?}");
    assert!(notes.iter().all(|note| text.contains(&format!("note: {note}"))), "{text}");
}

/// Where nothing was held out, nothing is said to agree.
#[test]
fn what_was_not_measured_is_no_number() {
    let folder = tempfile::tempdir().unwrap();
    let (texts, out) = (texts(folder.path()), folder.path().join("own.safetensors"));
    let flags = ["--rank", "2", "--tokens", "20", "--rows", "40"];
    let object = trained(&texts, &out, &flags);
    assert_eq!((&object["documents"], &object["held_out"]), (&2.into(), &0.into()));
    for figures in [&object, &object["layers"][0]] {
        assert_eq!((&figures["before"], &figures["after"]), (&Value::Null, &Value::Null));
    }
    let (text, result) = train(&texts, &out, &flags);
    assert!(matches!(result, Ok(Ended::Done)), "{result:?}");
    for words in [
        "0 held-out documents, mean of the layers: none before, none after",
        "note: no document was held out: what the correction is worth is not known",
        "note: 2 of 4 texts were not read",
    ] {
        assert!(text.contains(words), "{words}: {text}");
    }
}

/// As those of any file that is written here.
#[test]
fn the_mask_says_who_may_read_what_it_writes() {
    use std::os::unix::fs::PermissionsExt;
    let folder = tempfile::tempdir().unwrap();
    let (texts, out) = (texts(folder.path()), folder.path().join("own.safetensors"));
    trained(&texts, &out, &["--rank", "2", "--tokens", "20"]);
    let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode();
    assert_eq!(mode(&out), mode(&texts[0]));
}

#[test]
fn what_it_refuses_costs_no_file() {
    let folder = tempfile::tempdir().unwrap();
    let (texts, out) = (texts(folder.path()), folder.path().join("own.safetensors"));
    let refused = |texts: &[PathBuf], flags: &[&str], words: &str| {
        let error = train(texts, &out, flags).1.expect_err(words);
        assert!(describe(&error).contains(words), "{words}: {}", describe(&error));
        assert_eq!(error.exit_code(), 2, "{words}");
        assert!(!out.exists(), "{words}");
    };
    refused(&texts[..2], &[], "3 values required");
    refused(&texts, &["--rank", "0"], "--rank = 0: expected at least 1");
    refused(&texts, &["--rows", "0"], "--rows = 0: expected at least 1");
    refused(&texts, &["--hold-out", "1"], "--hold-out = 1: expected at least 2");
    refused(&texts, &["--hold-out", "9"], "at most 4, the number of texts");
    refused(&texts, &["--scratch-limit", "1KB"], "what --scratch-limit has room for");
    refused(&[&texts[..2], &[folder.path().join("none.txt")]].concat(), &[], "none.txt");
    // One document of all is left to fit to.
    for words in [
        "of 4 texts 1 are left to fit to and 0 to measure by: give more texts",
        "; 1 of 4 texts were cut: --tokens",
        "; 3 of 4 texts were not read: empty, the same as one before, or beyond --rows",
    ] {
        refused(&texts, &["--rows", "20"], words);
    }
    // What is no correction is not replaced.
    let path = folder.path().join("notes.txt");
    fs::write(&path, "dear diary").unwrap();
    let list: Vec<&str> = texts.iter().map(|path| utf8(path)).collect();
    let all = |out| [&list[..], &["--out", out]].concat();
    assert_user_error(run, &all(utf8(&path)), "one of a correction: this one is something else");
    assert_eq!(fs::read(&path).unwrap(), b"dear diary");
    assert_user_error(run, &all(list[1]), "another file than that of a TEXT");
    let arguments = ["example"].into_iter().map(Into::into);
    let arguments = arguments.chain(texts.iter().map(|path| path.clone().into_os_string()));
    let arguments = arguments.chain(["--out".into(), out.clone().into_os_string()]);
    let mut written = Vec::new();
    let mut console = Console::new(&mut written);
    console.cancel.cancel();
    let ended = run(arguments, &mut console);
    let cancelled = match &ended {
        Ok(ended) => matches!(ended, Ended::Interrupted),
        Err(error) => error.exit_code() == 130,
    };
    assert!(cancelled, "{ended:?}");
    assert!(!out.exists(), "after Ctrl-C nothing is written");
}

/// A file that is damaged is not the caller's mistake, one that is another's or not there is.
#[test]
fn exit_codes_tell_damage_from_mistakes() {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name);
    let (texts, out) = (texts(folder.path()), at("own.safetensors"));
    trained(&texts, &out, &["--rank", "2"]);
    let good = fs::read(&out).unwrap();
    let trace = at("run.trace");
    let flags = ["--json", "--quiet", "--max-tokens", "2", "--trace", utf8(&trace)];
    output(generate::run, &flags).1.expect("recorded");
    let recorded = fs::read(&trace).unwrap();
    let write = |name: &str, bytes: &[u8]| fs::write(at(name), bytes).unwrap();
    write("cut", &good[..good.len() / 2]);
    write("text", b"dear diary");
    write("empty", b"");
    let other = String::from_utf8_lossy(&good).find("sha256:").expect("an identity");
    let mut foreign = good.clone();
    foreign[other + 7] ^= 1;
    write("foreign", &foreign);
    let mut flipped = recorded.clone();
    flipped[recorded.len() / 2] ^= 1;
    write("flipped.trace", &flipped);
    write("cut.trace", &recorded[..recorded.len() - 5]);
    for name in ["run.trace", "text"] {
        let packed = std::process::Command::new("gzip").arg("-k").arg(at(name)).status();
        assert!(packed.is_ok_and(|status| status.success()), "gzip is on every machine");
    }
    let packed = fs::read(at("run.trace.gz")).unwrap();
    write("cut.gz", &packed[..packed.len() / 2]);
    for (name, code) in [
        ("corrected:own.safetensors", 0),
        ("corrected:cut", 1),
        ("corrected:text", 1),
        ("corrected:empty", 1),
        ("corrected:foreign", 2),
        ("corrected:none", 2),
        ("corrected:own.safetensors/none", 2),
        ("corrected:.", 2),
        ("oracle:run.trace", 0),
        ("oracle:run.trace.gz", 0),
        ("oracle:text.gz", 2),
        ("oracle:cut.gz", 1),
        ("oracle:flipped.trace", 1),
        ("oracle:cut.trace", 1),
        ("oracle:text", 2),
        ("oracle:none", 2),
        ("oracle:.", 2),
    ] {
        let (kind, file) = name.split_once(':').expect("a file");
        let result = generated(&format!("{kind}:{}", at(file).display())).1;
        let found = result.as_ref().map_or_else(Failure::exit_code, |_| 0);
        assert_eq!(found, code, "{name}: {:?}", result.err().map(|error| describe(&error)));
    }
    // Routes of a text trace have no passes of a run.
    let routes = bundled().join("traces/prose-austen.txt.gz");
    let error = generated(&format!("oracle:{}", routes.display())).1.expect_err("another format");
    assert!(describe(&error).contains("expected a trace that a run recorded"), "{error}");
}

#[cfg(unix)]
#[test]
fn a_pipe_is_refused_and_not_waited_for() {
    let folder = tempfile::tempdir().unwrap();
    let pipe = folder.path().join("pipe");
    let made = std::process::Command::new("mkfifo").arg(&pipe).status();
    assert!(made.is_ok_and(|status| status.success()), "mkfifo is part of every Unix");
    for kind in ["oracle", "corrected"] {
        let name = format!("{kind}:{}", pipe.display());
        assert_user_error(generate::run, &["--lookahead", &name], "it is no regular file");
    }
}

/// A recording that was there is lost only when another one has begun.
#[test]
fn a_run_that_does_not_begin_replaces_no_recording() {
    let folder = tempfile::tempdir().unwrap();
    let trace = folder.path().join("run.trace");
    let file = utf8(&trace);
    output(generate::run, &["--max-tokens", "1", "--quiet", "--trace", file]).1.expect("recorded");
    let there = fs::read(&trace).unwrap();
    for flags in [
        &["--slots", "3"][..],
        &["--memory", "1MiB"],
        &["--lookahead", "oracle:no/such/trace"],
        &["--prompt-ids", "1,999999"],
        &["--shadow", "per-layer:lru@30"],
    ] {
        let result = output(generate::run, &[flags, &["--trace", file, "--quiet"]].concat()).1;
        assert!(result.is_err(), "{flags:?}");
        assert_eq!(fs::read(&trace).unwrap(), there, "{flags:?}");
        let new = folder.path().join("new.trace");
        let result =
            output(generate::run, &[flags, &["--trace", utf8(&new), "--quiet"]].concat()).1;
        assert!(result.is_err() && !new.exists(), "{flags:?}");
    }
    output(generate::run, &["--max-tokens", "2", "--quiet", "--trace", file]).1.expect("recorded");
    let recorded = fs::read(&trace).unwrap();
    assert!(recorded.starts_with(b"\x89SLTR"));
    for name in [format!("oracle:{file}"), format!("oracle:ahead=3:{file}")] {
        let flags = ["--lookahead", &name, "--trace", file];
        assert_user_error(generate::run, &flags, "another file than that of --lookahead");
        assert_eq!(fs::read(&trace).unwrap(), recorded);
    }
    let shard = fs::read_dir(bundled()).unwrap().filter_map(Result::ok).map(|entry| entry.path());
    assert!(shard.count() > 5, "the model is as it was");
}
