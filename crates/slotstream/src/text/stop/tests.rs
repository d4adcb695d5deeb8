use proptest::prelude::*;
use slotstream_core::ErrorKind;

use super::StopMatcher;
use crate::text::TextError;

/// All text given out for these pieces, and the stop string that ended it.
fn run(stops: &[&str], pieces: &[&str]) -> (String, Option<String>) {
    let mut matcher = StopMatcher::new(stops.iter().copied()).unwrap();
    let mut out = String::new();
    for piece in pieces {
        out.push_str(matcher.push(piece));
    }
    out.push_str(matcher.finish());
    (out, matcher.matched().map(String::from))
}

/// The first end of any stop string in the whole text, of equal ends the first start.
pub(in crate::text) fn naive(stops: &[&str], text: &str) -> (String, Option<String>) {
    for end in 0..=text.len() {
        let ended = stops.iter().filter(|stop| text.as_bytes()[..end].ends_with(stop.as_bytes()));
        if let Some(longest) = ended.max_by_key(|stop| stop.len()) {
            return (text[..end - longest.len()].into(), Some((*longest).into()));
        }
    }
    (text.into(), None)
}

#[test]
fn a_stop_over_the_border_of_pieces_is_cut_exactly() {
    let (text, stop) = run(&["</s>", "\n\nUser:"], &["Hello", "<", "/", "s", ">", "more"]);
    assert_eq!((text.as_str(), stop.as_deref()), ("Hello", Some("</s>")));
    let (text, stop) = run(&["\n\nUser:"], &["a\n", "\nUs", "er", ": x", "y"]);
    assert_eq!((text.as_str(), stop.as_deref()), ("a", Some("\n\nUser:")));
}

#[test]
fn only_what_could_become_a_stop_is_held_back() {
    let mut matcher = StopMatcher::new(["abcd"]).unwrap();
    assert_eq!(matcher.push("xab"), "x");
    assert_eq!(matcher.push("ab"), "ab");
    assert_eq!(matcher.push("c"), "");
    assert_eq!(matcher.push("c"), "abcc");
    assert_eq!(matcher.push("ab"), "");
    assert_eq!(matcher.matched(), None);
    assert_eq!(matcher.finish(), "ab");
    assert_eq!(matcher.finish(), "");
}

#[test]
fn nothing_follows_a_match() {
    let mut matcher = StopMatcher::new(["STOP"]).unwrap();
    assert_eq!(matcher.push("a STOP b"), "a ");
    assert_eq!(matcher.matched(), Some("STOP"));
    assert_eq!(matcher.push("c"), "");
    assert_eq!(matcher.finish(), "");
    assert_eq!(matcher.matched(), Some("STOP"));
}

#[test]
fn the_stop_that_is_complete_first_wins() {
    assert_eq!(run(&["abcd", "bc"], &["abcd"]), ("a".into(), Some("bc".into())));
    assert_eq!(run(&["bc", "abc"], &["abc"]), (String::new(), Some("abc".into())));
    assert_eq!(run(&["b", "ab"], &["a", "b"]), (String::new(), Some("ab".into())));
}

#[test]
fn stops_of_many_bytes_are_cut_between_characters() {
    assert_eq!(run(&["。！"], &["好。", "！x"]), ("好".into(), Some("。！".into())));
    assert_eq!(run(&["é"], &["e", "\u{301}é"]), ("e\u{301}".into(), Some("é".into())));
    assert_eq!(run(&["👩‍💻"], &["👩", "\u{200d}", "x"]), ("👩\u{200d}x".into(), None));
}

#[test]
fn empty_stop_strings_are_refused() {
    let error = StopMatcher::new(["a", ""]).unwrap_err();
    assert!(matches!(error, TextError::EmptyStop { position: 1 }), "{error:?}");
    assert_eq!(error.kind(), ErrorKind::User);
    assert_eq!(run(&[], &["a", "b"]), ("ab".into(), None));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    /// Few letters, so that stops overlap themselves, each other and the borders of pieces.
    #[test]
    fn pieces_equal_a_search_in_the_whole_text(
        stops in prop::collection::vec("[abé]{1,5}", 0..4),
        pieces in prop::collection::vec("[abé中]{0,6}", 0..12),
    ) {
        let stops: Vec<&str> = stops.iter().map(String::as_str).collect();
        let pieces: Vec<&str> = pieces.iter().map(String::as_str).collect();
        prop_assert_eq!(run(&stops, &pieces), naive(&stops, &pieces.concat()));
    }

    /// What was given out so far is always a beginning of the final text, and what is held back is
    /// shorter than the longest stop string.
    #[test]
    fn nothing_is_given_out_early_or_late(
        stops in prop::collection::vec("[ab]{1,4}", 1..3),
        pieces in prop::collection::vec("[abc]{0,3}", 0..12),
    ) {
        let longest = stops.iter().map(String::len).max().unwrap();
        let plain: Vec<&str> = stops.iter().map(String::as_str).collect();
        let (end, _) = naive(&plain, &pieces.concat());
        let mut matcher = StopMatcher::new(stops.clone()).unwrap();
        let (mut given, mut taken) = (String::new(), 0);
        for piece in &pieces {
            given.push_str(matcher.push(piece));
            taken += piece.len();
            prop_assert!(end.starts_with(&given));
            prop_assert!(given.len() + longest > taken.min(end.len()));
        }
    }
}
