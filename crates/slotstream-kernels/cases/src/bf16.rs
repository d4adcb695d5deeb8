//! bf16 products.

use slotstream_kernels::metal::{Element, bf16_matmul};
use slotstream_kernels::reference;

use crate::case::Case;
use crate::data::{Bf16, Random, sum_tolerance};

pub(crate) fn cases() -> Vec<Case> {
    let mut cases = Vec::new();
    for (n, k) in [(1, 1), (3, 31), (8, 32), (9, 64), (33, 96), (512, 65), (4, 2560), (1, 10240)] {
        for element in [Element::F32, Element::Bf16] {
            for m in [1, 2, 33] {
                let x = Random::new((m + n + k) as u64).values(m * k);
                cases.push(product(element, m, n, k, &x));
            }
        }
    }
    for m in [1, 3] {
        for odd in [f32::NAN, f32::INFINITY] {
            let mut x = Random::new(3).values(m * 70);
            x[69] = odd;
            cases.push(product(Element::F32, m, 10, 70, &x));
        }
    }
    cases
}

/// The router, for one row and for 16.
pub(crate) fn timed() -> Vec<Case> {
    let product =
        |m: usize| product(Element::F32, m, 512, 2560, &Random::new(m as u64).values(m * 2560));
    vec![product(1), product(16)]
}

fn product(element: Element, m: usize, n: usize, k: usize, x: &[f32]) -> Case {
    let mut case = Case::new(format!("bf16 {element:?} {m} x {n} x {k}"));
    let w = Bf16::random(n, k);
    let mut want = vec![f32::NAN; m * n];
    reference::bf16_matmul(x, &w.matrix(), &mut want);
    let (x, out) = (case.elements(element, x), case.room(element, m * n));
    let w = case.bf16(&w);
    case.launch(bf16_matmul(element, m, x, &w, out).expect("a plan"));
    let tolerance = if element == Element::Bf16 { 5e-3 } else { sum_tolerance(k) };
    case.want(element, out, want, tolerance);
    case
}
