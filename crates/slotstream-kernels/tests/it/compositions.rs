//! The operations that consist of others, over every op set.

use slotstream_core::AffineFormat;
use slotstream_kernels::{HcWeights, Kernels, MlpWeights, Reference};

use crate::data::{Affine, Bf16, Random, assert_close, bits, cpus};

const HIDDEN: usize = 64;
const STREAMS: usize = 4;
const WIDTH: usize = STREAMS * HIDDEN;

fn sets() -> Vec<Box<dyn Kernels>> {
    let mut sets: Vec<Box<dyn Kernels>> = vec![Box::new(Reference)];
    for cpu in cpus(&[1, 2]) {
        sets.push(Box::new(cpu));
    }
    sets
}

fn sigmoid(x: f64) -> f64 {
    1.0 / (1.0 + (-x).exp())
}

/// `w . x` in f64.
fn apply(w: &[f32], x: &[f64]) -> Vec<f64> {
    w.chunks_exact(x.len()).map(|w| w.iter().zip(x).map(|(w, x)| f64::from(*w) * x).sum()).collect()
}

fn wide(x: &[f32]) -> Vec<f64> {
    x.iter().map(|v| f64::from(*v)).collect()
}

fn narrow(x: &[f64]) -> Vec<f32> {
    x.iter().map(|v| *v as f32).collect()
}

#[test]
fn the_mixer_follows_the_spec_and_rows_do_not_depend_on_each_other() {
    // Weights small enough that the sigmoids are not saturated.
    let (down, up) = (
        Affine::random(AffineFormat::Q4_G64, 32, WIDTH, 0),
        Affine::random(AffineFormat::Q4_G32, WIDTH, 32, 0),
    );
    let inject = Bf16::random(STREAMS, WIDTH, 0);
    let mut random = Random::new(12);
    let norm: Vec<f32> = random.values(WIDTH).iter().map(|v| 0.1 * v).collect();
    let m = 35;
    let h = random.values(m * WIDTH);
    let weights = HcWeights {
        streams: STREAMS,
        norm: &norm,
        down: down.matrix(),
        up: up.matrix(),
        inject: Some(inject.matrix()),
        eps: 1e-6,
    };
    let (down, up, inject) = (down.dequantized(), up.dequantized(), inject.widened());
    for set in sets() {
        let (mut mixed, mut gates) = (vec![f32::NAN; m * HIDDEN], vec![f32::NAN; m * STREAMS]);
        set.hc_mix(&h, &weights, &mut mixed, Some(&mut gates));
        for (t, h) in h.chunks_exact(WIDTH).enumerate() {
            let mut n = Vec::new();
            for (h, w) in h.chunks_exact(HIDDEN).zip(norm.chunks_exact(HIDDEN)) {
                let squares: f64 = wide(h).iter().map(|v| v * v).sum();
                let rms = (squares / HIDDEN as f64 + 1e-6).sqrt();
                n.extend(wide(h).iter().zip(wide(w)).map(|(h, w)| h / rms * w));
            }
            let low: Vec<f64> =
                apply(&down, &n).iter().map(|v| v / 4.0 * sigmoid(v / 4.0)).collect();
            let gate = apply(&up, &low);
            let want: Vec<f64> = (0..HIDDEN)
                .map(|j| {
                    let at = |s: usize| s * HIDDEN + j;
                    (0..STREAMS).map(|s| sigmoid(gate[at(s)]) * n[at(s)]).sum::<f64>() / 4.0
                })
                .collect();
            assert_close(&mixed[t * HIDDEN..][..HIDDEN], &narrow(&want), 2e-6);
            let want: Vec<f64> =
                apply(&inject, &n).iter().map(|v| 2.0 * sigmoid(v / 4.0)).collect();
            assert_close(&gates[t * STREAMS..][..STREAMS], &narrow(&want), 2e-6);

            let (mut mixed1, mut gates1) = ([f32::NAN; HIDDEN], [f32::NAN; STREAMS]);
            set.hc_mix(h, &weights, &mut mixed1, Some(&mut gates1));
            assert_eq!(bits(&mixed1), bits(&mixed[t * HIDDEN..][..HIDDEN]));
            assert_eq!(bits(&gates1), bits(&gates[t * STREAMS..][..STREAMS]));
        }
        // The final mixer has no injection.
        let mut last = vec![f32::NAN; m * HIDDEN];
        set.hc_mix(&h, &HcWeights { inject: None, ..weights }, &mut last, None);
        assert_eq!(bits(&last), bits(&mixed));
    }
}

#[test]
fn the_shared_expert_is_gated() {
    let q4 = AffineFormat::Q4_G32;
    let (gate, up, down) = (
        Affine::random(q4, 96, HIDDEN, 0),
        Affine::random(q4, 96, HIDDEN, 1),
        Affine::random(q4, HIDDEN, 96, 0),
    );
    let expert_gate = Bf16::random(1, HIDDEN, 0);
    let mlp = MlpWeights { gate: gate.matrix(), up: up.matrix(), down: down.matrix() };
    let mut random = Random::new(13);
    let m = 34;
    let x: Vec<f32> = random.values(m * HIDDEN).iter().map(|v| 0.1 * v).collect();
    let (gate, up, down) = (gate.dequantized(), up.dequantized(), down.dequantized());
    for set in sets() {
        let mut out = vec![f32::NAN; m * HIDDEN];
        set.shared_expert(&x, &mlp, &expert_gate.matrix(), &mut out);
        for (t, x) in x.chunks_exact(HIDDEN).enumerate() {
            let x = wide(x);
            let inner: Vec<f64> = apply(&gate, &x)
                .iter()
                .zip(apply(&up, &x))
                .map(|(g, u)| g * sigmoid(*g) * u)
                .collect();
            let scale = sigmoid(apply(&expert_gate.widened(), &x)[0]);
            let row = t * HIDDEN..(t + 1) * HIDDEN;
            let want: Vec<f64> = apply(&down, &inner).iter().map(|y| scale * y).collect();
            assert_close(&out[row], &narrow(&want), 1e-5);
        }
    }
}

#[test]
fn nan_reaches_the_outputs_of_its_row() {
    let w = Affine::random(AffineFormat::Q4_G32, 32, WIDTH, 0);
    let up = Affine::random(AffineFormat::Q4_G32, WIDTH, 32, 0);
    let inject = Bf16::random(STREAMS, WIDTH, 0);
    let weights = HcWeights {
        streams: STREAMS,
        norm: &[1.0; WIDTH],
        down: w.matrix(),
        up: up.matrix(),
        inject: Some(inject.matrix()),
        eps: 1e-6,
    };
    let mut h = Random::new(1).values(2 * WIDTH);
    h[WIDTH + 3] = f32::NAN;
    for set in sets() {
        let (mut mixed, mut gates) = ([0.0; 2 * HIDDEN], [0.0; 2 * STREAMS]);
        set.hc_mix(&h, &weights, &mut mixed, Some(&mut gates));
        assert!(mixed[..HIDDEN].iter().chain(&gates[..STREAMS]).all(|v| v.is_finite()));
        assert!(mixed[HIDDEN..].iter().chain(&gates[STREAMS..]).all(|v| v.is_nan()));
    }
}
