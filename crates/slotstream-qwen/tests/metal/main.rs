//! The whole graph on the plans of the Metal kernels, which the emulator carries out.

mod encoder;
mod recorder;
#[path = "../it/rig.rs"]
#[expect(dead_code, reason = "shared with the other tests, which use more of it")]
mod rig;
mod steps;

use std::sync::Arc;

use slotstream_candle::{Ops, PlannedOps};
use slotstream_core::{Forecaster, NoForecast};
use slotstream_experts::Speculation;
use slotstream_io::LaneQueue;
use slotstream_kernels::Cpu;
use slotstream_kernels::metal::Element;

use encoder::Emulated;
use rig::{Goldens, Rig, files_in_memory, tiny_model};

/// Tokens of the prompt and new ones.
const TOKENS: usize = 16;
/// Tokens whose likelihood is compared.
const HELD_OUT: usize = 256;

/// The bundled model with a pool of `share` of its records.
fn planned(ops: PlannedOps, share: f64) -> Rig {
    probed(ops, share, Box::new(NoForecast))
}

/// The same with a forecaster that is asked, and nothing read ahead.
fn probed(ops: PlannedOps, share: f64, forecaster: Box<dyn Forecaster>) -> Rig {
    let ops: Arc<dyn Ops> = Arc::new(ops);
    let queue = LaneQueue::new(files_in_memory(&tiny_model()), 2).expect("two lanes");
    let asked = (forecaster, Speculation::off());
    Rig::on_ops(&tiny_model(), ops, share, asked, Arc::new(queue))
}

fn on_the_cpu() -> Rig {
    Rig::new(&tiny_model(), Arc::new(Cpu::new(1).expect("one thread")), 0.3)
}

#[test]
#[ignore = "needs clang >= 19"]
fn f32_gives_the_tokens_of_the_cpu() {
    let prompt = &Goldens::open("tiny-moe/golden.safetensors").ids("p1.input_ids")[..TOKENS];
    let tokens = on_the_cpu().greedy(prompt, TOKENS, TOKENS);
    let own = planned(PlannedOps::new(Emulated::new()), 0.3).greedy(prompt, TOKENS, TOKENS);
    assert_eq!(own, tokens);
}

/// The mean negative log-likelihood of each token after the ones before it.
fn nll(rig: &mut Rig, tokens: &[u32]) -> f64 {
    // The last pass is of one row, as those of decoding are.
    let logits = rig.all_logits(tokens, HELD_OUT / 2);
    let vocab = logits.len() / tokens.len();
    let of = |(row, next): (&[f32], &u32)| {
        let sum: f64 = row.iter().map(|logit| f64::from(*logit).exp()).sum();
        sum.ln() - f64::from(row[*next as usize])
    };
    let rows = logits.chunks_exact(vocab).zip(&tokens[1..]);
    rows.map(of).sum::<f64>() / (tokens.len() - 1) as f64
}

#[test]
#[ignore = "needs clang >= 19"]
fn bf16_is_as_likely_to_say_what_was_said() {
    // Text that the model was not trained on.
    let windows = Goldens::open("tiny-moe/golden.safetensors").ids("ppl.input_ids");
    let tokens = &windows[..=HELD_OUT];
    let exact = nll(&mut on_the_cpu(), tokens);
    let ops = PlannedOps::new(Emulated::new()).with_element(Element::Bf16);
    let rounded = nll(&mut planned(ops, 0.3), tokens);
    println!("nll of {HELD_OUT} tokens: f32 {exact:.5}, bf16 {rounded:.5}");
    assert!(rounded != exact && (rounded / exact - 1.0).abs() <= 0.01, "{rounded}, {exact}");
}
