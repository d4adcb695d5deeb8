//! What a replay is reported as.

use std::collections::BTreeMap;

use crate::{Cell, Count, Detail, Figures, Histogram, Interval, Stats};

/// Rows of a report: one a trace, policy and size.
#[derive(Clone, Debug, Default)]
pub struct Report {
    rows: Vec<Row>,
    record_bytes: Option<u64>,
}

#[derive(Clone, Debug)]
struct Row {
    trace: String,
    policy: String,
    slots: usize,
    count: Count,
    exact: bool,
    record_bytes: Option<u64>,
}

/// The columns of a report; `policy` to `hit_rate` never change place.
const COLUMNS: [&str; 23] = [
    "policy",
    "slots",
    "lookups",
    "hits",
    "misses",
    "hit_rate",
    "token_lookups",
    "token_hits",
    "token_hit_rate",
    "tokens",
    "misses_per_token",
    "mb_per_token",
    "gap_closed",
    "replay",
    "trace",
    "traces",
    "hit_rate_min",
    "hit_rate_max",
    "hit_rate_low95",
    "hit_rate_high95",
    "gap_closed_min",
    "gap_closed_low95",
    "gap_closed_high95",
];

impl Report {
    /// No rows yet.
    #[must_use]
    pub const fn new() -> Self {
        Self { rows: Vec::new(), record_bytes: None }
    }

    /// Reports megabytes a token, for records of so many bytes.
    #[must_use]
    pub const fn record_bytes(mut self, bytes: u64) -> Self {
        self.record_bytes = Some(bytes);
        self
    }

    /// The size of the records of the rows that are added from now on.
    pub const fn set_record_bytes(&mut self, bytes: Option<u64>) {
        self.record_bytes = bytes;
    }

    /// Adds a row. The names are repeated as they are given. `exact` says that the figures are
    /// those of a recorded run; otherwise they are modelled: no read fails, nothing is read ahead.
    pub fn push(&mut self, trace: &str, policy: &str, slots: usize, count: Count, exact: bool) {
        let (trace, policy) = (trace.into(), policy.into());
        let record_bytes = self.record_bytes;
        self.rows.push(Row { trace, policy, slots, count, exact, record_bytes });
    }

    /// Of the hits that `opt` has more than `clock` on the same trace with as many slots, the
    /// share that the row has more than `clock`.
    fn gap_closed(&self, row: &Row) -> Option<f64> {
        let hits = |policy: &str| {
            let same = |other: &&Row| {
                other.policy == policy && other.trace == row.trace && other.slots == row.slots
            };
            self.rows.iter().find(same).map(|row| row.count.lookups.hits as f64)
        };
        let (clock, opt) = (hits("clock")?, hits("opt")?);
        (opt > clock).then(|| (row.count.lookups.hits as f64 - clock) / (opt - clock))
    }

    /// One row a trace, policy and size: `policy,slots,lookups,hits,misses,hit_rate` and more.
    #[must_use]
    pub fn table(&self) -> Figures {
        self.rows_if(|_| true)
    }

    /// [`table`](Self::table) of one trace.
    #[must_use]
    pub fn table_of(&self, trace: &str) -> Figures {
        self.rows_if(|row| row.trace == trace)
    }

    fn rows_if(&self, wanted: impl Fn(&Row) -> bool) -> Figures {
        let mut table = Figures::new(COLUMNS);
        for row in self.rows.iter().filter(|row| wanted(row)) {
            let mut cells = cells(&row.policy, row.slots, &row.count, row.record_bytes);
            cells.extend([
                Cell::share(self.gap_closed(row)),
                Cell::from(if row.exact { "exact" } else { "modelled" }),
                if row.trace.is_empty() { Cell::Nothing } else { Cell::from(row.trace.as_str()) },
            ]);
            table.push(cells);
        }
        table
    }

    /// By policy, the mean hit rate over the traces at every size: the lines of a
    /// [`Chart`](crate::Chart).
    #[must_use]
    pub fn curves(&self) -> Vec<(String, Vec<(usize, f64)>)> {
        let mut rates: Vec<(String, BTreeMap<usize, Vec<f64>>)> = Vec::new();
        for Row { policy, slots, count, .. } in &self.rows {
            let Some(rate) = count.hit_rate() else { continue };
            let known = rates.iter().position(|(name, _)| name == policy);
            let at = known.unwrap_or_else(|| {
                rates.push((policy.clone(), BTreeMap::new()));
                rates.len() - 1
            });
            rates[at].1.entry(*slots).or_default().push(rate);
        }
        let mean = |rates: Vec<f64>| rates.iter().sum::<f64>() / rates.len() as f64;
        let line = |line: BTreeMap<usize, Vec<f64>>| {
            line.into_iter().map(|(slots, rates)| (slots, mean(rates))).collect()
        };
        rates.into_iter().map(|(policy, rates)| (policy, line(rates))).collect()
    }

    /// One row a policy and size over all traces, under the columns of [`table`](Self::table):
    /// sums of lookups, the mean hit rate of the traces with its bootstrap interval by `seed`,
    /// and the mean and smallest share of the gap that was closed, the mean with its interval.
    #[must_use]
    pub fn summary(&self, seed: u64) -> Figures {
        let mut table = Figures::new(COLUMNS);
        let mut seen: Vec<(&str, usize)> = Vec::new();
        for Row { policy, slots, .. } in &self.rows {
            if seen.contains(&(policy, *slots)) {
                continue;
            }
            seen.push((policy, *slots));
            let same = || self.rows.iter().filter(|r| r.policy == *policy && r.slots == *slots);
            let mut sum = Count::default();
            same().for_each(|row| sum.add(&row.count));
            let rates: Vec<f64> = same().filter_map(|row| row.count.hit_rate()).collect();
            let gaps: Vec<f64> = same().filter_map(|row| self.gap_closed(row)).collect();
            let (rate, gap) = (Interval::of(&rates, seed), Interval::of(&gaps, seed));
            // Records of several sizes have no common number of bytes.
            let size = same().next().and_then(|row| row.record_bytes);
            let size = size.filter(|size| same().all(|row| row.record_bytes == Some(*size)));
            let mut cells = cells(policy, *slots, &sum, size);
            cells[RATE] = Cell::share(rate.map(|rate| rate.mean));
            cells.extend([
                Cell::share(gap.map(|gap| gap.mean)),
                Cell::Nothing,
                Cell::from("mean"),
                Cell::from(rates.len()),
                Cell::share(rate.map(|rate| rate.min)),
                Cell::share(rate.map(|rate| rate.max)),
                Cell::share(rate.map(|rate| rate.low)),
                Cell::share(rate.map(|rate| rate.high)),
                Cell::share(gap.map(|gap| gap.min)),
                Cell::share(gap.map(|gap| gap.low)),
                Cell::share(gap.map(|gap| gap.high)),
            ]);
            table.push(cells);
        }
        table
    }
}

/// The columns up to `mb_per_token`.
fn cells(policy: &str, slots: usize, count: &Count, record_bytes: Option<u64>) -> Vec<Cell> {
    vec![
        Cell::from(policy),
        Cell::from(slots),
        Cell::from(count.lookups()),
        Cell::from(count.lookups.hits),
        Cell::from(count.lookups.misses),
        Cell::share(count.hit_rate()),
        Cell::from(count.lookups.token_lookups),
        Cell::from(count.lookups.token_hits),
        Cell::share(count.token_hit_rate()),
        Cell::from(count.tokens),
        Cell::number(count.misses_per_token()),
        Cell::number(record_bytes.and_then(|bytes| count.mb_per_token(bytes))),
    ]
}

/// Where the hit rate is.
const RATE: usize = 5;

impl Detail {
    /// One row a layer: hit rate, mean occupancy, slots borrowed from and lent to other layers.
    #[must_use]
    pub fn table(&self) -> Figures {
        let mut table =
            Figures::new(["layer", "lookups", "hits", "hit_rate", "occupancy", "borrowed", "lent"]);
        for row in self.layers() {
            table.push([
                Cell::from(row.layer.index()),
                Cell::from(row.lookups),
                Cell::from(row.hits),
                Cell::share(row.hit_rate()),
                Cell::Number(row.occupancy),
                Cell::Number(row.borrowed),
                Cell::Number(row.lent),
            ]);
        }
        table
    }
}

impl Stats {
    /// One row a layer: skew and likeness of neighbours.
    #[must_use]
    pub fn table(&self) -> Figures {
        let columns =
            ["layer", "lookups", "records_used", "top_tenth_share", "same_as_previous_token"];
        let mut table = Figures::new(columns);
        for (layer, stats) in self.layers.iter().enumerate() {
            table.push([
                Cell::from(layer),
                Cell::from(stats.lookups),
                Cell::from(stats.records_used),
                Cell::Share(stats.top_tenth),
                Cell::share(stats.same_as_previous),
            ]);
        }
        table
    }
}

impl Histogram {
    /// One row a power of two: what was counted from it up to the next one, and the share up to
    /// there.
    #[must_use]
    pub fn table(&self) -> Figures {
        let mut table = Figures::new(["from", "to", "count", "share_up_to"]);
        let mut seen = 0;
        for (range, count) in self.buckets() {
            seen += count;
            table.push([
                Cell::from(range.start),
                Cell::from(range.end - 1),
                Cell::from(count),
                Cell::Share(seen as f64 / self.total() as f64),
            ]);
        }
        table
    }
}
