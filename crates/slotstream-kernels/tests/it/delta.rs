//! The gated delta rule.

use slotstream_kernels::{GatedDeltaArgs, Kernels, Reference};

use crate::data::{Random, assert_close, bits};

const KEY_HEADS: usize = 2;
const HEADS: usize = 4;
const KEY: usize = 8;
const VALUE: usize = 4;
const ROW: usize = 2 * KEY_HEADS * KEY + HEADS * VALUE;
const STATE: usize = HEADS * KEY * VALUE;

struct Case {
    qkv: Vec<f32>,
    a: Vec<f32>,
    b: Vec<f32>,
    z: Vec<f32>,
    a_log: Vec<f32>,
    dt_bias: Vec<f32>,
    norm: Vec<f32>,
    sigmoid_gate: bool,
}

impl Case {
    fn random(m: usize) -> Self {
        let mut random = Random::new(6);
        Self {
            qkv: random.values(m * ROW),
            a: random.values(m * HEADS),
            b: random.values(m * HEADS),
            z: random.values(m * HEADS * VALUE),
            a_log: random.values(HEADS),
            dt_bias: random.values(HEADS),
            norm: random.values(VALUE),
            sigmoid_gate: true,
        }
    }

    fn args(&self, from: usize, to: usize) -> GatedDeltaArgs<'_> {
        GatedDeltaArgs {
            qkv: &self.qkv[from * ROW..to * ROW],
            a: &self.a[from * HEADS..to * HEADS],
            b: &self.b[from * HEADS..to * HEADS],
            z: &self.z[from * HEADS * VALUE..to * HEADS * VALUE],
            a_log: &self.a_log,
            dt_bias: &self.dt_bias,
            norm: &self.norm,
            key_heads: KEY_HEADS,
            value_heads: HEADS,
            key_dim: KEY,
            value_dim: VALUE,
            sigmoid_gate: self.sigmoid_gate,
            eps: 1e-6,
        }
    }

    /// One row in f64, as the spec writes it.
    fn oracle(&self, t: usize, state: &mut [f64]) -> Vec<f32> {
        let wide = |v: &[f32]| v.iter().map(|v| f64::from(*v)).collect::<Vec<f64>>();
        let row = wide(&self.qkv[t * ROW..(t + 1) * ROW]);
        let sigmoid = |x: f64| 1.0 / (1.0 + (-x).exp());
        let unit = |x: &[f64]| {
            let norm = (x.iter().map(|v| v * v).sum::<f64>() + 1e-6).sqrt();
            x.iter().map(|v| v / norm).collect::<Vec<f64>>()
        };
        let mut out = Vec::new();
        for h in 0..HEADS {
            let key = h / 2 * KEY;
            let q = unit(&row[key..key + KEY]);
            let k = unit(&row[KEY_HEADS * KEY + key..][..KEY]);
            let v = &row[2 * KEY_HEADS * KEY + h * VALUE..][..VALUE];
            let at = t * HEADS + h;
            let soft = (f64::from(self.a[at]) + f64::from(self.dt_bias[h])).exp().ln_1p();
            let decay = (-f64::from(self.a_log[h]).exp() * soft).exp();
            let beta = sigmoid(f64::from(self.b[at]));
            let s = &mut state[h * KEY * VALUE..(h + 1) * KEY * VALUE];
            s.iter_mut().for_each(|s| *s *= decay);
            let old = |s: &[f64], j: usize, x: &[f64]| {
                (0..KEY).map(|i| s[i * VALUE + j] * x[i]).sum::<f64>()
            };
            let delta: Vec<f64> = (0..VALUE).map(|j| beta * (v[j] - old(s, j, &k))).collect();
            for i in 0..KEY {
                for j in 0..VALUE {
                    s[i * VALUE + j] += k[i] * delta[j];
                }
            }
            let o: Vec<f64> = (0..VALUE).map(|j| old(s, j, &q) / (KEY as f64).sqrt()).collect();
            let rms = (o.iter().map(|v| v * v).sum::<f64>() / VALUE as f64 + 1e-6).sqrt();
            for (j, o) in o.iter().enumerate() {
                let z = f64::from(self.z[at * VALUE + j]);
                let gate = if self.sigmoid_gate { sigmoid(z) } else { z * sigmoid(z) };
                out.push((o / rms * f64::from(self.norm[j]) * gate) as f32);
            }
        }
        out
    }
}

#[test]
fn follows_the_spec_row_by_row() {
    for sigmoid_gate in [true, false] {
        let case = Case { sigmoid_gate, ..Case::random(9) };
        let mut state = Random::new(1).values(STATE);
        let mut wide: Vec<f64> = state.iter().map(|v| f64::from(*v)).collect();
        let mut out = vec![f32::NAN; 9 * HEADS * VALUE];
        Reference.gated_delta(&case.args(0, 9), &mut state, &mut [], &mut out);
        let want: Vec<f32> = (0..9).flat_map(|t| case.oracle(t, &mut wide)).collect();
        assert_close(&out, &want, 2e-6);
        let wide: Vec<f32> = wide.iter().map(|v| *v as f32).collect();
        assert_close(&state, &wide, 2e-6);
    }
}

#[test]
fn recorded_states_are_those_of_the_rows_run_one_by_one() {
    let case = Case::random(6);
    let start = Random::new(2).values(STATE);
    let mut state = start.clone();
    let mut together = vec![f32::NAN; 6 * HEADS * VALUE];
    let mut recorded = vec![vec![f32::NAN; STATE]; 6];
    let mut record: Vec<Option<&mut [f32]>> =
        recorded.iter_mut().map(|r| Some(r.as_mut_slice())).collect();
    record[3] = None;
    Reference.gated_delta(&case.args(0, 6), &mut state, &mut record, &mut together);

    let mut one = start;
    for t in 0..6 {
        let mut out = vec![f32::NAN; HEADS * VALUE];
        Reference.gated_delta(&case.args(t, t + 1), &mut one, &mut [], &mut out);
        assert_eq!(bits(&out), bits(&together[t * HEADS * VALUE..][..HEADS * VALUE]));
        if t == 3 {
            assert!(recorded[t].iter().all(|v| v.is_nan()), "nobody asked for row 3");
        } else {
            assert_eq!(bits(&recorded[t]), bits(&one));
        }
    }
    assert_eq!(bits(&state), bits(&one));
}

#[test]
fn a_nan_stays_within_its_value_head() {
    let mut case = Case::random(2);
    case.b[1] = f32::NAN;
    let mut state = vec![0.5; STATE];
    let mut out = vec![0.0; 2 * HEADS * VALUE];
    Reference.gated_delta(&case.args(0, 2), &mut state, &mut [], &mut out);
    for (i, out) in out.chunks_exact(VALUE).enumerate() {
        assert!(out.iter().all(|v| v.is_nan() == (i % HEADS == 1)), "head {}", i % HEADS);
    }
    assert!(state[KEY * VALUE..2 * KEY * VALUE].iter().all(|v| v.is_nan()));
    assert!(state[2 * KEY * VALUE..].iter().all(|v| v.is_finite()));
}

#[test]
fn a_strong_decay_forgets_and_nothing_overflows() {
    let mut case = Case::random(1);
    case.a.fill(1e4);
    case.a_log.fill(2.0);
    let mut state = vec![1e30; STATE];
    let mut out = vec![f32::NAN; HEADS * VALUE];
    Reference.gated_delta(&case.args(0, 1), &mut state, &mut [], &mut out);
    assert!(state.iter().all(|s| s.abs() <= 1.0) && out.iter().all(|v| v.is_finite()));
}
