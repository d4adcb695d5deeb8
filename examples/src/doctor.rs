//! The `doctor` example: whether a model runs on a machine, with how much memory, and about how fast.
//! Loads no weights.

mod compute;
mod disk;
mod hits;
mod predict;
mod questions;
mod report;
mod sizes;
mod subject;

use std::ffi::OsString;
use std::path::PathBuf;
use std::sync::Arc;

use clap::{Parser, ValueEnum};
use slotstream::checkpoint::Checkpoint;
use slotstream::core::CancelToken;
use slotstream::machine::{self, Machine, MetalGpu, NoGpu};
use slotstream::{Error, MemoryPlan, TextParts};
use slotstream_replay::bytes_a_token;

use crate::console::parse;
use crate::{Console, Device, Ended, EngineArguments, Failure, parse_size};
use compute::Compute;
use disk::Disk;
use hits::Curves;
use predict::Model;
use report::Report;
use subject::Subject;

/// Says whether a model runs on this machine or on another one, with how much memory, and about
/// how fast.
///
/// Looks at the memory, measures the disk by records of the model that are read as the engine reads
/// them, checks the headers of model and container, plans the memory, and measures the arithmetic
/// on eight layers of the model's shapes that hold zeros. It loads no weights and needs none:
/// --shape stands for a model that is not here yet. A plan that does not fit ends it with exit
/// code 2 and the arithmetic.
#[derive(Parser, Clone, Debug)]
#[command(
    name = "doctor",
    version,
    allow_negative_numbers = true,
    after_help = "Predictions are of decoding with the stated hit rates, which are assumptions: they \
                  lie between simulated routes and recorded routes of the bundled model. \
                  --trace replays your own, --hit-rate states one."
)]
#[non_exhaustive]
pub struct Arguments {
    /// Look at a published model's shape instead of a folder: nothing has to be downloaded
    #[arg(long, value_enum, value_name = "NAME", conflicts_with = "model", help_heading = "Model")]
    pub shape: Option<ShapeName>,
    /// Look at the shape of a config.json instead of a folder
    #[arg(
        long,
        value_name = "FILE",
        conflicts_with_all = ["model", "shape"],
        help_heading = "Model"
    )]
    pub config: Option<PathBuf>,
    /// The model, and the engine that is planned for.
    #[command(flatten)]
    pub engine: EngineArguments,
    /// Plan for a machine with so much memory
    #[arg(long, value_name = "SIZE", value_parser = parse_size, help_heading = "Machine")]
    pub sim_ram: Option<u64>,
    /// Plan for so much available memory; without a size: all of --sim-ram is available
    #[arg(
        long,
        value_name = "SIZE",
        value_parser = parse_size,
        num_args = 0..=1,
        requires = "sim_ram",
        help_heading = "Machine"
    )]
    pub sim_available: Option<Option<u64>>,
    /// Plan for a GPU with this working set
    #[arg(long, value_name = "SIZE", value_parser = parse_size, help_heading = "Machine")]
    pub sim_working_set: Option<u64>,
    /// Predict for a disk that reads so many GB/s, with 0.1 ms before the first byte, and measure
    /// none
    #[arg(
        long,
        value_name = "X",
        value_parser = positive,
        conflicts_with = "throttle",
        help_heading = "Machine"
    )]
    pub sim_disk_gb_s: Option<f64>,
    /// Folder on the disk to measure where the model is not here: a file of 512 MB is written there
    /// and removed
    #[arg(long, value_name = "DIR", default_value = ".", help_heading = "Machine")]
    pub scratch: PathBuf,
    /// Share of the lookups that find their record [default: from simulated routes]
    #[arg(long, value_name = "X", value_parser = share, help_heading = "Prediction")]
    pub hit_rate: Option<f64>,
    /// Take the hit rate from a recorded trace of the model
    #[arg(long, value_name = "FILE", conflicts_with = "hit_rate", help_heading = "Prediction")]
    pub trace: Option<PathBuf>,
    /// Leave out the table over memory sizes
    #[arg(long, help_heading = "Output")]
    pub no_table: bool,
    /// Print one JSON object on the last line instead of text
    #[arg(long, help_heading = "Output")]
    pub json: bool,
}

/// Models whose shapes are known.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
#[non_exhaustive]
pub enum ShapeName {
    /// 48 layers of 512 experts, top-10; 104 GB.
    #[value(name = "qwen3.8-flash-next")]
    Qwen38FlashNext,
}

fn positive(text: &str) -> Result<f64, String> {
    match text.parse() {
        Ok(number) if (0.001..=1000.0).contains(&number) => Ok(number),
        _ => Err("expected a number of GB/s from 0.001 to 1000".into()),
    }
}

fn share(text: &str) -> Result<f64, String> {
    match text.parse() {
        Ok(number) if (0.0..=1.0).contains(&number) => Ok(number),
        _ => Err("expected a share from 0 to 1".into()),
    }
}

impl Arguments {
    /// The machine that is planned for. What the process has resident is this process's.
    fn machine(&self) -> Machine {
        let mut machine = match self.sim_ram {
            None if self.engine.device == Device::Metal => Machine::detect(&MetalGpu),
            None => Machine::detect(&NoGpu),
            Some(total) => {
                let process = machine::resident_bytes().unwrap_or(0);
                let simulated = Machine::simulated(total).with_process(process);
                match self.sim_available {
                    None => simulated,
                    Some(bytes) => simulated.with_available(bytes.unwrap_or(total).min(total)),
                }
            }
        };
        if let Some(bytes) = self.sim_working_set {
            machine = machine.with_working_set(bytes);
        }
        machine
    }
}

/// Runs the example with these arguments, the program's name first.
///
/// # Errors
/// [`Failure`] says what is wrong with the model, or that the plan does not fit and why; what was
/// found before is shown first.
pub fn run(
    arguments: impl IntoIterator<Item = OsString>,
    console: &mut Console<'_>,
) -> Result<Ended, Failure> {
    let arguments: Arguments = parse(arguments)?;
    console.progress &= !arguments.json;
    let subject = Subject::find(&arguments, console)?;
    let mut report = Report::new(&subject, &arguments);
    let result = examine(&arguments, &subject, &mut report, console);
    if let Err(error) = &result {
        report.fail(error);
    }
    console.line(&if arguments.json { report.json()? } else { report.text() })?;
    match result {
        Err(_) if console.cancel.is_cancelled() => Ok(Ended::Interrupted),
        result => result.map(|()| Ended::Done),
    }
}

/// Looks at everything, the cheap things first; what was found is in `report` even when this fails.
fn examine(
    arguments: &Arguments,
    subject: &Subject,
    report: &mut Report,
    console: &Console<'_>,
) -> Result<(), Failure> {
    let checkpoint = Checkpoint::open(&subject.folder.path).map_err(Error::from)?;
    let checkpoint = Arc::new(checkpoint);
    report.describe(&checkpoint);
    // An engine has it before it plans, too.
    let text = TextParts::load(&subject.folder.path, checkpoint.config().vocab_size)?;
    let machine = arguments.machine();
    report.machine(&machine);
    let builder = || {
        let builder = arguments.engine.builder(&subject.folder, &console.cancel)?;
        Ok::<_, Failure>(builder.machine(machine))
    };
    let container = arguments.engine.container_choice().open(&checkpoint)?;
    report.container(container.as_ref());
    let plan = builder()?.plan()?;
    let choice = builder()?.planned_reader()?;
    let mut notes = arguments.engine.notes(&plan);
    if !subject.is_here() {
        notes.push(
            "the tokenizer is not here: what it keeps in memory is not in the plan".to_owned(),
        );
    }
    report.plan(&plan, notes);
    drop(text);
    fits(&plan, &machine)?;
    let compute = Compute::measure(arguments, subject, &checkpoint, console)?;
    report.compute(&compute);
    let disk = Disk::measure(arguments, subject, &checkpoint, container, &choice, console)?;
    report.disk(&disk, &choice);
    let curves = console.waiting(|| Curves::new(arguments, subject, &checkpoint.geometry()))?;
    let model = Model { checkpoint: &checkpoint, compute: &compute, disk: &disk };
    let hits = curves.at(plan.slots)?;
    let prediction = model.predict(&hits);
    report.prediction(&hits, &prediction);
    report.questions = questions::answer(&model, &plan, &prediction);
    if !arguments.no_table {
        report.sizes = sizes::table(arguments, subject, &model, &curves, machine)?;
    }
    Ok(())
}

/// What was asked for may be more than an engine would take by itself, and not more than there is.
fn fits(plan: &MemoryPlan, machine: &Machine) -> Result<(), Failure> {
    let (planned, fixed) = (plan.total_bytes(), plan.total_bytes() - plan.row_bytes("pool"));
    match machine.total.filter(|total| planned > *total) {
        None => Ok(()),
        Some(total) => Err(Failure::Option {
            option: "the plan",
            value: format!(
                "{planned} bytes ({fixed} besides the pool, and {} slots x {} bytes)",
                plan.slots, plan.slot_bytes
            ),
            expected: format!("no more than the {total} bytes that the machine has"),
        }),
    }
}

/// Bytes of records that a token looks up.
fn looked_up(checkpoint: &Checkpoint) -> u64 {
    bytes_a_token(&checkpoint.geometry(), checkpoint.record_layout().payload_len() as u64)
}

/// The prediction's plan at another memory size, or why there is none.
fn plan_for(
    arguments: &Arguments,
    subject: &Subject,
    machine: Machine,
) -> Result<MemoryPlan, Failure> {
    let mut engine = arguments.engine.clone();
    (engine.slots, engine.experts_per_layer, engine.memory) = (None, None, None);
    // Nobody's 30%: a table over memory sizes is about memory.
    let folder = crate::ModelFolder { bundled: false, ..subject.folder.clone() };
    Ok(engine.builder(&folder, &CancelToken::new())?.machine(machine).plan()?)
}
