//! `chat`: a conversation from a script.

use std::ffi::OsString;

use slotstream_examples::chat::run_with;
use slotstream_examples::{Console, Ended};

use super::{bundled, utf8};

fn talk(flags: &[&str], input: &str) -> String {
    let model = bundled();
    let given = ["chat", "--model", utf8(&model), "--greedy", "--max-tokens", "8"];
    let arguments = given.iter().chain(flags).map(OsString::from);
    let mut out = Vec::new();
    let ended = run_with(arguments, &mut Console::new(&mut out), &mut input.as_bytes());
    let text = String::from_utf8(out).expect("UTF-8");
    assert!(matches!(ended, Ok(Ended::Done)), "{ended:?}: {text}");
    text
}

/// What was written after each prompt.
fn parts(text: &str) -> Vec<&str> {
    text.split("> ").skip(1).map(str::trim).collect()
}

#[test]
fn answers_follow_messages_and_what_is_known_is_not_read_again() {
    let text = talk(&[], "What is a vector?\n/stats\nAnd a matrix?\n/stats\n/quit\nnot read\n");
    let said = parts(&text);
    assert_eq!(said.len(), 5, "{text}");
    assert!(!said[0].is_empty() && !said[2].is_empty(), "{text}");
    assert!(said[1].contains("of which 0 were known"), "{text}");
    assert!(said[3].contains("last prompt") && !said[3].contains("of which 0"), "{text}");
    // With all read anew the answers are the same.
    let again = talk(&["--chunk", "3", "--slots", "18"], "What is a vector?\nAnd a matrix?\n");
    let again = parts(&again);
    assert_eq!((said[0], said[2]), (again[0], again[1]));
}

#[test]
fn a_reset_forgets() {
    let text = talk(&["--system", "Be brief."], "Hello\n/reset\nHello\n\n/help\n/what\n");
    let said = parts(&text);
    assert_eq!(said[0], said[2], "{text}");
    assert!(said[1].is_empty() && said[4].contains("/reset") && said[5].contains("no command"));
}

#[test]
fn a_message_that_does_not_fit_is_told_and_left_out() {
    let long = "word ".repeat(200);
    let text = talk(&["--context", "64"], &format!("{long}\nHi\n"));
    let said = parts(&text);
    assert!(said[0].contains("/reset begins anew"), "{text}");
    assert!(!said[1].is_empty() && !said[1].contains("begins anew"), "{text}");
}
