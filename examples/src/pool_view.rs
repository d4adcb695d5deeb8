//! The `pool_view` example: what a pool holds while a trace is replayed.

mod frame;
mod svg;
mod terminal;

use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

use clap::{Parser, ValueEnum};
use slotstream_cache::{Clock, SlotPool};
use slotstream_core::{CancelToken, EvictionPolicy};
use slotstream_replay::{
    Call, Observer, PoolSize, Recording, ReplayError, Requests, Simulation, TraceFormat,
    named_policy,
};

use crate::console::parse;
use crate::outputs::{self, CHART, Input, OutputFile};
use crate::replay::bundled_trace;
use crate::whole_file::WholeFile;
use crate::{Console, Ended, Failure};
use frame::{Frame, Marks};

/// Shows a pool while a trace is replayed: which layer owns each slot, what is in use and what is
/// being read.
///
/// A slot is a letter for the layer that owns it and a sign: `*` used by this call, `+` being
/// read for it, `'` referenced (clock and clock-cold only). `>` is the clock's hand, `.` a free
/// slot.
#[derive(Parser, Clone, Debug)]
#[command(name = "pool_view", version, allow_negative_numbers = true)]
#[non_exhaustive]
pub struct Arguments {
    /// A trace of any format [default: a bundled one]
    #[arg(long, value_name = "FILE", conflicts_with = "keys")]
    pub trace: Option<PathBuf>,
    /// A file of keys, one a line
    #[arg(long, value_name = "FILE")]
    pub keys: Option<PathBuf>,
    /// Eviction policy; --policies lists them
    #[arg(long, value_name = "NAME", default_value = "clock")]
    pub policy: String,
    /// The pool: 200, 30%, 16/layer or 1.5routes
    #[arg(long, value_name = "SIZE", default_value = "1.5routes")]
    pub size: PoolSize,
    /// Passes that are not shown
    #[arg(long, value_name = "N", default_value_t = 0)]
    pub skip: usize,
    /// Frames that are shown; 0 is all
    #[arg(long, value_name = "N", default_value_t = 12)]
    pub frames: usize,
    /// What a frame is
    #[arg(long, value_enum, default_value_t = Step::Layer)]
    pub step: Step,
    /// Slots in a row
    #[arg(long, value_name = "N", default_value_t = 24, value_parser = clap::value_parser!(u16).range(1..))]
    pub width: u16,
    /// Letters alone, no colours
    #[arg(long)]
    pub no_color: bool,
    /// Draw every frame over the one before and wait so many milliseconds
    #[arg(long, value_name = "MS")]
    pub delay: Option<u64>,
    /// Write every frame into this folder as SVG as well
    #[arg(long, value_name = "FOLDER")]
    pub svg: Option<PathBuf>,
}

/// How often a frame is shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
#[non_exhaustive]
pub enum Step {
    /// Every call of a layer.
    Layer,
    /// The last call of every pass.
    Pass,
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
    let recording = console.waiting(|| match (&arguments.trace, &arguments.keys) {
        (Some(path), _) => Recording::open(path),
        (None, Some(path)) => Recording::open_as(path, TraceFormat::Keys),
        (None, None) => Recording::open(bundled_trace()),
    })?;
    if let Some(folder) = &arguments.svg {
        let made = fs::create_dir_all(folder);
        made.map_err(|source| Failure::File { path: folder.clone(), source })?;
        arguments.check_frame(&frame_path(folder, 0))?;
    }
    let requests = console.waiting(|| recording.requests())?;
    let enough = CancelToken::new();
    let simulation = Simulation::new(arguments.size.slots(requests.geometry()))
        .unfloored()
        .cancel(enough.clone());
    let (cancel, mut viewer) =
        (console.cancel.clone(), Viewer::new(&arguments, console, &requests));
    viewer.enough = enough;
    let run = match arguments.policy.as_str() {
        "clock" => simulation.run_with(&requests, Clock::new(), &mut viewer),
        "clock-cold" => simulation.run_with(&requests, Clock::cold(), &mut viewer),
        name => simulation.run_with(&requests, named_policy(name, &requests)?, &mut viewer),
    };
    match (viewer.failure, run) {
        (Some(failure), _) => Err(failure),
        (None, Err(error)) if !matches!(error, ReplayError::Cancelled) => Err(error.into()),
        _ if cancel.is_cancelled() => Ok(Ended::Interrupted),
        _ => Ok(Ended::Done),
    }
}

impl Arguments {
    /// Refuses the file of a frame that cannot be written, or may not.
    fn check_frame(&self, path: &Path) -> Result<(), Failure> {
        let (option, input) = match (&self.trace, &self.keys) {
            (Some(path), _) => ("--trace", path.into()),
            (None, Some(path)) => ("--keys", path.into()),
            (None, None) => ("the bundled trace", bundled_trace().into()),
        };
        let output = OutputFile { option: "--svg", path, kind: CHART };
        outputs::check(&[output], &[Input::File(option, input)])
    }
}

/// Where a frame is drawn.
fn frame_path(folder: &Path, number: usize) -> PathBuf {
    folder.join(format!("frame-{number:05}.svg"))
}

/// Shows frames until there are enough.
struct Viewer<'a, 'c> {
    arguments: &'a Arguments,
    console: &'a mut Console<'c>,
    /// By pass: the number of its last visit.
    last_visits: Vec<usize>,
    shown: usize,
    lookups: u64,
    hits: u64,
    enough: CancelToken,
    failure: Option<Failure>,
}

impl<'a, 'c> Viewer<'a, 'c> {
    fn new(arguments: &'a Arguments, console: &'a mut Console<'c>, requests: &Requests) -> Self {
        let last =
            |pass: slotstream_replay::Pass<'_>| pass.visits().last().map_or(0, |v| v.index());
        Self {
            arguments,
            console,
            last_visits: requests.passes().map(last).collect(),
            shown: 0,
            lookups: 0,
            hits: 0,
            enough: CancelToken::new(),
            failure: None,
        }
    }

    fn wanted(&self, call: &Call<'_>) -> bool {
        let due = match self.arguments.step {
            Step::Layer => true,
            Step::Pass => self.last_visits[call.pass] == call.visit,
        };
        due && call.pass >= self.arguments.skip && !self.enough.is_cancelled()
    }

    fn show(&mut self, frame: &Frame) -> Result<(), Failure> {
        let text = terminal::draw(frame, self.arguments.width.into(), !self.arguments.no_color);
        match self.arguments.delay {
            Some(delay) => {
                // From the upper left corner, and nothing below.
                self.console.write(&format!("\x1b[H{text}\x1b[J"))?;
                // In small steps, so that Ctrl-C is heard.
                let (begun, delay) = (Instant::now(), Duration::from_millis(delay));
                while !self.console.cancel.is_cancelled() && begun.elapsed() < delay {
                    let left = delay.saturating_sub(begun.elapsed());
                    thread::sleep(left.min(Duration::from_millis(20)));
                }
            }
            None => self.console.line(&text)?,
        }
        if let Some(folder) = &self.arguments.svg {
            let path = frame_path(folder, self.shown);
            self.arguments.check_frame(&path)?;
            let drawn = svg::draw(frame, self.arguments.width.into());
            let written = WholeFile::write(&path, drawn.as_bytes());
            written.map_err(|source| Failure::File { path, source })?;
        }
        self.shown += 1;
        Ok(())
    }
}

impl<P: EvictionPolicy + Marks> Observer<P> for Viewer<'_, '_> {
    const IN_FLIGHT: bool = true;

    fn on_call(&mut self, call: &Call<'_>, pool: &SlotPool<P>) {
        self.lookups += call.entries.len() as u64;
        self.hits += call.entries.iter().filter(|entry| entry.is_hit()).count() as u64;
        if self.wanted(call) {
            let frame = Frame::new(call, pool, (self.hits, self.lookups));
            self.failure = self.show(&frame).err();
        }
        let frames = self.arguments.frames;
        let over = frames > 0 && self.shown == frames;
        if over || self.failure.is_some() || self.console.cancel.is_cancelled() {
            self.enough.cancel();
        }
    }
}
