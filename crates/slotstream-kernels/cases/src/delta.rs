//! The gated delta rule: steps and chunks.

use slotstream_kernels::metal::{DeltaRing, DeltaShape, DeltaViews, View, gated_delta};
use slotstream_kernels::{GatedDeltaArgs, reference};

use crate::case::Case;
use crate::data::Random;

/// No entry of the ring.
const NONE: u32 = u32::MAX;

pub(crate) fn cases() -> Vec<Case> {
    let mut cases = Vec::new();
    for (key_heads, value_heads, key_dim, value_dim) in [
        (1, 1, 1, 1),
        (1, 3, 32, 32),
        (2, 4, 64, 96),
        (2, 2, 33, 31),
        (1, 2, 128, 128),
        (1, 1, 96, 256),
    ] {
        for (m, sigmoid_gate) in [(1, true), (5, false)] {
            let shape =
                DeltaShape { key_heads, value_heads, key_dim, value_dim, sigmoid_gate, eps: 1e-6 };
            cases.push(rule(m, shape, None, &[]));
        }
    }
    let shape = DeltaShape {
        key_heads: 1,
        value_heads: 3,
        key_dim: 40,
        value_dim: 24,
        sigmoid_gate: true,
        eps: 1e-6,
    };
    cases.push(rule(4, shape, None, &[NONE, 2, NONE, 0]));
    cases.push(rule(1, shape, None, &[1]));
    for odd in [f32::NAN, f32::INFINITY] {
        cases.push(rule(2, shape, Some(odd), &[]));
    }
    // The real shape of a head, over a chunk.
    cases.push(rule(9, DeltaShape { key_dim: 128, value_dim: 128, ..shape }, None, &[NONE; 9]));
    cases
}

/// A layer, for one row and for 16.
pub(crate) fn timed() -> Vec<Case> {
    let shape = DeltaShape {
        key_heads: 16,
        value_heads: 48,
        key_dim: 128,
        value_dim: 128,
        sigmoid_gate: true,
        eps: 1e-6,
    };
    vec![rule(1, shape, None, &[]), rule(16, shape, None, &[])]
}

/// `m` rows; with `entries`, their states go to those entries of a ring of 3.
fn rule(m: usize, shape: DeltaShape, odd: Option<f32>, entries: &[u32]) -> Case {
    let DeltaShape { key_heads, value_heads, key_dim, value_dim, .. } = shape;
    let mut case = Case::new(format!("delta {m} {shape:?} {odd:?} {entries:?}"));
    let (keys, values) = (key_heads * key_dim, value_heads * value_dim);
    let cells = values * key_dim;
    let mut random = Random::new((m + cells) as u64);
    let mut qkv = random.values(m * (2 * keys + values));
    if let Some(odd) = odd {
        // A value of the first head in the first row.
        qkv[2 * keys] = odd;
    }
    let (a, b) = (random.scaled(m * value_heads, 4.0), random.values(m * value_heads));
    let z = random.values(m * values);
    let (a_log, dt_bias) = (random.values(value_heads), random.scaled(value_heads, 24.0));
    let (norm, mut state) = (random.values(value_dim), random.values(cells));
    let args = GatedDeltaArgs {
        qkv: &qkv,
        a: &a,
        b: &b,
        z: &z,
        a_log: &a_log,
        dt_bias: &dt_bias,
        norm: &norm,
        key_heads,
        value_heads,
        key_dim,
        value_dim,
        sigmoid_gate: shape.sigmoid_gate,
        eps: shape.eps,
    };
    let inputs = DeltaViews {
        qkv: case.floats(&qkv),
        a: case.floats(&a),
        b: case.floats(&b),
        z: case.floats(&z),
        a_log: case.floats(&a_log),
        dt_bias: case.floats(&dt_bias),
        norm: case.floats(&norm),
    };
    let (state_view, out) = (case.floats(&state), case.scratch(m * values));
    let ring = (!entries.is_empty()).then(|| DeltaRing {
        entries: case.words(entries),
        ring: case.scratch(3 * cells),
        count: 3,
    });
    let plan = gated_delta(m, &shape, &inputs, state_view, ring.as_ref(), out).expect("a plan");
    case.launch(plan);

    let mut want = vec![f32::NAN; m * values];
    let mut states: Vec<Vec<f32>> = entries.iter().map(|_| vec![0.0; cells]).collect();
    let mut record: Vec<Option<&mut [f32]>> =
        states.iter_mut().map(|state| Some(&mut state[..])).collect();
    reference::gated_delta(&args, &mut state, &mut record, &mut want);
    // Errors of the state add up over the rows of a chunk.
    let tolerance = 2e-5;
    case.want_floats(out, want, tolerance);
    case.want_floats(state_view, state, tolerance);
    if let Some(ring) = ring {
        for entry in 0..3 {
            let view = View::new(ring.ring.buffer, entry * cells * 4, cells * 4);
            let row = entries.iter().position(|e| *e == entry as u32);
            // An entry of no row keeps its content.
            let state = row.map_or(vec![f32::NAN; cells], |row| states[row].clone());
            case.want_floats(view, state, tolerance);
        }
    }
    case
}
