//! Hyper-connections and probes.

use slotstream_core::AffineFormat;
use slotstream_kernels::metal::{
    BufferId, Element, HcScratch, HcView, View, bf16_matmul, hc_inject, hc_mix, probe, route,
};
use slotstream_kernels::{HcWeights, Kernels, Reference};

use crate::case::Case;
use crate::data::{Affine, Bf16, Random};

const STREAMS: usize = 4;
const RANK: usize = 64;

pub(crate) fn cases() -> Vec<Case> {
    let mut cases = Vec::new();
    for hidden in [32, 64, 96, 640] {
        for m in [1, 3] {
            let h = Random::new((m + hidden) as u64).values(m * STREAMS * hidden);
            cases.push(mixer((m, hidden, RANK), true, &h));
        }
    }
    cases.push(mixer((1, 2560, RANK), false, &Random::new(3).values(STREAMS * 2560)));
    let mut h = Random::new(4).values(2 * STREAMS * 64);
    h[5 * 64 + 7] = f32::NAN;
    cases.push(mixer((2, 64, RANK), true, &h));
    for (m, hidden) in [(1, 1), (3, 96), (2, 2560)] {
        cases.push(inject(m, hidden, None));
    }
    for odd in [f32::NAN, f32::INFINITY] {
        cases.push(inject(2, 40, Some(odd)));
    }
    cases.push(probes(1));
    cases.push(probes(3));
    cases
}

/// A mixer and an injection.
pub(crate) fn timed() -> Vec<Case> {
    vec![mixer((1, 2560, 320), true, &Random::new(5).values(STREAMS * 2560)), inject(1, 2560, None)]
}

/// The weights of a mixer, small enough that the sigmoids are not saturated.
struct Mixer {
    norm: Vec<f32>,
    down: Affine,
    up: Affine,
    inject: Bf16,
}

impl Mixer {
    fn random(hidden: usize, rank: usize, seed: u64) -> Self {
        let width = STREAMS * hidden;
        let mut down = Affine::random(AffineFormat::Q4_G64, rank, width);
        down.weight.rotate_left(seed as usize);
        Self {
            norm: Random::new(seed).scaled(width, 0.25),
            down,
            up: Affine::random(AffineFormat::Q4_G64, width, rank),
            inject: Bf16::random(STREAMS, width),
        }
    }

    fn weights(&self) -> HcWeights<'_> {
        HcWeights {
            streams: STREAMS,
            norm: &self.norm,
            down: self.down.matrix(),
            up: self.up.matrix(),
            inject: Some(self.inject.matrix()),
            eps: 1e-6,
        }
    }

    fn view(&self, case: &mut Case) -> HcView<BufferId> {
        HcView {
            streams: STREAMS,
            norm: case.floats(&self.norm),
            down: case.affine(&self.down),
            up: case.affine(&self.up),
            inject: Some(case.bf16(&self.inject)),
            eps: 1e-6,
        }
    }
}

fn scratch(case: &mut Case, m: usize, hidden: usize, rank: usize) -> HcScratch<BufferId> {
    let width = m * STREAMS * hidden;
    HcScratch {
        normed: case.scratch(width),
        low: case.scratch(m * rank),
        gates: case.scratch(width),
    }
}

fn mixer((m, hidden, rank): (usize, usize, usize), injects: bool, h: &[f32]) -> Case {
    let mut case = Case::new(format!("mixer {m} x {hidden}"));
    let weights = Mixer::random(hidden, rank, 5);
    let (mut mixed, mut gates) = (vec![f32::NAN; m * hidden], vec![f32::NAN; m * STREAMS]);
    Reference.hc_mix(h, &weights.weights(), &mut mixed, Some(&mut gates));
    let (w, scratch) = (weights.view(&mut case), scratch(&mut case, m, hidden, rank));
    let (h, out) = (case.floats(h), case.scratch(m * hidden));
    let inject = case.scratch(m * STREAMS);
    let plan = hc_mix(m, h, &w, &scratch, out, injects.then_some(inject)).expect("a plan");
    case.launches.extend(plan);
    case.want_floats(out, mixed, 1e-5);
    if injects {
        case.want_floats(inject, gates, 1e-5);
    }
    case
}

/// With `odd`, one value of what is injected is that.
fn inject(m: usize, hidden: usize, odd: Option<f32>) -> Case {
    let mut case = Case::new(format!("inject {m} x {hidden} {odd:?}"));
    let mut random = Random::new(8);
    let (mut h, mut y) = (random.values(m * STREAMS * hidden), random.values(m * hidden));
    if let Some(odd) = odd {
        y[hidden / 2] = odd;
    }
    let gates = random.values(m * STREAMS);
    let (view, inject, out) = (case.floats(&h), case.floats(&gates), case.floats(&y));
    case.launch(hc_inject(m, STREAMS, hidden, view, inject, out).expect("a plan"));
    Reference.hc_inject(&mut h, &gates, &y, hidden);
    case.want_floats(view, h, 1e-6);
    case
}

/// A layer's mixer, router and choice, and two probes of later layers on the same streams: one
/// submission. The layer's own results are those that it has without them.
fn probes(m: usize) -> Case {
    let (hidden, experts, top_k) = (64, 40, 3);
    let mut case = Case::new(format!("probes of {m} rows"));
    let h = Random::new(2).values(m * STREAMS * hidden);
    let router = Bf16::random(experts, hidden);
    let view = case.floats(&h);
    let router_view = case.bf16(&router);
    let expected = |mixer: &Mixer| {
        let (mut mixed, mut gates) = (vec![0.0; m * hidden], vec![0.0; m * STREAMS]);
        Reference.hc_mix(&h, &mixer.weights(), &mut mixed, Some(&mut gates));
        let mut logits = vec![0.0; m * experts];
        Reference.bf16_matmul(&mixed, &router.matrix(), &mut logits);
        (mixed, logits)
    };
    let results = |case: &mut Case| -> [View<BufferId>; 2] {
        [case.scratch(m * hidden), case.scratch(m * experts)]
    };
    let own = Mixer::random(hidden, RANK, 11);
    let [mixed, logits] = results(&mut case);
    let (w, room) = (own.view(&mut case), scratch(&mut case, m, hidden, RANK));
    let (ids, weights) = (case.scratch(m * top_k), case.scratch(m * top_k));
    case.launches.extend(hc_mix(m, view, &w, &room, mixed, None).expect("a plan"));
    case.launch(bf16_matmul(Element::F32, m, mixed, &router_view, logits).expect("a plan"));
    case.launch(route(m, experts, top_k, logits, ids, weights).expect("a plan"));
    let (want_mixed, want_logits) = expected(&own);
    let (mut want_ids, mut want_weights) = (vec![0; m * top_k], vec![0.0; m * top_k]);
    Reference.route(&want_logits, experts, top_k, &mut want_ids, &mut want_weights);
    case.want_floats(mixed, want_mixed, 1e-5);
    case.want_floats(logits, want_logits, 1e-5);
    case.want_words(ids, want_ids);
    case.want_floats(weights, want_weights, 1e-4);
    for seed in [12, 13] {
        let later = Mixer::random(hidden, RANK, seed);
        let [mixed, logits] = results(&mut case);
        let w = later.view(&mut case);
        // The scratch of the layer serves its probes, too.
        let plan = probe(m, view, &w, &router_view, &room, mixed, logits).expect("a plan");
        case.launches.extend(plan);
        let (want_mixed, want_logits) = expected(&later);
        case.want_floats(mixed, want_mixed, 1e-5);
        case.want_floats(logits, want_logits, 1e-5);
    }
    case
}
