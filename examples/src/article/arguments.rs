//! The command line of `article`.

use clap::{Parser, ValueEnum};
use slotstream_replay::Synthetic;

use super::published;
use crate::Failure;

/// Reproduces the tables of the article about the original slotstream, figure by figure.
///
/// Ours stand beside theirs: a column that begins with `article` holds the article's figures, one
/// that begins with `original` those of the original's own receipts. What they measured on Macs
/// (speeds, hit rates, waiting) is quoted as the input of a formula and never measured here.
/// Simulated tables replay synthetic routing of the model's shape (48 layers of 512 experts,
/// top-10) through the engine's own pool; the article's trace is not published, nor is the
/// original's.
#[derive(Parser, Clone, Debug)]
#[command(
    name = "article",
    version,
    allow_negative_numbers = true,
    after_help = "The article: https://ai.thesatyajit.com/articles/slotstream. Hit rates are of \
                  distinct (layer, expert) of a pass. Ctrl-C ends at once."
)]
#[non_exhaustive]
pub struct Arguments {
    /// Tables to show [default: all]
    #[arg(value_enum, value_name = "TABLE")]
    pub tables: Vec<Table>,
    /// Passes of a synthetic trace
    #[arg(
        long,
        value_name = "N",
        default_value_t = published::PASSES,
        value_parser = number(2, 20_000),
        help_heading = "Simulation"
    )]
    pub passes: usize,
    /// Passes that fill the pool before counting begins
    #[arg(long, value_name = "N", default_value_t = published::WARM_UP, help_heading = "Simulation")]
    pub warmup: usize,
    /// Traces, with the seeds 0, 1, ...; the article has two
    #[arg(
        long,
        value_name = "N",
        default_value_t = 8,
        value_parser = number(1, 64),
        help_heading = "Simulation"
    )]
    pub seeds: usize,
    /// Zipf exponent of an expert's popularity
    #[arg(long, value_name = "X", default_value_t = RECIPE[0], help_heading = "Recipe")]
    pub skew: f64,
    /// Standard deviation of an expert's drifting preference, in natural logarithms
    #[arg(long, value_name = "X", default_value_t = RECIPE[1], help_heading = "Recipe")]
    pub drift: f64,
    /// Passes after which half of a preference is forgotten
    #[arg(long, value_name = "N", default_value_t = RECIPE[2], help_heading = "Recipe")]
    pub half_life: f64,
    /// Search the three knobs by the summary of this trace alone (minutes on a slow machine)
    #[arg(
        long,
        value_enum,
        value_name = "TRACE",
        conflicts_with_all = ["skew", "drift", "half_life"],
        help_heading = "Recipe"
    )]
    pub fit: Option<Target>,
    /// How to show the results
    #[arg(long, value_enum, default_value_t = Format::Table, help_heading = "Output")]
    pub format: Format,
}

/// Skew, drift and half-life. Many recipes fit the article's summary equally well; of these, this
/// one is as far from the summary as from the article's simulation.
const RECIPE: [f64; 3] = [0.75, 2.45, 620.0];

/// The tables of the article.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, ValueEnum)]
#[non_exhaustive]
pub enum Table {
    /// Where the bytes of the checkpoint go.
    Ledger,
    /// The pool of the 33 GB plan.
    Plan,
    /// What a record is, and how many of them a token needs.
    Records,
    /// What a token reads at a hit rate.
    Reads,
    /// The hit rate that a speed and a disk ask for.
    Floors,
    /// Speeds and waiting from the original's receipts.
    Receipts,
    /// How close the synthetic traces are to the published summaries.
    Fit,
    /// Hit rates of the shared CLOCK pool by its size.
    Simulation,
    /// CLOCK against LRU, equal partitions and OPT.
    Policies,
    /// What still waits when a forecast names misses in time.
    Forecasts,
    /// Records a token from one model on two disks.
    Disks,
}

/// A trace that is known by its summary.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
#[non_exhaustive]
pub enum Target {
    /// The article's synthetic trace.
    Article,
    /// The original's recorded trace (M1).
    Original,
}

/// Forms of the results.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
#[non_exhaustive]
pub enum Format {
    /// Aligned text.
    Table,
    /// One JSON object: `settings`, and by name the `tables` with title, rows and notes.
    Json,
}

impl Arguments {
    /// The tables to show, each once, in their own order.
    pub(super) fn tables(&self) -> Vec<Table> {
        let all = Table::value_variants();
        let chosen = |table: &&Table| self.tables.is_empty() || self.tables.contains(table);
        all.iter().filter(chosen).copied().collect()
    }

    /// The recipe that the command line names.
    pub(super) fn recipe(&self) -> Result<Synthetic, Failure> {
        Ok(Synthetic::new(self.skew, self.drift, self.half_life)?.passes(self.passes))
    }

    /// Refuses what does not go together.
    pub(super) fn check(&self) -> Result<(), Failure> {
        if self.warmup < self.passes {
            return Ok(());
        }
        Err(Failure::Option {
            option: "--warmup",
            value: self.warmup.to_string(),
            expected: format!("less than the {} passes of a trace", self.passes),
        })
    }
}

impl Table {
    /// Its name on the command line and in JSON.
    pub(super) fn name(self) -> String {
        self.to_possible_value().map_or_else(String::new, |value| value.get_name().to_owned())
    }
}

/// A whole number between two.
fn number(least: usize, most: usize) -> impl Fn(&str) -> Result<usize, String> + Clone {
    move |text| match text.trim().parse() {
        Ok(number) if (least..=most).contains(&number) => Ok(number),
        _ => Err(format!("expected a whole number from {least} to {most}")),
    }
}
