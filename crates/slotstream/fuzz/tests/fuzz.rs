//! The targets in `cargo test`: every input of the corpus, and random changes of them.

use std::collections::BTreeSet;

use proptest::prelude::*;
use slotstream_fuzz::driver::{self, Limit};
use slotstream_fuzz::{Finding, TARGETS, Target, corpus, quiet_caught_panics, run_one, target};
use slotstream_testkit::mutate::Edit;

fn inputs(target: &Target) -> Vec<(String, Vec<u8>)> {
    corpus::read(target).expect("a folder of inputs")
}

#[test]
fn every_input_of_the_corpus_is_clean_and_some_are_accepted() {
    quiet_caught_panics();
    for target in TARGETS {
        let (mut outcomes, mut bytes) = (BTreeSet::new(), 0);
        for (name, input) in inputs(target) {
            let outcome = run_one(target, &input);
            outcomes.insert(outcome.unwrap_or_else(|finding| panic!("{name}: {finding}")));
            bytes += input.len();
        }
        let accepted = outcomes.iter().any(|outcome| outcome.contains("accepted"));
        assert!(accepted && outcomes.len() > 1, "{}: {outcomes:?}", target.name);
        assert!(bytes < 64 << 10, "{}: the corpus is small, not {bytes} bytes", target.name);
    }
}

#[test]
fn cargo_fuzz_has_every_target() {
    let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("libfuzzer");
    let manifest = std::fs::read_to_string(folder.join("Cargo.toml")).expect("a manifest");
    for Target { name, .. } in TARGETS {
        assert!(manifest.contains(&format!("name = \"{name}\"")), "{name}");
        let path = format!("fuzz_targets/{name}.rs");
        let source = std::fs::read_to_string(folder.join(&path)).expect("a target file");
        assert!(manifest.contains(&path) && source.contains(&format!("\"{name}\"")), "{name}");
    }
}

/// Runs changed inputs of a corpus.
fn check(name: &str, picks: [prop::sample::Index; 2], edits: &[Edit]) -> Result<(), TestCaseError> {
    quiet_caught_panics();
    let target = target(name).expect("a target");
    let corpus = inputs(target);
    let [mut input, other] = picks.map(|pick| corpus[pick.index(corpus.len())].1.clone());
    for edit in edits {
        target.edit(*edit, &mut input, &other);
    }
    run_one(target, &input).map(drop).map_err(|finding| TestCaseError::fail(finding.to_string()))
}

fn edits() -> impl Strategy<Value = Vec<Edit>> {
    prop::collection::vec(any::<[u32; 4]>().prop_map(Edit), 1..8)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn headers(picks in any::<[prop::sample::Index; 2]>(), edits in edits()) {
        check("header", picks, &edits)?;
    }

    #[test]
    fn indices(picks in any::<[prop::sample::Index; 2]>(), edits in edits()) {
        check("index", picks, &edits)?;
    }

    #[test]
    fn configs(picks in any::<[prop::sample::Index; 2]>(), edits in edits()) {
        check("config", picks, &edits)?;
    }

    #[test]
    fn containers(picks in any::<[prop::sample::Index; 2]>(), edits in edits()) {
        check("container", picks, &edits)?;
    }

    #[test]
    fn sessions(picks in any::<[prop::sample::Index; 2]>(), edits in edits()) {
        check("session", picks, &edits)?;
    }

    #[test]
    fn corrections(picks in any::<[prop::sample::Index; 2]>(), edits in edits()) {
        check("correction", picks, &edits)?;
    }

    #[test]
    fn traces(picks in any::<[prop::sample::Index; 2]>(), edits in edits()) {
        check("trace", picks, &edits)?;
    }

    #[test]
    fn warm_starts(picks in any::<[prop::sample::Index; 2]>(), edits in edits()) {
        check("warm", picks, &edits)?;
    }

    #[test]
    fn tokenizers(picks in any::<[prop::sample::Index; 2]>(), edits in edits()) {
        check("tokenizer", picks, &edits)?;
    }
}

const fn made_up(name: &'static str, run: fn(&[u8]) -> String) -> Target {
    // Every field is given by a real target but these.
    let mut target = TARGETS[0];
    (target.name, target.run, target.most_bytes) = (name, run, 1 << 20);
    target
}

/// Panics when an input has a `7`.
static PANICS: Target = made_up("panics", |input| {
    assert!(!input.contains(&b'7'), "a seven");
    String::from_utf8_lossy(input).chars().filter(|c| !c.is_ascii_digit()).collect()
});

static HOARDS: Target =
    made_up("hoards", |input| format!("{}", vec![1_u8; 64 * input.len()].len()));

#[test]
fn the_driver_finds_what_there_is_to_find() {
    let corpus = vec![b"{\"a\": [1, 2, 3]}".to_vec()];
    let find = |target, seed| driver::run(target, corpus.clone(), seed, Limit::Executions(200_000));
    let (input, finding) = find(&PANICS, 1).expect_err("there is a panic");
    assert!(input.contains(&b'7'));
    assert!(matches!(&finding, Finding::Panic { words, .. } if words == "a seven"), "{finding}");
    let (again, _) = find(&PANICS, 1).expect_err("there is a panic");
    assert_eq!(input, again, "the same seed finds the same input");
    let (input, finding) = find(&HOARDS, 1).expect_err("inputs grow");
    assert!(matches!(finding, Finding::Large { .. }), "{finding}");
    assert!(64 * input.len() > 1 << 20);
    let calm = made_up_calm();
    let summary = driver::run(calm, corpus, 3, Limit::Executions(500)).expect("nothing to find");
    assert_eq!((summary.executions, summary.outcomes), (500, 1));
}

fn made_up_calm() -> &'static Target {
    static CALM: Target = made_up("calm", |_| "accepted".to_owned());
    &CALM
}
