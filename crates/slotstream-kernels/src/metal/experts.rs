//! Expert MLPs over slots, the shared expert, and the sum over ranks.

use slotstream_core::{Matrix, Part, RecordLayout};

use super::affine::{AffineView, MV_ROWS, TILE, TILE_BYTES, TILE_THREADS, affine_matmul, group};
use super::bf16::{Bf16View, bf16_matmul};
use super::dispatch::count;
use super::library::{Constants, constants};
use super::{Dispatch, Element, Library, PRELUDE, PlanError, View};

constants!(ExpertArgs {
    hidden: u32,
    intermediate: u32,
    gate_weight: u32,
    gate_scales: u32,
    gate_biases: u32,
    up_weight: u32,
    up_scales: u32,
    up_biases: u32,
    down_weight: u32,
    down_scales: u32,
    down_biases: u32,
});
constants!(SumArgs { hidden: u32, top_k: u32 });

/// Kernels of this file.
pub static EXPERTS: Library = Library::new(
    "experts",
    &[
        PRELUDE,
        include_str!("quantized.metal"),
        ExpertArgs::MSL,
        SumArgs::MSL,
        include_str!("experts.metal"),
    ],
);

/// An expert with this many rows or more takes tiles of simdgroup matrices.
const TILED_ROWS: usize = 8;

/// One expert and the rows that chose it.
#[derive(Clone, Copy, Debug)]
#[expect(clippy::exhaustive_structs, reason = "an argument list")]
pub struct SlotJob<'a> {
    /// Entry of the table of addresses.
    pub slot: u32,
    /// Rows of `x`.
    pub rows: &'a [u32],
    /// For each of them the row of `out`; no two experts share a place.
    pub places: &'a [u32],
}

/// The lists by which the kernels find their work. They are uploaded as they are.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct ExpertJobs {
    /// `slot, row, place` of every row of every expert.
    pub jobs: Vec<u32>,
    /// `first, count` of every batch of jobs of one expert; empty when rows are taken one by one.
    pub batches: Vec<u32>,
}

impl ExpertJobs {
    /// The lists for these experts.
    ///
    /// # Errors
    /// [`PlanError::Length`] when an expert has not one place a row.
    pub fn new(experts: &[SlotJob<'_>]) -> Result<Self, PlanError> {
        let mut lists = Self::default();
        let tiled = experts.iter().any(|expert| expert.rows.len() >= TILED_ROWS);
        for expert in experts {
            let (wanted, got) = (expert.rows.len(), expert.places.len());
            if wanted != got {
                return Err(PlanError::Length { argument: "places", wanted, got });
            }
            let first = lists.rows();
            for (row, place) in expert.rows.iter().zip(expert.places) {
                lists.jobs.extend([expert.slot, *row, *place]);
            }
            for start in (0..wanted).step_by(TILE).filter(|_| tiled) {
                let rows = TILE.min(wanted - start);
                lists.batches.extend([count("rows", first + start)?, count("rows", rows)?]);
            }
        }
        Ok(lists)
    }

    /// Rows of all experts together.
    #[must_use]
    pub fn rows(&self) -> usize {
        self.jobs.len() / 3
    }
}

/// Arrays of the expert MLP.
#[derive(Clone, Copy, Debug)]
#[expect(clippy::exhaustive_structs, reason = "an argument list")]
pub struct ExpertViews<B> {
    /// The address of each slot, 8 bytes.
    pub slots: View<B>,
    /// [`ExpertJobs::jobs`].
    pub jobs: View<B>,
    /// [`ExpertJobs::batches`].
    pub batches: View<B>,
    /// f32 `[m, hidden]`.
    pub x: View<B>,
    /// Scratch, f32 `[jobs, intermediate]`.
    pub act: View<B>,
    /// f32 `[places, hidden]`; places that no expert names keep their content.
    pub out: View<B>,
}

/// For each expert, for each of its rows `i`:
/// `out[places[i]] = down . (silu(gate . x[rows[i]]) * (up . x[rows[i]]))`. No launch for no rows.
/// `m` and `places` are the rows of `x` and `out`.
///
/// # Errors
/// [`PlanError`].
pub fn expert_mlp<B: Clone>(
    layout: &RecordLayout,
    lists: &ExpertJobs,
    slots: usize,
    (m, places): (usize, usize),
    views: &ExpertViews<B>,
) -> Result<Vec<Dispatch<B>>, PlanError> {
    const MV: [[&str; 2]; 2] = [
        ["expert_gate_up_mv_g32", "expert_down_mv_g32"],
        ["expert_gate_up_mv_g64", "expert_down_mv_g64"],
    ];
    const MM: [[&str; 2]; 2] = [
        ["expert_gate_up_mm_g32", "expert_down_mm_g32"],
        ["expert_gate_up_mm_g64", "expert_down_mm_g64"],
    ];
    let rows = lists.rows();
    if rows == 0 {
        return Ok(Vec::new());
    }
    check_lists(lists, slots, m, places)?;
    let shape = layout.shape();
    let (hidden, intermediate) = (shape.hidden(), shape.intermediate());
    let of = group(shape.format(), hidden)?.max(group(shape.format(), intermediate)?);
    let batches = lists.batches.len() / 2;
    let views = views.clone();
    let slots = views.slots.addresses("slots", slots)?;
    let jobs = views.jobs.words("jobs", lists.jobs.len())?;
    let batched = views.batches.words("batches", lists.batches.len())?;
    let x = views.x.floats("x", m.saturating_mul(hidden))?;
    let act = views.act.floats("act", rows.saturating_mul(intermediate))?;
    let out = views.out.floats("out", places.saturating_mul(hidden))?;
    let constants = arguments(layout)?.bytes();
    let plan = |kernel, from: &View<B>| {
        let plan = Dispatch::new(&EXPERTS, kernel).input(slots.clone()).input(jobs.clone());
        let plan = if batches > 0 { plan.input(batched.clone()) } else { plan };
        plan.input(from.clone()).with_constants(constants.clone())
    };
    let names = if batches > 0 { MM[of] } else { MV[of] };
    // Places that no expert names keep their content, so `out` is updated.
    let gate_up = plan(names[0], &x).output(act.clone());
    let down = plan(names[1], &act).update(out);
    if batches == 0 {
        return Ok(vec![
            gate_up.launch([intermediate.div_ceil(MV_ROWS), rows, 1], 64)?,
            down.launch([hidden.div_ceil(MV_ROWS), rows, 1], 64)?,
        ]);
    }
    Ok(vec![
        gate_up
            .with_threadgroup_memory(3 * TILE_BYTES)
            .launch([intermediate.div_ceil(TILE), batches, 1], TILE_THREADS)?,
        down.with_threadgroup_memory(2 * TILE_BYTES)
            .launch([hidden.div_ceil(TILE), batches, 1], TILE_THREADS)?,
    ])
}

/// Whether the lists stay within the arrays.
fn check_lists(lists: &ExpertJobs, slots: usize, m: usize, places: usize) -> Result<(), PlanError> {
    for job in lists.jobs.chunks_exact(3) {
        let parts = [("slots", slots), ("rows", m), ("places", places)];
        for (index, (what, len)) in job.iter().zip(parts) {
            let got = *index as usize;
            if got >= len {
                return Err(PlanError::Limit { what, got, least: 0, most: len.saturating_sub(1) });
            }
        }
    }
    Ok(())
}

fn arguments(layout: &RecordLayout) -> Result<ExpertArgs, PlanError> {
    let at = |matrix, part| count("bytes", layout.piece(matrix, part).offset);
    Ok(ExpertArgs {
        hidden: count("columns", layout.shape().hidden())?,
        intermediate: count("columns", layout.shape().intermediate())?,
        gate_weight: at(Matrix::Gate, Part::Weight)?,
        gate_scales: at(Matrix::Gate, Part::Scales)?,
        gate_biases: at(Matrix::Gate, Part::Biases)?,
        up_weight: at(Matrix::Up, Part::Weight)?,
        up_scales: at(Matrix::Up, Part::Scales)?,
        up_biases: at(Matrix::Up, Part::Biases)?,
        down_weight: at(Matrix::Down, Part::Weight)?,
        down_scales: at(Matrix::Down, Part::Scales)?,
        down_biases: at(Matrix::Down, Part::Biases)?,
    })
}

/// `out[m, hidden] = sum over rank of weights[m, top_k] * y[m, top_k, hidden]`, from zero in rank
/// order, product and sum rounded apart.
///
/// # Errors
/// [`PlanError`].
pub fn rank_sum<B>(
    m: usize,
    top_k: usize,
    hidden: usize,
    y: View<B>,
    weights: View<B>,
    out: View<B>,
) -> Result<Dispatch<B>, PlanError> {
    let rows = m.saturating_mul(top_k);
    let args = SumArgs { hidden: count("columns", hidden)?, top_k: count("experts", top_k)? };
    Dispatch::new(&EXPERTS, "rank_sum")
        .input(y.floats("y", rows.saturating_mul(hidden))?)
        .input(weights.floats("weights", rows)?)
        .output(out.floats("out", m.saturating_mul(hidden))?)
        .with_constants(args.bytes())
        .launch([hidden.div_ceil(256), m, 1], 256)
}

/// Weights of the shared expert.
#[derive(Clone, Copy, Debug)]
#[expect(clippy::exhaustive_structs, reason = "an argument list")]
pub struct SharedView<B> {
    /// `[intermediate, hidden]`.
    pub gate: AffineView<B>,
    /// `[intermediate, hidden]`.
    pub up: AffineView<B>,
    /// `[hidden, intermediate]`.
    pub down: AffineView<B>,
    /// `[1, hidden]`.
    pub gate_row: Bf16View<B>,
}

/// What the shared expert writes on the way, f32.
#[derive(Clone, Copy, Debug)]
#[expect(clippy::exhaustive_structs, reason = "an argument list")]
pub struct SharedScratch<B> {
    /// `[m, intermediate]`.
    pub gate: View<B>,
    /// `[m, intermediate]`.
    pub up: View<B>,
    /// `[m]`.
    pub gate_row: View<B>,
}

/// The gated shared expert: `out[m, hidden] = sigmoid(gate_row . x) * mlp(x)`.
///
/// # Errors
/// [`PlanError`].
pub fn shared_expert<B: Clone>(
    m: usize,
    x: View<B>,
    w: &SharedView<B>,
    scratch: &SharedScratch<B>,
    out: View<B>,
) -> Result<Vec<Dispatch<B>>, PlanError> {
    const F32: Element = Element::F32;
    let SharedScratch { gate, up, gate_row } = scratch.clone();
    Ok(vec![
        affine_matmul(F32, m, x.clone(), &w.gate, gate.clone())?,
        affine_matmul(F32, m, x.clone(), &w.up, up.clone())?,
        rows("silu_mul", m, w.gate.rows, gate.clone(), up, w.up.rows)?,
        affine_matmul(F32, m, gate, &w.down, out.clone())?,
        bf16_matmul(F32, m, x, &w.gate_row, gate_row.clone())?,
        rows("gate_rows", m, w.down.rows, out, gate_row, w.gate_row.rows)?,
    ])
}

/// A kernel that updates `[m, width]` by `other[m, other_width]`.
fn rows<B>(
    kernel: &'static str,
    m: usize,
    width: usize,
    values: View<B>,
    other: View<B>,
    other_width: usize,
) -> Result<Dispatch<B>, PlanError> {
    let args = SumArgs { hidden: count("columns", width)?, top_k: 1 };
    Dispatch::new(&EXPERTS, kernel)
        .update(values.floats("values", m.saturating_mul(width))?)
        .input(other.floats("gate", m.saturating_mul(other_width))?)
        .with_constants(args.bytes())
        .launch([width.div_ceil(256), m, 1], 256)
}
