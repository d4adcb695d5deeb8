//! `pool_view`: frames of a tiny pool by hand.

use std::fs;

use slotstream_examples::Ended;
use slotstream_examples::pool_view::run;

use super::{assert_user_error, output};

fn shown(arguments: &[&str]) -> String {
    let (text, result) = output(run, arguments);
    assert!(matches!(result, Ok(Ended::Done)), "{arguments:?}: {result:?}");
    text
}

#[test]
fn a_clock_of_three_slots_by_hand() {
    let folder = tempfile::tempdir().unwrap();
    let keys = folder.path().join("keys");
    fs::write(&keys, "a\nb\na\nc\nd\n").unwrap();
    let keys = keys.to_str().expect("UTF-8");
    let text = shown(&["--keys", keys, "--size", "3", "--no-color", "--frames", "0"]);
    let pools: Vec<&str> = text.lines().filter(|line| !line.starts_with("pass")).collect();
    let frames = [">0+ .  .", "", ">0' 0+ .", "", ">0* 0' .", "", ">0' 0' 0+", ""];
    assert_eq!(pools[..8], frames);
    // All were referenced: the sweep takes their bits and comes back to the first.
    assert_eq!(pools[8..], [" 0+>0  0", ""]);
    assert!(text.contains("layer 0: 1 hits, 0 misses; clock in 3 slots, hit rate so far 33.3%"));
}

#[test]
fn frames_are_counted_coloured_and_drawn() {
    let folder = tempfile::tempdir().unwrap();
    let svg = folder.path().join("svg");
    let flags = ["--frames", "3", "--skip", "30", "--step", "pass", "--policy", "opt"];
    let text = shown(&[&flags[..], &["--svg", svg.to_str().expect("UTF-8")]].concat());
    let passes: Vec<&str> = text.lines().filter(|line| line.starts_with("pass")).collect();
    assert_eq!(passes.len(), 3);
    for (number, title) in (30..).zip(&passes) {
        assert!(title.starts_with(&format!("pass {number} (decode), layer 11: ")), "{title}");
    }
    assert!(text.contains("\x1b[30;48;2;"));
    assert!(!shown(&[&flags[..], &["--no-color"]].concat()).contains('\x1b'));
    let drawn = fs::read_to_string(svg.join("frame-00002.svg")).unwrap();
    assert_eq!(drawn.matches("<rect").count(), 1 + 108, "the background and the slots");
    assert!(drawn.contains(&passes[2].replace('\x1b', "")) && drawn.contains("stroke-dasharray"));
    assert_eq!(fs::read_dir(&svg).unwrap().count(), 3);
}

#[test]
fn mistakes_are_named() {
    assert_user_error(run, &["--size", "0"], "is no size of a pool");
    assert_user_error(run, &["--width", "0"], "--width");
    assert_user_error(run, &["--policy", "x"], "no eviction policy is called");
}
