//! `generate`: fields, tokens, flags, mistakes.

use std::fs;
use std::path::Path;

use serde_json::Value;
use slotstream_examples::generate::run;
use slotstream_examples::{Console, Ended};
use slotstream_replay::{ExactReplay, Requests, TraceHeader, TraceReader};

use super::{
    assert_user_error, bundled, comma_separated, fixture, golden_ids, ids, last_object, output,
    utf8,
};

fn generated(arguments: &[&str]) -> Value {
    let (text, result) = output(run, arguments);
    assert!(matches!(result, Ok(Ended::Done)), "{arguments:?}: {result:?}");
    last_object(&text)
}

#[test]
fn the_object_has_every_field_with_its_type() {
    let object = generated(&["--json", "--max-tokens", "16"]);
    for name in [
        "load_s",
        "ttft_s",
        "prefill_tok_s",
        "decode_tok_s",
        "hit_rate",
        "token_hit_rate",
        "bytes_per_token",
        "io_wait_s",
        "io_wait_share",
        "thread_wait_s",
        "thread_wait_share",
        "read_gb_s",
    ] {
        let value = object[name].as_f64().unwrap_or_else(|| panic!("{name}: {}", object[name]));
        assert!(value.is_finite() && value >= 0.0, "{name} = {value}");
    }
    for name in ["prompt_tokens", "bytes_read", "bytes_issued", "slots", "records", "plan_bytes"] {
        assert!(object[name].as_u64().is_some_and(|n| n > 0), "{name}: {}", object[name]);
    }
    for name in
        ["text", "policy", "reader", "reader_mode", "reader_why", "arithmetic", "kernels", "model"]
    {
        assert!(object[name].as_str().is_some_and(|s| !s.is_empty()), "{name}: {}", object[name]);
    }
    for name in ["hit_rate", "token_hit_rate", "io_wait_share", "thread_wait_share"] {
        assert!(object[name].as_f64().expect("measured") <= 1.0, "{name}");
    }
    if cfg!(target_os = "linux") {
        assert!(object["peak_rss_bytes"].as_u64().is_some_and(|n| n > 1 << 20));
    }
    assert_eq!(ids(&object).len(), 16);
    assert_eq!(object["slots"], 201, "30% of 672 records");
    assert_eq!(object["records"], 672);
    assert_eq!((&object["policy"], &object["reader"]), (&"analogue".into(), &"auto".into()));
    assert_eq!(object["arithmetic"], "exact");
    assert_eq!(object["finish_reason"], "length");
    assert_eq!(object["error"], Value::Null);
    // Records are 27,648 bytes; the n-gram rows come on top.
    let read = object["decode"]["misses"].as_u64().expect("a count") * 27_648;
    assert!(object["decode"]["bytes_read"].as_u64().expect("a count") >= read && read > 0);
}

#[test]
fn what_was_not_measured_is_null() {
    let object = generated(&["--json", "--max-tokens", "1"]);
    for name in ["decode_tok_s", "hit_rate", "token_hit_rate", "bytes_per_token", "io_wait_share"] {
        assert_eq!(object[name], Value::Null, "{name}");
    }
    assert!(object["ttft_s"].is_f64() && object["prefill_tok_s"].is_f64());
    let object = generated(&["--json", "--max-tokens", "0"]);
    assert_eq!((&object["ttft_s"], &object["text"]), (&Value::Null, &"".into()));
}

#[test]
fn golden_tokens_at_the_floor_and_at_30_percent() {
    let (prompt, greedy) = (golden_ids("p1.input_ids"), golden_ids("p1.greedy_ids"));
    let prompt = comma_separated(&prompt);
    let common = ["--prompt-ids", &prompt, "--max-tokens", "64", "--ignore-eos", "--stats", "json"];
    for own in [&["--slots", "18"][..], &[], &["--policy", "lru", "--lanes", "1", "--chunk", "7"]] {
        let object = generated(&[&common[..], own].concat());
        assert_eq!(ids(&object), greedy, "{own:?}");
        assert_eq!(object["prompt_tokens"], 96);
    }
    for (rows, chunk, sweeps) in [("off", "96", 0), ("64", "96", 12), ("30", "48", 24)] {
        let own = ["--prefill-sweep", rows, "--chunk", chunk];
        let object = generated(&[&common[..], &own].concat());
        assert_eq!(ids(&object), greedy, "{own:?}");
        let count = |name: &str| object["prefill"][name].as_u64().expect("a count");
        assert_eq!(count("sweeps"), sweeps, "{own:?}");
        assert_eq!(count("sweep_runs") > 0, sweeps > 0);
        assert!(count("sweep_bytes") <= count("bytes_read"));
        assert_eq!(count("hot_admitted") > 0, sweeps > 0);
        assert_eq!(count("hits") + count("misses") > 0, sweeps == 0);
        assert_eq!(object["prefill_sweep"].is_null(), rows == "off");
    }
    let swept = ["--prefill-sweep", "64", "--stats", "text"];
    let (text, result) = output(run, &[&common[..5], &swept].concat());
    assert!(matches!(result, Ok(Ended::Done)));
    assert!(text.contains("swept") && text.contains("12 layers: "), "{text}");
}

#[test]
fn every_policy_and_reader_repeats_its_name_and_the_tokens() {
    let common = ["--json", "--max-tokens", "6"];
    let expected = ids(&generated(&common));
    for policy in ["clock", "clock-cold", "lru", "layer-local:clock"] {
        let object = generated(&[&common[..], &["--policy", policy]].concat());
        assert_eq!((&object["policy"], ids(&object)), (&policy.into(), expected.clone()));
    }
    for reader in ["auto", "buffered", "uncached", "memory", "direct", "uring", "mmap"] {
        let object = generated(&[&common[..], &["--reader", reader]].concat());
        assert_eq!((&object["reader"], ids(&object)), (&reader.into(), expected.clone()));
        assert!(object["reader_mode"].is_string() && object["reader_why"].is_string());
    }
}

#[test]
fn the_model_of_a_disk_gives_the_same_tokens_and_says_that_it_is_one() {
    let common = ["--json", "--max-tokens", "6"];
    let expected = ids(&generated(&common));
    let throttle = ["--throttle", "latency=20us,gbs=2,deep=3"];
    for own in [&["--lookahead", "none"][..], &["--lookahead", "attention-tap"]] {
        let object = generated(&[&common[..], &throttle, own].concat());
        assert_eq!((&object["reader"], ids(&object)), (&"throttled".into(), expected.clone()));
        let why = object["reader_why"].as_str().expect("a reason");
        assert!(why.contains("20µs a read, 2.00 GB/s alone, 3.00 together"), "{why}");
    }
}

#[test]
fn a_mirror_gives_the_same_tokens_and_each_copy_its_share() {
    let common = ["--json", "--max-tokens", "6", "--slots", "40", "--container", "none"];
    let plain = generated(&common);
    assert_eq!(plain["mirror"], serde_json::json!([]));
    let folder = tempfile::tempdir().expect("a folder");
    for entry in fs::read_dir(bundled()).expect("there").flatten() {
        if entry.path().extension().is_some_and(|e| e == "safetensors") {
            fs::copy(entry.path(), folder.path().join(entry.file_name())).expect("copied");
        }
    }
    let mirror = ["--mirror", folder.path().to_str().expect("UTF-8")];
    let object = generated(&[&common[..], &mirror].concat());
    assert_eq!((ids(&object), &object["reader_mode"]), (ids(&plain), &"mirror".into()));
    let copies = object["mirror"].as_array().expect("a list");
    assert_eq!(copies.len(), 2);
    assert_eq!(copies[1]["folder"], mirror[1]);
    let bytes: Vec<u64> = copies.iter().filter_map(|copy| copy["bytes"].as_u64()).collect();
    assert!(bytes.iter().all(|bytes| *bytes > 0), "{bytes:?}");
    // The dense weights were read, too.
    assert!(bytes.iter().sum::<u64>() > object["bytes_read"].as_u64().expect("a count"));
    let (text, _) = output(run, &[&common[1..], &mirror].concat());
    assert_eq!(text.lines().filter(|line| line.starts_with("mirror ")).count(), 2, "{text}");
}

/// What comes from a container is told; a link that leads nowhere is not passed over.
#[test]
fn the_container_and_what_it_holds() {
    let folder = tempfile::tempdir().unwrap();
    let repack = |flag: &str| {
        let named = ["repack", "--model", "models/tiny-moe", "--out"].map(Into::into);
        let arguments = named.into_iter().chain([folder.path().into(), flag.into()]);
        let ended = slotstream_examples::repack::run(arguments, &mut Console::new(&mut Vec::new()));
        assert!(matches!(ended, Ok(Ended::Done)), "{ended:?}");
    };
    let named = folder.path().to_str().expect("UTF-8");
    let flags = ["--container", named, "--max-tokens", "2"];
    repack("--ngram");
    assert_eq!(
        generated(&[&flags[..], &["--json"]].concat())["container_holds"],
        serde_json::json!(["rows"])
    );
    let path = folder.path().join("experts.slots");
    std::os::unix::fs::symlink("nowhere", &path).unwrap();
    assert_user_error(run, &flags, "experts.slots is a link that leads nowhere");
    fs::remove_file(&path).unwrap();
    repack("--experts");
    let both = serde_json::json!(["records", "rows"]);
    assert_eq!(generated(&[&flags[..], &["--json"]].concat())["container_holds"], both);
}

#[test]
fn the_text_is_printed_before_the_figures() {
    let (text, result) = output(run, &["--max-tokens", "12"]);
    assert!(matches!(result, Ok(Ended::Done)));
    let object = generated(&["--json", "--max-tokens", "12"]);
    let whole = format!("CHAPTER II\n\nMr. Darcy {}\n", object["text"].as_str().expect("text"));
    assert!(text.starts_with(&whole), "{text}");
    for word in ["first token", "prefill", "decode", "hit rate", "bytes read", "slots", "policy"] {
        assert!(text[whole.len()..].contains(word), "{word} in {text}");
    }
    let verdict = text.lines().last().expect("a line");
    assert!(verdict.starts_with("Verdict: ") && verdict.contains("bound"), "{verdict}");
}

#[test]
fn quiet_prints_the_object_alone() {
    let (text, _) =
        output(run, &["--quiet", "--prompt", "# Closures\n\nA closure is", "--max-tokens", "4"]);
    assert_eq!(text.lines().count(), 1, "{text}");
    assert!(last_object(&text)["text"].is_string());
    let json = ["--stats", "json", "--prompt", "# Closures\n\nA closure is", "--max-tokens", "4"];
    let (loud, _) = output(run, &json);
    let object = last_object(&loud);
    assert!(loud.starts_with(object["text"].as_str().expect("text")), "{loud}");
}

#[test]
fn stop_strings_end_the_text_before_them() {
    let prompt = comma_separated(&golden_ids("p1.input_ids"));
    let common = ["--prompt-ids", &prompt, "--max-tokens", "64", "--quiet"];
    let whole = generated(&common)["text"].as_str().expect("text").to_owned();
    let (before, _) = whole.split_once("visitor").expect("in the golden text");
    let stops = ["--stop", "never comes", "--stop", "visitor"];
    let object = generated(&[&common[..], &stops].concat());
    assert_eq!(object["text"], before);
    assert_eq!(object["finish_reason"], "stop");
    assert_user_error(run, &["--stop", ""], "stop string 0");
}

#[test]
fn chat_uses_the_template_and_ends_at_its_end_of_turn() {
    let chat = ["--chat", "--prompt", "What is a vector?", "--quiet", "--max-tokens", "200"];
    let object = generated(&chat);
    let raw = generated(&["--prompt", "What is a vector?", "--quiet", "--max-tokens", "1"]);
    assert!(object["prompt_tokens"].as_u64() > raw["prompt_tokens"].as_u64());
    assert!(!object["text"].as_str().expect("text").contains("<|im_end|>"));
}

#[test]
fn a_seed_repeats_its_text_and_another_seed_does_not() {
    let draw = |seed| {
        let flags = ["--temperature", "1", "--top-k", "40", "--top-p", "0.95", "--min-p", "0.01"];
        let rest = ["--seed", seed, "--quiet", "--max-tokens", "24", "--ignore-eos"];
        ids(&generated(&[&flags[..], &rest].concat()))
    };
    let first = draw("1");
    assert_eq!(first, draw("1"));
    assert!(["2", "3"].iter().any(|seed| draw(seed) != first));
    let greedy = generated(&["--quiet", "--max-tokens", "24", "--ignore-eos"]);
    let zero =
        ["--temperature", "0", "--seed", "5", "--quiet", "--max-tokens", "24", "--ignore-eos"];
    assert_eq!(ids(&generated(&zero)), ids(&greedy));
}

#[test]
fn penalties_change_a_greedy_text() {
    let common = ["--quiet", "--max-tokens", "40", "--ignore-eos"];
    let plain = ids(&generated(&common));
    for penalty in
        [["--repetition-penalty", "2"], ["--presence-penalty", "2"], ["--frequency-penalty", "2"]]
    {
        assert_ne!(ids(&generated(&[&common[..], &penalty].concat())), plain, "{penalty:?}");
    }
}

#[test]
fn a_prompt_file_is_the_prompt() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("prompt.txt");
    fs::write(&path, "fn main() {\n").unwrap();
    let common = ["--quiet", "--max-tokens", "8"];
    let file = ["--prompt-file", path.to_str().expect("UTF-8")];
    let object = generated(&[&common[..], &file].concat());
    let direct = generated(&[&common[..], &["--prompt", "fn main() {\n"]].concat());
    assert_eq!(ids(&object), ids(&direct));
    fs::write(&path, [0xff, 0xfe]).unwrap();
    assert_user_error(run, &file, "cannot be read as text\n  caused by: ");
    assert_user_error(run, &["--prompt-file", "no/such/file"], "no/such/file");
}

#[test]
fn a_model_without_a_tokenizer_speaks_ids() {
    let folder = tempfile::tempdir().unwrap();
    for entry in fs::read_dir(fixture("random/checkpoint")).unwrap() {
        let entry = entry.unwrap();
        if !entry.file_name().to_string_lossy().starts_with("tokenizer") {
            fs::copy(entry.path(), folder.path().join(entry.file_name())).unwrap();
        }
    }
    let model = folder.path().to_str().expect("UTF-8");
    let common = ["--model", model, "--prompt-ids", "1,2,3"];
    let rest = ["--max-tokens", "5", "--ignore-eos", "--json"];
    let (text, result) = output(run, &[&common[..], &rest].concat());
    assert!(matches!(result, Ok(Ended::Done)), "{result:?}");
    let object = last_object(&text);
    assert_eq!(object["text"], Value::Null);
    let spoken: Vec<u32> = text
        .lines()
        .next()
        .expect("ids")
        .split_whitespace()
        .map(|id| id.parse().unwrap())
        .collect();
    assert_eq!(spoken, ids(&object));
    assert_eq!(spoken.len(), 5);
    assert_user_error(run, &["--model", model, "--prompt", "x"], "tokenizer.json is missing");
    assert_user_error(run, &[&common[..], &["--stop", "x"]].concat(), "tokenizer.json is missing");
}

/// The file of a run; its exact replay arrives at the counters of the run.
fn recorded(path: &Path) -> TraceHeader {
    let reader = TraceReader::open(path).expect("a trace");
    let header = reader.header().clone();
    let mut replay = ExactReplay::recorded(&header).expect("a built-in policy");
    let played = reader.play(&mut replay).expect("whole");
    let end = played.end.and_then(|end| end.pool).expect("with the pool at its end");
    assert!(end.counters.decode.misses > 0);
    let pool = replay.verify(&played).expect("the same");
    assert_eq!(*pool.counters(), end.counters);
    header
}

#[test]
fn a_run_begins_with_what_the_one_before_had() {
    let folder = tempfile::tempdir().unwrap();
    let (path, foreign) = (folder.path().join("tiny.warm"), folder.path().join("foreign.warm"));
    let file = path.to_str().expect("UTF-8");
    let flags = ["--json", "--max-tokens", "24", "--slots", "150", "--warm-start", file];
    let plain = generated(&flags[..5]);
    assert_eq!(plain["warm_start"], Value::Null);
    let cold = generated(&flags);
    assert!(cold["warm_start"]["cold"].as_str().is_some_and(|why| why.contains("no such file")));
    assert_eq!(
        (&cold["warm_start"]["records"], &cold["warm_start"]["saved"]),
        (&0.into(), &150.into())
    );
    let warm = generated(&flags);
    let began = &warm["warm_start"];
    assert_eq!((&began["cold"], &began["records"]), (&Value::Null, &150.into()));
    assert_eq!((&began["policy_state"], &began["saved"]), (&true.into(), &150.into()));
    assert!(began["reads"].as_u64() < Some(9 * 150));
    for object in [&cold, &warm] {
        assert_eq!(ids(object), ids(&plain), "the start changes no token");
    }
    let hits = |object: &Value| object["prefill"]["hits"].as_u64().expect("hits");
    assert!(hits(&warm) > hits(&cold));
    // Another policy takes the records and not the state.
    let other = generated(&[&flags[..], &["--policy", "lru"]].concat());
    assert_eq!(other["warm_start"]["policy_state"], false);
    assert_eq!(ids(&other), ids(&plain));

    let mut bytes = fs::read(&path).unwrap();
    bytes[90] ^= 1;
    fs::write(&path, &bytes).unwrap();
    let (_, result) = output(run, &flags);
    let error = result.expect_err("damaged");
    assert_eq!(error.exit_code(), 1);
    assert!(error.to_string().contains("tiny.warm cannot be used"), "{error}");
    assert_eq!(fs::read(&path).unwrap(), bytes, "it is not replaced unasked");
    let cold = generated(&[&flags[..], &["--warm-start-or-cold"]].concat());
    assert!(cold["warm_start"]["cold"].as_str().is_some_and(|why| why.contains("checksum")));
    assert_eq!(generated(&flags)["warm_start"]["records"], 150);

    // One of another model: what differs, which file, and what helps.
    let random = fixture("random/checkpoint");
    let random = ["--model", utf8(&random), "--prompt-ids", "1,2,3", "--max-tokens", "2", "--json"];
    generated(&[&random[..], &["--slots", "8", "--warm-start", utf8(&foreign)]].concat());
    let foreign = ["--json", "--max-tokens", "2", "--warm-start", utf8(&foreign)];
    for words in [
        "foreign.warm cannot be used",
        "it was saved with another model: ",
        ", this one is ",
        "--warm-start-or-cold",
    ] {
        assert_user_error(run, &foreign, words);
    }
    let cold = generated(&[&foreign[..], &["--warm-start-or-cold"]].concat());
    assert!(cold["warm_start"]["cold"].as_str().is_some_and(|why| why.contains("another model")));
    assert_user_error(run, &["--warm-start", file, "--trace", "t"], "cannot be used with");
    assert_user_error(run, &["--warm-start-or-cold"], "--warm-start <FILE>");
}

#[test]
fn an_elastic_pool_is_reported() {
    let object = generated(&["--json", "--max-tokens", "4"]);
    assert_eq!((&object["elastic"], &object["pool_slots"]), (&Value::Null, &201.into()));
    assert!(
        ["held", "elsewhere", "unavailable"].contains(&object["lock"].as_str().expect("a word"))
    );
    let object = generated(&["--json", "--max-tokens", "4", "--elastic", "--lock", "off"]);
    let elastic = &object["elastic"];
    assert!(elastic["source"].is_string() && elastic["shrinks"].is_u64(), "{elastic}");
    assert!(elastic["fewest_slots"].as_u64() <= object["slots"].as_u64());
    assert_eq!(object["lock"], "off");
}

#[test]
fn a_recorded_run_replays_exactly_and_says_the_same() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("run.trace");
    let file = path.to_str().expect("UTF-8");
    let flags = ["--json", "--max-tokens", "24", "--slots", "40", "--policy", "layer-local:lru"];
    let plain = generated(&flags);
    let object = generated(&[&flags[..], &["--trace", file]].concat());
    assert_eq!(ids(&object), ids(&plain), "recording changes no token");
    let header = recorded(&path);
    assert_eq!((header.slots, header.policy.as_str()), (40, "layer-local:lru"));
    assert_eq!((header.model.as_str(), header.record_bytes), ("tiny-moe", 27_648));
    assert_eq!((header.weights, header.logits), (false, 0));
    let length = fs::metadata(&path).unwrap().len();
    let end = TraceReader::open(&path).unwrap().play(&mut Requests::new(header.geometry)).unwrap();
    let counters = end.end.and_then(|end| end.pool).expect("the pool").counters;
    assert_eq!(object["decode"]["misses"], counters.decode.misses);
    assert_eq!(object["hit_rate"].as_f64(), counters.hit_rate());
    // Once more with details, in place of the first.
    generated(&[&flags[..], &["--trace", file, "--trace-detail"]].concat());
    let header = recorded(&path);
    assert_eq!((header.weights, header.logits), (true, 6 + 8));
    assert!(fs::metadata(&path).unwrap().len() > 3 * length);
    // A run that cannot begin leaves the file as it is.
    let before = fs::read(&path).unwrap();
    assert_user_error(run, &["--trace", file, "--slots", "1"], "18");
    assert_user_error(run, &["--trace", file, "--context", "8"], "context");
    assert_eq!(fs::read(&path).unwrap(), before);
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1, "nothing else is left");
    assert_user_error(run, &["--trace", "no/such/folder/f"], "no/such/folder/f cannot be written");
    assert_user_error(run, &["--trace-detail"], "--trace <FILE>");
    let shard = bundled().join("model-00001.safetensors");
    let shard = shard.to_str().expect("UTF-8");
    assert_user_error(run, &["--trace", shard], "a file outside the model's folder");
    assert!(fs::metadata(shard).unwrap().len() > 4_000_000);
}

#[test]
fn shadows_count_and_change_nothing() {
    let flags = ["--max-tokens", "24", "--slots", "100"];
    let plain = generated(&[&flags[..], &["--json"]].concat());
    let names = "analogue,lru@30%,opt,opt@2routes,per-layer-counts:warm-up=4:lfu:half-life=8";
    let object = generated(&[&flags[..], &["--json", "--shadow", names]].concat());
    assert_eq!(ids(&object), ids(&plain));
    assert_eq!(plain["shadows"], serde_json::json!([]));
    let shadows = object["shadows"].as_array().expect("a list");
    let named: Vec<&str> = shadows.iter().filter_map(|shadow| shadow["policy"].as_str()).collect();
    assert_eq!(named.join(","), names);
    let slots: Vec<u64> = shadows.iter().filter_map(|shadow| shadow["slots"].as_u64()).collect();
    assert_eq!(slots, [100, 201, 100, 144, 100]);
    // The shadow of the engine's own policy counts as the engine does.
    for phase in ["prefill", "decode"] {
        for count in ["hits", "misses", "hit_rate", "token_hit_rate"] {
            assert_eq!(shadows[0][phase][count], object[phase][count], "{phase} {count}");
        }
    }
    let misses = |shadow: usize| {
        let of = |phase: &str| shadows[shadow][phase]["misses"].as_u64().expect("a count");
        of("prefill") + of("decode")
    };
    assert!(misses(2) < misses(0) && misses(2) < misses(4) && misses(3) < misses(2));
    let (text, result) = output(run, &[&flags[..], &["--shadow", "lru@30%"]].concat());
    assert!(matches!(result, Ok(Ended::Done)), "{result:?}");
    assert!(text.contains("\nshadow          lru@30% with 201 slots: hit rate "), "{text}");
    assert_user_error(run, &["--shadow", "lru@1%x"], "is no size of a pool");
    assert_user_error(run, &["--shadow", "per-layer:lru@30"], "the policy needs 72 slots");
}

#[test]
fn a_cancelled_run_shows_the_figures_so_far() {
    let cancel_at_write = |arguments: &[&str], writes: usize| {
        let mut out = Cancelling { bytes: Vec::new(), left: writes, cancel: Default::default() };
        let cancel = out.cancel.clone();
        let mut console = Console::new(&mut out);
        if writes == 0 {
            cancel.cancel();
        }
        console.cancel = cancel;
        let arguments = ["generate"].iter().chain(arguments).map(std::ffi::OsString::from);
        let result = run(arguments, &mut console);
        (String::from_utf8(out.bytes).unwrap(), result)
    };
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("run.trace");
    let flags = ["--json", "--max-tokens", "400", "--ignore-eos", "--trace"];
    let file = path.to_str().expect("UTF-8");
    let (text, result) = cancel_at_write(&[&flags[..], &[file]].concat(), 5);
    recorded(&path);
    assert!(matches!(result, Ok(Ended::Interrupted)), "{result:?}");
    let object = last_object(&text);
    assert_eq!(object["finish_reason"], "cancelled");
    assert_eq!(object["error"]["kind"], "cancelled");
    assert!((1..400).contains(&ids(&object).len()), "{object}");
    let (_, result) = cancel_at_write(&["--json"], 0);
    assert_eq!(result.expect_err("cancelled while loading").exit_code(), 130);
}

/// Sets the token at its n-th write.
struct Cancelling {
    bytes: Vec<u8>,
    left: usize,
    cancel: slotstream::core::CancelToken,
}

impl std::io::Write for Cancelling {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.left = self.left.saturating_sub(1);
        if self.left == 0 {
            self.cancel.cancel();
        }
        self.bytes.extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

#[test]
fn a_full_context_ends_the_text() {
    let object = generated(&["--quiet", "--context", "20", "--max-tokens", "100", "--ignore-eos"]);
    assert_eq!(object["finish_reason"], "context");
    assert_eq!(ids(&object).len() as u64 + object["prompt_tokens"].as_u64().expect("count"), 20);
}

#[test]
fn every_mistake_is_named() {
    let bundled = bundled();
    let file = bundled.join("config.json");
    let file = file.to_str().expect("UTF-8");
    for (arguments, words) in [
        (&["--model", "no/such/model"][..], "--model: no/such/model is no folder"),
        (&["--model", file], "is no folder"),
        (&["--model", "src"], "no config.json"),
        (&["--policy", "clocks"], "known are clock, clock-cold, lru, fifo, slru"),
        (&["--reader", "fast"], "auto, buffered, uncached, memory, direct, uring, mmap"),
        (&["--mirror", "no/such"], "no/such has no copy of a file of the model"),
        (&["--mirror", "src", "--reader", "mmap"], "no --mirror beside --reader mmap"),
        (&["--throttle", "fast"], "expected apple, or latency=TIME,gbs=N,deep=N"),
        (&["--throttle", "apple", "--reader", "direct"], "cannot be used with"),
        (&["--throttle", "apple", "--mirror", "src"], "cannot be used with"),
        (&["--device", "metal"], "device metal"),
        (&["--prompt", ""], "the prompt is empty"),
        (&["--prompt-ids", ""], "the list is empty"),
        (&["--prompt-ids", "1,x"], "item 2"),
        (&["--prompt-ids", "1,4096"], "token 4096"),
        (&["--context", "4"], "the context has room for 4"),
        (&["--context", "0"], "context = 0"),
        (&["--context", "4097"], "context = 4097"),
        (&["--slots", "17"], "18"),
        (&["--slots", "x"], "--slots"),
        (&["--memory", "8 apples"], "unknown unit \"apples\""),
        (&["--memory", "1MiB"], "smallest pool of 18 slots"),
        (&["--memory", "1GiB", "--slots", "20"], "cannot be used with"),
        (&["--lanes", "0"], "lanes = 0"),
        (&["--threads", "0"], "threads = 0"),
        (&["--chunk", "0"], "chunk = 0"),
        (&["--prefill-sweep", "0"], "expected off or a number of rows"),
        (&["--prefill-sweep", "99999"], "prefill sweep = 99999"),
        (&["--norms", "both"], "`raw` or `folded`"),
        (&["--temperature", "-1"], "temperature"),
        (&["--temperature", "nan"], "temperature"),
        (&["--top-p", "0"], "top_p"),
        (&["--top-p", "1.5"], "top_p"),
        (&["--min-p", "-0.5"], "min_p"),
        (&["--top-k", "-1"], "--top-k"),
        (&["--repetition-penalty", "0"], "repetition_penalty"),
        (&["--presence-penalty", "3"], "presence_penalty"),
        (&["--frequency-penalty", "-3"], "frequency_penalty"),
        (&["--prompt", "a", "--prompt-ids", "1"], "cannot be used with"),
        (&["--prompt", "a", "--prompt-file", "b"], "cannot be used with"),
        (&["--chat", "--prompt-ids", "1"], "cannot be used with"),
        (&["--chat"], "required"),
        (&["--json", "--stats", "text"], "cannot be used with"),
        (&["--quiet", "--stats", "text"], "--quiet"),
        (&["--no-such-flag"], "--no-such-flag"),
        (&["--stats", "xml"], "xml"),
    ] {
        assert_user_error(run, arguments, words);
    }
}

#[test]
fn a_session_is_saved_and_gone_on_with() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let path = folder.path().join("own.session");
    let file = path.to_str().expect("UTF-8");
    let whole = generated(&["--quiet", "--max-tokens", "24"]);
    let first = generated(&["--quiet", "--max-tokens", "10", "--save-session", file]);
    assert_eq!(first["reused_tokens"], 0);
    // Without a prompt the session goes on.
    let load = ["--quiet", "--load-session", file, "--slots", "18"];
    let rest = generated(&[&load[..], &["--max-tokens", "14"]].concat());
    assert_eq!([ids(&first), ids(&rest)].concat(), ids(&whole));
    let prompt = whole["prompt_tokens"].as_u64().expect("a number");
    assert_eq!(rest["prompt_tokens"].as_u64(), Some(prompt + 10));
    assert_eq!(rest["reused_tokens"], 0, "no prompt was given");
    // With one, what they share is known.
    let text = "CHAPTER II\n\nMr. Darcy ";
    let again = generated(&[&load[..], &["--prompt", text, "--max-tokens", "10"]].concat());
    assert_eq!(ids(&again), ids(&first));
    assert_user_error(run, &["--load-session", "nowhere.session"], "nowhere.session");
    // What was generated before is penalised as if nothing had been in between.
    let most = ["--quiet", "--repetition-penalty", "1.5", "--presence-penalty", "1"];
    let whole = generated(&[&most[..], &["--max-tokens", "24"]].concat());
    let save = ["--max-tokens", "14", "--save-session", file];
    let first = generated(&[&most[..], &save].concat());
    let rest = generated(&["--quiet", "--load-session", file, "--max-tokens", "10"]);
    assert_eq!([ids(&first), ids(&rest)].concat(), ids(&whole));
}
