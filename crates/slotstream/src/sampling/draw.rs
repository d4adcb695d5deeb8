//! Weights of tokens and the draw among them, in arithmetic that is the same on every platform.

use std::cmp::Ordering;

/// `e^x` for `x <= 0` with a relative error below 1e-15, from additions and multiplications only.
///
/// `f64::exp` calls the platform's math library, whose last bit differs between systems. Results
/// below 2^-1021 are 0.
pub(super) fn exp(x: f64) -> f64 {
    /// ln(2) in two parts, the first with so few bits that its product with `k` is exact.
    const LN_2_HIGH: f64 = f64::from_bits(0x3fe6_2e42_fee0_0000);
    const LN_2_LOW: f64 = f64::from_bits(0x3dea_39ef_3579_3c76);
    /// 1/13!, 1/12!, ..., 1/1!, 1/0!; the remainder at |r| <= ln(2)/2 is below 5e-18.
    const TERMS: [f64; 14] = [
        1.0 / 6_227_020_800.0,
        1.0 / 479_001_600.0,
        1.0 / 39_916_800.0,
        1.0 / 3_628_800.0,
        1.0 / 362_880.0,
        1.0 / 40_320.0,
        1.0 / 5_040.0,
        1.0 / 720.0,
        1.0 / 120.0,
        1.0 / 24.0,
        1.0 / 6.0,
        0.5,
        1.0,
        1.0,
    ];
    if x < -707.0 {
        return 0.0;
    }
    let k = (x * std::f64::consts::LOG2_E).round();
    let r = (x - k * LN_2_HIGH) - k * LN_2_LOW;
    let series = TERMS.iter().fold(0.0, |sum, term| sum * r + term);
    // k lies in -1020..=0, so the exponent field stays that of a normal number.
    series * f64::from_bits(((1023 + k as i64) as u64) << 52)
}

/// Higher logits first, of equal ones the lower id: a total order of tokens without NaN.
pub(super) fn more_likely(logits: &[f32], a: u32, b: u32) -> Ordering {
    logits[b as usize].partial_cmp(&logits[a as usize]).unwrap_or(Ordering::Equal).then(a.cmp(&b))
}

/// How many of the leading `weights` (descending) the smallest set with at least `share` of
/// `total` has. `before` is the sum of weights already taken; it is advanced by those counted.
pub(super) fn nucleus(weights: &[f64], before: &mut f64, share: f64, total: f64) -> Option<usize> {
    for (index, weight) in weights.iter().enumerate() {
        *before += weight;
        if *before >= share * total {
            return Some(index + 1);
        }
    }
    None
}

/// Index of the weight that the point `uniform` in [0, 1) falls on, or `None` if all are 0.
pub(super) fn pick(weights: &[f64], uniform: f64) -> Option<usize> {
    let point = uniform * weights.iter().sum::<f64>();
    let mut sum = 0.0;
    for (index, weight) in weights.iter().enumerate() {
        sum += weight;
        if sum > point {
            return Some(index);
        }
    }
    // Only rounding leads here: `uniform * total` may round up to `total`.
    weights.iter().rposition(|weight| *weight > 0.0)
}
