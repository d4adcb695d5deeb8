//! `probe_ssd`: every reader and way on small files, and mistakes.

use std::fs;

use serde_json::Value;
use slotstream_core::CancelToken;
use slotstream_examples::probe_ssd::run;
use slotstream_examples::{Console, Ended};

use super::{assert_user_error, last_object, output, utf8};

fn probed(arguments: &[&str]) -> Value {
    let (text, result) = output(run, &[arguments, &["--json"]].concat());
    assert!(matches!(result, Ok(Ended::Done)), "{arguments:?}: {result:?}");
    last_object(&text)
}

#[test]
fn every_way_reader_and_depth_of_a_scratch_file() {
    let folder = tempfile::tempdir().unwrap();
    let plot = folder.path().join("plot.svg");
    let size = ["--scratch", utf8(folder.path()), "--size", "300MB", "--bytes", "1MB"];
    let object =
        probed(&[&size[..], &["--depth", "1,3", "--rounds", "2", "--plot", utf8(&plot)]].concat());
    let rows = object["rows"].as_array().expect("rows");
    assert_eq!((rows.len(), &object["used_up"]), (4 * 4 * 2, &false.into()));
    for row in rows {
        assert_eq!(row["rounds"], 2, "{row}");
        for figure in ["gb_s", "p50_ms", "p99_ms", "processor_s_per_gb", "reads_s"] {
            assert!(row[figure].as_f64() >= Some(0.0), "{figure}: {row}");
        }
        let [least, gb_s, most] = ["gb_s_least", "gb_s", "gb_s_most"].map(|f| row[f].as_f64());
        assert!(least <= gb_s && gb_s <= most, "{row}");
    }
    let readers = object["readers"].as_array().expect("readers");
    let named: Vec<_> = readers.iter().filter_map(|reader| reader["reader"].as_str()).collect();
    assert_eq!(named, ["buffered", "uncached", "direct", "uring"]);
    assert!(readers.iter().all(|r| r["mode"].is_string() && r["why"].is_string()));
    // What a token takes is linear in what it misses.
    if let [first, second, ..] = &object["predictions"].as_array().expect("a list")[..] {
        assert_eq!((&first["hit_rate"], &second["hit_rate"]), (&0.0.into(), &0.5.into()));
        let [all, half] = [first, second].map(|p| p["ms_per_token"].as_f64().expect("a time"));
        assert!((all / half - 2.0).abs() < 1e-9 && all > 0.0);
    }
    let drawn = fs::read_to_string(&plot).unwrap();
    assert!(drawn.contains("</svg>") && drawn.contains("uring") && drawn.contains("GB/s"));
    let left: Vec<_> = fs::read_dir(folder.path()).unwrap().flatten().collect();
    assert_eq!(left.len(), 1, "the scratch file is gone: {left:?}");
}

#[test]
fn files_too_small_for_one_measurement_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("tiny");
    for len in [0, 1, 20_000] {
        fs::write(&file, vec![0; len]).unwrap();
        let words = "room for the first measurement: about ";
        assert_user_error(run, &["--file", utf8(&file)], words);
        let size = len.to_string();
        let scratch = ["--scratch", utf8(folder.path()), "--size", &size];
        assert_user_error(run, &scratch, "--size = ");
    }
}

#[test]
fn a_model_and_files_of_ones_own_are_used_up() {
    let object = probed(&["--rounds", "60", "--bytes", "8MB", "--way", "record", "--depth", "4"]);
    assert_eq!((&object["used_up"], &object["file_bytes"]), (&true.into(), &25_758_104.into()));
    assert_eq!(object["shape"]["token_bytes"], 72 * 27_648);
    let folder = tempfile::tempdir().unwrap();
    let [a, b] = ["a", "b"].map(|name| folder.path().join(name));
    fs::write(&a, vec![1; 3_000_000]).unwrap();
    fs::write(&b, vec![2; 5_000_000]).unwrap();
    let (text, result) = output(
        run,
        &["--file", utf8(&a), utf8(&b), "--reader", "memory", "--depth", "2", "--rounds", "9"],
    );
    assert!(matches!(result, Ok(Ended::Done)), "{result:?}");
    assert!(text.contains("7.63 MiB in 2 files\nmemory -> memory"), "{text}");
    assert!(text.contains("The files were used up"), "{text}");
    // Nothing was fetched, so a rate says nothing of the disk: it is marked, where it is known.
    if !text.contains("not known") && text.contains("record") {
        assert!(text.contains("CACHED") && !text.contains("Reading alone"), "{text}");
    }
    let empty = folder.path().join("empty");
    fs::write(&empty, "").unwrap();
    assert_user_error(run, &["--file", utf8(&empty)], "files = 0 bytes");
}

#[test]
fn the_model_of_a_disk_needs_no_file_and_is_called_simulated() {
    let model = ["--throttle", "latency=200us,gbs=5,deep=12", "--bytes", "20MB"];
    let object = probed(
        &[&model[..], &["--way", "record,pieces", "--depth", "1,8", "--rounds", "1"]].concat(),
    );
    let reader = &object["readers"][0];
    assert_eq!((&reader["reader"], &reader["mode"]), (&"simulated".into(), &"simulated".into()));
    let why = reader["why"].as_str().expect("a reason");
    assert!(why.contains("200µs a read, 5.00 GB/s alone, 12.00 together"), "{why}");
    let rows = object["rows"].as_array().expect("rows");
    assert_eq!((rows.len(), &object["used_up"]), (4, &false.into()));
    assert_eq!(object["files"], serde_json::json!([]));
    for row in rows {
        let fetched = (&row["reader"], &row["fetched_per_byte"], &row["cached"]);
        assert_eq!(fetched, (&"simulated".into(), &Value::Null, &false.into()), "{row}");
        // A model may be slower than it should be, where threads wait for a core, never faster.
        let (gb_s, alone) = (row["gb_s"].as_f64().expect("a rate"), row["p50_ms"].as_f64());
        assert!(gb_s <= 12.0 && alone >= Some(0.2), "{row}");
    }
    // Seven records, but a read for each lane; and the nine pieces of seven.
    let reads: Vec<_> = rows.iter().filter_map(|row| row["reads"].as_u64()).collect();
    assert_eq!(reads, [7, 8, 63, 63]);
}

#[test]
fn an_interrupted_run_leaves_no_file() {
    let folder = tempfile::tempdir().unwrap();
    let mut shown = Vec::new();
    let mut console = Console::new(&mut shown);
    console.cancel = CancelToken::new();
    console.cancel.cancel();
    let flags = ["probe_ssd", "--scratch", utf8(folder.path()), "--size", "100MB"];
    let ended = run(flags.into_iter().map(Into::into), &mut console);
    assert!(matches!(ended, Ok(Ended::Interrupted)), "{ended:?}");
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 0);
}

#[test]
fn mistakes_are_named() {
    let folder = tempfile::tempdir().unwrap();
    for (arguments, words) in [
        (&["--reader", "fast"][..], "fast"),
        (&["--way", "sideways"], "sideways"),
        (&["--depth", "0"], "--depth"),
        (&["--rounds", "0"], "--rounds"),
        (&["--size", "1GB"], "--scratch"),
        (&["--model", "no/such"], "no/such"),
        (&["--scratch", utf8(folder.path()), "--size", "900TB"], "are needed: make room"),
        (&["--file", "a", "--model", "b"], "cannot be used with"),
        (&["--throttle", "fast"], "expected apple, or latency=TIME,gbs=N,deep=N"),
        (&["--throttle", "apple", "--reader", "direct"], "cannot be used with"),
    ] {
        assert_user_error(run, arguments, words);
    }
    for missing in [&["--file", "no/such"][..], &["--scratch", "no/such/folder"]] {
        assert_eq!(output(run, missing).1.expect_err("not there").exit_code(), 2);
    }
}
