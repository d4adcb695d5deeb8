//! `article`: its figures against theirs and against the library, its forms, mistakes.

#![expect(clippy::unwrap_used, reason = "a helper of a test that cannot go on fails the test")]

use std::ffi::OsString;

use serde_json::Value;
use slotstream_cache::Clock;
use slotstream_core::Geometry;
use slotstream_examples::article::run;
use slotstream_examples::{Console, Ended, Failure, describe};
use slotstream_replay::{Phases, Simulation, Synthetic};

/// What it wrote, and how it ended.
fn output(arguments: &[&str]) -> (String, Result<Ended, Failure>) {
    let arguments = ["article"].iter().chain(arguments).map(OsString::from);
    let mut out = Vec::new();
    let result = run(arguments, &mut Console::new(&mut out));
    (String::from_utf8(out).unwrap(), result)
}

fn text(arguments: &[&str]) -> String {
    let (text, result) = output(arguments);
    assert!(matches!(result, Ok(Ended::Done)), "{arguments:?}: {result:?}");
    text
}

fn object(arguments: &[&str]) -> Value {
    serde_json::from_str(&text(&[arguments, &["--format", "json"]].concat())).unwrap()
}

fn refusal(arguments: &[&str]) -> (String, u8) {
    let error = output(arguments).1.expect_err("a refusal");
    (describe(&error), error.exit_code())
}

/// A column of a table, as numbers.
fn column(object: &Value, table: &str, name: &str) -> Vec<f64> {
    let rows = object["tables"][table]["rows"].as_array().expect("rows");
    rows.iter().map(|row| row[name].as_f64().unwrap_or_else(|| panic!("{name}: {row}"))).collect()
}

/// Asserts that each of ours is what theirs was rounded from, `unit` being their last digit; they
/// may have cut it off instead.
fn assert_rounds(ours: &[f64], theirs: &[f64], unit: f64) {
    assert_eq!(ours.len(), theirs.len());
    for (ours, theirs) in ours.iter().zip(theirs) {
        assert!((ours - theirs).abs() < unit, "{ours} is not {theirs}");
    }
}

#[test]
fn computed_tables_give_the_articles_figures() {
    let all = object(&["ledger", "plan", "records", "reads", "floors", "receipts"]);
    let bytes = column(&all, "ledger", "bytes");
    assert_eq!(
        bytes[..4],
        [67_947_724_800.0, 32_000_153_600.0, 3_821_867_512.0, 103_769_745_912.0]
    );
    assert_eq!(bytes[4..].iter().sum::<f64>(), bytes[2], "nothing is left over");
    let pool = &all["tables"]["plan"]["rows"][3];
    assert_eq!((&pool["ours"], &pool["article"]), (&20_760_883_200_u64.into(), &pool["ours"]));
    let records = &all["tables"]["records"]["rows"];
    for (at, figure) in
        [(0, 2_764_800.0), (1, 2_768_896.0), (2, 4.5), (4, 6.0), (6, 480.0), (8, 1600.0)]
    {
        assert_eq!(records[at]["ours"].as_f64(), Some(figure), "{}", records[at]);
    }
    assert_rounds(
        &column(&all, "reads", "misses_per_token"),
        &column(&all, "reads", "article_misses"),
        1.0,
    );
    assert_rounds(
        &column(&all, "reads", "mb_per_token"),
        &column(&all, "reads", "article_mb"),
        1.0,
    );
    for (ours, theirs) in
        [("floor_raw_disk", "article_floor_raw"), ("floor_engine_disk", "article_floor_engine")]
    {
        assert_rounds(&column(&all, "floors", ours), &column(&all, "floors", theirs), 0.005);
    }
    assert_eq!(column(&all, "floors", "article_floor_raw"), [0.38, 0.40, 0.45]);
    assert_eq!(column(&all, "floors", "article_floor_engine"), [0.57, 0.58, 0.62]);
    for (ours, theirs, unit) in [
        ("tok_s", "article_tok_s", 0.1),
        ("mb_per_token", "article_mb", 0.1),
        ("wait_share", "article_wait_share", 0.01),
        ("ms_without_reads", "article_ms", 0.1),
    ] {
        assert_rounds(&column(&all, "receipts", ours), &column(&all, "receipts", theirs), unit);
    }
}

/// A trace that is short enough for a test.
const SHORT: [&str; 6] = ["--passes", "60", "--warmup", "20", "--seeds", "2"];

#[test]
fn simulated_tables_are_what_the_library_counts() {
    let all = object(&[&["simulation", "policies", "forecasts", "disks"][..], &SHORT].concat());
    let settings = &all["settings"];
    let knob = |name: &str| settings[name].as_f64().expect("a number");
    let recipe = Synthetic::new(knob("skew"), knob("drift"), knob("half_life")).unwrap().passes(60);
    let geometry = Geometry::new(48, 512, 10).unwrap();
    let traces = [0, 1].map(|seed| recipe.seed(seed).requests(geometry));
    let rates = |per_layer: usize| {
        traces.each_ref().map(|requests| {
            let simulation = Simulation::new(per_layer * 48).warm_up(20);
            let run = simulation.run(requests, Clock::new()).unwrap();
            run.count(Phases::Decode).hit_rate().expect("lookups")
        })
    };
    let rows = all["tables"]["simulation"]["rows"].as_array().expect("rows");
    assert_eq!(rows.len(), 6);
    for (row, per_layer) in rows.iter().zip([30, 60, 100, 156, 256, 400]) {
        let [a, b] = rates(per_layer);
        assert_eq!(row["per_layer"], per_layer);
        assert_eq!(row["hit_rate"].as_f64(), Some((a + b) / 2.0));
        assert_eq!((row["least"].as_f64(), row["most"].as_f64()), (Some(a.min(b)), Some(a.max(b))));
    }
    let missed = 1.0 - rows[3]["hit_rate"].as_f64().expect("a rate");
    let stalled = column(&all, "forecasts", "stalled");
    for (stalled, recall) in stalled.iter().zip([0.0, 0.62, 0.73, 0.80]) {
        assert!((stalled - missed * (1.0 - recall)).abs() < 1e-12);
    }
    assert_rounds(
        &column(&all, "forecasts", "stalled_at_the_articles_miss_rate"),
        &column(&all, "forecasts", "article_stalled"),
        0.0005,
    );
    let [a, b] = rates(119);
    assert_eq!(column(&all, "disks", "simulated_hit_rate"), [(a + b) / 2.0; 2]);
    assert_rounds(&column(&all, "disks", "records_per_token"), &[96.0, 94.0], 0.5);
    for row in all["tables"]["policies"]["rows"].as_array().expect("rows") {
        let rate = |policy: &str| row[policy].as_f64().expect("a rate");
        for policy in ["clock", "lru", "per_layer_lru", "per_layer_clock"] {
            assert!(rate(policy) <= rate("opt"), "{policy}: {row}");
        }
        let leads = row["lru_leads_clock"].as_f64().expect("points");
        assert!((leads - (rate("lru") - rate("clock")) * 100.0).abs() < 1e-9);
    }
}

/// The figures of a short run: another machine, another release must give the same.
#[test]
fn a_seed_means_one_table() {
    let all =
        object(&["simulation", "policies", "--passes", "60", "--warmup", "20", "--seeds", "1"]);
    assert_eq!(hits(&all, "simulation", "hit_rate"), SIMULATED);
    for (policy, hit) in POLICIES {
        assert_eq!(hits(&all, "policies", policy), hit, "{policy}");
    }
}

/// Hits of the 40 x 480 lookups that are counted.
fn hits(object: &Value, table: &str, name: &str) -> Vec<u64> {
    column(object, table, name).iter().map(|rate| (rate * 19_200.0).round() as u64).collect()
}

const SIMULATED: [u64; 6] = [10_379, 14_185, 16_156, 16_705, 16_705, 16_705];
const POLICIES: [(&str, [u64; 5]); 5] = [
    ("clock", [7634, 10_379, 14_185, 16_156, 16_705]),
    ("lru", [8260, 10_778, 14_475, 16_455, 16_705]),
    ("per_layer_lru", [8913, 11_070, 14_479, 16_457, 16_705]),
    ("per_layer_clock", [8973, 10_909, 14_152, 16_269, 16_705]),
    ("opt", [13_541, 14_972, 16_705, 16_705, 16_705]),
];

#[test]
fn the_recipe_is_near_the_published_summary() {
    let rows = object(&["fit", "--seeds", "1"]);
    let ours = column(&rows, "fit", "ours");
    let theirs = |at: usize| rows["tables"]["fit"]["rows"][at]["article"].as_f64().expect("known");
    assert!((ours[0] - theirs(0)).abs() < 200.0, "{ours:?}");
    for at in [1, 2, 4, 5] {
        assert!((ours[at] - theirs(at)).abs() < 0.02, "{ours:?}");
    }
}

#[test]
fn tables_are_chosen_and_shown_once() {
    let shown = text(&["floors", "ledger", "floors"]);
    let heads: Vec<&str> = shown.lines().filter(|line| line.contains(": ")).collect();
    assert!(heads[0].starts_with("ledger: "), "{shown}");
    assert_eq!(shown.matches("floors: ").count(), 1);
    for words in ["67947724800", "37.66%", "38.00%", "article floor raw"] {
        assert!(shown.contains(words), "{words}: {shown}");
    }
    assert!(!shown.contains("simulation: "));
    // Two notes are two lines, and columns that nobody fills are left out.
    assert!(text(&["plan"]).contains("20760883200") && !shown.contains("original receipts"));
}

#[test]
fn help_names_every_table() {
    let error = output(&["--help"]).1.expect_err("help");
    assert_eq!(error.exit_code(), 0);
    let help = describe(&error);
    for table in [
        "ledger",
        "plan",
        "records",
        "reads",
        "floors",
        "receipts",
        "fit",
        "simulation",
        "policies",
        "forecasts",
        "disks",
    ] {
        assert!(help.contains(&format!("- {table}:")), "{table}: {help}");
    }
}

#[test]
fn every_mistake_is_named() {
    for (flags, words) in [
        (&["tables"][..], "invalid value 'tables'"),
        (&["--warmup", "1500"], "less than the 1500 passes of a trace"),
        (&["--seeds", "0"], "expected a whole number from 1 to 64"),
        (&["--passes", "1"], "expected a whole number from 2 to 20000"),
        (&["--skew", "99"], "skew = 99: expected 0 to 50"),
        (&["--drift", "nan"], "drift = NaN"),
        (&["--half-life", "0"], "half_life = 0"),
        (&["--fit", "article", "--skew", "1"], "cannot be used with"),
    ] {
        let (text, code) = refusal(flags);
        assert!(text.contains(words), "{flags:?}: {text}");
        assert_eq!(code, 2, "{flags:?}");
    }
}

#[test]
fn ctrl_c_ends_it_with_nothing_shown() {
    for flags in [&["simulation"][..], &["fit", "--fit", "article"]] {
        let mut out = Vec::new();
        let mut console = Console::new(&mut out);
        console.cancel.cancel();
        let arguments = ["article"].iter().chain(flags).chain(&SHORT).map(OsString::from);
        let error = run(arguments, &mut console).expect_err("cancelled");
        assert_eq!(error.exit_code(), 130, "{flags:?}: {}", describe(&error));
        assert!(out.is_empty(), "{flags:?}");
    }
}
