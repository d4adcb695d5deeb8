//! What people ask, answered from the plan and the prediction.

use indicatif::HumanCount;
use serde::Serialize;
use slotstream::MemoryPlan;

use super::disk::Pace;
use super::looked_up;
use super::predict::{Model, Prediction};
use crate::show_size;

/// A question and its answer.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Answer {
    pub(super) question: &'static str,
    pub(super) answer: String,
    /// The figure in it.
    pub(super) figure: f64,
}

/// Prompt tokens of the question about the first answer.
const PROMPT: usize = 2_000;
/// Steps in which the longest window is looked for.
const STEP: usize = 1_024;

pub(super) fn answer(model: &Model<'_>, plan: &MemoryPlan, prediction: &Prediction) -> Vec<Answer> {
    let day = prediction.token_bytes * prediction.tok_s * 86_400.0;
    let wear = Answer {
        question: "Does it wear out the SSD?",
        answer: format!(
            "It writes nothing: experts are read and never written back, so no flash cell is worn by \
             writing. Decoding without a pause would read about {} a day.",
            show_size(day as u64)
        ),
        figure: day,
    };
    vec![wear, window(model, plan), first_token(model, plan)]
}

/// The longest context beside the smallest pool, and beside nine tenths of the planned one.
fn window(model: &Model<'_>, plan: &MemoryPlan) -> Answer {
    let longest = model.checkpoint.config().max_position_embeddings;
    let room = plan.budget.as_ref().map_or(plan.total_bytes(), |budget| budget.bytes);
    let fixed = plan.total_bytes() - plan.row_bytes("pool") - plan.row_bytes("retained state");
    let most = |slots: usize| {
        let pool = slots as u64 * plan.slot_bytes;
        let fits = |context: usize| {
            let state =
                slotstream::qwen::State::planned_bytes(model.checkpoint.config(), context, 0);
            fixed + pool + state.context + state.fixed <= room
        };
        let steps = (1..=longest.div_ceil(STEP)).map(|step| (step * STEP).min(longest));
        steps.take_while(|context| fits(*context)).last().unwrap_or(0)
    };
    let (fewer, floor) = (plan.slots * 9 / 10, plan.floor_slots);
    let at_all = most(floor);
    let [planned, beside_floor, allowed] =
        [plan.context, at_all, longest].map(|tokens| HumanCount(tokens as u64));
    let would_fit = match (plan.slots, fewer) {
        (slots, _) if slots <= floor => format!(
            "The pool is the smallest one already: no slot can be given up for more, and beside it \
             {beside_floor} would fit"
        ),
        (_, fewer) if fewer <= floor => {
            format!("Beside the smallest pool, which is nearly this one, {beside_floor} would fit")
        }
        (_, fewer) => format!(
            "With a tenth of the slots given up {} would fit, beside the smallest pool {beside_floor}",
            HumanCount(most(fewer) as u64)
        ),
    };
    Answer {
        question: "What is the largest window?",
        answer: format!("{planned} tokens are planned. {would_fit}; the model allows {allowed}."),
        figure: at_all as f64,
    }
}

/// Seconds until the first token of a prompt, by what has to be read at least.
fn first_token(model: &Model<'_>, plan: &MemoryPlan) -> Answer {
    let passes = PROMPT.div_ceil(plan.chunk.max(1));
    let record = model.disk.record_bytes;
    let resident = plan.slots as f64 / plan.records.max(1) as f64;
    // A pass of many rows looks up nearly every expert of every layer.
    let geometry = model.checkpoint.geometry();
    let rows = plan.chunk.min(PROMPT) as f64;
    let missed = 1.0 - geometry.top_k() as f64 / geometry.experts() as f64;
    let used = plan.records as f64 * (1.0 - missed.powf(rows));
    let later = passes.saturating_sub(1) as f64 * used * (1.0 - resident);
    let bytes = (used + later) * record as f64;
    let seconds = bytes / 1e9 / model.disk.gb_s(Pace::Median).max(1e-9);
    let first = looked_up(model.checkpoint);
    Answer {
        question: "How long until the first token?",
        answer: format!(
            "A prompt of {} tokens takes {passes} passes, which read about {} (where its tokens use \
             all experts alike, and a pass finds its share in the pool): {seconds:.1} s at the disk's \
             speed, and no less than its arithmetic. One token with an empty pool reads {} and waits \
             {:.2} s for it; a read of one record takes {:.2} ms.",
            HumanCount(PROMPT as u64),
            show_size(bytes as u64),
            show_size(first),
            model.token(0.0).wait_s,
            1e3 * model.disk.seconds(1, Pace::Median)
        ),
        figure: seconds,
    }
}
