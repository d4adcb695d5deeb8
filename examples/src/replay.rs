//! The `replay` example: what policies make of a trace.

mod arguments;
mod exact;
mod extras;
mod modelled;
mod output;
#[cfg(test)]
mod recorded;
mod source;

use std::collections::BTreeSet;
use std::ffi::OsString;

use slotstream_cache::{DEFAULT_POLICY, parse_policy};
use slotstream_replay::{ReplayError, Simulation, all_policies, curve};

use crate::console::parse;
use crate::{Console, Ended, Failure};
pub use arguments::{Arguments, Axis, Format, Phase};
use output::Output;
use source::Source;
pub(crate) use source::bundled_trace;

/// Knows the future.
const OPT: &str = "opt";

/// Policies of a replay for which none was given: OPT, the engine's, and a few to compare with.
const POLICIES: [&str; 8] =
    [OPT, "clock", "lru", "lfu", "s3fifo", "wtinylfu", "sieve", DEFAULT_POLICY];

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
    if arguments.exact {
        return exact::run(&arguments, console);
    }
    arguments.check_outputs()?;
    let sources = console.waiting(|| Source::all(&arguments))?;
    let policies = Policies::of(&arguments, &sources)?;
    let mut output = Output::new(&arguments);
    let sizes = sources.iter().map(|source| source.slots(&arguments).len());
    let total = sizes.sum::<usize>() * policies.names.len();
    let bar = console.bar(total as u64, "replays", false);
    for source in &sources {
        let simulation = simulation(&arguments, source, console)?;
        if let Some(latency) = arguments.latency {
            modelled::add(source, &policies, (&arguments, latency), console, &mut output)?;
        } else {
            simulate(source, &policies, (&arguments, &simulation), &|| bar.inc(1), &mut output)?;
        }
        output.ceiling(source, &simulation.ceiling(&source.requests)?);
    }
    bar.finish_and_clear();
    output.check()?;
    extras::add(&arguments, &sources, &policies, console, &mut output)?;
    output.finish(console)?;
    Ok(Ended::Done)
}

/// Replays the requests of a trace under all policies at all sizes; what was recorded of the same
/// pool takes the place of a model.
fn simulate(
    source: &Source,
    policies: &Policies,
    (arguments, simulation): (&Arguments, &Simulation),
    progress: &(dyn Fn() + Sync),
    output: &mut Output<'_>,
) -> Result<(), Failure> {
    let slots = source.slots(arguments);
    let points = curve(&source.requests, &policies.names, &slots, simulation, &|_| progress())?;
    for point in points {
        let (policy, slots) = (point.policy, point.slots);
        let Some(mut run) = policies.accept(point.outcome, output)? else { continue };
        let recorded = exact::counters(source, &policy, slots, arguments);
        let is_exact = matches!(recorded, Some(Ok(_)));
        match recorded {
            Some(Ok(counters)) => run.counters = counters,
            Some(Err(error)) => {
                output.note(&format!("{}: no exact replay", source.label), &error);
            }
            None => {}
        }
        output.row(source, &policy, slots, run.count(arguments.phases()), is_exact);
    }
    Ok(())
}

/// The policies to replay under.
struct Policies {
    names: Vec<String>,
    /// They were named one by one: if one refuses a pool, that is an error.
    named: bool,
}

impl Policies {
    fn of(arguments: &Arguments, sources: &[Source]) -> Result<Self, Failure> {
        let mut policies = Self::asked(arguments, sources);
        if arguments.latency.is_some() {
            // It knows what will be demanded, not what will be forecast: it would be no bound.
            if policies.named && policies.names.iter().any(|name| name == OPT) {
                return Err(Failure::Option {
                    option: "--policy",
                    value: OPT.into(),
                    expected: "policies that an engine can have with --latency".into(),
                });
            }
            policies.names.retain(|name| name != OPT);
        }
        Ok(policies)
    }

    fn asked(arguments: &Arguments, sources: &[Source]) -> Self {
        if arguments.policy.iter().any(|name| name == "all") {
            let mut names = all_policies();
            let others = arguments.policy.iter().filter(|name| *name != "all");
            let new: Vec<String> = others.filter(|name| !names.contains(name)).cloned().collect();
            names.extend(new);
            return Self { names, named: false };
        }
        if !arguments.policy.is_empty() {
            return Self { names: arguments.policy.clone(), named: true };
        }
        let known = |name: &&&str| **name == OPT || parse_policy(name).is_ok();
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
    fn accept<T>(
        &self,
        outcome: Result<T, ReplayError>,
        output: &mut Output<'_>,
    ) -> Result<Option<T>, Failure> {
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
