//! What was found, as text and as JSON.

use indicatif::HumanCount;
use serde::Serialize;
use slotstream::checkpoint::Checkpoint;
use slotstream::checkpoint::container::Container;
use slotstream::core::ErrorKind;
use slotstream::io::ReaderChoice;
use slotstream::machine::Machine;
use slotstream::{Error, MemoryPlan};

use super::Arguments;
use super::compute::Compute;
use super::disk::{Disk, Pace};
use super::hits::Hits;
use super::predict::Prediction;
use super::questions::Answer;
use super::sizes::{Fit, Size};
use super::subject::Subject;
use crate::failure::ErrorFigure;
use crate::figures::table;
use crate::{Failure, show_size, show_throughput};

/// Everything that was found. What was not reached is null.
#[derive(Debug, Serialize)]
pub(super) struct Report {
    model: String,
    /// Whether its files are here.
    downloaded: bool,
    /// Whether headers, config and container are valid; null when that was not reached, and where
    /// nothing is here that could be.
    valid: Option<bool>,
    error: Option<ErrorFigure>,
    machine: Option<MachineFigures>,
    checkpoint: Option<CheckpointFigures>,
    container: Option<String>,
    plan: Option<PlanFigures>,
    notes: Vec<String>,
    reader: Option<ReaderFigures>,
    disk: Option<Disk>,
    disk_gb_s: Option<f64>,
    compute: Option<Compute>,
    hits: Option<Hits>,
    prediction: Option<Prediction>,
    pub(super) questions: Vec<Answer>,
    pub(super) sizes: Vec<Size>,
    #[serde(skip)]
    simulated: bool,
    #[serde(skip)]
    plan_text: String,
}

#[derive(Debug, Serialize)]
struct MachineFigures {
    simulated: bool,
    total_bytes: Option<u64>,
    available_bytes: Option<u64>,
    cgroup_limit_bytes: Option<u64>,
    cgroup_room_bytes: Option<u64>,
    gpu_working_set_bytes: Option<u64>,
    process_bytes: u64,
    budget_bytes: Option<u64>,
    budget_why: Option<String>,
    cores: usize,
}

#[derive(Debug, Serialize)]
struct CheckpointFigures {
    layers: usize,
    experts: usize,
    top_k: usize,
    records: usize,
    record_bytes: u64,
    file_bytes: u64,
    files: usize,
    expert_bytes: u64,
    ngram_bytes: u64,
    resident_bytes: u64,
}

#[derive(Debug, Serialize)]
struct PlanFigures {
    slots: usize,
    experts_per_layer: f64,
    floor_slots: usize,
    context: usize,
    chunk: usize,
    total_bytes: u64,
    budget_bytes: Option<u64>,
    rows: Vec<RowFigures>,
}

#[derive(Debug, Serialize)]
struct RowFigures {
    name: &'static str,
    bytes: u64,
    what: String,
}

#[derive(Debug, Serialize)]
struct ReaderFigures {
    kind: String,
    why: String,
}

impl From<&MemoryPlan> for PlanFigures {
    fn from(plan: &MemoryPlan) -> Self {
        let rows = plan.rows.iter().map(|row| {
            let (name, bytes, what) = (row.name, row.bytes, row.what.clone());
            RowFigures { name, bytes, what }
        });
        Self {
            slots: plan.slots,
            experts_per_layer: plan.experts_per_layer(),
            floor_slots: plan.floor_slots,
            context: plan.context,
            chunk: plan.chunk,
            total_bytes: plan.total_bytes(),
            budget_bytes: plan.budget.as_ref().map(|budget| budget.bytes),
            rows: rows.collect(),
        }
    }
}

impl Report {
    pub(super) fn new(subject: &Subject, arguments: &Arguments) -> Self {
        Self {
            model: subject.name.clone(),
            downloaded: subject.is_here(),
            valid: None,
            error: None,
            machine: None,
            checkpoint: None,
            container: None,
            plan: None,
            notes: Vec::new(),
            reader: None,
            disk: None,
            disk_gb_s: None,
            compute: None,
            hits: None,
            prediction: None,
            questions: Vec::new(),
            sizes: Vec::new(),
            simulated: arguments.sim_ram.is_some(),
            plan_text: String::new(),
        }
    }

    pub(super) fn describe(&mut self, checkpoint: &Checkpoint) {
        let (geometry, ledger) = (checkpoint.geometry(), checkpoint.ledger());
        self.checkpoint = Some(CheckpointFigures {
            layers: geometry.layers(),
            experts: geometry.experts(),
            top_k: geometry.top_k(),
            records: geometry.records(),
            record_bytes: checkpoint.record_layout().payload_len() as u64,
            file_bytes: checkpoint.file_sizes().iter().sum(),
            files: checkpoint.files().len(),
            expert_bytes: ledger.expert_bytes,
            ngram_bytes: ledger.ngram_bytes,
            resident_bytes: ledger.resident_bytes,
        });
        self.valid = self.downloaded.then_some(true);
    }

    pub(super) fn machine(&mut self, machine: &Machine) {
        let budget = machine.budget();
        self.machine = Some(MachineFigures {
            simulated: self.simulated,
            total_bytes: machine.total,
            available_bytes: machine.available,
            cgroup_limit_bytes: machine.group.map(|group| group.limit),
            cgroup_room_bytes: machine.group.map(|group| group.room),
            gpu_working_set_bytes: machine.working_set,
            process_bytes: machine.process,
            budget_bytes: budget.as_ref().map(|budget| budget.bytes),
            budget_why: budget.map(|budget| budget.why),
            cores: std::thread::available_parallelism().map_or(1, std::num::NonZero::get),
        });
    }

    pub(super) fn container(&mut self, container: Option<&Container>) {
        self.container = container.map(|container| container.folder().display().to_string());
    }

    pub(super) fn plan(&mut self, plan: &MemoryPlan, notes: Vec<String>) {
        (self.plan, self.plan_text, self.notes) = (Some(plan.into()), plan.to_string(), notes);
    }

    pub(super) fn compute(&mut self, compute: &Compute) {
        self.compute = Some(compute.clone());
    }

    pub(super) fn disk(&mut self, disk: &Disk, choice: &ReaderChoice) {
        self.disk_gb_s = Some(disk.gb_s(Pace::Median));
        self.disk = Some(disk.clone());
        let why = if choice.why.is_empty() { "as asked for".into() } else { choice.why.clone() };
        self.reader = Some(ReaderFigures { kind: choice.kind.to_string(), why });
    }

    pub(super) fn prediction(&mut self, hits: &Hits, prediction: &Prediction) {
        (self.hits, self.prediction) = (Some(hits.clone()), Some(*prediction));
    }

    /// Takes over why the rest is missing. A plan that does not fit leaves the model valid.
    pub(super) fn fail(&mut self, error: &Failure) {
        match error {
            Failure::Engine(Error::Budget { plan, .. }) => self.plan(plan, Vec::new()),
            error if error.kind() == ErrorKind::Corrupt && self.downloaded => {
                self.valid = Some(false);
            }
            _ => {}
        }
        self.error = Some(ErrorFigure::new(error, error.kind()));
    }

    pub(super) fn json(&self) -> Result<String, Failure> {
        serde_json::to_string(self).map_err(|e| Failure::output(e.into()))
    }

    pub(super) fn text(&self) -> String {
        let mut parts = vec![self.model.clone()];
        let mut part = |title: &str, body: Option<String>| {
            parts.extend(body.map(|body| format!("{title}\n{}", indented(&body))));
        };
        part("machine", self.machine.as_ref().map(MachineFigures::text));
        part("model", self.model_text());
        part("disk", self.disk_text());
        part("memory plan", self.plan.as_ref().map(|_| self.plan_text.clone()));
        part("decoding", self.prediction_text());
        part("memory sizes", (!self.sizes.is_empty()).then(|| sizes_text(&self.sizes)));
        let answers = self.questions.iter().map(|a| format!("{}\n  {}", a.question, a.answer));
        let answers = answers.collect::<Vec<_>>().join("\n");
        part("questions", (!answers.is_empty()).then_some(answers));
        let notes = self.notes.iter().map(|note| format!("note: {note}"));
        parts.extend(notes);
        if let Some(error) = &self.error {
            parts.push(match error.is_cancelled() {
                true => "It was interrupted: what is missing was not looked at.".into(),
                false => format!("It does not run like this: {}", error.text()),
            });
        }
        parts.join("\n\n")
    }

    fn model_text(&self) -> Option<String> {
        let c = self.checkpoint.as_ref()?;
        let valid = match (self.downloaded, self.valid) {
            (false, _) => "not known: nothing of it is here but its shape",
            (true, Some(true)) => {
                "config and headers are; `inspect --values` and `repack --verify` look at the bytes"
            }
            (true, _) => "no",
        };
        Some(table(&[
            ("valid", valid.to_owned()),
            (
                "files",
                format!(
                    "{} in {}, experts {}",
                    show_size(c.file_bytes),
                    c.files,
                    show_size(c.expert_bytes)
                ),
            ),
            (
                "experts",
                format!(
                    "{} layers of {}, top-{}: {} records of {}",
                    c.layers,
                    c.experts,
                    c.top_k,
                    HumanCount(c.records as u64),
                    show_size(c.record_bytes)
                ),
            ),
            (
                "container",
                self.container.clone().unwrap_or_else(|| "none: the shards are read".into()),
            ),
        ]))
    }

    fn disk_text(&self) -> Option<String> {
        let (disk, reader) = (self.disk.as_ref()?, self.reader.as_ref()?);
        let mut rows = vec![
            ("measured", disk.what.clone()),
            ("reader", format!("{}: {}", reader.kind, reader.why)),
        ];
        let names = ["1 record", "2 at once", "4 at once", "8 at once"];
        for (name, burst) in names.into_iter().zip(&disk.bursts) {
            let gb = (burst.records as u64 * disk.record_bytes) as f64 / 1e9;
            rows.push((
                name,
                format!(
                    "{:.3} ms ({:.3} to {:.3}), {}",
                    1e3 * burst.seconds,
                    1e3 * burst.fast_s,
                    1e3 * burst.slow_s,
                    show_throughput(gb / burst.seconds.max(1e-9))
                ),
            ));
        }
        Some(table(&rows))
    }

    fn prediction_text(&self) -> Option<String> {
        let (prediction, hits) = (self.prediction.as_ref()?, self.hits.as_ref()?);
        let compute = self.compute.as_ref()?;
        Some(table(&[
            (
                "prediction",
                format!(
                    "{:.2} tok/s ({:.2} with the low hit rate and the slower quarters of disk and \
                     arithmetic, {:.2} with the high one and the faster quarters)",
                    prediction.tok_s, prediction.low, prediction.high
                ),
            ),
            (
                "a token",
                format!(
                    "{:.1} ms: {:.1} of arithmetic, {:.1} of waiting; reading {} takes {:.1} ms, of \
                     which {:.1} are hidden by arithmetic",
                    1e3 * prediction.token_s,
                    1e3 * prediction.compute_s,
                    1e3 * prediction.wait_s,
                    show_size(prediction.token_bytes as u64),
                    1e3 * prediction.read_s,
                    1e3 * (prediction.read_s - prediction.wait_s)
                ),
            ),
            (
                "hit rate",
                format!(
                    "{:.1}% ({:.1}% to {:.1}%), assumed: {}",
                    100.0 * hits.rate,
                    100.0 * hits.low,
                    100.0 * hits.high,
                    hits.assumption
                ),
            ),
            (
                "arithmetic",
                format!(
                    "{:.1} GB/s through {} a token, measured with {} layers of zeros on {}",
                    compute.gb_s,
                    show_size(compute.token_bytes),
                    compute.measured_layers,
                    compute.kernels
                ),
            ),
        ]))
    }
}

impl MachineFigures {
    fn text(&self) -> String {
        let size = |bytes: Option<u64>| bytes.map_or("not known".to_owned(), show_size);
        let name = if self.simulated { "memory (simulated)" } else { "memory" };
        let mut rows = vec![(
            name,
            format!("{}, available {}", size(self.total_bytes), size(self.available_bytes)),
        )];
        if let (Some(limit), Some(room)) = (self.cgroup_limit_bytes, self.cgroup_room_bytes) {
            rows.push(("cgroup", format!("limit {}, {} left", show_size(limit), show_size(room))));
        }
        if let Some(bytes) = self.gpu_working_set_bytes {
            rows.push(("GPU working set", show_size(bytes)));
        }
        if let (Some(bytes), Some(why)) = (self.budget_bytes, &self.budget_why) {
            rows.push(("for an engine", format!("{}: {why}", show_size(bytes))));
        }
        rows.push(("cores", self.cores.to_string()));
        table(&rows)
    }
}

fn sizes_text(sizes: &[Size]) -> String {
    let mut lines = vec![format!(
        "{:>8} {:>10} {:>8} {:>9} {:>8} {:>9} {:>7}",
        "memory", "planned", "slots", "a layer", "context", "hit rate", "tok/s"
    )];
    for size in sizes {
        let memory = format!("{} GiB", size.ram_gib);
        lines.push(match (&size.fits, size.needs_bytes) {
            (Some(Fit { planned_bytes, slots, experts_per_layer, context, hit_rate, tok_s, .. }), _) => {
                format!(
                    "{memory:>8} {:>10} {slots:>8} {experts_per_layer:>9.1} {context:>8} {:>8.1}% {tok_s:>7.2}",
                    show_size(*planned_bytes),
                    100.0 * hit_rate
                )
            }
            (None, needs) => format!(
                "{memory:>8} does not fit: {} of it for an engine, the smallest plan takes {}",
                show_size(size.budget_bytes),
                needs.map_or("more".to_owned(), show_size)
            ),
        });
    }
    lines.join("\n")
}

fn indented(text: &str) -> String {
    text.lines().map(|line| format!("  {line}")).collect::<Vec<_>>().join("\n")
}
