//! `perplexity`: the published number, windows, mistakes.

use std::fs;

use serde_json::Value;
use slotstream_examples::Ended;
use slotstream_examples::perplexity::run;

use super::{assert_user_error, bundled, fixture, last_object, output};

fn scored(arguments: &[&str]) -> Value {
    let (text, result) = output(run, arguments);
    assert!(matches!(result, Ok(Ended::Done)), "{arguments:?}: {result:?}");
    last_object(&text)
}

/// The sums that transformers computed for each window.
fn golden_sums() -> Vec<f64> {
    let golden = fs::read_to_string(fixture("tiny-moe/golden.json")).unwrap();
    let golden: Value = serde_json::from_str(&golden).unwrap();
    let sums = golden["perplexity"]["nll_sum_per_window"].as_array().expect("a list");
    sums.iter().map(|sum| sum.as_f64().expect("a number")).collect()
}

#[test]
fn the_first_window_is_the_one_of_transformers() {
    let object = scored(&["--first", "1", "--json"]);
    let windows = object["windows"].as_array().expect("a list");
    assert_eq!((windows.len(), &windows[0]["predictions"]), (1, &2047.into()));
    let (own, golden) = (windows[0]["nll_sum"].as_f64().expect("a number"), golden_sums()[0]);
    assert!((own / golden - 1.0).abs() < 5e-4, "{own} instead of {golden}");
    let perplexity = object["perplexity"].as_f64().expect("a number");
    assert!((perplexity - (own / 2047.0).exp()).abs() < 1e-9);
    assert_eq!(object["slots"], 201);
    assert_eq!(object["complete"], true);
    for name in ["hit_rate", "read_gb_s", "bytes_read"] {
        assert!(object["passes"][name].is_number(), "{name}");
    }
}

#[test]
fn fast_arithmetic_says_so_and_is_close() {
    let object = scored(&["--first", "1", "--arithmetic", "fast", "--json"]);
    assert_eq!(object["arithmetic"], "fast");
    let (own, golden) = (object["windows"][0]["nll_sum"].as_f64(), golden_sums()[0]);
    let error = own.expect("a number") / golden - 1.0;
    assert!(error != 0.0 && error.abs() < 0.01, "{error:e}");
}

#[test]
fn pool_and_chunk_do_not_change_a_bit() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("text.txt");
    fs::write(&path, "It is a truth universally acknowledged. ".repeat(12)).unwrap();
    let text = ["--text", path.to_str().expect("UTF-8"), "--window", "48", "--quiet"];
    let first = scored(&text);
    assert_eq!(first["windows"][0]["predictions"], 47);
    for own in [&["--slots", "18"][..], &["--chunk", "5"], &["--threads", "1", "--lanes", "1"]] {
        let other = scored(&[&text[..], own].concat());
        assert_eq!(other["windows"], first["windows"], "{own:?}");
    }
    // With overlap each token is predicted once, with at least 24 tokens before it.
    let overlapping = scored(&[&text[..], &["--stride", "24"]].concat());
    let count = |object: &Value| object["predictions"].as_u64().expect("a count");
    let windows = first["windows"].as_array().expect("a list").len() as u64;
    assert_eq!(count(&overlapping), count(&first) + windows - 1);
}

#[test]
fn the_table_names_the_perplexity() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("text.txt");
    fs::write(&path, "# Closures\n\nA closure is a function.").unwrap();
    let (text, result) = output(run, &["--text", path.to_str().expect("UTF-8")]);
    assert!(matches!(result, Ok(Ended::Done)), "{result:?}");
    assert!(text.starts_with("window   1 ") && text.contains("\nperplexity "), "{text}");
}

#[test]
fn windows_are_recorded() {
    let folder = tempfile::tempdir().unwrap();
    let (text, trace) = (folder.path().join("text.txt"), folder.path().join("run.trace"));
    fs::write(&text, "# Closures\n\nA closure is a function.").unwrap();
    let text = ["--text", text.to_str().expect("UTF-8"), "--window", "8", "--quiet"];
    let (shown, result) =
        output(run, &[&text[..], &["--trace", trace.to_str().expect("UTF-8")]].concat());
    assert!(matches!(result, Ok(Ended::Done)), "{result:?}");
    let requests = slotstream_replay::Recording::open(&trace).unwrap().requests().unwrap();
    let windows = last_object(&shown)["windows"].as_array().expect("a list").len();
    let mut sessions: Vec<u64> = requests.passes().map(|pass| pass.step().session.get()).collect();
    sessions.dedup();
    assert!(windows > 1 && sessions.len() == windows, "{windows} windows, sessions {sessions:?}");
}

/// A trace has the tokens that made it: running them again gives its routes.
#[test]
fn the_tokens_of_a_trace_run_again() {
    let folder = tempfile::tempdir().unwrap();
    let (text, trace) = (folder.path().join("text.txt"), folder.path().join("run.trace"));
    let again = folder.path().join("again.trace");
    fs::write(&text, "# Closures\n\nA closure is a function.").unwrap();
    let [text, trace, again] = [&text, &trace, &again].map(|path| path.to_str().expect("UTF-8"));
    let record = ["--text", text, "--window", "8", "--quiet", "--chunk", "1", "--trace", trace];
    let first = scored(&record);
    let tokens = ["--tokens-of", trace, "--quiet", "--chunk", "1", "--trace"];
    let second = scored(&[&tokens[..], &[again, "--trace-detail"]].concat());
    assert_eq!(first["windows"], second["windows"]);
    let routes = |path: &str| -> Vec<(Vec<u32>, Vec<u16>)> {
        let requests = slotstream_replay::Recording::open(path).unwrap().requests().unwrap();
        let all = requests.passes().map(|pass| {
            let ids = pass.visits().flat_map(|visit| visit.ids().iter().map(|id| id.get()));
            (pass.step().tokens.to_vec(), ids.collect())
        });
        all.collect()
    };
    assert!(routes(trace).len() > 8);
    assert_eq!(routes(trace), routes(again));
    let windows = first["windows"].as_array().expect("a list");
    let middle = scored(&[&tokens[..], &[again, "--skip", "1", "--first", "1"]].concat());
    assert_eq!(middle["windows"].as_array().expect("a list"), &windows[1..2]);
    let skip = windows.len().to_string();
    assert_user_error(run, &["--tokens-of", trace, "--skip", &skip], "--skip = ");
}

#[test]
fn every_mistake_is_named() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("text.txt");
    fs::write(&path, "a").unwrap();
    let text = path.to_str().expect("UTF-8");
    let goldens = fixture("tiny-moe/golden.safetensors");
    let goldens = goldens.to_str().expect("UTF-8");
    let wrong = format!("{goldens}:p1.logits_last8");
    let missing = format!("{goldens}:nothing");
    let random = fixture("random/checkpoint");
    let random = random.to_str().expect("UTF-8");
    let config = bundled().join("config.json");
    let keys = folder.path().join("keys.txt");
    fs::write(&keys, "7\n8\n7\n").unwrap();
    let keys = keys.to_str().expect("UTF-8");
    for (arguments, words) in [
        (&["--windows", "no/such/file"][..], "no/such/file"),
        (&["--windows", &wrong], "expected I32, U32 or I64"),
        (&["--windows", &missing], "no tensor `nothing`"),
        (&["--windows", goldens, "--text", text], "cannot be used with"),
        (&["--window", "8"], "--text"),
        (&["--text", text], "needs at least 2"),
        (&["--text", text, "--window", "1"], "--window = 1"),
        (&["--text", text, "--window", "8", "--stride", "9"], "--stride = 9"),
        (&["--text", text, "--stride", "0"], "--stride = 0"),
        (&["--text", text, "--window", "8192"], "context = 8192"),
        (&["--first", "0"], "--first = 0"),
        (&["--tokens-of", keys], "names no tokens"),
        (&["--skip", "10"], "at most one less than there are windows (9)"),
        (&["--tokens-of", "no/such/trace"], "no/such/trace"),
        (&["--tokens-of", text, "--text", text], "cannot be used with"),
        (&["--shadow", "cloc"], "no eviction policy is called \"cloc\""),
        (&["--shadow", "lru@0"], "\"0\" is no size of a pool"),
        (&["--shadow", "clock,per-layer:lru@30"], "--shadow = per-layer:lru@30"),
        (&["--context", "100"], "window = 2048"),
        (&["--model", random], "the vocabulary has"),
    ] {
        assert_user_error(run, arguments, words);
    }
    // A damaged file is not the user's mistake.
    let (_, result) = output(run, &["--windows", config.to_str().expect("UTF-8")]);
    assert_eq!(result.expect_err("not safetensors").exit_code(), 1);
}
