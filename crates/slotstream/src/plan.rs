//! The memory plan: every byte, before anything is loaded.

use std::fmt;

use slotstream_checkpoint::{Checkpoint, Dtype, LayerType, TextConfig};
use slotstream_experts::PrefillSweep;
use slotstream_qwen::State;

use crate::Error;

/// Room for what is not in any row: allocator slack, thread stacks, message buffers.
const MARGIN: u64 = 16 << 20;

/// What a plan is made from.
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub struct PlanRequest {
    /// How many slots, or how much memory.
    pub sizing: Sizing,
    /// Longest context of a session in tokens.
    pub context: usize,
    /// Sessions that are alive at once.
    pub sessions: usize,
    /// Most rows of a prefill pass.
    pub chunk: usize,
    /// When a prefill pass is swept.
    pub sweep: PrefillSweep,
    /// Threads that read.
    pub lanes: usize,
    /// Rows that a session can undo.
    pub rollback_rows: usize,
    /// Most rows whose logits are alive at once.
    pub logit_rows: usize,
    /// Rows of the n-gram cache.
    pub ngram_cache_rows: usize,
    /// Bytes that the process already uses.
    pub process_bytes: u64,
    /// Bytes that the system could give, for [`Sizing::Auto`].
    pub available_bytes: Option<u64>,
    /// Bytes of all shards, when the reader keeps them in memory.
    pub reader_bytes: u64,
    /// Bytes that the policy holds (`EvictionPolicy::planned_bytes`).
    pub policy_bytes: u64,
    /// Bytes that the forecaster holds for a session (`Forecaster::planned_bytes`).
    pub forecaster_bytes: u64,
}

/// How the pool's size is chosen.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
#[non_exhaustive]
pub enum Sizing {
    /// As many slots as fit in 70% of the memory that the system could give; without that
    /// figure, 30% of the records.
    #[default]
    Auto,
    /// This many slots.
    Slots(usize),
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
    /// lookahead, retained state, margin.
    pub rows: Vec<PlanRow>,
    /// Slots of the pool.
    pub slots: usize,
    /// Bytes of one slot.
    pub slot_bytes: u64,
    /// Records of the model.
    pub records: usize,
    /// Longest context of a session in tokens.
    pub context: usize,
}

impl MemoryPlan {
    /// Plans an engine for this checkpoint. Loads nothing.
    ///
    /// # Errors
    /// [`Error::Budget`] with the arithmetic when the smallest lawful pool does not fit,
    /// [`Error::Cache`] when the number of slots asked for is below the floor,
    /// [`Error::Option`] for a share outside 0 to 1.
    pub fn new(checkpoint: &Checkpoint, request: &PlanRequest) -> Result<Self, Error> {
        let mut plan = Self::without_pool(checkpoint, request);
        let fixed = plan.total_bytes();
        let (floor, records) = (checkpoint.geometry().floor_slots(), plan.records);
        let within = |budget: u64| {
            let slots = budget.saturating_sub(fixed) / plan.slot_bytes.max(1);
            let slots = usize::try_from(slots).unwrap_or(usize::MAX).min(records);
            if slots >= floor { Some(slots) } else { None }
        };
        let budget_error = |budget: u64, mut plan: Self| {
            let (stride, floor_bytes) = (plan.slot_bytes, plan.slot_bytes * floor as u64);
            plan.set_pool(floor);
            let (floor_slots, plan) = (floor, Box::new(plan));
            Error::Budget { budget, fixed, floor_slots, stride, floor_bytes, plan }
        };
        let slots = match (request.sizing, request.available_bytes) {
            (Sizing::Slots(slots), _) => slots.min(records),
            (Sizing::Share(share), _) if !(0.0..=1.0).contains(&share) => {
                let (value, expected) = (share.to_string(), "a number from 0 to 1");
                return Err(Error::Option { option: "share of the records", value, expected });
            }
            (Sizing::Share(share), _) => ((records as f64 * share) as usize).max(floor),
            (Sizing::Memory(budget), _) => match within(budget) {
                Some(slots) => slots,
                None => return Err(budget_error(budget, plan)),
            },
            (Sizing::Auto, Some(available)) => {
                let budget = request.process_bytes + available / 10 * 7;
                match within(budget) {
                    Some(slots) => slots,
                    None => return Err(budget_error(budget, plan)),
                }
            }
            (Sizing::Auto, None) => (records * 3 / 10).max(floor),
        };
        if slots < floor {
            let geometry = checkpoint.geometry();
            return Err(Error::Cache(slotstream_cache::CacheError::below_floor(&geometry, slots)));
        }
        plan.set_pool(slots);
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

    fn without_pool(checkpoint: &Checkpoint, request: &PlanRequest) -> Self {
        let config = checkpoint.config();
        let dense = dense_bytes(checkpoint);
        let rows = request.ngram_cache_rows;
        let ngram = checkpoint.ngram().map_or(0, |plan| {
            let groups = plan.format.row_groups(plan.row_width);
            let row = plan.format.row_bytes(plan.row_width) + 4 * groups;
            slotstream_ngram::NgramStore::cache_bytes(rows, row).unwrap_or(usize::MAX) as u64
        });
        let more = request.reader_bytes + request.policy_bytes;
        let fixed = request.process_bytes + dense + ngram + more;
        let (geometry, layout) = (checkpoint.geometry(), checkpoint.record_layout());
        let staging = request.sweep.planned_bytes(layout, &geometry, request.lanes);
        let state = State::planned_bytes(config, request.context, request.rollback_rows);
        let each = state.context + state.fixed + state.ring;
        let row = |name, bytes, what: String| PlanRow { name, bytes, what };
        Self {
            rows: vec![
                row("pool", 0, String::new()),
                row(
                    "fixed",
                    fixed,
                    format!(
                        "process {} + dense weights {dense} + n-gram cache {ngram} ({rows} rows) + \
                     files or pages of the reader {} + policy {}",
                        request.process_bytes, request.reader_bytes, request.policy_bytes
                    ),
                ),
                row(
                    "prefill workspace",
                    workspace_bytes(config, request.chunk, request.logit_rows),
                    format!(
                        "activations of a pass of {} rows, logits of {}",
                        request.chunk, request.logit_rows
                    ),
                ),
                row("sweep staging", staging, sweep_row(request)),
                row("draft head", 0, "not loaded".into()),
                row(
                    "lookahead",
                    request.forecaster_bytes.saturating_mul(request.sessions as u64),
                    "what the forecaster remembers; what is read ahead lies in the pool".into(),
                ),
                row(
                    "retained state",
                    each * request.sessions as u64,
                    format!(
                        "{} session{} of {} tokens: context {}, recurrent {}, rollback {}",
                        request.sessions,
                        if request.sessions == 1 { "" } else { "s" },
                        request.context,
                        state.context,
                        state.fixed,
                        state.ring
                    ),
                ),
                row("margin", MARGIN, "allocator and threads".into()),
            ],
            slots: 0,
            slot_bytes: checkpoint.record_layout().stride() as u64,
            records: checkpoint.geometry().records(),
            context: request.context,
        }
    }

    /// Bytes of all rows.
    #[must_use]
    pub fn total_bytes(&self) -> u64 {
        self.rows.iter().map(|row| row.bytes).sum()
    }
}

impl fmt::Display for MemoryPlan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for PlanRow { name, bytes, what } in &self.rows {
            writeln!(f, "{name:<18} {bytes:>15}  {what}")?;
        }
        write!(f, "{:<18} {:>15}", "planned peak", self.total_bytes())
    }
}

fn sweep_row(request: &PlanRequest) -> String {
    request.sweep.rows().map_or("prefill passes go through the pool".into(), |rows| {
        format!("blocks of experts of a pass from {rows} rows on, {} reads at once", request.lanes)
    })
}

/// Bytes of the dense weights once loaded: small float tensors become f32.
fn dense_bytes(checkpoint: &Checkpoint) -> u64 {
    let small = |name: &str| {
        name.contains("norm")
            || name.ends_with("conv1d.weight")
            || name.ends_with("A_log")
            || name.ends_with("dt_bias")
    };
    let widened = checkpoint
        .tensors()
        .iter()
        .filter(|t| matches!(t.dtype, Dtype::BF16 | Dtype::F16) && small(t.canonical_name()));
    checkpoint.ledger().resident_bytes + widened.map(|t| t.extent.len()).sum::<u64>()
}

/// Bytes of the activations that are alive together in a pass of `rows` rows, at the widest
/// point of the widest layer, and of `logit_rows` rows of logits.
fn workspace_bytes(config: &TextConfig, rows: usize, logit_rows: usize) -> u64 {
    let streams = config.hc_count * config.hidden_size;
    let value = config.linear_num_value_heads * config.linear_value_head_dim;
    let key = config.linear_num_key_heads * config.linear_key_head_dim;
    let delta = 4 * (2 * key + value) + 3 * value;
    let attention = 4 * config.num_attention_heads * config.head_dim
        + 4 * config.num_key_value_heads * config.head_dim
        + 2 * config.indexer_n_heads * config.indexer_head_dim
        + config.indexer_budget / config.indexer_compress_ratio;
    let block = config.layer_types.iter().map(|kind| match kind {
        LayerType::LinearAttention => delta,
        LayerType::IndexedAttention => attention,
    });
    let experts = config.num_experts_per_tok * (2 * config.hidden_size + 6)
        + 3 * config.moe_intermediate_size
        + 3 * config.shared_expert_intermediate_size
        + 2 * config.num_experts;
    let ple = config.ple.as_ref().map_or(0, |ple| ple.ple_embed_dim + 6 * streams);
    let row = 6 * streams + block.max().unwrap_or(0).max(experts).max(ple) + 4 * config.hidden_size;
    // The logits, on the device and read back.
    let fixed = 2 * logit_rows * config.vocab_size;
    4 * (rows * row + fixed) as u64
}
