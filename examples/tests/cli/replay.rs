//! `replay`: its rows against the library's, its forms, its files, mistakes.

use std::collections::HashMap;
use std::fs;
use std::path::PathBuf;

use serde_json::Value;
use slotstream_cache::{Clock, Lru};
use slotstream_examples::Ended;
use slotstream_examples::replay::run;
use slotstream_replay::{Opt, Phases, Recording, Simulation};

use super::{assert_user_error, bundled, last_object, output};

fn trace(name: &str) -> PathBuf {
    bundled().join(format!("traces/{name}.txt.gz"))
}

fn shown(arguments: &[&str]) -> String {
    let (text, result) = output(run, arguments);
    assert!(matches!(result, Ok(Ended::Done)), "{arguments:?}: {result:?}");
    text
}

/// Lines of CSV, each by the names of the columns.
fn rows(csv: &str) -> Vec<HashMap<&str, &str>> {
    let mut lines = csv.lines();
    let names: Vec<&str> = lines.next().expect("a header").split(',').collect();
    lines.map(|line| names.iter().copied().zip(line.split(',')).collect()).collect()
}

#[test]
fn rows_are_what_the_library_counts() {
    let csv =
        shown(&["--policy", "opt,lru,clock", "--slots", "100", "--routes", "3", "--format", "csv"]);
    assert!(csv.starts_with("policy,slots,lookups,hits,misses,hit_rate,"), "{csv}");
    let rows = rows(&csv);
    let requests = Recording::open(trace("prose-austen")).unwrap().requests().unwrap();
    let mut at = rows.iter();
    for policy in ["opt", "lru", "clock"] {
        for slots in [100, 216] {
            let simulation = Simulation::new(slots);
            let run = match policy {
                "opt" => simulation.run(&requests, Opt::new(&requests)),
                "lru" => simulation.run(&requests, Lru::new()),
                _ => simulation.run(&requests, Clock::new()),
            };
            let count = run.unwrap().count(Phases::Decode);
            let row = at.next().expect("a row");
            assert_eq!((row["policy"], row["slots"]), (policy, slots.to_string().as_str()));
            assert_eq!(row["hits"], count.lookups.hits.to_string());
            assert_eq!(row["misses"], count.lookups.misses.to_string());
            assert_eq!((row["trace"], row["replay"]), ("prose-austen", "modelled"));
        }
    }
    assert_eq!(rows.len(), 6);
}

#[test]
fn keys_are_passes_of_their_own() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("keys.txt");
    fs::write(&path, "7\n8\n9\n10\n7\n8\n11\n7\n8\n9\n10\n11\n").unwrap();
    let keys = path.to_str().expect("UTF-8");
    let csv = shown(&["--keys", keys, "--policy", "lru,opt", "--slots", "3", "--format", "csv"]);
    let rows = rows(&csv);
    let counts = |row: &HashMap<&str, &str>| {
        [row["policy"], row["slots"], row["lookups"], row["misses"]].map(str::to_owned)
    };
    assert_eq!(counts(&rows[0]), ["lru", "3", "12", "10"]);
    assert_eq!(counts(&rows[1]), ["opt", "3", "12", "7"]);
}

#[test]
fn several_traces_are_summed_up() {
    let paths = ["prose-austen", "book-nomicon"].map(|name| trace(name).display().to_string());
    let arguments = ["--trace", &paths[0], &paths[1], "--policy", "clock,opt", "--slots", "202"];
    let csv = shown(&[&arguments[..], &["--format", "csv"]].concat());
    let rows = rows(&csv);
    assert_eq!(rows.len(), 6);
    let rate = |row: &HashMap<&str, &str>| row["hit_rate"].parse::<f64>().expect("a rate");
    let mean = (rate(&rows[0]) + rate(&rows[2])) / 2.0;
    assert_eq!((rows[4]["policy"], rows[4]["trace"], rows[4]["traces"]), ("clock", "mean", "2"));
    assert!((rate(&rows[4]) - mean).abs() < 2e-6);
    let json: Value =
        serde_json::from_str(&shown(&[&arguments[..], &["--format", "json"]].concat()))
            .expect("one object");
    assert_eq!(json["rows"].as_array().map(Vec::len), Some(4));
    assert_eq!(json["summary"][0].as_array().map(Vec::len), Some(2));
    assert_eq!(json["traces"][1]["trace"], "book-nomicon");
    let text = shown(&arguments);
    assert!(text.contains("mean over the traces") && text.contains("gap closed"), "{text}");
}

/// Two traces of one name, and two sizes of records: no figure of one is the other's.
#[test]
fn traces_of_equal_names_are_told_apart() {
    let folder = tempfile::tempdir().unwrap();
    let recorded = folder.path().join("prose-austen.trace");
    let record = ["--quiet", "--max-tokens", "6", "--trace", recorded.to_str().expect("UTF-8")];
    output(slotstream_examples::generate::run, &record).1.expect("generates");
    let (own, other) =
        (trace("prose-austen").display().to_string(), recorded.display().to_string());
    let flags = ["--policy", "opt,clock,lru", "--slots", "72", "--format", "csv", "--trace"];
    let alone = |path: &str| shown(&[&flags[..], &[path]].concat());
    let both = shown(&[&flags[..], &[&own, &other]].concat());
    for (number, path) in [(1, &own), (2, &other)] {
        let alone = alone(path);
        let label = format!("prose-austen ({number})");
        for (row, same) in
            rows(&alone).iter().zip(rows(&both).iter().filter(|r| r["trace"] == label))
        {
            for column in ["policy", "hits", "gap_closed", "mb_per_token"] {
                assert_eq!(row[column], same[column], "{label} {column}");
            }
        }
        assert_eq!(rows(&both).iter().filter(|row| row["trace"] == label).count(), 3);
    }
    // What is read is not written over.
    let (linked, new) = (folder.path().join("linked"), folder.path().join("new"));
    fs::hard_link(&recorded, &linked).unwrap();
    let (linked, new) = (linked.to_str().expect("UTF-8"), new.to_str().expect("UTF-8"));
    for option in ["--events", "--plot"] {
        for path in [other.as_str(), linked] {
            let flags = ["--trace", &other, option, path];
            assert_user_error(run, &flags, "another file than that of --trace");
        }
        // Nor is anything else replaced.
        assert_user_error(run, &["--trace", &own, option, &other], "this one is something else");
    }
    let flags = ["--trace", &own, "--events", new, "--plot", new];
    assert_user_error(run, &flags, "another file than that of --plot");
    let flags = ["--trace", &own, "--plot", "no/such/folder/x.svg"];
    assert_eq!(output(run, &flags).1.expect_err("no folder").exit_code(), 2);
    assert!(shown(&["--trace", &other]).contains("analogue"));
}

#[test]
fn a_recorded_run_is_replayed_exactly() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("run.trace");
    let file = file.to_str().expect("UTF-8");
    let flags = ["--json", "--max-tokens", "24", "--slots", "40", "--policy", "layer-local:lru"];
    let generate = slotstream_examples::generate::run;
    let (text, result) = output(generate, &[&flags[..], &["--trace", file]].concat());
    assert!(matches!(result, Ok(Ended::Done)), "{result:?}");
    let live = last_object(&text);
    let csv = shown(&["--trace", file, "--format", "csv"]);
    let rows = rows(&csv);
    let own = rows.iter().find(|row| row["policy"] == "layer-local:lru").expect("the recorded one");
    assert_eq!((own["slots"], own["replay"]), ("40", "exact"));
    for name in ["hits", "misses"] {
        assert_eq!(own[name], live["decode"][name].to_string());
    }
    let others = rows.iter().filter(|row| row["policy"] != "layer-local:lru");
    assert!(others.clone().count() > 1);
    assert!(others.into_iter().all(|row| row["replay"] == "modelled" && row["slots"] == "40"));
    let exact = shown(&["--trace", file, "--exact", "--format", "csv"]);
    assert!(exact.contains(&format!(",exact,decode_hits,{0},{0}\n", own["hits"])), "{exact}");
    // Nothing was forecast, so the model is the simulation.
    let flags = ["--trace", file, "--policy", "lru,lfu", "--format", "csv"];
    assert_eq!(shown(&[&flags[..], &["--latency", "3"]].concat()), shown(&flags));
    // The record's size comes from the trace.
    let number = |name: &str| own[name].parse::<f64>().expect("a number");
    assert!((number("mb_per_token") - number("misses_per_token") * 0.027_648).abs() < 1e-5);
    // Another size is a model.
    let csv = shown(&["--trace", file, "--slots", "41", "--policy", "lru", "--format", "csv"]);
    assert!(csv.lines().nth(1).is_some_and(|row| row.contains(",modelled,")), "{csv}");
}

#[test]
fn files_of_lookups_and_charts() {
    let folder = tempfile::tempdir().unwrap();
    let [events, plot] = ["events.csv", "plot.svg"].map(|name| folder.path().join(name));
    let [events, plot] = [&events, &plot].map(|path| path.to_str().expect("UTF-8"));
    let flags = ["--policy", "lru,clock", "--slots", "100", "--warmup", "1000", "--format", "csv"];
    let csv = shown(&[&flags[..], &["--events", events, "--plot", plot]].concat());
    let written = fs::read_to_string(events).unwrap();
    let lookups = rows(&written);
    for row in rows(&csv) {
        let of: Vec<_> = lookups.iter().filter(|e| e["policy"] == row["policy"]).collect();
        let count = |outcome: &str| of.iter().filter(|e| e["outcome"] == outcome).count();
        assert_eq!(count("hit").to_string(), row["hits"]);
        assert_eq!(count("miss").to_string(), row["misses"]);
        // The pool is full: every miss drives somebody out.
        assert!(of.iter().all(|e| (e["outcome"] == "miss") == e["victim"].contains(':')));
    }
    let svg = fs::read_to_string(plot).unwrap();
    assert!(svg.contains("<svg") && svg.contains("prose-austen"));
}

#[test]
fn more_about_the_requests_and_the_pool() {
    let flags = ["--policy", "lru", "--slots", "100", "--stats", "--layers", "--shuffle"];
    let text = shown(&flags);
    for words in [
        "hit rate if first uses only miss: 99.40%",
        "distinct records between two uses",
        "same as previous token",
        "lru with 100 slots: layers of the pool",
        "prose-austen shuffled",
    ] {
        assert!(text.contains(words), "{words}: {text}");
    }
    let all = shown(&["--policy", "all", "--slots", "216", "--format", "csv"]);
    let rows = rows(&all);
    let hits = |row: &HashMap<&str, &str>| row["hits"].parse::<u64>().expect("a count");
    assert!(rows.len() > 4 && rows[0]["policy"] == "opt");
    assert!(rows.iter().all(|row| hits(row) <= hits(&rows[0])), "{all}");
}

#[test]
fn every_mistake_is_named() {
    for (flags, words) in [
        (&["--policy", "clocks"][..], "no eviction policy is called \"clocks\""),
        (&["--policy", "all,foo"], "no eviction policy is called \"foo\""),
        (&["--slots", "0"], "a number of slots is a whole number of at least 1"),
        (&["--fractions", "1.5"], "a share of the records"),
        (&["--routes", "-1"], "token routes"),
        (&["--slots", "5"], "below the floor of 18"),
        (&["--warmup", "1536"], "less than the 1536 passes of prose-austen"),
        (&["--stats", "--format", "csv"], "table or json"),
    ] {
        assert_user_error(run, flags, words);
    }
    let (_, missing) = output(run, &["--trace", "no/such.trace"]);
    let text = slotstream_examples::describe(&missing.expect_err("no such file"));
    assert!(text.contains("no/such.trace"), "{text}");
    let (_, folder) = output(run, &["--slots", "100", "--plot", "/no/such/folder/p.svg"]);
    let text = slotstream_examples::describe(&folder.expect_err("no such folder"));
    assert!(text.contains("/no/such/folder/p.svg cannot be written"), "{text}");
}
