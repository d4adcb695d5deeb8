//! The `inspect` example: what a model folder holds, whether it is valid, and what running it
//! would take. Reads headers, norms and hash constants; loads no weights.

mod checks;
mod report;

use std::ffi::OsString;

use clap::Parser;
use slotstream::io::{ReaderKind, open_reader};
use slotstream::{Error, checkpoint};

use crate::console::parse;
use crate::{Console, Ended, EngineArguments, Failure};
use checks::Findings;
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
/// [`Failure`] says what is wrong with the folder, or that the plan does not fit. What was found
/// before is shown first.
pub fn run(
    arguments: impl IntoIterator<Item = OsString>,
    console: &mut Console<'_>,
) -> Result<Ended, Failure> {
    let arguments: Arguments = parse(arguments)?;
    let model = arguments.engine.find_model()?;
    let builder = arguments.engine.builder(&model)?;
    let mut report = Report::new(&model.path);
    // First, so that what the checks load is not part of the plan.
    let plan = builder.plan();
    let result = examine(&arguments, &model.path, &mut report).and_then(|()| {
        report.plan = Some(plan?.into());
        Ok(())
    });
    if let Err(error) = &result {
        report.fail(error);
    }
    console.line(&if arguments.json { report.json()? } else { report.text() })?;
    result.map(|()| Ended::Done).map_err(Failure::from)
}

/// Looks at everything but the plan; what was found is in `report` even when this fails.
fn examine(
    arguments: &Arguments,
    folder: &std::path::Path,
    report: &mut Report,
) -> Result<(), Error> {
    let checkpoint = checkpoint::Checkpoint::open(folder)?;
    report.describe(&checkpoint);
    let reader = open_reader(ReaderKind::Buffered, checkpoint.files())?;
    let mut findings = Findings::of_headers(&checkpoint);
    let result = findings.of_payload(&checkpoint, &*reader, arguments.engine.norms);
    let text = result.and_then(|()| findings.of_text(folder, &checkpoint));
    report.findings = findings;
    text
}
