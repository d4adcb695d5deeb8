//! The bundled trained model: tokens, logits and routes of three texts.

use std::sync::Arc;

use slotstream_kernels::{Arithmetic, Cpu};
use slotstream_qwen::Logits;

use crate::rig::{Goldens, Rig, argmax, assert_close, floats, tiny_model};

fn rig(share: f64) -> Rig {
    Rig::new(&tiny_model(), Arc::new(Cpu::new(2).expect("two threads")), share)
}

#[test]
fn tokens_and_logits_of_the_three_texts_match() {
    let goldens = Goldens::open("tiny-moe/golden.safetensors");
    let mut rig = rig(0.3);
    for prompt in ["p1", "p2", "p3"] {
        let tokens = goldens.ids(&format!("{prompt}.input_ids"));
        let mut state = rig.state();
        let logits = rig.run(&mut state, &tokens, Logits::All, None).logits.expect("all");
        let golden = goldens.f32s(&format!("{prompt}.logits_last8"));
        let logits = floats(&logits);
        assert_close(prompt, &logits[logits.len() - golden.len()..], &golden, 1e-3);
        assert_routes(prompt, &rig, &goldens.u8s(&format!("{prompt}.router_ids")), tokens.len());
        let greedy = goldens.ids(&format!("{prompt}.greedy_ids"));
        let vocab = rig.model.config().vocab_size;
        let mut next = argmax(&logits[logits.len() - vocab..]);
        for (i, golden) in greedy.iter().enumerate() {
            assert_eq!(next, *golden, "{prompt} token {i}");
            let logits = rig.run(&mut state, &[next], Logits::Last, None).logits.expect("last");
            next = argmax(&floats(&logits));
        }
        rig.recorder.take();
    }
}

/// Every route is the golden one, but where the golden choice was a matter of rounding: there
/// the logits of the two experts differ by less than 1e-4.
fn assert_routes(prompt: &str, rig: &Rig, golden: &[u8], rows: usize) {
    let (layers, top_k) =
        (rig.model.config().num_hidden_layers, rig.model.config().num_experts_per_tok);
    let experts = rig.model.config().num_experts;
    let mut different = 0;
    for routed in rig.recorder.take() {
        for row in 0..rows {
            let own = &routed.ids[row * top_k..][..top_k];
            let logits = &routed.logits[row * experts..][..experts];
            let golden = &golden[(row * layers + routed.layer) * top_k..][..top_k];
            for (own, golden) in own.iter().zip(golden) {
                if *own != u32::from(*golden) {
                    let gap = (logits[*own as usize] - logits[usize::from(*golden)]).abs();
                    let at = format!("{prompt} row {row} layer {}", routed.layer);
                    assert!(gap < 1e-4, "{at}: {own} instead of {golden}, {gap} apart");
                    different += 1;
                }
            }
        }
    }
    assert!(different <= 8, "{prompt}: {different} choices differ");
}

#[test]
fn a_pool_of_a_tenth_gives_the_same_tokens() {
    let goldens = Goldens::open("tiny-moe/golden.safetensors");
    let tokens = goldens.ids("p1.input_ids");
    let golden = goldens.ids("p1.greedy_ids");
    for (share, chunk) in [(0.0, 96), (0.1, 7), (1.0, 32)] {
        assert_eq!(rig(share).greedy(&tokens, chunk, golden.len()), golden, "{share} {chunk}");
    }
}

#[test]
fn raw_norms_of_the_trained_model_give_equal_logits() {
    let goldens = Goldens::open("tiny-moe/golden.safetensors");
    let tokens = &goldens.ids("p1.input_ids")[..24];
    let folder = tempfile::tempdir().expect("a temporary folder");
    slotstream_testkit::checkpoint::rewrite_raw_norms(&tiny_model(), folder.path(), |_| false)
        .expect("rewrites");
    let folded = rig(1.0).all_logits(tokens, 24);
    let kernels = Arc::new(Cpu::new(2).expect("two threads"));
    let raw = Rig::new(folder.path(), kernels, 1.0).all_logits(tokens, 24);
    assert!(folded == raw);
}

/// The mean negative log-likelihood of a text's tokens.
fn mean_nll(logits: &[f32], tokens: &[u32]) -> f64 {
    let vocab = logits.len() / tokens.len();
    let nll = |(row, next): (&[f32], &u32)| {
        let sum: f64 = row.iter().map(|logit| f64::from(*logit).exp()).sum();
        sum.ln() - f64::from(row[*next as usize])
    };
    let rows = logits.chunks_exact(vocab).zip(&tokens[1..]);
    rows.map(nll).sum::<f64>() / (tokens.len() - 1) as f64
}

#[test]
fn fast_arithmetic_is_close_and_depends_on_nothing_either() {
    let fast = |threads, share| {
        let cpu = Cpu::new(threads).expect("threads").with_arithmetic(Arithmetic::Fast);
        Rig::new(&tiny_model(), Arc::new(cpu), share)
    };
    let goldens = Goldens::open("tiny-moe/golden.safetensors");
    let (mut agreeing, mut rows) = (0, 0);
    for prompt in ["p1", "p2", "p3"] {
        let tokens = goldens.ids(&format!("{prompt}.input_ids"));
        let exact = rig(0.3).all_logits(&tokens, 64);
        let logits = fast(2, 0.3).all_logits(&tokens, 64);
        for (threads, share, chunk) in [(1, 0.1, 7), (3, 1.0, 1), (2, 0.3, 500)] {
            assert!(fast(threads, share).all_logits(&tokens, chunk) == logits, "{share} {chunk}");
        }
        assert!(exact != logits, "{prompt}: rounding shows");
        let [own, wanted] = [&logits, &exact].map(|logits| mean_nll(logits, &tokens));
        println!("{prompt}: nll {own}, exact {wanted}");
        assert!((own - wanted).abs() <= 0.03, "{prompt}: {own} instead of {wanted}");
        let vocab = exact.len() / tokens.len();
        for (own, wanted) in logits.chunks_exact(vocab).zip(exact.chunks_exact(vocab)) {
            agreeing += usize::from(argmax(own) == argmax(wanted));
            rows += 1;
        }
    }
    println!("{agreeing} of {rows} most likely tokens agree");
    assert!(10 * agreeing >= 9 * rows, "{agreeing} of {rows}");
}
