//! The random-weight checkpoint: every trap of the real one, three prompts.

use std::sync::Arc;

use slotstream_core::{PassId, Phase, SessionId, Step};
use slotstream_kernels::{Cpu, Kernels, Reference};
use slotstream_qwen::{Logits, Pass, QwenError};

use crate::rig::{Goldens, Rig, Watch, argmax, assert_close, floats, random_model};

const PROMPTS: [&str; 3] = ["p1", "p17", "p200"];
const TOLERANCE: f32 = 1e-3;

fn kernel_sets() -> [(&'static str, Arc<dyn Kernels>); 2] {
    [("reference", Arc::new(Reference)), ("cpu", Arc::new(Cpu::new(2).expect("two threads")))]
}

#[test]
fn streams_routes_and_selections_match() {
    let goldens = Goldens::open("random/golden.safetensors");
    for (set, kernels) in kernel_sets() {
        let mut rig = Rig::new(&random_model(), kernels, 0.5);
        for prompt in PROMPTS {
            let tokens = goldens.ids(&format!("{prompt}.input_ids"));
            let (mut state, watch) = (rig.state(), Watch::default());
            let logits = rig.run(&mut state, &tokens, Logits::All, Some(&watch)).logits;
            let what = format!("{set} {prompt}");
            let logits = floats(&logits.expect("all"));
            let golden = goldens.f32s(&format!("{prompt}.logits"));
            assert_close(&format!("{what} logits"), &logits, &golden, TOLERANCE);
            for routed in rig.recorder.take() {
                let name = |part: &str| format!("{prompt}.layer.{}.{part}", routed.layer);
                assert_eq!(routed.ids, goldens.ids(&name("router.ids")), "{set} {}", name("ids"));
                let weights = goldens.f32s(&name("router.weights"));
                assert_close(&name("weights"), &routed.weights, &weights, TOLERANCE);
                let logits = goldens.f32s(&name("router.logits"));
                assert_close(&name("router.logits"), &routed.logits, &logits, TOLERANCE);
                let streams = &watch.streams.lock().expect("not poisoned")[&routed.layer];
                assert_close(&name("out"), streams, &goldens.f32s(&name("out")), TOLERANCE);
            }
            for layer in [3, 7] {
                let found = watch.selections.lock().expect("not poisoned")[&layer].clone();
                let golden = goldens.i32s(&format!("{prompt}.layer.{layer}.indexer.blocks"));
                assert_selection(&format!("{what} layer {layer}"), found, &golden, tokens.len());
            }
        }
    }
}

/// The golden lists the chosen blocks of each row, all complete ones where they fit.
fn assert_selection(what: &str, found: Option<Vec<u32>>, golden: &[i32], rows: usize) {
    let budget = golden.len() / rows;
    for row in 0..rows {
        let golden: Vec<u32> = golden[row * budget..][..budget]
            .iter()
            .filter_map(|b| u32::try_from(*b).ok())
            .collect();
        let own: Vec<u32> = match &found {
            None => (0..((row + 1) / 4) as u32).collect(),
            Some(all) => {
                let row = &all[row * budget..][..budget];
                row.iter().copied().filter(|b| *b != u32::MAX).collect()
            }
        };
        assert_eq!(own, golden, "{what} row {row}");
    }
    if rows == 200 {
        assert!(found.is_some(), "{what}: 200 tokens exceed the budget, so blocks are chosen");
    }
}

#[test]
fn greedy_continuations_are_identical() {
    let goldens = Goldens::open("random/golden.safetensors");
    for (set, kernels) in kernel_sets() {
        let mut rig = Rig::new(&random_model(), kernels, 0.5);
        for prompt in PROMPTS {
            let tokens = goldens.ids(&format!("{prompt}.input_ids"));
            let golden = goldens.ids(&format!("{prompt}.greedy.ids"));
            let golden_logits = goldens.f32s(&format!("{prompt}.greedy.logits"));
            let vocab = golden_logits.len() / golden.len();
            let mut state = rig.state();
            let mut next = tokens;
            for (i, golden) in golden.iter().enumerate() {
                let logits = rig.run(&mut state, &next, Logits::Last, None).logits;
                let logits = floats(&logits.expect("last"));
                let what = format!("{set} {prompt} greedy logits {i}");
                assert_close(&what, &logits, &golden_logits[i * vocab..][..vocab], TOLERANCE);
                assert_eq!(argmax(&logits), *golden, "{set} {prompt} token {i}");
                next = vec![*golden];
            }
        }
    }
}

#[test]
fn streams_of_chosen_rows_are_those_before_the_final_mixer() {
    let goldens = Goldens::open("random/golden.safetensors");
    let tokens = goldens.ids("p17.input_ids");
    let mut rig = Rig::new(&random_model(), Arc::new(Reference), 0.5);
    let (mut state, watch) = (rig.state(), Watch::default());
    let step = Step {
        pass: PassId::new(1),
        phase: Phase::Prefill,
        session: SessionId::new(1),
        position: 0,
        tokens: &tokens,
    };
    let rows = [16, 3];
    let pass = Pass::new(step).with_logits(Logits::None).with_streams(&rows).with_observer(&watch);
    let output = rig.model.forward(&mut state, &pass, &mut rig.experts, rig.ngram.as_mut());
    let output = output.expect("runs");
    assert!(output.logits.is_none());
    let streams = floats(&output.streams.expect("asked for"));
    let last = &watch.streams.lock().expect("not poisoned")[&7];
    let width = last.len() / tokens.len();
    assert_eq!(streams.len(), 2 * width);
    for (i, row) in rows.iter().enumerate() {
        assert!(streams[i * width..][..width] == last[row * width..][..width], "row {row}");
    }
    let missing = [17];
    let (position, tokens) = (17, &tokens[..1]);
    let pass = Pass::new(Step { position, tokens, ..step }).with_streams(&missing);
    let error = rig.model.forward(&mut state, &pass, &mut rig.experts, rig.ngram.as_mut());
    assert!(matches!(error, Err(QwenError::Row { row: 17, rows: 1, .. })));
}
