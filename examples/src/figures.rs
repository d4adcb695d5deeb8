//! Figures that every run of an engine reports.

use std::time::Duration;

use indicatif::HumanCount;
use serde::Serialize;
use slotstream::checkpoint::container::Container;
use slotstream::elastic::ElasticFigures;
use slotstream::io::CopyShare;
use slotstream::{Engine, MirrorShare, ModelLockState, PhaseMetrics, machine};

use crate::{EngineArguments, show_size, show_throughput};

/// How the engine was set up and what memory it took.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct EngineFigures {
    /// The model folder.
    pub(crate) model: String,
    pub(crate) load_s: f64,
    pub(crate) slots: usize,
    /// Slots that the pool has now; others than at the beginning only in an elastic one.
    pub(crate) pool_slots: usize,
    /// Null where the pool is not elastic.
    pub(crate) elastic: Option<PoolFigures>,
    /// Whether this process holds the model's lock: `held`, `elsewhere`, `unavailable` or `off`.
    pub(crate) lock: &'static str,
    pub(crate) records: usize,
    /// What the plan promised before loading.
    pub(crate) plan_bytes: u64,
    /// The most that the process had resident; null where the system does not say.
    pub(crate) peak_rss_bytes: Option<u64>,
    /// The policy as given.
    pub(crate) policy: String,
    /// The reader as given.
    pub(crate) reader: String,
    /// What it really does.
    pub(crate) reader_mode: String,
    pub(crate) reader_why: String,
    /// What each copy of a mirrored model has read, loading included.
    pub(crate) mirror: Vec<MirrorFigures>,
    /// The folder of the container; null where the shards are read.
    pub(crate) container: Option<String>,
    /// What is read from the container, `records` and `rows`; the rest comes from the shards.
    pub(crate) container_holds: Vec<&'static str>,
    pub(crate) arithmetic: &'static str,
    pub(crate) kernels: String,
    pub(crate) threads: usize,
    pub(crate) lanes: usize,
    pub(crate) chunk: usize,
    /// From how many rows on a prefill pass is swept; null: never.
    pub(crate) prefill_sweep: Option<usize>,
    pub(crate) context: usize,
    /// Where less was done than the flags asked for.
    pub(crate) notes: Vec<String>,
}

/// What an elastic pool did.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct PoolFigures {
    source: String,
    looks: u64,
    silent: u64,
    shrinks: u64,
    grows: u64,
    refused: u64,
    fewest_slots: usize,
    /// Why it changed last; null where it never did.
    last: Option<&'static str>,
}

impl From<ElasticFigures> for PoolFigures {
    fn from(figures: ElasticFigures) -> Self {
        let ElasticFigures { source, looks, silent, shrinks, grows, refused, fewest, last, .. } =
            figures;
        let last = last.map(|last| last.cause.why());
        Self { source, looks, silent, shrinks, grows, refused, fewest_slots: fewest, last }
    }
}

impl PoolFigures {
    fn row(&self, slots: usize) -> String {
        let Self { source, shrinks, grows, fewest_slots, last, .. } = self;
        let last = last.map_or(String::new(), |why| format!("; last because {why}"));
        format!(
            "{slots} slots now, {fewest_slots} at least; shrunk {shrinks}, grown {grows} times by \
             {source}{last}"
        )
    }
}

/// One copy of a mirrored model.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct MirrorFigures {
    pub(crate) folder: String,
    pub(crate) reads: u64,
    pub(crate) bytes: u64,
    /// Why it is not read any more; null while it is.
    pub(crate) left_out: Option<String>,
}

impl From<MirrorShare> for MirrorFigures {
    fn from(MirrorShare { folder, share, .. }: MirrorShare) -> Self {
        let CopyShare { reads, bytes, left_out, .. } = share;
        Self { folder: folder.display().to_string(), reads, bytes, left_out }
    }
}

impl MirrorFigures {
    fn row(&self) -> String {
        let Self { folder, reads, bytes, left_out } = self;
        let note = left_out.as_ref().map_or(String::new(), |why| format!("; left out: {why}"));
        format!("{}, {} from {folder}{note}", count(*reads, "read"), show_size(*bytes))
    }
}

impl EngineFigures {
    /// Reads the figures of an engine, the memory of this moment included.
    pub(crate) fn new(engine: &Engine, arguments: &EngineArguments) -> Self {
        let (plan, mode) = (engine.plan(), engine.reader_mode());
        Self {
            model: engine.checkpoint().folder().display().to_string(),
            load_s: engine.load_time().as_secs_f64(),
            slots: plan.slots,
            pool_slots: engine.pool_slots(),
            elastic: engine.elastic().map(PoolFigures::from),
            lock: match engine.lock_state() {
                ModelLockState::Held { .. } => "held",
                ModelLockState::Elsewhere { .. } => "elsewhere",
                ModelLockState::Off => "off",
                _ => "unavailable",
            },
            records: plan.records,
            plan_bytes: plan.total_bytes(),
            peak_rss_bytes: machine::peak_resident_bytes(),
            policy: arguments.policy.clone(),
            reader: match arguments.throttle {
                Some(_) => "throttled".to_owned(),
                None => arguments.reader.to_string(),
            },
            reader_mode: mode.name.clone(),
            reader_why: mode.why.clone(),
            mirror: engine.mirror_shares().into_iter().map(MirrorFigures::from).collect(),
            container: engine.container().map(|c| c.folder().display().to_string()),
            container_holds: engine.container().map(container_holds).unwrap_or_default(),
            arithmetic: engine.arithmetic(),
            kernels: engine.kernels(),
            threads: engine.threads(),
            lanes: engine.lanes(),
            chunk: engine.chunk(),
            prefill_sweep: engine.prefill_sweep().rows(),
            context: engine.context(),
            notes: arguments.notes(plan),
        }
    }

    /// Rows of a table for people.
    pub(crate) fn rows(&self) -> Vec<(&'static str, String)> {
        let share = 100.0 * self.slots as f64 / self.records.max(1) as f64;
        let peak = self.peak_rss_bytes.map_or("not known".to_owned(), show_size);
        let mut rows = vec![
            ("load", format!("{:.2} s", self.load_s)),
            ("slots", format!("{} of {} records ({share:.0}%)", self.slots, self.records)),
            ("memory planned", show_size(self.plan_bytes)),
            ("memory peak", peak),
            ("policy", self.policy.clone()),
            ("reader", format!("{} -> {}: {}", self.reader, self.reader_mode, self.reader_why)),
            ("container", self.container_row()),
            ("arithmetic", format!("{} on {}", self.arithmetic, self.kernels)),
            (
                "threads",
                format!("{} compute, {} read; chunk {}", self.threads, self.lanes, self.chunk),
            ),
            (
                "prefill sweep",
                self.prefill_sweep.map_or("off".to_owned(), |rows| format!("from {rows} rows on")),
            ),
        ];
        let elastic = self.elastic.as_ref().map(|elastic| elastic.row(self.pool_slots));
        rows.extend(elastic.map(|row| ("elastic", row)));
        rows.extend(self.mirror.iter().map(|copy| ("mirror", copy.row())));
        rows.extend(self.notes.iter().map(|note| ("note", note.clone())));
        rows
    }

    fn container_row(&self) -> String {
        let Some(folder) = &self.container else {
            return "none: the shards are read".to_owned();
        };
        match self.container_holds[..] {
            ["records"] => format!("{folder}: the experts; n-gram rows, if any, from the shards"),
            ["rows"] => format!("{folder}: the n-gram rows; the experts from the shards"),
            _ => format!("{folder}: the experts and the n-gram rows"),
        }
    }
}

/// What is read from a container.
fn container_holds(container: &Container) -> Vec<&'static str> {
    let records = container.experts().map(|_| "records");
    records.into_iter().chain(container.ngram().map(|_| "rows")).collect()
}

/// What happened in one phase, as JSON.
#[derive(Clone, Copy, Debug, Serialize)]
pub(crate) struct PhaseFigures {
    passes: u64,
    tokens: u64,
    time_s: f64,
    io_wait_s: f64,
    thread_wait_s: f64,
    hits: u64,
    misses: u64,
    hit_rate: Option<f64>,
    token_lookups: u64,
    token_hits: u64,
    token_hit_rate: Option<f64>,
    reads: u64,
    bytes_read: u64,
    bytes_issued: u64,
    read_s: f64,
    read_gb_s: Option<f64>,
    sweeps: u64,
    swept_records: u64,
    swept_resident: u64,
    sweep_runs: u64,
    sweep_bytes: u64,
    longest_run: u64,
    hot_admitted: u64,
    hot_refused: u64,
}

impl PhaseFigures {
    /// What sweeps read and what they left in the pool, for people; nothing where none ran.
    pub(crate) fn sweep_row(&self) -> Option<(&'static str, String)> {
        let each = self.sweep_bytes.checked_div(self.sweep_runs)?;
        let (records, reads) = (self.swept_records, count(self.sweep_runs, "read"));
        Some((
            "swept",
            format!(
                "{}: {} in {reads} of {} on average, {} at most; {} found in the pool, {} admitted",
                count(self.sweeps, "layer"),
                count(records, "record"),
                show_size(each),
                show_size(self.longest_run),
                HumanCount(self.swept_resident),
                HumanCount(self.hot_admitted),
            ),
        ))
    }

    /// Whether nothing ran.
    pub(crate) const fn is_empty(&self) -> bool {
        self.passes == 0
    }
}

impl From<&PhaseMetrics> for PhaseFigures {
    fn from(phase: &PhaseMetrics) -> Self {
        Self {
            passes: phase.passes,
            tokens: phase.tokens,
            time_s: phase.time.as_secs_f64(),
            io_wait_s: phase.io_wait.as_secs_f64(),
            thread_wait_s: phase.thread_wait.as_secs_f64(),
            hits: phase.hits,
            misses: phase.misses,
            hit_rate: phase.hit_rate(),
            token_lookups: phase.token_lookups,
            token_hits: phase.token_hits,
            token_hit_rate: phase.token_hit_rate(),
            reads: phase.reads,
            bytes_read: phase.bytes_read,
            bytes_issued: phase.bytes_issued,
            read_s: phase.read_time.as_secs_f64(),
            read_gb_s: phase.read_gb_s(),
            sweeps: phase.sweeps,
            swept_records: phase.swept_records,
            swept_resident: phase.swept_resident,
            sweep_runs: phase.sweep_runs,
            sweep_bytes: phase.sweep_bytes,
            longest_run: phase.longest_run,
            hot_admitted: phase.hot_admitted,
            hot_refused: phase.hot_refused,
        }
    }
}

/// A number of things: `1 tensor`, `2,048 tensors`.
pub(crate) fn count(number: u64, thing: &str) -> String {
    format!("{} {thing}{}", HumanCount(number), if number == 1 { "" } else { "s" })
}

/// A table of two columns.
pub(crate) fn table(rows: &[(&str, String)]) -> String {
    let width = rows.iter().map(|(name, _)| name.len()).max().unwrap_or(0);
    rows.iter()
        .map(|(name, value)| format!("{name:<width$}  {value}"))
        .collect::<Vec<_>>()
        .join("\n")
}

/// A share as a percentage, or that it was not measured.
pub(crate) fn percent(share: Option<f64>) -> String {
    share.map_or("not measured".to_owned(), |share| format!("{:.1}%", 100.0 * share))
}

/// A rate with its unit, or that it was not measured.
pub(crate) fn rate(rate: Option<f64>, unit: &str) -> String {
    rate.map_or("not measured".to_owned(), |rate| format!("{rate:.2} {unit}"))
}

/// A rate in GB/s, or that it was not measured.
pub(crate) fn throughput(gb_s: Option<f64>) -> String {
    gb_s.map_or("not measured".to_owned(), show_throughput)
}

/// A time in seconds, or that it was not measured.
pub(crate) fn seconds(time: Option<Duration>) -> String {
    time.map_or("not measured".to_owned(), |time| format!("{:.3} s", time.as_secs_f64()))
}
