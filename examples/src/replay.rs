//! The `replay` example: what policies make of a trace.

mod arguments;
mod extras;
mod output;
mod source;

use std::ffi::OsString;

use slotstream_cache::parse_policy;
use slotstream_replay::{ExactReplay, ReplayError, Run, Simulation, all_policies, curve};

use crate::console::parse;
use crate::{Console, Ended, Failure};
pub use arguments::{Arguments, Axis, Format, Phase};
use output::Output;
use source::Source;
pub(crate) use source::bundled_trace;

/// Policies of a replay for which none was given: OPT, the engine's, and a few to compare with.
const POLICIES: [&str; 7] = ["opt", "clock", "lru", "lfu", "s3fifo", "wtinylfu", "sieve"];

/// Runs the example with these arguments, the program's name first.
///
/// # Errors
/// [`Failure`] says what and whose it is. After Ctrl-C nothing is shown.
pub fn run(
    arguments: impl IntoIterator<Item = OsString>,
    console: &mut Console<'_>,
) -> Result<Ended, Failure> {
    let arguments: Arguments = parse(arguments)?;
    if arguments.format == Format::Csv && (arguments.stats || arguments.layers) {
        return Err(Failure::Option {
            option: "--format",
            value: "csv".into(),
            expected: "table or json with --stats or --layers, which show several tables".into(),
        });
    }
    let sources = Source::all(&arguments)?;
    let policies = Policies::of(&arguments);
    let mut output = Output::new(&arguments, &sources);
    let sizes = sources.iter().map(|source| source.slots(&arguments).len());
    let total = sizes.sum::<usize>() * policies.names.len();
    let bar = console.bar(total as u64, "replays", false);
    for source in &sources {
        let simulation = simulation(&arguments, source, console)?;
        let slots = source.slots(&arguments);
        let points =
            curve(&source.requests, &policies.names, &slots, &simulation, &|_| bar.inc(1))?;
        for point in points {
            let (policy, slots) = (point.policy, point.slots);
            if let Some(run) = policies.accept(point.outcome, &mut output)? {
                match exact(source, &policy, slots, &arguments)? {
                    Some(recorded) => output.run(source, &policy, slots, &recorded(run), true),
                    None => output.run(source, &policy, slots, &run, false),
                }
            }
        }
        output.ceiling(source, &simulation.ceiling(&source.requests)?);
    }
    bar.finish_and_clear();
    output.check()?;
    extras::add(&arguments, &sources, &policies, console, &mut output)?;
    output.finish(console)?;
    Ok(Ended::Done)
}

/// The policies to replay under.
struct Policies {
    names: Vec<String>,
    /// They were named one by one: if one refuses a pool, that is an error.
    named: bool,
}

impl Policies {
    fn of(arguments: &Arguments) -> Self {
        if arguments.policy.iter().any(|name| name == "all") {
            return Self { names: all_policies(), named: false };
        }
        if !arguments.policy.is_empty() {
            return Self { names: arguments.policy.clone(), named: true };
        }
        let known = |name: &&&str| **name == "opt" || parse_policy(name).is_ok();
        let names = POLICIES.iter().filter(known).map(ToString::to_string).collect();
        Self { names, named: false }
    }

    /// The run; nothing when the pool was refused by a policy that nobody named.
    fn accept(
        &self,
        outcome: Result<Run, ReplayError>,
        output: &mut Output<'_>,
    ) -> Result<Option<Run>, Failure> {
        match outcome {
            Ok(run) => Ok(Some(run)),
            Err(error @ ReplayError::Pool { layer: None, .. }) if !self.named => {
                output.refused(error);
                Ok(None)
            }
            Err(error) => Err(error.into()),
        }
    }
}

/// How to count at one point of a trace.
fn simulation(
    arguments: &Arguments,
    source: &Source,
    console: &Console<'_>,
) -> Result<Simulation, Failure> {
    let passes = source.requests.passes().len();
    if arguments.warmup > 0 && arguments.warmup >= passes {
        return Err(Failure::Option {
            option: "--warmup",
            value: arguments.warmup.to_string(),
            expected: format!("less than the {passes} passes of {}", source.label),
        });
    }
    let simulation = Simulation::new(0).warm_up(arguments.warmup).cancel(console.cancel.clone());
    Ok(if source.keys { simulation.unfloored() } else { simulation })
}

/// When this is the recorded pool: what the recorded run counted, by its outcomes.
fn exact(
    source: &Source,
    policy: &str,
    slots: usize,
    arguments: &Arguments,
) -> Result<Option<impl FnOnce(Run) -> Run>, Failure> {
    let Some(recording) = &source.recording else { return Ok(None) };
    let header = recording.header();
    if header.slots == 0 || (header.slots, header.policy.as_str()) != (slots, policy) {
        return Ok(None);
    }
    // Outcomes are of the whole run.
    let Some(policy) = parse_policy(policy).ok().filter(|_| arguments.warmup == 0) else {
        return Ok(None);
    };
    let mut replay = ExactReplay::new(header, policy)?;
    let played = recording.play(&mut replay)?;
    let counters = *replay.verify(&played)?.counters();
    Ok(Some(move |mut run: Run| {
        run.counters = counters;
        run
    }))
}
