//! The `synthesize` example: a checkpoint of the published shapes, for whom 104 GB are too many.

mod folder;
pub(crate) mod shape;

use std::ffi::OsString;
use std::ops::ControlFlow;
use std::path::PathBuf;
use std::time::Instant;

use clap::Parser;
use indicatif::HumanDuration;
use serde::Serialize;
use slotstream_checkpoint::Checkpoint;
use slotstream_core::ErrorKind;
use slotstream_replay::{Phases, Recording, Stats};
use slotstream_testkit::checkpoint::{CheckpointSpec, RouterSkew};

use crate::console::parse;
use crate::{Console, Ended, Failure, parse_size, show_size, show_throughput};
use folder::Unfinished;
use shape::Shape;

/// Writes a checkpoint with random weights whose shapes are those of the published model: 48
/// layers of 512 experts, top-10, records of 2,764,800 bytes.
///
/// It loads, runs and streams like the real one, which is what measuring takes; its text means
/// nothing. Whole it takes 103 GB; --layers, --vocab and --no-ngram make it smaller without
/// changing a record. It has no tokenizer: prompts are token ids. The folder appears under its
/// name when it is complete.
#[derive(Parser, Clone, Debug)]
#[command(
    name = "synthesize",
    version,
    allow_negative_numbers = true,
    after_help = "8 layers without the table are 11.9 GB:\n  \
                  synthesize --out synthetic --layers 8 --vocab 32768 --no-ngram\n  \
                  generate --model synthetic --prompt-ids 1,2,3"
)]
#[non_exhaustive]
pub struct Arguments {
    /// The folder to make; it must not be there yet
    #[arg(long, value_name = "DIR")]
    pub out: PathBuf,
    /// Layers, each with 1.42 GB of experts [default: as the config says]
    #[arg(long, value_name = "N", help_heading = "Shape")]
    pub layers: Option<usize>,
    /// Tokens of the vocabulary, at 2,880 bytes each [default: as the config says]
    #[arg(long, value_name = "V", help_heading = "Shape")]
    pub vocab: Option<usize>,
    /// Leave out the n-gram layer and its table of 32 GB
    #[arg(long, help_heading = "Shape")]
    pub no_ngram: bool,
    /// Take the shapes from another config.json [default: the published one]
    #[arg(long, value_name = "FILE", help_heading = "Shape")]
    pub config: Option<PathBuf>,
    /// Bytes after which a file is closed
    #[arg(
        long,
        value_name = "SIZE",
        default_value = "10GB",
        value_parser = parse_size,
        help_heading = "Shape"
    )]
    pub file_limit: u64,
    /// Seed of the weights
    #[arg(long, value_name = "S", default_value_t = 0, help_heading = "Weights")]
    pub seed: u64,
    /// Share of the lookups that the busiest tenth of the experts is to serve
    #[arg(long, value_name = "X", default_value_t = 0.8, help_heading = "Weights")]
    pub top_tenth: f64,
    /// Take that share from a routing trace of any format
    #[arg(long, value_name = "TRACE", conflicts_with = "top_tenth", help_heading = "Weights")]
    pub like: Option<PathBuf>,
    /// Say what would be written, and write nothing
    #[arg(long, help_heading = "Output")]
    pub dry_run: bool,
    /// Print one JSON object on the last line instead of a table
    #[arg(long, help_heading = "Output")]
    pub json: bool,
}

/// What was written, or would be.
#[derive(Debug, Serialize)]
struct Report {
    folder: PathBuf,
    written: bool,
    bytes: u64,
    files: Option<usize>,
    layers: usize,
    experts: usize,
    top_k: usize,
    records: usize,
    record_bytes: u64,
    vocab: usize,
    ngram: bool,
    seed: u64,
    /// Of the busiest tenth of the experts, as drawn when the routers were fitted.
    top_tenth: f64,
    router_exponent: f64,
    seconds: Option<f64>,
    write_gb_s: Option<f64>,
}

/// Runs the example with these arguments, the program's name first.
///
/// # Errors
/// [`Failure`] says what and whose it is. Whatever ends it early, no half-written folder stays.
pub fn run(
    arguments: impl IntoIterator<Item = OsString>,
    console: &mut Console<'_>,
) -> Result<Ended, Failure> {
    let arguments: Arguments = parse(arguments)?;
    console.progress &= !arguments.json;
    let shape = console.waiting(|| Shape::of((&arguments).into()))?;
    let skew = console.waiting(|| skew(&arguments, &shape))?;
    let spec = CheckpointSpec::new(shape.config.clone())
        .file_limit(arguments.file_limit)
        .routers(skew.clone());
    let tensors = spec.tensors()?;
    let bytes = tensors.iter().map(|tensor| tensor.len).sum();
    let stacks = tensors.iter().filter(|tensor| tensor.name.contains(".mlp.switch_mlp."));
    let expert_bytes: u64 = stacks.map(|tensor| tensor.len).sum();
    let mut report = Report::new(&arguments, &shape, &skew, (bytes, expert_bytes));
    folder::vacant(&arguments.out)?;
    if !arguments.dry_run {
        folder::room(&arguments.out, bytes)?;
        let begun = Instant::now();
        match write(&spec, &arguments, bytes, console) {
            Ok(files) => report.done(files, begun.elapsed().as_secs_f64()),
            Err(error) if error.kind() == ErrorKind::Cancelled => return Ok(Ended::Interrupted),
            Err(error) => return Err(error),
        }
    }
    console.line(&if arguments.json { report.json()? } else { report.text() })?;
    Ok(Ended::Done)
}

/// Writes the folder and looks whether it is a legal checkpoint; gives its number of files.
fn write(
    spec: &CheckpointSpec,
    arguments: &Arguments,
    bytes: u64,
    console: &Console<'_>,
) -> Result<usize, Failure> {
    let unfinished = Unfinished::begin(&arguments.out)?;
    let bar = console.bar(bytes, "writing", true);
    spec.write_random_with(unfinished.path(), arguments.seed, |done| {
        bar.set_position(done);
        if console.cancel.is_cancelled() {
            ControlFlow::Break(())
        } else {
            ControlFlow::Continue(())
        }
    })?;
    bar.finish_and_clear();
    let checkpoint = Checkpoint::open(unfinished.path())?;
    unfinished.finish()?;
    Ok(checkpoint.files().len())
}

fn skew(arguments: &Arguments, shape: &Shape) -> Result<RouterSkew, Failure> {
    let (option, value, share) = match &arguments.like {
        None => ("--top-tenth", arguments.top_tenth.to_string(), arguments.top_tenth),
        Some(path) => {
            let requests = Recording::open(path)?.requests()?;
            let share = Stats::of(&requests, Phases::All).top_share(0.1);
            ("--like", path.display().to_string(), share)
        }
    };
    RouterSkew::fit(shape.experts, shape.top_k, share).ok_or_else(|| Failure::Option {
        option,
        value,
        expected: "a share from 0 to 1, and more experts than are used".into(),
    })
}

impl Report {
    fn new(
        arguments: &Arguments,
        shape: &Shape,
        skew: &RouterSkew,
        (bytes, expert_bytes): (u64, u64),
    ) -> Self {
        let records = shape.layers * shape.experts;
        Self {
            folder: arguments.out.clone(),
            written: false,
            bytes,
            files: None,
            layers: shape.layers,
            experts: shape.experts,
            top_k: shape.top_k,
            records,
            record_bytes: expert_bytes / records.max(1) as u64,
            vocab: shape.vocab,
            ngram: shape.ngram,
            seed: arguments.seed,
            top_tenth: skew.top_tenth(),
            router_exponent: skew.exponent(),
            seconds: None,
            write_gb_s: None,
        }
    }

    fn done(&mut self, files: usize, seconds: f64) {
        self.written = true;
        self.files = Some(files);
        self.seconds = Some(seconds);
        self.write_gb_s = (seconds > 0.0).then(|| self.bytes as f64 / seconds / 1e9);
    }

    fn json(&self) -> Result<String, Failure> {
        serde_json::to_string(self).map_err(|e| Failure::output(e.into()))
    }

    fn text(&self) -> String {
        let ngram = if self.ngram { "with" } else { "without" };
        let shapes = format!(
            "{} layers x {} experts, top-{}; {} records of {}; vocabulary {}, {ngram} n-gram table\n\
             routers: the busiest tenth of the experts serves about {:.0}% of the lookups",
            self.layers,
            self.experts,
            self.top_k,
            self.records,
            show_size(self.record_bytes),
            self.vocab,
            100.0 * self.top_tenth,
        );
        let (size, folder) = (show_size(self.bytes), self.folder.display());
        match (self.files, self.seconds, self.write_gb_s) {
            (Some(files), Some(seconds), Some(rate)) => {
                let time = HumanDuration(std::time::Duration::from_secs_f64(seconds));
                let rate = show_throughput(rate);
                format!(
                    "{folder}: {size} in {files} files, written in {time} ({rate})\n{shapes}\n\
                     to run it: generate --model {folder} --prompt-ids 1,2,3"
                )
            }
            _ => format!("{folder}: {size} would be written\n{shapes}"),
        }
    }
}
