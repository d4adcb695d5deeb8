//! `cargo run --release --bin fuzz -- --seconds 60` runs every target for a minute on a stable
//! toolchain; `--target NAME` one of them. `--input FILE` runs one input again.

use std::io::{self, Write};
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use clap::Parser;
use slotstream_fuzz::driver::{self, Limit};
use slotstream_fuzz::{Finding, TARGETS, Target, corpus, quiet_caught_panics, run_one, target};

/// Feeds changed files to everything that reads a file of a model.
#[derive(Parser, Debug)]
#[command(name = "fuzz", version)]
struct Arguments {
    /// Only this target
    #[arg(long, value_name = "NAME", value_parser = TARGETS.iter().map(|t| t.name).collect::<Vec<_>>())]
    target: Option<String>,
    /// Time for each target
    #[arg(long, value_name = "S", default_value_t = 60)]
    seconds: u64,
    /// Seed of the mutations; the same seed gives the same inputs
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,
    /// Run this input and nothing else
    #[arg(long, value_name = "FILE", requires = "target")]
    input: Option<PathBuf>,
    /// Where an input is written that is a finding
    #[arg(long, value_name = "DIR", default_value = ".")]
    artifacts: PathBuf,
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    quiet_caught_panics();
    let chosen: Vec<&'static Target> = match &arguments.target {
        Some(name) => target(name).into_iter().collect(),
        None => TARGETS.iter().collect(),
    };
    for target in chosen {
        if let Err(error) = fuzz(target, &arguments) {
            let _ = writeln!(io::stderr(), "{error}");
            return ExitCode::FAILURE;
        }
    }
    ExitCode::SUCCESS
}

fn fuzz(target: &'static Target, arguments: &Arguments) -> io::Result<()> {
    let mut out = io::stdout().lock();
    if let Some(path) = &arguments.input {
        let outcome = run_one(target, &std::fs::read(path)?).map_err(io::Error::other)?;
        return writeln!(out, "{}: {outcome}", target.name);
    }
    let inputs = corpus::read(target)?.into_iter().map(|(_, bytes)| bytes).collect();
    let limit = Limit::Time(Duration::from_secs(arguments.seconds));
    let summary = driver::run(target, inputs, arguments.seed, limit)
        .map_err(|(input, finding)| keep(target, arguments, &input, finding))?;
    let seconds = summary.time.as_secs_f64();
    writeln!(
        out,
        "{}: {} inputs in {seconds:.1} s ({:.0} a second), {} outcomes, slowest {:.1} ms, no finding",
        target.name,
        summary.executions,
        summary.executions as f64 / seconds,
        summary.outcomes,
        1000.0 * summary.slowest.as_secs_f64()
    )
}

/// Writes the input of a finding; the finding with the file's name.
fn keep(target: &Target, arguments: &Arguments, input: &[u8], finding: Finding) -> io::Error {
    let path = arguments.artifacts.join(format!("{}-{}.input", target.name, arguments.seed));
    let place = match std::fs::write(&path, input) {
        Ok(()) => format!("the input is in {}", path.display()),
        Err(error) => format!("{} cannot be written: {error}", path.display()),
    };
    io::Error::other(format!("{finding}; {place}"))
}
