//! The `metal_selfcheck` example: whether the Metal path is right on this Mac, and how fast.
//!
//! Nobody has run it on a Mac yet. Elsewhere it says that there is no GPU, and does the part that
//! needs none.

pub mod kernels;
mod report;
pub mod tensors;

use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Instant;

use clap::Parser;
use slotstream::core::{CancelToken, ErrorKind};
use slotstream::experts::ExpertsError;
use slotstream::ops::{Error as OpsError, PlanEncoder};
use slotstream::{DeviceKind, Engine, SessionOptions, Sizing, open_metal};
use slotstream_kernel_cases::FAMILIES;

use crate::console::parse;
use crate::failure::ErrorFigure;
use crate::{
    Console, DEFAULT_SHARE, Ended, Failure, MODEL_VARIABLE, ModelFolder, describe, find_model,
    parse_size, probe_ssd,
};
use report::{Generated, Report};

/// Checks the Metal path on this Mac: every kernel against the reference, the tensor operations that
/// the graph relies on, a short generation against the CPU's, and the disk.
///
/// Please send us what it prints: no other Mac has run it. Elsewhere it says so, generates on the
/// CPU, measures the disk, and ends with exit code 2.
#[derive(Parser, Clone, Debug)]
#[command(
    name = "metal_selfcheck",
    version,
    after_help = "Errors are relative to a value or to the root mean square of its array, whichever is \
                  larger. GB/s count each byte of an operation's arrays once; the share is of what a \
                  copy moves. It is compiled when it is first run: the first minutes are cargo's."
)]
#[non_exhaustive]
pub struct Arguments {
    /// Model folder of the short generation [default: $SLOTSTREAM_MODEL, else the bundled model]
    #[arg(long, value_name = "DIR", help_heading = "Model")]
    pub model: Option<PathBuf>,
    /// Tokens to generate
    #[arg(long, value_name = "N", default_value_t = 16, value_parser = clap::value_parser!(u16).range(1..=1024), help_heading = "Model")]
    pub max_tokens: u16,
    /// Times that an operation is launched when it is timed
    #[arg(long, value_name = "N", default_value_t = 32, value_parser = clap::value_parser!(u16).range(1..=1024), help_heading = "Kernels")]
    pub rounds: u16,
    /// Leave out kernel cases that need more memory than this
    #[arg(long, value_name = "SIZE", value_parser = parse_size, default_value = "1GiB", help_heading = "Kernels")]
    pub most_bytes: u64,
    /// Folder on the disk to measure: a file is written there and removed [default: the model's own
    /// files are read]
    #[arg(long, value_name = "DIR", help_heading = "Disk")]
    pub scratch: Option<PathBuf>,
    /// Size of that file
    #[arg(
        long,
        value_name = "SIZE",
        default_value = "4GB",
        requires = "scratch",
        help_heading = "Disk"
    )]
    pub size: String,
    /// Print one JSON object on the last line instead of the table
    #[arg(long, help_heading = "Output")]
    pub json: bool,
}

/// Bytes of the copy that shares are of.
const COPY_BYTES: usize = 256 << 20;
/// The prompt of the short generation.
const PROMPT: [u32; 6] = [5, 6, 7, 8, 9, 10];

/// Runs the example with these arguments, the program's name first.
///
/// # Errors
/// [`Failure::Engine`] where there is no GPU to check, [`Failure::SelfCheck`] when something is
/// wrong; what was found is shown first.
pub fn run(
    arguments: impl IntoIterator<Item = OsString>,
    console: &mut Console<'_>,
) -> Result<Ended, Failure> {
    let arguments: Arguments = parse(arguments)?;
    console.progress &= !arguments.json;
    let model = find_model(arguments.model.as_deref(), std::env::var_os(MODEL_VARIABLE))?;
    let mut report = Report::default();
    let gpu = match open_metal() {
        Ok(encoder) => on_the_gpu(&*encoder, &arguments, &mut report, console).map_err(failed),
        Err(error) => Err(Failure::from(error)),
    };
    if let Err(error) = &gpu {
        report.gpu_error = Some(ErrorFigure::new(error, error.kind()));
    }
    let rest = the_rest(&arguments, &model, gpu.is_ok(), &mut report, console);
    let interrupted = console.cancel.is_cancelled();
    // What Ctrl-C has ended is nothing that is wrong.
    if !interrupted {
        rest?;
    }
    report.conclude();
    console.line(&if arguments.json { report.json()? } else { report.text() })?;
    if interrupted {
        return Ok(Ended::Interrupted);
    }
    gpu?;
    match report.wrong.len() {
        0 => Ok(Ended::Done),
        wrong => Err(Failure::SelfCheck { wrong }),
    }
}

/// An operation that failed, as the engine would say it.
fn failed(error: OpsError) -> Failure {
    slotstream::Error::from(ExpertsError::from(error)).into()
}

/// What needs a GPU, but the generation.
fn on_the_gpu(
    encoder: &dyn PlanEncoder,
    arguments: &Arguments,
    report: &mut Report,
    console: &Console<'_>,
) -> Result<(), OpsError> {
    report.gpu = encoder.figures();
    let rounds = usize::from(arguments.rounds);
    let copy_gb_s = kernels::copy_gb_s(encoder, COPY_BYTES, rounds.min(8))?;
    report.copy_gb_s = Some(copy_gb_s);
    let most_bytes = usize::try_from(arguments.most_bytes).unwrap_or(usize::MAX);
    let bar = console.bar(2 * FAMILIES.len() as u64, "kernels", false);
    for family in FAMILIES {
        if console.cancel.is_cancelled() {
            break;
        }
        report.kernels.push(kernels::check(encoder, family, most_bytes));
        bar.inc(1);
        for case in (family.timed)() {
            report.timed.push(kernels::time(encoder, &case, rounds, copy_gb_s)?);
        }
        bar.inc(1);
    }
    bar.finish_and_clear();
    report.tensors = tensors::check(encoder.device());
    Ok(())
}

/// The generations and the disk, as far as Ctrl-C lets them come.
fn the_rest(
    arguments: &Arguments,
    model: &ModelFolder,
    has_gpu: bool,
    report: &mut Report,
    console: &Console<'_>,
) -> Result<(), Failure> {
    let tokens = usize::from(arguments.max_tokens);
    let generate = |device| generate(model, device, tokens, &console.cancel);
    report.cpu = Some(generate(DeviceKind::Cpu)?);
    if has_gpu {
        // The rest is worth showing all the same.
        match generate(DeviceKind::Metal) {
            Ok(generated) => report.metal = Some(generated),
            Err(error) if error.kind() == ErrorKind::Cancelled => return Err(error),
            Err(error) => report.wrong.push(format!("generation: {}", describe(&error))),
        }
    }
    report.disk = disk(arguments, model, console)?;
    Ok(())
}

/// A few tokens, each the likeliest.
fn generate(
    model: &ModelFolder,
    device: DeviceKind,
    tokens: usize,
    cancel: &CancelToken,
) -> Result<Generated, Failure> {
    let engine = Engine::builder(&model.path)
        .sizing(if model.bundled { Sizing::Share(DEFAULT_SHARE) } else { Sizing::Auto })
        .device(device)
        .cancel(cancel.clone())
        .build()?;
    let mut session = engine.session(SessionOptions::new().with_cancel(cancel.clone()))?;
    session.prefill(&PROMPT)?;
    let begun = Instant::now();
    let ids = session.generate_ids(tokens).collect::<Result<Vec<_>, _>>()?;
    let seconds = begun.elapsed().as_secs_f64();
    Ok(Generated {
        tokens: ids,
        kernels: engine.kernels(),
        slots: engine.plan().slots,
        plan_bytes: engine.plan().total_bytes(),
        tok_s: tokens as f64 / seconds,
        hit_rate: session.metrics().decode.hit_rate(),
    })
}

/// The report of `probe_ssd`: whole records and nine pieces, 1 and 8 at once; nothing after Ctrl-C.
fn disk(
    arguments: &Arguments,
    model: &ModelFolder,
    console: &Console<'_>,
) -> Result<Option<serde_json::Value>, Failure> {
    let mut line = vec!["probe_ssd".into(), "--json".into()];
    match &arguments.scratch {
        Some(folder) => {
            line.extend(["--scratch".into(), folder.clone().into_os_string()]);
            line.extend(["--size".into(), OsString::from(&arguments.size)]);
        }
        None => line.extend(["--model".into(), model.path.clone().into_os_string()]),
    }
    let flags = ["--depth", "1,8", "--rounds", "1", "--way", "record,pieces"];
    line.extend(flags.map(OsString::from));
    line.extend(["--reader", "buffered,uncached"].map(OsString::from));
    let mut out = Vec::new();
    let mut inner = Console::new(&mut out);
    (inner.cancel, inner.progress) = (console.cancel.clone(), console.progress);
    if probe_ssd::run(line, &mut inner)? == Ended::Interrupted {
        return Ok(None);
    }
    let text = String::from_utf8_lossy(&out);
    let last = text.lines().last().unwrap_or_default();
    let report = serde_json::from_str(last);
    report.map(Some).map_err(|source| Failure::Output { source: std::io::Error::from(source) })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ctrl_c_is_nothing_that_is_wrong() {
        let mut out = Vec::new();
        let mut console = Console::new(&mut out);
        console.cancel.cancel();
        let ended = run(["metal_selfcheck".into(), "--json".into()], &mut console);
        assert!(matches!(ended, Ok(Ended::Interrupted)), "{ended:?}");
        let shown: serde_json::Value = serde_json::from_slice(&out).expect("what there is");
        assert_eq!((&shown["cpu"], &shown["wrong"]), (&serde_json::Value::Null, &[""; 0].into()));
    }
}
