//! The command line of `replay`.

use std::path::PathBuf;

use clap::{Parser, ValueEnum};
use slotstream_replay::{Measure, Phases, PoolSize, PoolSizeError};

use super::bundled_trace;
use super::extras::LOOKUPS;
use crate::outputs::{self, CHART, Input, OutputFile};
use crate::{Failure, parse_size};

/// Replays routing traces through the engine's pool, under any policies and at any sizes.
///
/// Without arguments: a bundled trace, a few policies, 1 to 4.5 token routes. `opt` is Belady's
/// policy, which knows the future: no other misses less often. A lookup is one distinct (layer,
/// expert) of one pass.
#[derive(Parser, Clone, Debug)]
#[command(
    name = "replay",
    version,
    allow_negative_numbers = true,
    after_help = "gap closed: of the hits that opt has more than clock, the share that a policy \
                  has more than clock. Ctrl-C ends at once."
)]
#[non_exhaustive]
pub struct Arguments {
    /// Traces of any format; several are summed up with an interval [default: a bundled one]
    #[arg(long, value_name = "FILE", num_args = 1.., help_heading = "Requests")]
    pub trace: Vec<PathBuf>,
    /// Files of keys, one a line: each is a pass of its own, and the pool has no floor
    #[arg(long, value_name = "FILE", num_args = 1.., help_heading = "Requests")]
    pub keys: Vec<PathBuf>,
    /// Also replay the passes in random order: popularity stays, locality in time goes
    #[arg(long, help_heading = "Requests")]
    pub shuffle: bool,
    /// Replay the recorded run itself, requests and outcomes, and compare every counter
    #[arg(
        long,
        requires = "trace",
        conflicts_with_all = [
            "keys", "shuffle", "policy", "slots", "fractions", "per_layer", "routes", "warmup",
            "phase", "record_bytes", "stats", "layers", "events", "plot", "latency",
        ],
        help_heading = "Requests"
    )]
    pub exact: bool,
    /// Also replay recorded forecasts: their records arrive N layer visits later
    #[arg(
        long,
        value_name = "N",
        value_parser = visits,
        conflicts_with_all = ["keys", "shuffle", "layers", "events"],
        help_heading = "Requests"
    )]
    pub latency: Option<u64>,
    /// Eviction policies, or all; --policies lists them [default: opt, clock and a few more]
    #[arg(long, value_name = "NAMES", value_delimiter = ',', help_heading = "Pool")]
    pub policy: Vec<String>,
    /// Sizes in slots
    #[arg(long, value_name = "N", value_delimiter = ',', value_parser = slots, help_heading = "Pool")]
    pub slots: Vec<PoolSize>,
    /// Sizes as shares of all records, such as 0.3
    #[arg(
        long,
        value_name = "X",
        value_delimiter = ',',
        value_parser = fraction,
        help_heading = "Pool"
    )]
    pub fractions: Vec<PoolSize>,
    /// Sizes in experts a layer
    #[arg(
        long,
        value_name = "X",
        value_delimiter = ',',
        value_parser = per_layer,
        help_heading = "Pool"
    )]
    pub per_layer: Vec<PoolSize>,
    /// Sizes in token routes: layers x top-k slots each
    #[arg(
        long,
        value_name = "X",
        value_delimiter = ',',
        value_parser = routes,
        help_heading = "Pool"
    )]
    pub routes: Vec<PoolSize>,
    /// Passes that fill the pool before counting begins
    #[arg(long, value_name = "N", default_value_t = 0, help_heading = "Counting")]
    pub warmup: usize,
    /// Which passes are counted; all use the pool
    #[arg(long, value_enum, default_value_t = Phase::Decode, help_heading = "Counting")]
    pub phase: Phase,
    /// Size of a record, to show megabytes a token [default: as the trace says]
    #[arg(long, value_name = "SIZE", value_parser = parse_size, help_heading = "Counting")]
    pub record_bytes: Option<u64>,
    /// Seed of --shuffle and of the intervals over traces
    #[arg(long, value_name = "N", default_value_t = 0, help_heading = "Counting")]
    pub seed: u64,
    /// How to show the results
    #[arg(long, value_enum, default_value_t = Format::Table, help_heading = "Output")]
    pub format: Format,
    /// Also show what the requests are like: reuse, skew, likeness of tokens
    #[arg(long, help_heading = "Output")]
    pub stats: bool,
    /// Also show every layer, and how old records were when they were evicted
    #[arg(long, help_heading = "Output")]
    pub layers: bool,
    /// Write every lookup to this file: pass,layer,expert,outcome,victim and whose pool it was
    #[arg(long, value_name = "FILE", help_heading = "Output")]
    pub events: Option<PathBuf>,
    /// Draw the hit rates against the slots as SVG
    #[arg(long, value_name = "FILE", help_heading = "Output")]
    pub plot: Option<PathBuf>,
    /// What --plot shows
    #[arg(long, value_enum, default_value_t = Axis::HitRate, help_heading = "Output")]
    pub measure: Axis,
    /// Draw slots on a logarithmic axis
    #[arg(long, help_heading = "Output")]
    pub log: bool,
}

/// Which passes are counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
#[non_exhaustive]
pub enum Phase {
    /// Decode passes.
    Decode,
    /// Prefill and decode passes.
    All,
}

/// Forms of the results.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
#[non_exhaustive]
pub enum Format {
    /// Aligned text.
    Table,
    /// Comma-separated: policy,slots,lookups,hits,misses,hit_rate and more.
    Csv,
    /// One JSON object.
    Json,
}

/// What a chart shows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
#[non_exhaustive]
pub enum Axis {
    /// Hits of lookups.
    HitRate,
    /// Misses of lookups.
    MissRatio,
}

impl Arguments {
    /// Every size that was asked for, as it was asked for.
    pub(super) fn sizes(&self) -> impl Iterator<Item = PoolSize> + '_ {
        [&self.slots, &self.fractions, &self.per_layer, &self.routes].into_iter().flatten().copied()
    }

    /// Refuses files that cannot be written, or may not.
    pub(super) fn check_outputs(&self) -> Result<(), Failure> {
        let events = self.events.as_deref();
        let events = events.map(|path| OutputFile { option: "--events", path, kind: LOOKUPS });
        let plot = self.plot.as_deref();
        let plot = plot.map(|path| OutputFile { option: "--plot", path, kind: CHART });
        let traces = self.trace.iter().map(|path| Input::File("--trace", path.into()));
        let keys = self.keys.iter().map(|path| Input::File("--keys", path.into()));
        let mut inputs: Vec<_> = traces.chain(keys).collect();
        if inputs.is_empty() {
            inputs.push(Input::File("the bundled trace", bundled_trace().into()));
        }
        let files: Vec<_> = events.into_iter().chain(plot).collect();
        outputs::check(&files, &inputs)
    }

    /// The phases that are counted.
    pub(super) const fn phases(&self) -> Phases {
        match self.phase {
            Phase::Decode => Phases::Decode,
            Phase::All => Phases::All,
        }
    }

    pub(super) const fn measured(&self) -> Measure {
        match self.measure {
            Axis::HitRate => Measure::HitRate,
            Axis::MissRatio => Measure::MissRatio,
        }
    }
}

fn visits(text: &str) -> Result<u64, &'static str> {
    text.trim().parse().map_err(|_| "a latency is a whole number of layer visits")
}

fn slots(text: &str) -> Result<PoolSize, String> {
    match text.trim().parse() {
        Ok(slots) if slots > 0 => Ok(PoolSize::Slots(slots)),
        _ => Err("a number of slots is a whole number of at least 1".into()),
    }
}

fn fraction(text: &str) -> Result<PoolSize, String> {
    match text.trim().parse::<f64>() {
        Ok(share) if share > 0.0 && share <= 1.0 => Ok(PoolSize::Fraction(share)),
        _ => Err("a share of the records is more than 0 and at most 1".into()),
    }
}

fn per_layer(text: &str) -> Result<PoolSize, PoolSizeError> {
    format!("{}/layer", text.trim()).parse()
}

fn routes(text: &str) -> Result<PoolSize, PoolSizeError> {
    format!("{}routes", text.trim()).parse()
}
