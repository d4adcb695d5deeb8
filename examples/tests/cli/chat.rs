//! `chat`: a conversation from a script.

use std::ffi::OsString;

use slotstream_examples::chat::{run, run_with};
use slotstream_examples::{Console, Ended};

use super::{assert_user_error, bundled, output, utf8};

pub(super) fn talk(flags: &[&str], input: &str) -> String {
    let model = bundled();
    let bundled = ["--model", utf8(&model)];
    let model: &[&str] = if flags.contains(&"--model") { &[] } else { &bundled };
    let given = ["chat", "--greedy"];
    let most: &[&str] = if flags.contains(&"--max-tokens") { &[] } else { &["--max-tokens", "8"] };
    let arguments = given.iter().chain(model).chain(most).chain(flags).map(OsString::from);
    let mut out = Vec::new();
    let ended = run_with(arguments, &mut Console::new(&mut out), &mut input.as_bytes());
    let text = String::from_utf8(out).expect("UTF-8");
    assert!(matches!(ended, Ok(Ended::Done)), "{ended:?}: {text}");
    text
}

/// What was written after each prompt.
pub(super) fn parts(text: &str) -> Vec<&str> {
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
    assert!(said[0].contains("this message alone takes"), "{text}");
    assert!(!said[1].is_empty() && !said[1].contains("this message"), "{text}");
}

#[test]
fn a_message_that_never_fits_is_told_apart_from_a_full_conversation() {
    let long = "word ".repeat(200);
    let text = talk(
        &["--context", "64"],
        &format!("{long}\nHi there\nHi again\nOnce more\nAnd more\nAnd more\n"),
    );
    let said = parts(&text);
    assert!(
        said[0].contains("this message alone takes 2") && said[0].contains("--context"),
        "{text}"
    );
    assert!(said[1..].iter().any(|s| s.contains("the conversation takes") && s.contains("/reset")));
    let text = talk(&["--context", "4096", "--max-tokens", "3"], &format!("{}\n", long.repeat(30)));
    assert!(parts(&text)[0].contains("the model reads"), "{text}");
}

#[test]
fn an_answer_that_is_cut_says_so() {
    let text = talk(&[], "What is a vector?\n");
    assert!(text.contains("(cut after 8 tokens: --max-tokens"), "{text}");
    let text = talk(&["--context", "20"], "What is a vector?\n");
    assert!(text.contains("all 20 tokens of the context are used"), "{text}");
}

#[test]
fn a_line_of_any_length_is_read_and_a_long_one_left_out() {
    let most = 1 << 20;
    // Longer, exactly as long with and without its end, and a command behind it.
    let [longer, whole, short] = [2 * most, most, most - 1].map(|len| "/".repeat(len));
    let text = talk(&[], &format!("{longer}\n/stats\n{whole}\n{short}\n/stats\n{longer}"));
    let said = parts(&text);
    let left_out = |said: &str| said.contains("and 1048576 are the most");
    assert!(left_out(said[0]) && said[0].contains(" 2097153 bytes"), "{}", said[0]);
    assert!(said[1].starts_with("messages") && said[4].starts_with("messages"), "{}", said[1]);
    assert!(left_out(said[2]) && !left_out(said[3]), "a line end counts");
    assert!(said[3].contains("is no command"));
    assert!(left_out(said[5]) && said[5].contains(" 2097152 bytes"), "{}", said[5]);
}

#[test]
fn a_system_text_that_leaves_no_room_is_refused_at_once() {
    let model = bundled();
    let long = "word ".repeat(200);
    let flags = ["--model", utf8(&model), "--system", &long];
    for (context, words) in [
        (
            "64",
            "and the context has 64, which leaves no room for an answer; shorten it, or give --context",
        ),
        ("2", "to 4096"),
    ] {
        assert_user_error(run, &[&flags[..], &["--context", context]].concat(), words);
    }
    let long = long.repeat(30);
    let (text, result) = output(run, &["--model", utf8(&model), "--system", &long]);
    let error = result.expect_err("longer than the model allows").to_string();
    assert!(text.is_empty() && error.ends_with("; shorten it"), "{text}{error}");
}

#[test]
fn figures_are_of_the_conversation_that_goes_on() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let file = folder.path().join("own conversation");
    let file = utf8(&file);
    let lines = format!(
        "/stats\nHello\n/stats\n/fork\n/save {file}\nHello\n/back\n/stats\n/load {file}\n/stats\n\
         Hello\n/reset\n/stats\n"
    );
    let text = talk(&[], &lines);
    let said = parts(&text);
    assert!(said[2].contains("last answer") && said[2].contains("8 tokens"), "{text}");
    for (at, messages) in [(0, "0"), (7, "2"), (9, "2"), (12, "0")] {
        let words: Vec<&str> = said[at].split_whitespace().collect();
        assert_eq!(words[..2], ["messages", messages], "{text}");
        assert!(words.ends_with(&["last", "prompt", "none", "yet"]), "{text}");
    }
}

/// What was loaded has another beginning than what `/reset` goes back to.
#[test]
fn a_reset_after_a_load_begins_as_the_program_did() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let file = folder.path().join("own conversation");
    let file = utf8(&file);
    talk(&[], &format!("Hello\n/save {file}\n"));
    let system = ["--system", "Be brief."];
    let text = talk(&system, &format!("Hi\n/load {file}\n/reset\nHi\n"));
    let said = parts(&text);
    assert_eq!(said[0], said[3], "{text}");
}

#[test]
fn a_line_that_is_not_text_is_left_out() {
    let model = bundled();
    let given = ["chat", "--model", utf8(&model), "--greedy", "--max-tokens", "4"];
    let mut out = Vec::new();
    let input = b"ab\xff\xfe\nWhat is a vector?\n";
    let arguments = given.iter().map(OsString::from);
    let ended = run_with(arguments, &mut Console::new(&mut out), &mut &input[..]);
    let text = String::from_utf8(out).expect("UTF-8");
    assert!(matches!(ended, Ok(Ended::Done)), "{ended:?}: {text}");
    let said = parts(&text);
    assert!(said[0].contains("byte 3 of that line is not UTF-8"), "{text}");
    assert!(said[1].len() > 3, "{text}");
}

#[test]
fn a_conversation_is_kept_in_a_file() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let path = folder.path().join("own conversation");
    let (first, second) = ("What is a vector?", "And a matrix?");
    let file = utf8(&path);
    let text = talk(&[], &format!("{first}\n/save {file}\n{second}\n/stats\n"));
    let said = parts(&text);
    assert!(said[1].contains("2 messages in"), "{text}");
    let again = talk(&["--slots", "18"], &format!("Hello\n/load {file}\n{second}\n/stats\n"));
    let heard = parts(&again);
    assert!(heard[1].contains("2 messages, "), "{again}");
    assert_eq!(said[2], heard[2], "the same answer");
    assert!(!heard[3].contains("of which 0"), "what was read is known: {again}");
    // What cannot be loaded or saved is told, and the conversation goes on.
    std::fs::write(folder.path().join("other"), b"of somebody").expect("writes");
    let other = folder.path().join("other");
    let nowhere = folder.path().join("no/where");
    let lines =
        format!("{first}\n/load {}\n/load\n/save {}\n{second}\n", utf8(&other), utf8(&nowhere));
    let text = talk(&[], &lines);
    let told = parts(&text);
    assert!(told[1].contains("no session's file"), "{text}");
    assert!(told[2].contains("needs the name") && told[3].contains("cannot be written"), "{text}");
    assert_eq!(told[4], said[2], "{text}");
}

#[test]
fn a_fork_is_returned_to() {
    let (first, second) = ("What is a vector?", "And a matrix?");
    let text = talk(&[], &format!("/back\n{first}\n/fork\n{second}\n/back\n{second}\n/stats\n"));
    let said = parts(&text);
    assert!(said[0].contains("nothing to go back to") && said[2].contains("remembered"), "{text}");
    assert!(said[4].contains("back at 2 messages"), "{text}");
    assert_eq!(said[3], said[5], "{text}");
    assert!(!said[6].contains("of which 0"), "{text}");
}
