//! `synthesize`: a folder that loads and runs, whole or not at all.

use std::fs;
use std::path::Path;

use serde_json::Value;
use slotstream_checkpoint::Checkpoint;
use slotstream_core::CancelToken;
use slotstream_examples::synthesize::run;
use slotstream_examples::{Console, Ended, generate};
use slotstream_replay::{Phases, Recording, Stats};

use super::{assert_user_error, bundled, ids, last_object, output, utf8};

/// The flags for a folder with the shapes of the bundled model.
fn flags<'a>(out: &'a Path, config: &'a Path) -> Vec<&'a str> {
    vec!["--json", "--out", utf8(out), "--config", utf8(config)]
}

fn written(arguments: &[&str]) -> Value {
    let (text, result) = output(run, arguments);
    assert!(matches!(result, Ok(Ended::Done)), "{arguments:?}: {result:?}");
    last_object(&text)
}

#[test]
fn a_folder_loads_runs_and_comes_back_by_its_seed() {
    let (parent, config) = (tempfile::tempdir().unwrap(), bundled().join("config.json"));
    let [first, second] = ["first", "second"].map(|name| parent.path().join(name));
    let flags = |out| [flags(out, &config), vec!["--layers", "3", "--vocab", "300"]].concat();
    let slash = parent.path().join("first/");
    let object = written(&flags(&slash));
    assert_eq!((&object["layers"], &object["records"]), (&3.into(), &(3 * 56).into()));
    assert_eq!((&object["record_bytes"], &object["ngram"]), (&27_648.into(), &true.into()));
    let checkpoint = Checkpoint::open(&first).unwrap();
    assert_eq!(object["bytes"].as_u64(), Some(checkpoint.ledger().total_bytes));
    assert_eq!(checkpoint.config().vocab_size, 300);
    let prompt =
        ["--model", utf8(&first), "--prompt-ids", "1,2,299", "--max-tokens", "8", "--json"];
    let (text, result) = output(generate::run, &prompt);
    assert!(matches!(result, Ok(Ended::Done)), "{result:?}");
    assert_eq!(ids(&last_object(&text)).len(), 8);
    // The same seed gives the same bytes, another one does not.
    written(&flags(&second));
    let shard = |folder: &Path| fs::read(folder.join("model-00001.safetensors")).unwrap();
    assert_eq!(shard(&first), shard(&second));
    fs::remove_dir_all(&second).unwrap();
    written(&[flags(&second), vec!["--seed", "1"]].concat());
    assert!(shard(&first) != shard(&second));
    assert_eq!(fs::read_dir(parent.path()).unwrap().count(), 2, "nothing else stays");
}

/// The busiest tenth of the experts serves what was asked for, in a real run.
#[test]
fn routers_are_as_skewed_as_a_trace() {
    let parent = tempfile::tempdir().unwrap();
    let (config, out) = (bundled().join("config.json"), parent.path().join("skewed"));
    let trace = parent.path().join("run.trace");
    let share = |flags: &[&str]| {
        let object = written(&[&self::flags(&out, &config), flags].concat());
        let prompt: String = (0..600_u32).map(|n| format!("{} ", n * 7 % 4000)).collect();
        let run = ["--model", utf8(&out), "--prompt-ids", &prompt, "--max-tokens", "1", "--quiet"];
        let (_, result) = output(generate::run, &[&run[..], &["--trace", utf8(&trace)]].concat());
        assert!(matches!(result, Ok(Ended::Done)), "{result:?}");
        fs::remove_dir_all(&out).unwrap();
        let requests = Recording::open(&trace).unwrap().requests().unwrap();
        // Rows of a pass share lookups, so uses are counted by token.
        let mut uses = vec![0_u64; requests.geometry().records()];
        for visit in requests.passes().flat_map(|pass| pass.visits()) {
            for id in visit.ids() {
                uses[visit.layer().index() * 56 + id.index()] += 1;
            }
        }
        uses.sort_unstable_by(|a, b| b.cmp(a));
        let busiest = uses[..uses.len().div_ceil(10)].iter().sum::<u64>() as f64;
        (busiest / uses.iter().sum::<u64>() as f64, object["top_tenth"].as_f64().unwrap())
    };
    let (even, asked) = share(&["--layers", "4", "--no-ngram", "--top-tenth", "0.2"]);
    assert!((asked - 0.2).abs() < 0.03 && (even - asked).abs() < 0.12, "{even} {asked}");
    let (skewed, asked) = share(&["--layers", "4", "--no-ngram", "--top-tenth", "0.45"]);
    assert!((asked - 0.45).abs() < 0.03 && (skewed - asked).abs() < 0.12, "{skewed} {asked}");
    let like = bundled().join("traces/prose-austen.txt.gz");
    let wanted = Recording::open(&like).unwrap().requests().unwrap();
    let wanted = Stats::of(&wanted, Phases::All).top_share(0.1);
    let (_, asked) = share(&["--layers", "4", "--no-ngram", "--like", utf8(&like)]);
    assert!((asked - wanted).abs() < 0.03, "{asked} {wanted}");
}

#[test]
fn without_arguments_it_is_the_published_shape() {
    let parent = tempfile::tempdir().unwrap();
    let out = parent.path().join("real");
    let object =
        written(&["--dry-run", "--json", "--out", utf8(&out), "--layers", "1", "--no-ngram"]);
    assert_eq!((&object["experts"], &object["top_k"]), (&512.into(), &10.into()));
    assert_eq!((&object["record_bytes"], &object["vocab"]), (&2_764_800.into(), &248_320.into()));
    assert_eq!(object["written"], false);
    let (text, result) =
        output(run, &["--dry-run", "--out", utf8(&out), "--layers", "1", "--no-ngram"]);
    assert!(matches!(result, Ok(Ended::Done)), "{result:?}");
    assert!(text.contains("would be written\n1 layers x 512 experts, top-10"), "{text}");
    assert!(!out.exists());
    fs::create_dir(&out).unwrap();
    let taken = ["--dry-run", "--out", utf8(&out), "--layers", "1", "--no-ngram"];
    assert_user_error(run, &taken, "a folder that is not there yet");
}

#[test]
fn whatever_ends_it_leaves_nothing() {
    let (parent, config) = (tempfile::tempdir().unwrap(), bundled().join("config.json"));
    let out = parent.path().join("out");
    let mut shown = Vec::new();
    let mut console = Console::new(&mut shown);
    console.cancel = CancelToken::new();
    console.cancel.cancel();
    let arguments = [vec!["synthesize"], flags(&out, &config)].concat();
    let ended = run(arguments.into_iter().map(Into::into), &mut console);
    assert!(matches!(ended, Ok(Ended::Interrupted)), "{ended:?}");
    assert_eq!(fs::read_dir(parent.path()).unwrap().count(), 0);
}

#[test]
fn mistakes_are_named() {
    let (parent, config) = (tempfile::tempdir().unwrap(), bundled().join("config.json"));
    let out = parent.path().join("out");
    let taken = parent.path().join("taken");
    fs::create_dir(&taken).unwrap();
    fs::create_dir(parent.path().join("half.part")).unwrap();
    let broken = parent.path().join("broken.json");
    fs::write(&broken, "{\"model_type\": \"other\"}").unwrap();
    let no_json = parent.path().join("no.json");
    fs::write(&no_json, "{").unwrap();
    let own = |more: &[&'static str]| {
        [flags(&out, &config), more.to_vec()].concat().into_iter().map(String::from).collect()
    };
    let with = |out: &Path, config: &Path| -> Vec<String> {
        flags(out, config).into_iter().map(String::from).collect()
    };
    let cases: Vec<(Vec<String>, &str)> = vec![
        (own(&["--layers", "0"]), "--layers = 0: expected 1 to 1024"),
        (own(&["--layers", "1025"]), "--layers = 1025"),
        (own(&["--layers", "1"]), "at least 2, the n-gram layer, or --no-ngram"),
        (own(&["--vocab", "1"]), "--vocab = 1: expected 2 to 16777216"),
        (own(&["--top-tenth", "1.5"]), "--top-tenth = 1.5: expected a share from 0 to 1"),
        (own(&["--top-tenth", "nan"]), "--top-tenth = NaN"),
        (own(&["--like", "no/such"]), "no/such"),
        (own(&["--file-limit", "x"]), "does not start with a number"),
        (with(&taken, &config), "a folder that is not there yet"),
        (with(&parent.path().join("half"), &config), "half.part: expected a folder that is not"),
        (with(&out, &no_json), "a config.json; EOF"),
        (with(&out, &broken), "model_type"),
        (vec!["--layers".into(), "2".into()], "--out <DIR>"),
        // 1024 layers of the published shape are 1.5 TB.
        (
            vec!["--out".into(), utf8(&out).into(), "--layers".into(), "1024".into()],
            "free and 1.39 TiB are needed",
        ),
    ];
    for (arguments, words) in cases {
        let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
        assert_user_error(run, &arguments, words);
    }
    let (_, result) = output(run, &flags(&parent.path().join("no/such/folder"), &config));
    assert_eq!(result.expect_err("no parent").exit_code(), 2);
}
