//! What a plan chooses where nothing was asked for: slots, context and chunk.

use slotstream_checkpoint::Checkpoint;
use slotstream_qwen::State;

use super::rows::Sizes;
use super::{MemoryPlan, PlanRequest, Sizing};
use crate::Error;
use crate::machine::Budget;

/// Longest context when none is asked for and memory does not say that a longer one is cheap.
const DEFAULT_CONTEXT: usize = 4096;
/// Shortest one, for machines in which that does not fit.
const SHORTEST_CONTEXT: usize = 1024;
/// Contexts that are chosen are multiples of this.
const CONTEXT_STEP: usize = 256;
/// Most rows of a prefill pass when nothing else is asked for: the more there are, the less is read.
const DEFAULT_CHUNK: usize = 512;
/// Fewest, for machines in which that does not fit.
const SMALLEST_CHUNK: usize = 64;
/// Numbers of rows that are chosen are multiples of this.
const CHUNK_STEP: usize = 16;
/// Checkpoints of a session when nothing else is asked for: where the last prompt ended, and the one
/// before it. None, for machines in which those do not fit.
const DEFAULT_CHECKPOINTS: usize = 2;
/// A longer context is taken while its state is at most one part in so many of what it shares
/// with the pool.
const CONTEXT_SHARE: u64 = 16;

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

/// The plan that fits into `budget`. More memory never gives fewer slots, shorter passes or a shorter
/// context: below the usual sizes the pool is the smallest lawful one, and what is over goes to
/// checkpoints, or where not even none fit, to the passes, or where not even the shortest ones fit, to
/// the context; above them the pool and the context grow side by side, each by its share.
pub(super) fn within(
    checkpoint: &Checkpoint,
    request: &PlanRequest,
    budget: Budget,
) -> Result<MemoryPlan, Error> {
    let usual = usual(checkpoint, request);
    let plan_of = |sizes| MemoryPlan::without_pool(checkpoint, request, sizes);
    let plan = plan_of(usual);
    let mut plan = if slots_within(&plan, budget.bytes).is_some() {
        grown(checkpoint, request, &budget, plan)
    } else {
        let fits = |sizes| slots_within(&plan_of(sizes), budget.bytes).is_some();
        let smaller = smaller(request, usual);
        let Some(sizes) = smaller.iter().copied().rfind(|sizes| fits(*sizes)) else {
            return Err(refused(plan_of(smaller.first().copied().unwrap_or(usual)), budget));
        };
        let mut plan = plan_of(sizes);
        plan.set_pool(plan.floor_slots);
        plan
    };
    plan.budget = Some(budget);
    Ok(plan)
}

/// Sizes below the usual ones, ascending: contexts with the shortest passes, then passes with the usual
/// context, both without checkpoints, and then those. What was asked for stays.
fn smaller(request: &PlanRequest, usual: Sizes) -> Vec<Sizes> {
    let steps = |wish: Option<usize>, step: usize, least: usize, most: usize| -> Vec<usize> {
        let from = if wish.is_some() { most } else { least.min(most) };
        (from..most).step_by(step).chain([most]).collect()
    };
    let chunks = steps(request.chunk, CHUNK_STEP, SMALLEST_CHUNK, usual.chunk);
    let contexts = steps(request.context, CONTEXT_STEP, SHORTEST_CONTEXT, usual.context);
    let kept = steps(request.checkpoints, 1, 0, usual.checkpoints);
    let least = |sizes: &[usize], usual: usize| sizes.first().copied().unwrap_or(usual);
    let (chunk, checkpoints) = (least(&chunks, usual.chunk), least(&kept, usual.checkpoints));
    let shorter = contexts.iter().map(|context| Sizes {
        context: *context,
        chunk: chunk.min(*context),
        checkpoints,
    });
    let passes = chunks.iter().skip(1).map(|chunk| Sizes { chunk: *chunk, checkpoints, ..usual });
    let checkpoints = kept.iter().skip(1).map(|kept| Sizes { checkpoints: *kept, ..usual });
    shorter.chain(passes).chain(checkpoints).collect()
}

/// Slots that fit beside the other rows; `None`: fewer than the floor.
fn slots_within(plan: &MemoryPlan, budget: u64) -> Option<usize> {
    let slots = budget.saturating_sub(plan.total_bytes()) / plan.slot_bytes.max(1);
    let slots = usize::try_from(slots).unwrap_or(usize::MAX).min(plan.records);
    (slots >= plan.floor_slots).then_some(slots)
}

/// The plan of the usual sizes, which fits, with the slots and the longer context that fit as well.
///
/// A context above the usual one takes at most its share of what it and the pool have together, or what
/// a pool of all records leaves over; the pool takes the rest of the same sum. Both grow with it.
fn grown(
    checkpoint: &Checkpoint,
    request: &PlanRequest,
    budget: &Budget,
    plan: MemoryPlan,
) -> MemoryPlan {
    let config = checkpoint.config();
    let longest = config.max_position_embeddings;
    // What grows with the context.
    let bytes_of = |context: usize| {
        let state = State::planned_bytes(config, context, request.rollback_rows).context;
        let sinks = request.sink_bytes_a_token.saturating_mul(context as u64);
        state.saturating_mul(request.sessions as u64).saturating_add(sinks)
    };
    let usual = plan.context;
    let shared = budget.bytes.saturating_add(bytes_of(usual)).saturating_sub(plan.total_bytes());
    let (stride, records) = (plan.slot_bytes.max(1), plan.records as u64);
    let share = (shared / CONTEXT_SHARE).max(shared.saturating_sub(records.saturating_mul(stride)));
    let (context, pool) = if request.context.is_some() || bytes_of(usual) >= share {
        (usual, shared.saturating_sub(bytes_of(usual)))
    } else {
        let context = longest_within(share, usual, longest, bytes_of);
        let taken = if context == longest { bytes_of(longest) } else { shared / CONTEXT_SHARE };
        (context, shared - taken.min(shared))
    };
    let slots = usize::try_from((pool / stride).min(records)).unwrap_or(plan.records);
    let sizes = Sizes { context, chunk: plan.chunk, checkpoints: plan.checkpoints };
    let mut plan = MemoryPlan::without_pool(checkpoint, request, sizes);
    plan.set_pool(slots);
    plan
}

/// The longest context from `usual` to `longest`, in steps, of at most `share` bytes.
fn longest_within(
    share: u64,
    usual: usize,
    longest: usize,
    bytes_of: impl Fn(usize) -> u64,
) -> usize {
    if bytes_of(longest) <= share {
        return longest;
    }
    let (mut fits, mut over) = (0, (longest - usual).div_ceil(CONTEXT_STEP));
    while over - fits > 1 {
        let middle = fits.midpoint(over);
        if bytes_of(usual + middle * CONTEXT_STEP) <= share { fits = middle } else { over = middle }
    }
    usual + fits * CONTEXT_STEP
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
