//! Affine-quantized products and rows.

use slotstream_core::AffineFormat;
use slotstream_kernels::metal::{AffineView, Element, View, affine_matmul, affine_rows};
use slotstream_kernels::reference;

use crate::case::Case;
use crate::data::{Affine, Random, sum_tolerance};

const G32: AffineFormat = AffineFormat::Q4_G32;
const G64: AffineFormat = AffineFormat::Q4_G64;

pub(crate) fn cases() -> Vec<Case> {
    let mut cases = Vec::new();
    for (format, n, k) in [
        (G32, 1, 32),
        (G64, 5, 64),
        (G32, 13, 96),
        (G64, 33, 640),
        (G64, 640, 64),
        (G64, 9, 2560),
        (G32, 70, 160),
    ] {
        for element in [Element::F32, Element::Bf16] {
            for m in [1, 2, 31, 37] {
                let mut random = Random::new((m * n) as u64);
                cases.push(product(format, element, m, n, k, &random.values(m * k)));
            }
        }
    }
    // The largest of a decoded token.
    let mut random = Random::new(9);
    cases.push(product(G64, Element::F32, 1, 2560, 640, &random.values(640)));
    cases.push(product(G64, Element::F32, 3, 64, 10240, &random.values(3 * 10240)));
    for m in [1, 4] {
        for odd in [f32::NAN, f32::INFINITY, f32::NEG_INFINITY] {
            let mut x = random.values(m * 128);
            x[77] = odd;
            cases.push(product(G64, Element::F32, m, 40, 128, &x));
            cases.push(product(G32, Element::Bf16, m, 40, 128, &x));
        }
    }
    cases.push(not_a_number_in_the_weights());
    cases.extend([
        rows(G32, 9, 32, &[8, 0, 8]),
        rows(G64, 7, 2560, &[6]),
        rows(G32, 3, 1120, &[2, 1]),
    ]);
    cases.push(far_rows());
    cases
}

/// The largest product of a layer, for one row and for 16; rows of the vocabulary.
pub(crate) fn timed() -> Vec<Case> {
    let (n, k) = (16_384, 2560);
    let product =
        |element, m: usize| product(G64, element, m, n, k, &Random::new(m as u64).values(m * k));
    vec![
        product(Element::F32, 1),
        product(Element::Bf16, 1),
        product(Element::F32, 16),
        rows(G64, 4096, k, &[4095, 17, 2048]),
    ]
}

fn product(
    format: AffineFormat,
    element: Element,
    m: usize,
    n: usize,
    k: usize,
    x: &[f32],
) -> Case {
    let w = Affine::random(format, n, k);
    let name = format!("affine {format:?} {element:?} {m} x {n} x {k}");
    product_of(name, element, m, &w, x)
}

fn product_of(name: String, element: Element, m: usize, w: &Affine, x: &[f32]) -> Case {
    let mut case = Case::new(name);
    let mut want = vec![f32::NAN; m * w.rows];
    reference::affine_matmul(x, &w.matrix(), &mut want);
    let (x, out) = (case.elements(element, x), case.room(element, m * w.rows));
    let view = case.affine(w);
    case.launch(affine_matmul(element, m, x, &view, out).expect("a plan"));
    // A bf16 result is rounded to 8 bits.
    let tolerance = if element == Element::Bf16 { 5e-3 } else { sum_tolerance(w.cols) };
    case.want(element, out, want, tolerance);
    case
}

fn not_a_number_in_the_weights() -> Case {
    let mut w = Affine::random(G64, 12, 128);
    // Row 3: a scale that is NaN; row 4: a bias that is infinite.
    w.scales[3 * 4..3 * 4 + 2].copy_from_slice(&0x7fc0_u16.to_le_bytes());
    w.biases[4 * 4..4 * 4 + 2].copy_from_slice(&0x7f80_u16.to_le_bytes());
    let x = Random::new(3).values(128).iter().map(|v| v.abs()).collect::<Vec<_>>();
    product_of("affine NaN in the weights".into(), Element::F32, 1, &w, &x)
}

fn rows(format: AffineFormat, n: usize, k: usize, ids: &[u32]) -> Case {
    let mut case = Case::new(format!("affine rows {format:?} {n} x {k}"));
    let w = Affine::random(format, n, k);
    let mut want = vec![f32::NAN; ids.len() * k];
    reference::affine_rows(&w.matrix(), ids, &mut want);
    let (w, out) = (case.affine(&w), case.scratch(want.len()));
    let list = case.words(ids);
    case.launch(affine_rows(&w, ids.len(), list, out).expect("a plan"));
    case.want_floats(out, want, 0.0);
    case
}

/// A table of 5 GiB of words: the last row lies past byte 2^32, and past element 2^32 / 4.
fn far_rows() -> Case {
    let mut case = Case::new("affine rows past 4 GiB");
    let (k, n) = (2048, 5 << 20);
    let one = Affine::random(G32, 1, k);
    let mut want = vec![f32::NAN; k];
    reference::affine_rows(&one.matrix(), &[0], &mut want);
    let mut sparse = |bytes: &[u8]| {
        let buffer = case.memory.sparse(n * bytes.len());
        case.memory.write(buffer, (n - 1) * bytes.len(), bytes.to_vec());
        View::new(buffer, 0, n * bytes.len())
    };
    let (weight, scales, biases) = (sparse(&one.weight), sparse(&one.scales), sparse(&one.biases));
    let w = AffineView { format: G32, rows: n, cols: k, weight, scales, biases };
    let ids = case.words(&[n as u32 - 1]);
    let out = case.scratch(k);
    case.launch(affine_rows(&w, 1, ids, out).expect("a plan"));
    case.want_floats(out, want, 0.0);
    // The same row as the only one of a matrix that starts there.
    let last = |view: View<_>, len| View::new(view.buffer, (n - 1) * len, len);
    let w = AffineView {
        rows: 1,
        weight: last(weight, one.weight.len()),
        scales: last(scales, one.scales.len()),
        biases: last(biases, one.biases.len()),
        ..w
    };
    let x = Random::new(5).values(k);
    let mut want = [f32::NAN];
    reference::affine_matmul(&x, &one.matrix(), &mut want);
    let (x, out) = (case.floats(&x), case.scratch(1));
    case.launch(affine_matmul(Element::F32, 1, x, &w, out).expect("a plan"));
    case.want_floats(out, want.to_vec(), sum_tolerance(k));
    case
}
