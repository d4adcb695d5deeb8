//! The `probe_ssd` example: how fast a disk is in the ways in which the engine reads.
//!
//! No byte is read twice in a run, and the files are dropped from the page cache before each
//! measurement. Where the system tells how much it really fetched, a measurement that was served
//! from a cache is marked. Reads go to slots in huge pages, as an engine's do; the first read of
//! each lane is not counted.

pub(crate) mod measure;
mod places;
mod plot;
mod report;
pub(crate) mod scratch;
pub(crate) mod slots;
mod source;

use std::ffi::OsString;
use std::fs;
use std::path::PathBuf;
use std::sync::Arc;

use clap::{Parser, ValueEnum};
use serde::Serialize;
use slotstream_checkpoint::Checkpoint;
use slotstream_core::{PIECE_ORDER, RecordReader};
use slotstream_io::{ReaderKind, Throttle};
use slotstream_replay::bytes_a_token;

use crate::console::parse;
use crate::outputs::{self, CHART, Input, OutputFile};
use crate::throttle::parse_throttle;
use crate::whole_file::WholeFile;
use crate::{
    Console, Ended, Failure, MODEL_VARIABLE, ModelFolder, find_model, parse_size, show_size,
};
use measure::{Cell, Sample};
use places::Places;
use report::Report;
use scratch::Scratch;
use slots::Slots;
use source::Source;

/// Measures a disk in the ways in which the engine reads: whole records, records in nine pieces,
/// pages and n-gram rows, by several readers, with 1 to 32 reads at once.
///
/// Without a file it reads the shards of the model; those of the bundled one are far too small to
/// say anything of a disk. --scratch writes a file of random bytes first and removes it at the
/// end.
#[derive(Parser, Clone, Debug)]
#[command(
    name = "probe_ssd",
    version,
    allow_negative_numbers = true,
    after_help = "GB/s are payload by wall clock, medians over the rounds; p50 and p99 are of single \
                  reads. Close what else uses the disk. A virtual disk may be cached by its host, \
                  which nobody in the guest can see."
)]
#[non_exhaustive]
pub struct Arguments {
    /// Files to read: large ones on the disk in question
    #[arg(long, value_name = "FILE", num_args = 1.., conflicts_with_all = ["model", "scratch"], help_heading = "Files")]
    pub file: Vec<PathBuf>,
    /// A model folder whose shards are read [default: $SLOTSTREAM_MODEL, else the bundled model]
    #[arg(long, value_name = "DIR", conflicts_with = "scratch", help_heading = "Files")]
    pub model: Option<PathBuf>,
    /// Write a file of random bytes into this folder, read that, remove it
    #[arg(long, value_name = "DIR", help_heading = "Files")]
    pub scratch: Option<PathBuf>,
    /// Size of the scratch file
    #[arg(
        long,
        value_name = "SIZE",
        value_parser = parse_size,
        default_value = "8GB",
        requires = "scratch",
        help_heading = "Files"
    )]
    pub size: u64,
    /// Readers to compare: auto, buffered, uncached, memory, direct, uring; mmap is not offered
    #[arg(
        long,
        value_name = "NAMES",
        value_delimiter = ',',
        default_value = "buffered,uncached,direct,uring",
        help_heading = "Reads"
    )]
    pub reader: Vec<ReaderKind>,
    /// Read from the model of a disk instead: apple, or latency=TIME,gbs=N,deep=N
    ///
    /// No byte is moved: what is measured is the model, with the engine's lanes. A read of n bytes
    /// alone takes the latency and n at gbs (GB/s); all together bring deep GB/s at most.
    /// TIME is a number with ns, us or ms, 10000ms at most; N is 0.001 to 1000. apple is
    /// the SSD of an M5 Pro as others measured it, latency=53.245us,gbs=11.568,deep=17.3: 292 us
    /// for a record alone, which is 9.46 GB/s.
    #[arg(
        long,
        value_name = "MODEL",
        value_parser = parse_throttle,
        conflicts_with_all = ["file", "model", "scratch", "reader"],
        help_heading = "Reads"
    )]
    pub throttle: Option<Throttle>,
    /// Ways to read
    #[arg(
        long,
        value_enum,
        value_delimiter = ',',
        default_value = "record,pieces,page,row",
        help_heading = "Reads"
    )]
    pub way: Vec<Way>,
    /// Reads at once, each of a lane of its own
    #[arg(
        long,
        value_name = "N",
        value_delimiter = ',',
        default_value = "1,4,8,16,32",
        value_parser = clap::value_parser!(u16).range(1..=1024),
        help_heading = "Reads"
    )]
    pub depth: Vec<u16>,
    /// Rounds; each measures everything once, one after the other
    #[arg(long, value_name = "N", default_value_t = 3, value_parser = clap::value_parser!(u16).range(1..), help_heading = "Reads")]
    pub rounds: u16,
    /// Most bytes of one measurement [default: 256MB, less where the files would be used up]
    #[arg(long, value_name = "SIZE", value_parser = parse_size, help_heading = "Reads")]
    pub bytes: Option<u64>,
    /// Seed of the places
    #[arg(long, value_name = "S", default_value_t = 0, help_heading = "Reads")]
    pub seed: u64,
    /// Print one JSON object on the last line instead of tables
    #[arg(long, help_heading = "Output")]
    pub json: bool,
    /// Draw GB/s against the reads at once as SVG
    #[arg(long, value_name = "FILE", help_heading = "Output")]
    pub plot: Option<PathBuf>,
}

/// Ways in which the engine reads.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, ValueEnum, Serialize)]
#[serde(rename_all = "lowercase")]
#[non_exhaustive]
pub enum Way {
    /// A record of a container: one run at a multiple of 16 KiB.
    Record,
    /// A record of the shards: nine runs at any byte.
    Pieces,
    /// 16 KiB at a multiple of it.
    Page,
    /// 100 bytes at any byte.
    Row,
}

/// The published model's shape, where no model is named.
const RECORD: [u64; 9] =
    [819_200, 51_200, 51_200, 819_200, 51_200, 51_200, 819_200, 51_200, 51_200];
const A_TOKEN: u64 = 480 * 2_764_800;

/// What the reads look like.
#[derive(Clone, Debug, Serialize)]
struct Shape {
    pieces: [u64; PIECE_ORDER.len()],
    /// Bytes that a token reads when nothing hits.
    token_bytes: u64,
}

impl Shape {
    fn record(&self) -> u64 {
        self.pieces.iter().sum()
    }
}

/// Runs the example with these arguments, the program's name first.
///
/// # Errors
/// [`Failure`] says what and whose it is. After Ctrl-C what was measured is shown.
pub fn run(
    arguments: impl IntoIterator<Item = OsString>,
    console: &mut Console<'_>,
) -> Result<Ended, Failure> {
    let arguments: Arguments = parse(arguments)?;
    console.progress &= !arguments.json;
    arguments.check_outputs()?;
    let scratch = arguments
        .scratch
        .as_ref()
        .map(|folder| Scratch::write(folder, arguments.size, arguments.seed, console))
        .transpose()?;
    let Some(scratch) = (match scratch {
        None => Some(None),
        Some(Some(scratch)) => Some(Some(scratch)),
        // Ctrl-C while it was written.
        Some(None) => None,
    }) else {
        return Ok(Ended::Interrupted);
    };
    let (files, shape) = files(&arguments, scratch.as_ref())?;
    let cells = Cell::all(&arguments, &Source::all(&arguments));
    let (samples, report) = probe(&arguments, &files, &shape, &cells, console)?;
    if let Some(path) = &arguments.plot {
        let written = WholeFile::write(path, plot::draw(&report.rows)?.as_bytes());
        written.map_err(|source| Failure::File { path: path.clone(), source })?;
    }
    console.line(&if arguments.json { report.json()? } else { report.text() })?;
    let whole = samples == cells.len() * usize::from(arguments.rounds) || report.used_up;
    Ok(if whole { Ended::Done } else { Ended::Interrupted })
}

impl Arguments {
    /// Whether the shards of a model are read.
    fn reads_model(&self) -> bool {
        self.file.is_empty() && self.throttle.is_none() && self.scratch.is_none()
    }

    fn find_model(&self) -> Result<ModelFolder, Failure> {
        find_model(self.model.as_deref(), std::env::var_os(MODEL_VARIABLE))
    }

    /// Refuses a chart that cannot be written, or may not.
    fn check_outputs(&self) -> Result<(), Failure> {
        let Some(path) = &self.plot else { return Ok(()) };
        let files = self.file.iter().map(|path| Input::File("--file", path.into()));
        let mut inputs: Vec<_> = files.collect();
        if self.reads_model() {
            let model = self.find_model()?.path;
            inputs.push(Input::Folder("the model's folder", model.into()));
        }
        outputs::check(&[OutputFile { option: "--plot", path, kind: CHART }], &inputs)
    }
}

/// The files to read and what a record looks like.
fn files(
    arguments: &Arguments,
    scratch: Option<&Scratch>,
) -> Result<(Vec<PathBuf>, Shape), Failure> {
    let published = Shape { pieces: RECORD, token_bytes: A_TOKEN };
    if let Some(scratch) = scratch {
        return Ok((vec![scratch.path().to_owned()], published));
    }
    if !arguments.reads_model() {
        return Ok((arguments.file.clone(), published));
    }
    let model = arguments.find_model()?;
    let checkpoint = Checkpoint::open(&model.path)?;
    let layout = checkpoint.record_layout();
    let shape = Shape {
        pieces: layout.pieces().map(|piece| piece.len as u64),
        token_bytes: bytes_a_token(&checkpoint.geometry(), layout.payload_len() as u64),
    };
    Ok((checkpoint.files().to_vec(), shape))
}

/// Measures every cell in every round, until the files are used up or Ctrl-C; the number of
/// measurements, and what they say.
fn probe(
    arguments: &Arguments,
    files: &[PathBuf],
    shape: &Shape,
    cells: &[Cell],
    console: &Console<'_>,
) -> Result<(usize, Report), Failure> {
    let lens = match arguments.throttle {
        Some(_) => vec![source::MODEL_BYTES],
        None => lens(files)?,
    };
    let total: u64 = lens.iter().sum();
    fits(arguments, &lens, shape, cells)?;
    let mut places = Places::new(&lens, arguments.seed);
    let rounds = usize::from(arguments.rounds);
    let bytes = arguments.bytes.unwrap_or_else(|| {
        // Small reads take less than their share.
        256_000_000.min(total / (cells.len() * rounds).max(1) as u64)
    });
    let mut readers: Vec<(Source, Arc<dyn RecordReader>)> = Vec::new();
    for source in Source::all(arguments) {
        readers.push((source, source.open(files, &console.cancel)?));
    }
    let depth = arguments.depth.iter().copied().max().unwrap_or(1);
    // In range: a record fits in memory, as the engine's slots do.
    let slots = Slots::new(depth.into(), places::longest(&arguments.way, shape) as usize)?;
    let mut report = Report::new(files, total, shape, &readers);
    let bar = console.bar((cells.len() * rounds) as u64, "measurements", false);
    let mut samples = 0;
    'rounds: for _ in 0..rounds {
        for cell in cells {
            if console.cancel.is_cancelled() {
                break 'rounds;
            }
            let places = places.take_warm_up(cell).zip(places.take_for(cell, shape, bytes));
            let Some((warm_up, reads)) = places else {
                report.used_up = true;
                break 'rounds;
            };
            let reader = readers.iter().find(|(source, _)| *source == cell.source);
            let Some((_, reader)) = reader else { continue };
            measure::forget(files)?;
            let sample = Sample::of(reader, cell, warm_up, reads, &slots)?;
            // Reads that Ctrl-C has woken were faster than the model of a disk.
            if console.cancel.is_cancelled() {
                break 'rounds;
            }
            report.add(*cell, sample);
            samples += 1;
            bar.inc(1);
        }
    }
    bar.finish_and_clear();
    report.finish();
    Ok((samples, report))
}

/// Refuses files in which not even the first measurement finds its reads.
fn fits(arguments: &Arguments, lens: &[u64], shape: &Shape, cells: &[Cell]) -> Result<(), Failure> {
    let mut places = Places::new(lens, arguments.seed);
    // Without cells nothing is read.
    let Some(first) = cells.first() else { return Ok(()) };
    if places.take_warm_up(first).is_some() && places.take_for(first, shape, 0).is_some() {
        return Ok(());
    }
    let lanes = u64::from(first.depth);
    let longest = places::longest(&[first.way], shape);
    Err(Failure::Option {
        option: if arguments.scratch.is_some() { "--size" } else { "files" },
        value: format!("{} bytes", lens.iter().sum::<u64>()),
        expected: format!(
            "room for the first measurement: about {} for {lanes} reads at once",
            show_size((2 * lanes * longest).max(16 << 20))
        ),
    })
}

fn lens(files: &[PathBuf]) -> Result<Vec<u64>, Failure> {
    files
        .iter()
        .map(|path| {
            let failed = |source| Failure::ReadFile { path: path.clone(), source };
            let meta = fs::metadata(path).map_err(failed)?;
            Ok(meta.len())
        })
        .collect()
}
