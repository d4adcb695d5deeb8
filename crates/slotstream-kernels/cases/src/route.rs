//! The router's choice, and choices among the logits of a vocabulary.

use slotstream_kernels::metal::{argmax, route, top_k};
use slotstream_kernels::reference;

use crate::case::Case;
use crate::data::Random;

/// Logits with ties (there are 41 different ones), and rows that are odd.
fn logits(m: usize, n: usize, odd: bool) -> Vec<f32> {
    let mut logits: Vec<f32> = Random::new((m + n) as u64)
        .values(m * n)
        .iter()
        .map(|v| (v * 20.0).round() / 4.0)
        .collect();
    if odd {
        logits[n / 2] = f32::NAN;
        logits[n / 3] = -0.0;
        logits[n - 1] = f32::NEG_INFINITY;
        if m > 1 {
            logits[n..2 * n].fill(f32::NAN);
        }
        if m > 2 {
            logits[2 * n..3 * n].fill(0.25);
            logits[3 * n - 1] = f32::INFINITY;
        }
    }
    logits
}

pub(crate) fn cases() -> Vec<Case> {
    let mut cases = Vec::new();
    for (experts, chosen) in
        [(1, 1), (3, 1), (3, 3), (40, 3), (512, 1), (512, 3), (512, 10), (512, 512), (1500, 10)]
    {
        for (m, odd) in [(1, false), (3, false), (3, true)] {
            cases.push(routed(m, experts, chosen, &logits(m, experts, odd)));
        }
    }
    cases
}

/// 10 of 512.
pub(crate) fn timed() -> Vec<Case> {
    vec![routed(1, 512, 10, &logits(1, 512, false))]
}

fn routed(m: usize, experts: usize, chosen: usize, logits: &[f32]) -> Case {
    let mut case = Case::new(format!("route {m} x {experts}, {chosen}"));
    let (mut ids, mut weights) = (vec![0; m * chosen], vec![0.0; m * chosen]);
    reference::route(logits, experts, chosen, &mut ids, &mut weights);
    let logits = case.floats(logits);
    let (id_view, weight_view) = (case.scratch(ids.len()), case.scratch(ids.len()));
    case.launch(route(m, experts, chosen, logits, id_view, weight_view).expect("a plan"));
    case.want_words(id_view, ids);
    // The reference adds 512 exponentials one after the other.
    case.want_floats(weight_view, weights, 1e-5);
    case
}

pub(crate) fn samples() -> Vec<Case> {
    let mut cases = Vec::new();
    for (n, k) in [(1, 1), (31, 3), (640, 10), (2560, 20), (2049, 512), (512, 512)] {
        for (m, odd) in [(1, false), (3, true)] {
            cases.push(sampled(m, n, k, &logits(m, n, odd)));
        }
    }
    // A vocabulary, without ties.
    cases.push(sampled(1, 31_040, 40, &Random::new(3).values(31_040)));
    cases
}

/// The vocabulary.
pub(crate) fn timed_samples() -> Vec<Case> {
    vec![sampled(1, 248_320, 40, &Random::new(3).values(248_320))]
}

fn sampled(m: usize, n: usize, k: usize, logits: &[f32]) -> Case {
    let mut case = Case::new(format!("sample {m} x {n}, {k}"));
    let (mut ids, mut unused) = (vec![0; m * k], vec![0.0; m * k]);
    reference::route(logits, n, k, &mut ids, &mut unused);
    let values: Vec<f32> =
        ids.iter().enumerate().map(|(i, id)| logits[i / k * n + *id as usize]).collect();
    let best: Vec<u32> = ids.iter().step_by(k).copied().collect();
    let logits = case.floats(logits);
    let (id_view, value_view) = (case.scratch(ids.len()), case.scratch(ids.len()));
    case.launch(top_k(m, n, k, logits, id_view, value_view).expect("a plan"));
    let best_view = case.scratch(m);
    case.launch(argmax(m, n, logits, best_view).expect("a plan"));
    case.want_words(id_view, ids);
    case.want_floats(value_view, values, 0.0);
    case.want_words(best_view, best);
    case
}
