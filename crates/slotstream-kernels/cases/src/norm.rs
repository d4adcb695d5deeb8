//! Grouped norms.

use slotstream_kernels::metal::grouped_rms_norm;
use slotstream_kernels::reference;

use crate::case::Case;
use crate::data::Random;

pub(crate) fn cases() -> Vec<Case> {
    let mut cases = Vec::new();
    for (groups, width) in [(1, 1), (4, 31), (4, 32), (2, 64), (4, 96), (3, 640), (4, 2560)] {
        for m in [1, 3] {
            let x = Random::new((m + width) as u64).values(m * groups * width);
            cases.push(grouped(m, groups, width, &x));
        }
    }
    for odd in [f32::NAN, f32::INFINITY, 0.0] {
        let mut x = vec![0.0; 3 * 96];
        x[100] = odd;
        cases.push(grouped(1, 3, 96, &x));
    }
    cases
}

/// The streams of a row.
pub(crate) fn timed() -> Vec<Case> {
    vec![grouped(1, 4, 2560, &Random::new(2).values(4 * 2560))]
}

fn grouped(m: usize, groups: usize, width: usize, x: &[f32]) -> Case {
    let mut case = Case::new(format!("norm {m} x {groups} x {width}"));
    let weight = Random::new(1).values(groups * width);
    let mut want = vec![f32::NAN; x.len()];
    reference::grouped_rms_norm(x, &weight, width, 1e-6, &mut want);
    let (x, weight, out) = (case.floats(x), case.floats(&weight), case.scratch(want.len()));
    case.launch(grouped_rms_norm(m, groups, width, 1e-6, x, weight, out).expect("a plan"));
    case.want_floats(out, want, 2e-6);
    case
}
