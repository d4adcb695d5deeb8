//! The gate of the n-gram embedding.

use slotstream_kernels::metal::{PleViews, ple_gate};
use slotstream_kernels::{PleGateArgs, reference};

use crate::case::Case;
use crate::data::Random;

pub(crate) fn cases() -> Vec<Case> {
    let mut cases = Vec::new();
    for hidden in [1, 31, 32, 64, 96, 640, 2560] {
        for m in [1, 3] {
            cases.push(gate(m, 4, hidden, None));
        }
    }
    for odd in [f32::NAN, f32::INFINITY, 0.0] {
        cases.push(gate(2, 2, 96, Some(odd)));
    }
    cases
}

/// A row.
pub(crate) fn timed() -> Vec<Case> {
    vec![gate(1, 4, 2560, None)]
}

/// With `odd`, one value of the first row's streams is that and the second row's are zero.
fn gate(m: usize, streams: usize, hidden: usize, odd: Option<f32>) -> Case {
    let mut case = Case::new(format!("ple {m} x {streams} x {hidden} {odd:?}"));
    let width = streams * hidden;
    let mut random = Random::new((m + hidden) as u64);
    let mut h = random.values(m * width);
    if let Some(odd) = odd {
        h[5] = odd;
        h[width..].fill(0.0);
    }
    let (key, value) = (random.values(m * width), random.values(m * hidden));
    let (norm_key, norm_query) = (random.values(width), random.values(width));
    let norm_conv = random.values(width);
    let args = PleGateArgs {
        h: &h,
        key: &key,
        value: &value,
        norm_key: &norm_key,
        norm_query: &norm_query,
        norm_conv: &norm_conv,
        streams,
        eps: 1e-6,
    };
    let (mut gated, mut normed) = (vec![f32::NAN; m * width], vec![f32::NAN; m * width]);
    reference::ple_gate(&args, &mut gated, &mut normed);
    let views = PleViews {
        h: case.floats(&h),
        key: case.floats(&key),
        value: case.floats(&value),
        norm_key: case.floats(&norm_key),
        norm_query: case.floats(&norm_query),
        norm_conv: case.floats(&norm_conv),
    };
    let (value_out, conv_in) = (case.scratch(gated.len()), case.scratch(gated.len()));
    let plan = ple_gate((m, streams, hidden), 1e-6, &views, value_out, conv_in);
    case.launch(plan.expect("a plan"));
    // The root of a small product has a large derivative.
    case.want_floats(value_out, gated, 1e-5);
    case.want_floats(conv_in, normed, 1e-5);
    case
}
