//! Plain loops, compiled once for each instruction set, and what they have in common.
//!
//! Rust neither reorders nor fuses floating-point operations, so the same loop has the same bits
//! whatever registers it is compiled for. Sums have a fixed number of running sums and a fixed
//! order in which those are added up.

use super::InstructionSet;

/// A piece of work to be compiled for each instruction set.
///
/// `run` and everything that it calls in its loops must be `#[inline(always)]`: only then is it
/// compiled for the set.
pub(super) trait Task {
    fn run(self);
}

impl InstructionSet {
    /// Runs `task`, compiled for this set.
    ///
    /// # Safety
    /// The machine has the set.
    pub(super) unsafe fn run<T: Task>(self, task: T) {
        // SAFETY: the caller's promise.
        unsafe {
            match self {
                #[cfg(target_arch = "x86_64")]
                Self::Avx2 => avx2(task),
                #[cfg(target_arch = "x86_64")]
                Self::Avx512 | Self::Amx => avx512(task),
                #[cfg(target_arch = "aarch64")]
                Self::Neon => neon(task),
                _ => task.run(),
            }
        }
    }
}

/// # Safety
/// The machine has AVX2 and FMA.
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2,fma")]
unsafe fn avx2<T: Task>(task: T) {
    task.run();
}

/// # Safety
/// The machine has AVX-512 F, BW and VL.
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2,fma,avx512f,avx512bw,avx512vl")]
unsafe fn avx512<T: Task>(task: T) {
    task.run();
}

/// # Safety
/// The machine has NEON.
#[cfg(target_arch = "aarch64")]
#[target_feature(enable = "neon")]
unsafe fn neon<T: Task>(task: T) {
    task.run();
}

/// Running sums of an f32 reduction.
pub(super) const LANES: usize = 16;

/// Lane `i` and `i + 8`, then `i + 4`, `i + 2`, `i + 1`.
#[inline(always)]
pub(super) fn tree(mut sums: [f32; LANES]) -> f32 {
    for half in [8, 4, 2, 1] {
        for i in 0..half {
            sums[i] += sums[i + half];
        }
    }
    sums[0]
}

/// The dot product in f64: eight running sums, one for each `i % 8`, added up in order. A product
/// of two f32 is exact, so these are the bits of the reference.
#[inline(always)]
pub(super) fn dot(a: &[f32], b: &[f32]) -> f64 {
    assert_eq!(a.len(), b.len(), "as long as each other");
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
    let mut sum = 0.0;
    for part in sums {
        sum += part;
    }
    sum
}

/// `1 / sqrt(mean(x^2) + eps)`.
#[inline(always)]
pub(super) fn inverse_rms(x: &[f32], eps: f32) -> f32 {
    (1.0 / (dot(x, x) / x.len() as f64 + f64::from(eps)).sqrt()) as f32
}

/// `x * inverse_rms(x) * weight`.
#[inline(always)]
pub(super) fn rms_norm(x: &[f32], weight: &[f32], eps: f32, out: &mut [f32]) {
    let scale = inverse_rms(x, eps);
    for ((out, x), weight) in out.iter_mut().zip(x).zip(weight) {
        *out = x * scale * weight;
    }
}

/// `e^x` to within two units in the last place. From a table of nothing but these operations, so
/// that it has the same bits everywhere; NaN stays NaN.
#[inline(always)]
pub(super) fn exp(x: f32) -> f32 {
    /// Added and taken away again, it leaves the nearest whole number, also in the low bits.
    const ROUND: f32 = 12_582_912.0;
    const LN2: [f32; 2] = [std::f32::consts::LN_2, -1.904_654_3e-9];
    /// `1 / n!` from 7 down.
    const FACTORS: [f32; 7] =
        [1.984_127e-4, 1.388_888_9e-3, 8.333_333e-3, 4.166_666_7e-2, 1.666_666_7e-1, 0.5, 1.0];
    // Beyond these it is infinite or 0. A NaN is neither larger nor smaller.
    let x = if x > 89.0 { 89.0 } else { x };
    let x = if x < -104.0 { -104.0 } else { x };
    let shifted = x.mul_add(std::f32::consts::LOG2_E, ROUND);
    let n = shifted - ROUND;
    let r = n.mul_add(-LN2[1], n.mul_add(-LN2[0], x));
    let mut p = FACTORS[0];
    for factor in &FACTORS[1..] {
        p = p.mul_add(r, *factor);
    }
    let p = p.mul_add(r, 1.0);
    // 2^n in two factors, since it may be beyond the range of one.
    let n = shifted.to_bits().wrapping_sub(ROUND.to_bits()) as i32;
    let half = n >> 1;
    let power = |n: i32| f32::from_bits((n.wrapping_add(127) as u32).wrapping_shl(23));
    p * power(half) * power(n.wrapping_sub(half))
}

/// `1 / (1 + e^-x)`.
#[inline(always)]
pub(super) fn sigmoid(x: f32) -> f32 {
    1.0 / (1.0 + exp(-x))
}

/// `x * sigmoid(x)`.
#[inline(always)]
pub(super) fn silu(x: f32) -> f32 {
    x * sigmoid(x)
}

/// A number that orders scores as they are chosen: the largest first, NaN last, equal ones by
/// index.
#[inline(always)]
pub(super) fn rank(score: f32, index: u32) -> u64 {
    // 0 and -0 are equal.
    let bits = (score + 0.0).to_bits();
    let descending = if score.is_nan() {
        u32::MAX
    } else if bits >> 31 == 0 {
        // Positive: the larger, the smaller.
        0x7fff_ffff - bits
    } else {
        bits
    };
    u64::from(descending) << 32 | u64::from(index)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn exponentials_are_close() {
        let mut worst = 0.0_f64;
        for i in -1_030_000..=887_000 {
            let x = i as f32 / 10_000.0;
            let (got, want) = (f64::from(exp(x)), f64::from(x).exp());
            let unit = (want * f64::from(f32::EPSILON)).max(2.0_f64.powi(-149));
            worst = worst.max((got - want).abs() / unit);
        }
        assert!(worst <= 1.0, "{worst} units in the last place");
        assert_eq!(exp(0.0), 1.0);
        assert_eq!((exp(f32::INFINITY), exp(f32::NEG_INFINITY)), (f32::INFINITY, 0.0));
        assert!(exp(f32::NAN).is_nan() && sigmoid(f32::NAN).is_nan());
        assert_eq!((sigmoid(200.0), sigmoid(-200.0), sigmoid(0.0)), (1.0, 0.0, 0.5));
    }

    #[test]
    fn ranks_order_as_choices_do() {
        let scores = [f32::INFINITY, 3.0, 1e-40, 0.0, -0.0, -1e-40, -3.0, f32::NEG_INFINITY];
        let ranks: Vec<u64> = (0..).zip(scores).map(|(i, s)| rank(s, i)).collect();
        assert!(ranks.is_sorted_by(|a, b| a < b), "{ranks:x?}");
        assert!(rank(f32::NAN, 0) > rank(f32::NEG_INFINITY, 9));
        assert!(rank(-f32::NAN, 0) < rank(f32::NAN, 1));
        assert!(rank(-0.0, 1) < rank(0.0, 2) && rank(0.0, 1) < rank(-0.0, 2));
        assert_eq!(rank(7.0, 5) as u32, 5);
    }
}
