//! The rows of a plan.

use slotstream_checkpoint::{Checkpoint, Dtype};
use slotstream_qwen::{QwenModel, State};

use super::{PlanRequest, PlanRow};
use crate::DeviceKind;
use crate::retained::checkpoint_bytes;

/// Room for what is in no row: the program's own pages that are first used later, the allocator,
/// message buffers, books of a pool.
const MARGIN: u64 = 12 << 20;
/// What a thread that reads or computes touches of its stack and keeps as scratch.
const A_THREAD: u64 = 128 << 10;

/// What a plan has to choose before its rows can be computed.
#[derive(Clone, Copy, Debug)]
pub(super) struct Sizes {
    /// Tokens.
    pub(super) context: usize,
    /// Rows of a prefill pass.
    pub(super) chunk: usize,
    /// Checkpoints of a session.
    pub(super) checkpoints: usize,
}

/// All rows; that of the pool is empty.
pub(super) fn rows(checkpoint: &Checkpoint, request: &PlanRequest, sizes: Sizes) -> Vec<PlanRow> {
    let row = |name, bytes, what: String| PlanRow { name, bytes, what };
    let (geometry, layout) = (checkpoint.geometry(), checkpoint.record_layout());
    let PlanRequest { lanes, threads, logit_rows, .. } = *request;
    let workspace = QwenModel::planned_workspace(checkpoint.config(), sizes.chunk, logit_rows);
    let margin = MARGIN + (lanes + threads) as u64 * A_THREAD;
    vec![
        row("pool", 0, String::new()),
        fixed(checkpoint, request, sizes),
        row(
            "prefill workspace",
            workspace,
            format!("activations of a pass of {} rows, logits of {logit_rows}", sizes.chunk),
        ),
        row(
            "sweep staging",
            request.sweep.planned_bytes(layout, &geometry, lanes),
            request.sweep.rows().map_or("prefill passes go through the pool".into(), |rows| {
                format!("blocks of experts of a pass from {rows} rows on, {lanes} reads at once")
            }),
        ),
        row("draft head", 0, "not loaded".into()),
        row(
            "lookahead",
            request.forecaster_bytes.saturating_mul(request.sessions as u64),
            "what the forecaster remembers; what is read ahead lies in the pool".into(),
        ),
        retained(checkpoint, request, sizes),
        kept(checkpoint, request, sizes),
        gpu(request, layout.stride() as u64, workspace),
        row("margin", margin, format!("allocator, {} threads", lanes + threads)),
    ]
}

fn fixed(checkpoint: &Checkpoint, request: &PlanRequest, sizes: Sizes) -> PlanRow {
    let dense = dense_bytes(checkpoint);
    let rows = request.ngram_cache_rows;
    let ngram = checkpoint.ngram().map_or(0, |plan| {
        let groups = plan.format.row_groups(plan.row_width);
        let row = plan.format.row_bytes(plan.row_width) + 4 * groups;
        slotstream_ngram::NgramStore::cache_bytes(rows, row).unwrap_or(usize::MAX) as u64
    });
    let PlanRequest { reader_bytes, policy_bytes, .. } = *request;
    let sinks = request.sink_bytes_a_token.saturating_mul(sizes.context as u64);
    let sinks = sinks.saturating_add(request.sink_bytes);
    let process = request.machine.process;
    let parts = [process, dense, ngram, reader_bytes, policy_bytes, sinks];
    PlanRow {
        name: "fixed",
        bytes: parts.iter().fold(0, |sum, part| sum.saturating_add(*part)),
        what: format!(
            "process {process} + dense weights {dense} + n-gram cache {ngram} ({rows} rows) + \
             files or pages of the reader {reader_bytes} + policy {policy_bytes} + shadows and \
             other sinks {sinks}"
        ),
    }
}

fn retained(checkpoint: &Checkpoint, request: &PlanRequest, sizes: Sizes) -> PlanRow {
    let Sizes { context, .. } = sizes;
    let sessions = request.sessions;
    let state = State::planned_bytes(checkpoint.config(), context, request.rollback_rows);
    let each = state.context + state.fixed + state.ring;
    PlanRow {
        name: "retained state",
        bytes: each.saturating_mul(sessions as u64),
        what: format!(
            "{sessions} session{} of {context} tokens: context {}, recurrent {}, rollback {}",
            if sessions == 1 { "" } else { "s" },
            state.context,
            state.fixed,
            state.ring
        ),
    }
}

fn kept(checkpoint: &Checkpoint, request: &PlanRequest, sizes: Sizes) -> PlanRow {
    let (checkpoints, sessions) = (sizes.checkpoints, request.sessions);
    let each = checkpoint_bytes(checkpoint.config(), request.rollback_rows);
    PlanRow {
        name: "checkpoints",
        bytes: each.saturating_mul(checkpoints as u64).saturating_mul(sessions as u64),
        what: format!("{checkpoints} a session, {each} each, to come back to"),
    }
}

/// What a GPU takes beside the other rows, which lie in its memory, too.
fn gpu(request: &PlanRequest, stride: u64, workspace: u64) -> PlanRow {
    let name = "gpu";
    if request.device == DeviceKind::Cpu {
        return PlanRow { name, bytes: 0, what: "not used".into() };
    }
    // A read lands in memory of the host and is copied into its slot.
    let landing = (request.lanes as u64).saturating_mul(stride);
    let limit = match request.machine.working_set {
        Some(bytes) => format!("it recommends {bytes} for everything that it reads"),
        None => "it recommends no limit".into(),
    };
    PlanRow {
        name,
        bytes: workspace.saturating_add(landing),
        what: format!(
            "activations in buffers of powers of two {workspace} + reads of {} lanes before they \
             are copied {landing}; {limit}",
            request.lanes
        ),
    }
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
