//! `doctor`: the bundled model, a model that is not here, machines that are not here.

use serde_json::Value;
use slotstream_core::ErrorKind;
use slotstream_examples::Ended;
use slotstream_examples::doctor::run;

use super::{assert_user_error, bundled, last_object, output, utf8};

fn examined(flags: &[&str]) -> Value {
    let (text, result) = output(run, &[&["--json"], flags].concat());
    assert!(matches!(result, Ok(Ended::Done)), "{result:?}");
    last_object(&text)
}

fn number(value: &Value) -> f64 {
    value.as_f64().unwrap_or_else(|| panic!("{value} is no number"))
}

#[test]
fn the_bundled_model_here() {
    let object = examined(&["--model", utf8(&bundled()), "--threads", "1"]);
    assert_eq!((&object["valid"], &object["downloaded"]), (&true.into(), &true.into()));
    assert_eq!(object["error"], Value::Null);
    assert_eq!(object["plan"]["slots"], 201);
    let rows = object["plan"]["rows"].as_array().expect("rows");
    let sum: u64 = rows.iter().map(|row| row["bytes"].as_u64().expect("bytes")).sum();
    assert_eq!(object["plan"]["total_bytes"], sum);
    assert_eq!(object["disk"]["simulated"], false);
    assert_eq!(object["disk"]["bursts"].as_array().map(Vec::len), Some(4));
    assert!(number(&object["disk_gb_s"]) > 0.0 && number(&object["compute"]["gb_s"]) > 0.0);
    let (hits, speed) = (&object["hits"], &object["prediction"]);
    for (figures, middle) in [(hits, "rate"), (speed, "tok_s")] {
        let [low, at, high] = ["low", middle, "high"].map(|name| number(&figures[name]));
        assert!(0.0 < low && low <= at && at <= high, "{figures}");
    }
    // Recorded routes of this very model: between the simulations of docs/policies.md.
    assert!((0.5..0.7).contains(&number(&hits["rate"])), "{hits}");
    assert_eq!(object["questions"].as_array().map(Vec::len), Some(3));
    let sizes = object["sizes"].as_array().expect("sizes");
    assert_eq!(sizes.len(), 8);
    assert!(sizes.iter().all(|size| size["fits"]["slots"] == 672), "{sizes:?}");
}

#[test]
fn a_model_that_is_not_here_on_a_machine_that_is_not_here() {
    let object = examined(&[
        "--shape",
        "qwen3.8-flash-next",
        "--sim-ram",
        "16GB",
        "--sim-available",
        "--sim-disk-gb-s",
        "1.5",
        "--hit-rate",
        "0.6",
    ]);
    // What is not here cannot be valid.
    assert_eq!((&object["downloaded"], &object["valid"]), (&false.into(), &Value::Null));
    assert_eq!(object["checkpoint"]["records"], 24_576);
    assert_eq!(object["checkpoint"]["expert_bytes"], 67_947_724_800_u64);
    let plan = &object["plan"];
    // 70% of 16 GB, whatever this machine has.
    assert_eq!(plan["budget_bytes"], 11_200_000_000_u64);
    let total = plan["total_bytes"].as_u64().expect("bytes");
    // At most a step of 256 tokens of context (50,768 bytes each) and a slot are left over.
    let left = 11_200_000_000_u64.checked_sub(total).expect("within the budget");
    assert!(left < 256 * 50_768 + 2_768_896, "{left}");
    assert!(number(&plan["experts_per_layer"]) > 30.0, "{plan}");
    let notes = object["notes"].to_string();
    assert!(notes.contains("the tokenizer is not here"), "{notes}");
    // Four tenths of 480 records at 1.5 GB/s are what a token waits for, at most.
    let prediction = &object["prediction"];
    let bytes = 0.4 * 480.0 * 2_764_800.0;
    assert!((number(&prediction["token_bytes"]) - bytes).abs() < 1.0);
    let wait = number(&prediction["wait_s"]);
    assert!(wait <= bytes / 1.5e9 + 48.0 * 1e-4, "{wait}");
    assert!(number(&prediction["token_s"]) >= number(&prediction["compute_s"]));
    // What is read is waited for, or hidden by arithmetic.
    let read = number(&prediction["read_s"]);
    assert!(wait < read && read < bytes / 1.5e9 + 48.0 * 1e-4 + 1e-6, "{wait} of {read}");
    let sizes = object["sizes"].as_array().expect("sizes");
    let slots: Vec<u64> = sizes.iter().filter_map(|size| size["fits"]["slots"].as_u64()).collect();
    assert!(slots.len() >= 7 && slots.is_sorted_by(|a, b| a < b), "{slots:?}");
    // Faster with more memory, unless the hit rate is stated.
    let speeds: Vec<f64> = sizes.iter().filter_map(|size| size["fits"]["tok_s"].as_f64()).collect();
    assert!(speeds.iter().all(|speed| (speed - number(&prediction["tok_s"])).abs() < 1e-9));
}

#[test]
fn a_plan_that_cannot_fit_is_refused_with_the_arithmetic() {
    let shape = ["--shape", "qwen3.8-flash-next", "--sim-ram", "4GB", "--sim-disk-gb-s", "1.5"];
    let (text, result) = output(run, &shape);
    let error = result.expect_err("2.8 GB are too little");
    assert_eq!((error.kind(), error.exit_code()), (ErrorKind::User, 2));
    assert!(error.to_string().contains("640 slots x 2768896 bytes"), "{error}");
    for part in ["planned peak", "retained state", "does not run like this: 2800000000 bytes"] {
        assert!(text.contains(part), "{part} is not in {text}");
    }
    let (text, result) = output(run, &[&shape[..], &["--json"]].concat());
    assert!(result.is_err());
    let object = last_object(&text);
    assert_eq!((&object["valid"], &object["prediction"]), (&Value::Null, &Value::Null));
    assert_eq!(object["plan"]["slots"], 640, "the smallest plan is told");
    assert!(object["error"]["message"].as_str().is_some_and(|text| text.contains("640 slots")));
    // Nor does it run what was asked for where that is more than there is.
    let shape = ["--shape", "qwen3.8-flash-next", "--sim-ram", "16GB", "--sim-disk-gb-s", "1.5"];
    for flags in [["--slots", "24576"], ["--memory", "80GiB"]] {
        let error = output(run, &[&shape[..], &flags].concat()).1.expect_err("too much");
        assert_eq!(error.exit_code(), 2);
        let text = error.to_string();
        assert!(text.contains("16000000000 bytes that the machine has"), "{text}");
        assert!(text.contains("slots x 2768896 bytes"), "{text}");
    }
}

/// Ctrl-C before anything was measured: what there is is shown, and not that it does not run.
#[test]
fn an_interrupted_look_says_so() {
    let mut out = Vec::new();
    let mut console = slotstream_examples::Console::new(&mut out);
    console.cancel.cancel();
    let model = bundled();
    let arguments = ["doctor", "--model", utf8(&model), "--threads", "1"].map(Into::into);
    let result = run(arguments, &mut console);
    assert!(matches!(result, Ok(Ended::Interrupted)), "{result:?}");
    let text = String::from_utf8(out).expect("UTF-8");
    assert!(text.contains("It was interrupted: what is missing"), "{text}");
    assert!(text.contains("planned peak") && !text.contains("does not run"), "{text}");
}

#[test]
fn a_simulated_disk_is_measured_as_generate_has_it() {
    let throttle = ["--throttle", "latency=2ms,gbs=0.01"];
    let model = bundled();
    let flags = ["--model", utf8(&model), "--threads", "1", "--no-table"];
    let object = examined(&[&flags[..], &throttle].concat());
    assert!(object["disk"]["what"].as_str().is_some_and(|what| what.contains("--throttle")));
    // A record of 27,648 bytes: latencies of its pieces overlap, their bytes come one after another.
    let first = number(&object["disk"]["bursts"][0]["seconds"]);
    assert!(first >= 27_648.0 / 0.01e9, "{first}");
}

/// A tenth of the slots cannot be given up where the pool is the smallest one, or nearly.
#[test]
fn the_largest_window_knows_the_smallest_pool() {
    let model = bundled();
    let flags = ["--model", utf8(&model), "--threads", "1", "--no-table", "--sim-disk-gb-s", "2"];
    for (slots, words) in [
        ("18", "The pool is the smallest one already"),
        ("19", "Beside the smallest pool, which is nearly this one, "),
        ("100", "With a tenth of the slots given up "),
    ] {
        let object = examined(&[&flags[..], &["--slots", slots]].concat());
        let answer = object["questions"][1]["answer"].as_str().expect("a sentence");
        assert!(answer.contains(words), "{slots}: {answer}");
    }
}

#[test]
fn wrong_flags_are_named() {
    for (flags, word) in [
        (&["--sim-disk-gb-s", "0"][..], "0.001"),
        (&["--hit-rate", "1.5"], "0 to 1"),
        (&["--shape", "gpt"], "qwen3.8-flash-next"),
        (&["--sim-available", "8GB"], "--sim-ram"),
        (&["--model", "nowhere"], "nowhere"),
        (&["--sim-disk-gb-s", "1.5", "--throttle", "apple"], "cannot be used with"),
        (&["--context", "1"], "--context = 1: expected at least 2"),
    ] {
        assert_user_error(run, flags, word);
    }
}
