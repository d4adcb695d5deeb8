//! What a plan chooses where nothing was asked for: slots, context and chunk.

use slotstream_checkpoint::Checkpoint;
use slotstream_qwen::State;

use super::rows::Sizes;
use super::{MemoryPlan, PlanRequest, Sizing};
use crate::Error;
use crate::machine::Budget;

/// Longest context when none is asked for and memory does not say that a longer one is cheap.
const DEFAULT_CONTEXT: usize = 4096;
/// Shorter ones, for machines in which that does not fit.
const SHORTER_CONTEXTS: [usize; 2] = [2048, 1024];
/// Most rows of a prefill pass when nothing else is asked for: the more there are, the less is read.
const DEFAULT_CHUNK: usize = 512;
/// Smaller ones, for machines in which that does not fit.
const SMALLER_CHUNKS: [usize; 3] = [256, 128, 64];
/// Checkpoints of a session when nothing else is asked for: where the last prompt ended, and the one
/// before it.
const DEFAULT_CHECKPOINTS: usize = 2;
/// Without any, for machines in which those do not fit.
const FEWER_CHECKPOINTS: [usize; 1] = [0];
/// A longer context is taken while its state is at most one part in so many of what it shares
/// with the pool.
const CONTEXT_SHARE: u64 = 10;

/// Bytes that may be used, where anything says so.
pub(super) fn budget(request: &PlanRequest) -> Option<Budget> {
    match request.sizing {
        Sizing::Memory(bytes) => Some(Budget { bytes, why: "as asked for".to_owned() }),
        Sizing::Auto => request.machine.budget(),
        Sizing::Slots(_) | Sizing::PerLayer(_) | Sizing::Share(_) => None,
    }
}

/// Slots that are asked for, whatever they cost.
pub(super) fn slots(checkpoint: &Checkpoint, sizing: Sizing) -> Result<usize, Error> {
    let geometry = checkpoint.geometry();
    let (records, floor) = (geometry.records(), geometry.floor_slots());
    let slots = match sizing {
        Sizing::Slots(slots) => slots.min(records),
        Sizing::PerLayer(experts) => experts.saturating_mul(geometry.layers()).min(records),
        Sizing::Share(share) if !(0.0..=1.0).contains(&share) => {
            let (value, expected) = (share.to_string(), "a number from 0 to 1");
            return Err(Error::Option { option: "share of the records", value, expected });
        }
        Sizing::Share(share) => ((records as f64 * share) as usize).max(floor),
        Sizing::Auto | Sizing::Memory(_) => (records * 3 / 10).max(floor),
    };
    if slots < floor {
        return Err(Error::Cache(slotstream_cache::CacheError::below_floor(&geometry, slots)));
    }
    Ok(slots)
}

/// Context and chunk where no memory limits them.
pub(super) fn usual(checkpoint: &Checkpoint, request: &PlanRequest) -> Sizes {
    let longest = checkpoint.config().max_position_embeddings;
    let context = request.context.unwrap_or(DEFAULT_CONTEXT).min(longest);
    let chunk = request.chunk.unwrap_or(DEFAULT_CHUNK).min(context);
    Sizes { context, chunk, checkpoints: request.checkpoints.unwrap_or(DEFAULT_CHECKPOINTS) }
}

/// The plan with the most slots that fits into `budget`: at the usual sizes, or at the first
/// smaller ones at which the smallest lawful pool fits, no checkpoints before a smaller chunk, and
/// that before a shorter context.
pub(super) fn within(
    checkpoint: &Checkpoint,
    request: &PlanRequest,
    budget: Budget,
) -> Result<MemoryPlan, Error> {
    let usual = usual(checkpoint, request);
    let or_one = |wish: Option<usize>, smaller: &'static [usize], most: usize| {
        let smaller = if wish.is_some() { &[][..] } else { smaller };
        std::iter::once(most).chain(smaller.iter().copied().filter(move |size| *size < most))
    };
    let mut last = None;
    for context in or_one(request.context, &SHORTER_CONTEXTS, usual.context) {
        for chunk in or_one(request.chunk, &SMALLER_CHUNKS, usual.chunk.min(context)) {
            for checkpoints in or_one(request.checkpoints, &FEWER_CHECKPOINTS, usual.checkpoints) {
                let sizes = Sizes { context, chunk, checkpoints };
                let plan = MemoryPlan::without_pool(checkpoint, request, sizes);
                match slots_within(&plan, budget.bytes) {
                    Some(slots) => {
                        let mut plan = longer(checkpoint, request, &budget, plan);
                        let slots = slots_within(&plan, budget.bytes).unwrap_or(slots);
                        plan.set_pool(slots);
                        plan.budget = Some(budget);
                        return Ok(plan);
                    }
                    None => last = Some(plan),
                }
            }
        }
    }
    Err(refused(
        last.unwrap_or_else(|| MemoryPlan::without_pool(checkpoint, request, usual)),
        budget,
    ))
}

/// Slots that fit beside the other rows; `None`: fewer than the floor.
fn slots_within(plan: &MemoryPlan, budget: u64) -> Option<usize> {
    let slots = budget.saturating_sub(plan.total_bytes()) / plan.slot_bytes.max(1);
    let slots = usize::try_from(slots).unwrap_or(usize::MAX).min(plan.records);
    (slots >= plan.floor_slots).then_some(slots)
}

/// The same plan with the longest context, doubled again and again, that is cheap: its state takes
/// at most a tenth of what it and the pool have together.
fn longer(
    checkpoint: &Checkpoint,
    request: &PlanRequest,
    budget: &Budget,
    mut plan: MemoryPlan,
) -> MemoryPlan {
    let config = checkpoint.config();
    let longest = config.max_position_embeddings;
    let state = |context| {
        let state = State::planned_bytes(config, context, request.rollback_rows);
        state.context.saturating_mul(request.sessions as u64)
    };
    if request.context.is_some() {
        return plan;
    }
    while plan.context < longest {
        let context = plan.context.saturating_mul(2).min(longest);
        let shared = budget.bytes.saturating_sub(plan.total_bytes() - state(plan.context));
        if state(context) > shared / CONTEXT_SHARE {
            break;
        }
        let sizes = Sizes { context, chunk: plan.chunk, checkpoints: plan.checkpoints };
        let next = MemoryPlan::without_pool(checkpoint, request, sizes);
        if slots_within(&next, budget.bytes).is_none() {
            break;
        }
        plan = next;
    }
    plan
}

/// The error with the arithmetic; its plan is the one with the smallest pool.
fn refused(mut plan: MemoryPlan, budget: Budget) -> Error {
    let (fixed, stride, floor_slots) = (plan.total_bytes(), plan.slot_bytes, plan.floor_slots);
    let floor_bytes = stride * floor_slots as u64;
    plan.set_pool(floor_slots);
    let Budget { bytes, .. } = budget;
    plan.budget = Some(budget);
    Error::Budget { budget: bytes, fixed, floor_slots, stride, floor_bytes, plan: Box::new(plan) }
}
