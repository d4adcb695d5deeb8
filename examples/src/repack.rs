//! The `repack` example: a container of a checkpoint, resumable and verified.

mod report;

use std::ffi::OsString;
use std::ops::ControlFlow;
use std::path::PathBuf;
use std::time::Instant;

use clap::Parser;
use indicatif::ProgressBar;
use slotstream_checkpoint::Checkpoint;
use slotstream_checkpoint::container::{Container, ContainerKind, Progress, Repack, Stage};
use slotstream_core::ErrorKind;

use crate::console::parse;
use crate::{Console, Ended, Failure, MODEL_VARIABLE, find_model};
use report::{Report, go_on_command};

/// Repacks the experts and the n-gram table of a checkpoint so that a record, or a row, is one
/// read.
///
/// `experts.slots` holds every expert as it lies in a slot, at offsets that direct reads want:
/// otherwise an expert is nine reads of nine tensors. `ngram.rows` holds the rows of the n-gram
/// table side by side: otherwise a row is three reads. The checkpoint stays as it is and is still
/// needed for everything else. A file gets its name when it is complete; Ctrl-C, or anything else
/// that ends a run, leaves what --resume goes on with.
#[derive(Parser, Clone, Debug)]
#[command(
    name = "repack",
    version,
    after_help = "With neither --experts nor --ngram both are written, where the model has both. \
                  What is finished stays as it is, so --verify alone looks at a container that is \
                  there."
)]
#[non_exhaustive]
pub struct Arguments {
    /// The checkpoint's folder [default: $SLOTSTREAM_MODEL, else the bundled model]
    #[arg(long, value_name = "DIR", help_heading = "Model")]
    pub model: Option<PathBuf>,
    /// The container's folder; may be that of the checkpoint
    #[arg(long, value_name = "DIR")]
    pub out: PathBuf,
    /// Write `experts.slots`
    #[arg(long, help_heading = "Content")]
    pub experts: bool,
    /// Write `ngram.rows`
    #[arg(long, help_heading = "Content")]
    pub ngram: bool,
    /// Put the rows of the n-gram table at multiples of 128 bytes; replaces a finished file of
    /// packed rows. Without this, a finished file of padded rows stays
    #[arg(long, help_heading = "Content")]
    pub pad_rows: bool,
    /// Go on where an earlier run was cut off
    #[arg(long, help_heading = "Run")]
    pub resume: bool,
    /// Write anew what is there: damaged records, the container of another model, or what an
    /// earlier run left
    #[arg(long, help_heading = "Run")]
    pub replace: bool,
    /// Then compare every byte with the checkpoint
    #[arg(long, help_heading = "Run")]
    pub verify: bool,
    /// Say what would be written, and write nothing
    #[arg(long, conflicts_with = "verify", help_heading = "Run")]
    pub dry_run: bool,
    /// Print one JSON object on the last line instead of text
    #[arg(long, help_heading = "Output")]
    pub json: bool,
}

/// Runs the example with these arguments, the program's name first.
///
/// # Errors
/// [`Failure`] says what and whose it is.
pub fn run(
    arguments: impl IntoIterator<Item = OsString>,
    console: &mut Console<'_>,
) -> Result<Ended, Failure> {
    let arguments: Arguments = parse(arguments)?;
    console.progress &= !arguments.json;
    let model = find_model(arguments.model.as_deref(), std::env::var_os(MODEL_VARIABLE))?;
    let checkpoint = Checkpoint::open(&model.path)?;
    let mut repack = Repack::new(&checkpoint, &arguments.out)
        .pad_rows(arguments.pad_rows)
        .resume(arguments.resume)
        .replace(arguments.replace);
    let mut kinds = Vec::new();
    kinds.extend(arguments.experts.then_some(ContainerKind::Experts));
    kinds.extend(arguments.ngram.then_some(ContainerKind::Ngram));
    if !kinds.is_empty() {
        repack = repack.only(&kinds);
    }
    let mut report = Report::new(&arguments, &checkpoint, &repack.plan()?);
    let mut ended = Ended::Done;
    if !arguments.dry_run {
        match write(&repack, &arguments, &checkpoint, &mut report, console) {
            Err(error) if error.kind() == ErrorKind::Cancelled => ended = Ended::Interrupted,
            result => result?,
        }
    }
    console.line(&if arguments.json { report.json()? } else { report.text() })?;
    Ok(ended)
}

fn write(
    repack: &Repack<'_>,
    arguments: &Arguments,
    checkpoint: &Checkpoint,
    report: &mut Report,
    console: &Console<'_>,
) -> Result<(), Failure> {
    let bar = console.bar(0, "writing", true);
    let mut show = |progress| {
        show(&bar, &progress);
        if console.cancel.is_cancelled() {
            ControlFlow::Break(())
        } else {
            ControlFlow::Continue(())
        }
    };
    let begun = Instant::now();
    let files = repack.run(&mut show)?;
    let verify = arguments.verify.then(|| go_on_command(arguments, checkpoint, true));
    report.written(&files, begun.elapsed().as_secs_f64(), verify);
    let container = Container::open(&arguments.out, checkpoint)?;
    if arguments.verify {
        let begun = Instant::now();
        container.verify(checkpoint, None, &mut show)?;
        report.verified(begun.elapsed().as_secs_f64());
    }
    bar.finish_and_clear();
    Ok(())
}

/// Moves the bar; rate and time left begin anew with each stage.
fn show(bar: &ProgressBar, progress: &Progress) {
    let what = match progress.stage {
        Stage::Checking => "checking",
        Stage::Verifying => "verifying",
        _ => "writing",
    };
    if bar.message() != what {
        bar.set_message(what);
        bar.set_position(progress.done);
        bar.reset_eta();
    }
    bar.set_length(progress.total);
    bar.set_position(progress.done);
}
