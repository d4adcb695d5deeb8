//! Functions of one number, the dot product and the order in which choices are ranked.

use std::cmp::Ordering;

/// `1 / (1 + e^-x)`.
#[must_use]
pub fn sigmoid(x: f32) -> f32 {
    1.0 / (1.0 + (-x).exp())
}

/// `x * sigmoid(x)`.
#[must_use]
pub fn silu(x: f32) -> f32 {
    x * sigmoid(x)
}

/// `ln(1 + e^x)`; above 20, where they agree in f32, `x` itself.
#[must_use]
pub fn softplus(x: f32) -> f32 {
    if x > 20.0 { x } else { x.exp().ln_1p() }
}

/// The dot product, summed in f64: eight running sums, one for each `i % 8`, added up in order.
pub(super) fn dot(a: &[f32], b: &[f32]) -> f64 {
    assert_eq!(a.len(), b.len());
    let mut sums = [0.0_f64; 8];
    let (whole_a, rest_a) = a.as_chunks::<8>();
    let (whole_b, rest_b) = b.as_chunks::<8>();
    for (a, b) in whole_a.iter().zip(whole_b) {
        for i in 0..8 {
            sums[i] += f64::from(a[i]) * f64::from(b[i]);
        }
    }
    for (i, (a, b)) in rest_a.iter().zip(rest_b).enumerate() {
        sums[i] += f64::from(*a) * f64::from(*b);
    }
    sums.iter().sum()
}

/// Larger numbers first, NaN last, equal numbers by index.
pub(super) fn best_first(scores: &[f32], a: u32, b: u32) -> Ordering {
    let (x, y) = (scores[a as usize], scores[b as usize]);
    let by_score = match (x.is_nan(), y.is_nan()) {
        (true, true) => Ordering::Equal,
        (true, false) => Ordering::Greater,
        (false, true) => Ordering::Less,
        (false, false) => y.partial_cmp(&x).unwrap_or(Ordering::Equal),
    };
    by_score.then(a.cmp(&b))
}
