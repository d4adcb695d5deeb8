//! What is shown beside the rows: statistics, layers, single lookups, a chart.

use std::io::{self, BufWriter, IntoInnerError, Write};
use std::path::Path;

use slotstream_replay::{
    Cell, Chart, Detail, Figures, LookupEvent, Lookups, Phases, Stats, named_policy,
};

use super::output::{Output, Section};
use super::source::Source;
use super::{Arguments, Policies, simulation};
use crate::outputs::{Kind, Way, begins_with};
use crate::whole_file::WholeFile;
use crate::{Console, Failure};

/// The first line of a file of lookups.
const HEAD: &str = "pass,layer,expert,outcome,victim,policy,slots,trace\n";

pub(super) const LOOKUPS: Kind = Kind {
    what: "of lookups",
    is: |path| begins_with(path, HEAD.as_bytes()),
    way: Way::WholeOrInto,
};

/// Adds what was asked for.
pub(super) fn add(
    arguments: &Arguments,
    sources: &[Source],
    policies: &Policies,
    console: &Console<'_>,
    output: &mut Output<'_>,
) -> Result<(), Failure> {
    if arguments.stats {
        for source in sources {
            statistics(source, arguments.phases(), output);
        }
    }
    if arguments.layers || arguments.events.is_some() {
        watch(arguments, sources, policies, console, output)?;
    }
    if let Some(path) = &arguments.plot {
        let svg = output.chart(Chart::new(&title(sources)))?.svg()?;
        WholeFile::write(path, svg.as_bytes())
            .map_err(|source| Failure::File { path: path.clone(), source })?;
    }
    Ok(())
}

fn title(sources: &[Source]) -> String {
    let labels: Vec<&str> = sources.iter().map(|source| source.label.as_str()).collect();
    match labels[..] {
        [one] => one.to_owned(),
        [first, .., last] => format!("mean of {} traces, {first} to {last}", labels.len()),
        [] => String::new(),
    }
}

fn statistics(source: &Source, phases: Phases, output: &mut Output<'_>) {
    let stats = Stats::of(&source.requests, phases);
    let mut section = |name, table| {
        output.section(Section { name, trace: source.label.clone(), pool: None, table });
    };
    let columns =
        ["lookups", "records_used", "first_uses", "ceiling", "top_1%", "top_10%", "top_25%"];
    let mut skew = Figures::new(columns);
    skew.push([
        Cell::from(stats.lookups),
        Cell::from(stats.records_used()),
        Cell::from(stats.first_uses),
        Cell::share(stats.ceiling()),
        Cell::Share(stats.top_share(0.01)),
        Cell::Share(stats.top_share(0.1)),
        Cell::Share(stats.top_share(0.25)),
    ]);
    section("shares of the busiest records", skew);
    section("distinct records between two uses of one", stats.reuse_distance.table());
    section("passes between two uses of a record", stats.reuse_passes.table());
    section("layers", stats.table());
}

/// Replays every point again and looks on.
fn watch(
    arguments: &Arguments,
    sources: &[Source],
    policies: &Policies,
    console: &Console<'_>,
    output: &mut Output<'_>,
) -> Result<(), Failure> {
    let events = arguments.events.as_deref();
    let mut log = console.waiting(|| events.map(EventLog::create).transpose())?;
    for source in sources {
        let simulation = simulation(arguments, source, console)?;
        for name in &policies.names {
            for slots in source.slots(arguments) {
                let policy = named_policy(name, &source.requests)?;
                let mut detail = Detail::new(*source.requests.geometry(), arguments.phases());
                let mut told = log.as_mut().map(|log| {
                    let pool = format!("{name},{slots},{}", source.label);
                    Lookups::new(arguments.phases(), move |event| log.write(event, &pool))
                });
                let mut observer = (&mut detail, told.as_mut());
                let run = simulation.clone().slots(slots);
                let run = run.run_with(&source.requests, policy, &mut observer);
                if policies.accept(run, output)?.is_some() && arguments.layers {
                    show(&detail, (name, slots), source, output);
                }
            }
        }
    }
    log.map_or(Ok(()), EventLog::finish)
}

fn show(detail: &Detail, pool: (&str, usize), source: &Source, output: &mut Output<'_>) {
    let mut section = |name, table| {
        let pool = Some((pool.0.to_owned(), pool.1));
        output.section(Section { name, trace: source.label.clone(), pool, table });
    };
    section("layers of the pool", detail.table());
    section(
        "passes since its last use when a record was evicted",
        detail.eviction_age_passes().table(),
    );
}

/// A file of lookups.
struct EventLog<'a> {
    path: &'a Path,
    file: BufWriter<WholeFile>,
    /// The first error; later lookups are not written.
    error: Option<io::Error>,
}

impl<'a> EventLog<'a> {
    fn create(path: &'a Path) -> Result<Self, Failure> {
        let failed = |source| Failure::File { path: path.into(), source };
        let mut file = BufWriter::new(WholeFile::create(path).map_err(failed)?);
        file.write_all(HEAD.as_bytes()).map_err(failed)?;
        Ok(Self { path, file, error: None })
    }

    fn write(&mut self, event: &LookupEvent, pool: &str) {
        if self.error.is_some() {
            return;
        }
        let (layer, expert) = (event.key.layer().get(), event.key.expert().get());
        let outcome = if event.hit { "hit" } else { "miss" };
        let mut line = || {
            write!(self.file, "{},{layer},{expert},{outcome},", event.pass.get())?;
            if let Some(victim) = event.victim {
                write!(self.file, "{}:{}", victim.layer().get(), victim.expert().get())?;
            }
            writeln!(self.file, ",{pool}")
        };
        self.error = line().err();
    }

    fn finish(self) -> Result<(), Failure> {
        let finish = || match self.error {
            Some(error) => Err(error),
            None => self.file.into_inner().map_err(IntoInnerError::into_error)?.finish(),
        };
        finish().map_err(|source| Failure::File { path: self.path.into(), source })
    }
}
