//! The memory plan: every byte, before anything is loaded.

mod choose;
mod rows;

use std::fmt;

use slotstream_checkpoint::Checkpoint;
use slotstream_experts::PrefillSweep;

use crate::machine::{Budget, Machine};
use crate::{DeviceKind, Error};
use rows::Sizes;

/// What a plan is made from. What is `None` the plan chooses.
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub struct PlanRequest {
    /// How many slots, or how much memory.
    pub sizing: Sizing,
    /// Longest context of a session in tokens.
    pub context: Option<usize>,
    /// Sessions that are alive at once.
    pub sessions: usize,
    /// Most rows of a prefill pass.
    pub chunk: Option<usize>,
    /// When a prefill pass is swept.
    pub sweep: PrefillSweep,
    /// Threads that read.
    pub lanes: usize,
    /// Threads that compute.
    pub threads: usize,
    /// Rows that a session can undo.
    pub rollback_rows: usize,
    /// Most checkpoints of a session.
    pub checkpoints: Option<usize>,
    /// Most rows whose logits are alive at once.
    pub logit_rows: usize,
    /// Rows of the n-gram cache.
    pub ngram_cache_rows: usize,
    /// Where the arithmetic runs.
    pub device: DeviceKind,
    /// The machine, and what the process has resident already.
    pub machine: Machine,
    /// Bytes of all shards, when the reader keeps them in memory, or of its pages.
    pub reader_bytes: u64,
    /// Bytes that the policy holds (`EvictionPolicy::planned_bytes`).
    pub policy_bytes: u64,
    /// Bytes that the forecaster holds for a session (`Forecaster::planned_bytes`).
    pub forecaster_bytes: u64,
    /// Bytes that event sinks hold for each token of the context
    /// (`EventSink::planned_bytes` of one token less that of none).
    pub sink_bytes_a_token: u64,
    /// Bytes that event sinks hold besides.
    pub sink_bytes: u64,
}

impl PlanRequest {
    /// Everything chosen by the plan, on this machine: one session, eight lanes, a thread a core.
    #[must_use]
    pub fn new(machine: Machine) -> Self {
        let cores = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
        Self {
            sizing: Sizing::Auto,
            context: None,
            sessions: 1,
            chunk: None,
            sweep: PrefillSweep::Off,
            lanes: 8,
            threads: cores,
            rollback_rows: 0,
            checkpoints: None,
            logit_rows: 1,
            ngram_cache_rows: 16_384,
            device: DeviceKind::Cpu,
            machine,
            reader_bytes: 0,
            policy_bytes: 0,
            forecaster_bytes: 0,
            sink_bytes_a_token: 0,
            sink_bytes: 0,
        }
    }
}

/// How the pool's size is chosen.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
#[non_exhaustive]
pub enum Sizing {
    /// As many slots as fit in what the machine allows ([`Machine::budget`]); where it says
    /// nothing, 30% of the records.
    #[default]
    Auto,
    /// This many slots.
    Slots(usize),
    /// This many slots for each layer; all layers share them.
    PerLayer(usize),
    /// This share of all records, 0 to 1, but no fewer slots than the floor.
    Share(f64),
    /// As many slots as fit in this many bytes for the whole process.
    Memory(u64),
}

/// One row of a plan.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct PlanRow {
    /// The row's name, as in the ledger of the article that this project follows.
    pub name: &'static str,
    /// Bytes.
    pub bytes: u64,
    /// What is in it.
    pub what: String,
}

/// Every byte that an engine will use, stated before anything is loaded. The process stays below
/// [`total_bytes`](Self::total_bytes); the page cache of buffered reads is the system's and not
/// part of it.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct MemoryPlan {
    /// The rows, zero ones too: pool, fixed, prefill workspace, sweep staging, draft head,
    /// lookahead, retained state, checkpoints, gpu, margin.
    pub rows: Vec<PlanRow>,
    /// Slots of the pool.
    pub slots: usize,
    /// Fewest slots that a pool of this model may have.
    pub floor_slots: usize,
    /// Bytes of one slot.
    pub slot_bytes: u64,
    /// Records of the model.
    pub records: usize,
    /// Layers of the model.
    pub layers: usize,
    /// Longest context of a session in tokens.
    pub context: usize,
    /// Most rows of a prefill pass.
    pub chunk: usize,
    /// Most checkpoints of a session.
    pub checkpoints: usize,
    /// What the plan had to fit in; `None` where a number of slots was asked for.
    pub budget: Option<Budget>,
}

impl MemoryPlan {
    /// Plans an engine for this checkpoint. Loads nothing.
    ///
    /// Where the budget is a number of bytes, it gets as many slots as fit beside a context of
    /// 4,096 tokens and passes of 512 rows, or a longer context where its state takes no more than
    /// a sixteenth of what it and the pool have together; where not even the smallest lawful pool fits,
    /// no checkpoints, then shorter passes, and then a shorter context. What was asked for is never
    /// changed. More memory never gives fewer slots, shorter passes or a shorter context.
    ///
    /// # Errors
    /// [`Error::Budget`] with the arithmetic when the smallest lawful pool does not fit,
    /// [`Error::Cache`] when the number of slots asked for is below the floor,
    /// [`Error::Option`] for a share outside 0 to 1.
    pub fn new(checkpoint: &Checkpoint, request: &PlanRequest) -> Result<Self, Error> {
        if let Some(budget) = choose::budget(request) {
            return choose::within(checkpoint, request, budget);
        }
        let sizes = choose::usual(checkpoint, request);
        let mut plan = Self::without_pool(checkpoint, request, sizes);
        plan.set_pool(choose::slots(checkpoint, request.sizing)?);
        Ok(plan)
    }

    fn set_pool(&mut self, slots: usize) {
        self.slots = slots;
        let (each, records) = (self.slot_bytes, self.records);
        if let Some(row) = self.rows.first_mut() {
            row.bytes = each * slots as u64;
            row.what = format!("{slots} of {records} records, {each} bytes each");
        }
    }

    fn without_pool(checkpoint: &Checkpoint, request: &PlanRequest, sizes: Sizes) -> Self {
        let geometry = checkpoint.geometry();
        Self {
            rows: rows::rows(checkpoint, request, sizes),
            slots: 0,
            floor_slots: geometry.floor_slots(),
            slot_bytes: checkpoint.record_layout().stride() as u64,
            records: geometry.records(),
            layers: geometry.layers(),
            context: sizes.context,
            chunk: sizes.chunk,
            checkpoints: sizes.checkpoints,
            budget: None,
        }
    }

    /// The same plan with a pool of another size, as an engine whose pool was resized has it.
    #[must_use]
    pub fn with_slots(&self, slots: usize) -> Self {
        let mut plan = self.clone();
        plan.set_pool(slots.min(self.records));
        plan
    }

    /// Bytes of all rows.
    #[must_use]
    pub fn total_bytes(&self) -> u64 {
        self.rows.iter().map(|row| row.bytes).sum()
    }

    /// Bytes of the row of this name; 0 where there is none.
    #[must_use]
    pub fn row_bytes(&self, name: &str) -> u64 {
        self.rows.iter().find(|row| row.name == name).map_or(0, |row| row.bytes)
    }

    /// Slots for each layer, on average: the article's experts a layer.
    #[must_use]
    pub fn experts_per_layer(&self) -> f64 {
        self.slots as f64 / self.layers.max(1) as f64
    }
}

impl fmt::Display for MemoryPlan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for PlanRow { name, bytes, what } in &self.rows {
            writeln!(f, "{name:<18} {bytes:>15}  {what}")?;
        }
        let total = self.total_bytes();
        write!(f, "{:<18} {total:>15}", "planned peak")?;
        if let Some(Budget { bytes, why, .. }) = &self.budget {
            write!(f, "  of {bytes}: {why}")?;
        }
        Ok(())
    }
}
