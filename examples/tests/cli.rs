//! The examples as their users see them.
//!
//! Most run in this process through `run`; peak memory and exit codes need the programs
//! themselves, which cargo builds together with this test.

#![expect(clippy::unwrap_used, reason = "a helper of a test that cannot go on fails the test")]

#[path = "cli/chat.rs"]
mod chat;
#[path = "cli/doctor.rs"]
mod doctor;
#[path = "cli/generate.rs"]
mod generate;
#[path = "cli/inspect.rs"]
mod inspect;
#[path = "cli/outputs.rs"]
mod outputs;
#[path = "cli/perplexity.rs"]
mod perplexity;
#[path = "cli/pool_view.rs"]
mod pool_view;
#[path = "cli/probe_ssd.rs"]
mod probe_ssd;
#[path = "cli/program.rs"]
mod program;
#[path = "cli/refusals.rs"]
mod refusals;
#[path = "cli/replay.rs"]
mod replay;
#[path = "cli/synthesize.rs"]
mod synthesize;
#[path = "cli/train_lookahead.rs"]
mod train_lookahead;

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use serde_json::Value;
use slotstream_examples::{Console, Ended, Failure};

/// A file of the graph crate's tests.
fn fixture(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../crates/slotstream-qwen/tests/fixtures")
        .join(path)
}

fn bundled() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("models/tiny-moe")
}

/// An I32 tensor of the bundled model's goldens.
fn golden_ids(name: &str) -> Vec<u32> {
    let what = format!("{}:{name}", fixture("tiny-moe/golden.safetensors").display());
    slotstream_examples::read_windows(&what).unwrap().ids
}

/// A path as an argument.
fn utf8(path: &Path) -> &str {
    path.to_str().expect("UTF-8")
}

/// The tokens of a generation.
fn ids(object: &Value) -> Vec<u32> {
    serde_json::from_value(object["tokens"].clone()).expect("ids")
}

fn comma_separated(ids: &[u32]) -> String {
    ids.iter().map(ToString::to_string).collect::<Vec<_>>().join(",")
}

/// What an example wrote, and how it ended.
fn output(
    run: impl FnOnce(Vec<OsString>, &mut Console<'_>) -> Result<Ended, Failure>,
    arguments: &[&str],
) -> (String, Result<Ended, Failure>) {
    let arguments = ["example"].iter().chain(arguments).map(OsString::from).collect();
    let mut out = Vec::new();
    let result = run(arguments, &mut Console::new(&mut out));
    (String::from_utf8(out).unwrap(), result)
}

/// The object on the last line of a successful run.
fn last_object(text: &str) -> Value {
    serde_json::from_str(text.lines().last().expect("a line")).expect("JSON on the last line")
}

/// Asserts that a request is refused as the user's mistake, with these words in the message.
fn assert_user_error(
    run: impl FnOnce(Vec<OsString>, &mut Console<'_>) -> Result<Ended, Failure>,
    arguments: &[&str],
    words: &str,
) {
    let (_, result) = output(run, arguments);
    let error = result.expect_err(&format!("{arguments:?} must be refused"));
    let text = slotstream_examples::describe(&error);
    assert!(text.contains(words), "{arguments:?}: {text}");
    assert_eq!(error.exit_code(), 2, "{arguments:?}: {text}");
}
