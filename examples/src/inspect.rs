//! The `inspect` example: what a model folder holds, whether it is valid, and what running it
//! would take. Reads headers, norms and hash constants, with `--values` every float; loads no
//! weights.

mod checks;
mod digests;
mod report;

use std::ffi::OsString;
use std::path::PathBuf;

use clap::Parser;
use slotstream::checkpoint::{Checkpoint, check_values};
use slotstream::core::ErrorKind;
use slotstream::io::{ReaderKind, open_reader};
use slotstream::{Error, MemoryPlan, TextParts};

use crate::console::parse;
use crate::prompt::Room;
use crate::{Console, Ended, EngineArguments, Failure, PromptArguments};
use checks::Findings;
use digests::Digests;
use report::Report;

/// Shows what a model folder holds, checks it, and plans the memory that running it would take.
///
/// Reads the headers of the files, the norm weights and the constants of the n-gram hash, and
/// loads nothing. An invalid folder is named with what is wrong: exit code 1 when a file is
/// damaged, 2 when the folder or a flag is the wrong one.
#[derive(Parser, Clone, Debug)]
#[command(name = "inspect", version, allow_negative_numbers = true)]
#[non_exhaustive]
pub struct Arguments {
    /// Also look at every scale, bias and float tensor for NaN and infinity, which reads about a
    /// ninth of the files
    #[arg(long, help_heading = "Model")]
    pub values: bool,
    /// Compare every file with a list of SHA-256 digests, as sha256sum prints them; after Ctrl-C
    /// the same command goes on where it stopped
    #[arg(long, value_name = "LIST", help_heading = "Model")]
    pub sha256: Option<PathBuf>,
    /// A prompt to check: whether its tokens exist and fit.
    #[command(flatten)]
    pub prompt: PromptArguments,
    /// Check whether a prompt of so many tokens fits
    #[arg(long, value_name = "N", conflicts_with = "what", help_heading = "Prompt")]
    pub prompt_tokens: Option<usize>,
    /// The model, and the engine that is planned for.
    #[command(flatten)]
    pub engine: EngineArguments,
    /// Print one JSON object instead of text
    #[arg(long, help_heading = "Output")]
    pub json: bool,
}

/// Runs the example with these arguments, the program's name first.
///
/// # Errors
/// [`Failure`] says what is wrong with the folder, or that the plan or the prompt does not fit.
/// What was found before is shown first.
pub fn run(
    arguments: impl IntoIterator<Item = OsString>,
    console: &mut Console<'_>,
) -> Result<Ended, Failure> {
    let arguments: Arguments = parse(arguments)?;
    console.progress &= !arguments.json;
    let model = arguments.engine.find_model()?;
    let builder = arguments.engine.builder(&model, &console.cancel)?;
    let mut report = Report::new(&model.path);
    // First, so that what the checks load is not part of the plan.
    let plan = builder.plan();
    let result = examine(&arguments, &model.path, plan, &mut report, console);
    if let Err(error) = &result {
        report.fail(error);
    }
    console.line(&if arguments.json { report.json()? } else { report.text() })?;
    match result {
        Err(error) if error.kind() == ErrorKind::Cancelled => Ok(Ended::Interrupted),
        result => result.map(|()| Ended::Done),
    }
}

/// Looks at everything; what was found is in `report` even when this fails.
fn examine(
    arguments: &Arguments,
    folder: &std::path::Path,
    plan: Result<MemoryPlan, Error>,
    report: &mut Report,
    console: &Console<'_>,
) -> Result<(), Failure> {
    if let Some(list) = &arguments.sha256 {
        // First: a truncated file is the commonest reason for everything that follows.
        let list = Digests::read(list)?;
        report.digests_listed = list.len();
        list.verify(folder, &mut report.digests, console)?;
    }
    let checkpoint = Checkpoint::open(folder).map_err(Error::from)?;
    report.describe(&checkpoint);
    let reader = open_reader(ReaderKind::Buffered, checkpoint.files()).map_err(Error::from)?;
    report.findings = Findings::of_headers(&checkpoint);
    report.findings.of_payload(&checkpoint, &*reader, arguments.engine.norms)?;
    let parts = TextParts::load(folder, checkpoint.config().vocab_size)?;
    report.findings.of_text(&parts, &checkpoint);
    if arguments.values {
        let bar = console.bar(0, "values", true);
        let checked = check_values(&checkpoint, &*reader, &console.cancel, |done, total| {
            bar.set_length(total);
            bar.set_position(done);
        });
        bar.finish_and_clear();
        report.findings.of_values(checked.map_err(Error::from)?);
    }
    let plan = plan?;
    let room = Room::new(&checkpoint, plan.context);
    report.notes = arguments.engine.notes(&plan);
    report.plan = Some(plan.into());
    check_prompt(arguments, &parts, &room, console, &mut report.findings)
}

/// Whether the prompt's tokens exist and leave room for an answer.
fn check_prompt(
    arguments: &Arguments,
    parts: &TextParts,
    room: &Room,
    console: &Console<'_>,
    findings: &mut Findings,
) -> Result<(), Failure> {
    let prompt = console.waiting(|| arguments.prompt.read())?;
    let tokens = match (arguments.prompt_tokens, prompt) {
        (Some(tokens), _) => {
            room.check_len(tokens)?;
            tokens
        }
        (None, Some(prompt)) => {
            let tokens = prompt.tokens(parts, &console.cancel)?;
            room.check(&tokens)?;
            tokens.len()
        }
        (None, None) => return Ok(()),
    };
    findings.of_prompt(tokens, room);
    Ok(())
}
