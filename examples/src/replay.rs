//! The `replay` example: what policies make of a trace.

mod arguments;
mod extras;
mod output;
mod source;

use std::collections::BTreeSet;
use std::ffi::OsString;

use slotstream_cache::{PoolCounters, parse_policy};
use slotstream_replay::{
    ExactReplay, ReplayError, Run, Simulation, TraceError, all_policies, curve,
};

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
    let policies = Policies::of(&arguments, &sources);
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
            let Some(mut run) = policies.accept(point.outcome, &mut output)? else { continue };
            let recorded = exact(source, &policy, slots, &arguments);
            let is_exact = matches!(recorded, Some(Ok(_)));
            match recorded {
                Some(Ok(counters)) => run.counters = counters,
                Some(Err(error)) => {
                    output.note(&format!("{}: no exact replay", source.label), &error);
                }
                None => {}
            }
            output.run(source, &policy, slots, &run, is_exact);
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
    fn of(arguments: &Arguments, sources: &[Source]) -> Self {
        if arguments.policy.iter().any(|name| name == "all") {
            return Self { names: all_policies(), named: false };
        }
        if !arguments.policy.is_empty() {
            return Self { names: arguments.policy.clone(), named: true };
        }
        let known = |name: &&&str| **name == "opt" || parse_policy(name).is_ok();
        let mut names: Vec<String> =
            POLICIES.iter().filter(known).map(ToString::to_string).collect();
        // The recorded ones are what the others are compared with.
        for source in sources {
            let recorded = source.recording.as_ref().map(|recording| &recording.header().policy);
            names.extend(recorded.filter(|name| parse_policy(name).is_ok()).cloned());
        }
        let mut seen = BTreeSet::new();
        names.retain(|name| seen.insert(name.clone()));
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
) -> Option<Result<PoolCounters, TraceError>> {
    let recording = source.recording.as_ref()?;
    let header = recording.header();
    // Outcomes are of the whole run.
    let same = header.slots > 0 && (header.slots, header.policy.as_str()) == (slots, policy);
    (same && arguments.warmup == 0).then(|| {
        let mut replay = ExactReplay::recorded(header)?;
        let played = recording.play(&mut replay)?;
        Ok(*replay.verify(&played)?.counters())
    })
}
