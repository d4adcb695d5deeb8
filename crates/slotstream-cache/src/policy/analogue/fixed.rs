//! Numbers that are the same on every machine: fixed point, and an exponential of our own.

/// Fractional bits of probabilities, discounts and frequencies.
pub(super) const BITS: u32 = 26;
/// One.
pub(super) const ONE: u64 = 1 << BITS;

/// Fractional bits of an analogue's weight.
const WEIGHT_BITS: u32 = 16;
/// The weight of the null analogue, which stands for the frequencies.
pub(super) const NULL: u64 = 1 << WEIGHT_BITS;
/// The largest weight: with it, sums of products still fit 64 bits.
const HEAVIEST: u64 = 1 << 36;

/// `x` as a number with [`BITS`] fractional bits; `x` is small and not negative.
pub(super) fn fixed(x: f64) -> u64 {
    (x * ONE as f64).round() as u64
}

/// `x`, a power of `e`, as an analogue's weight.
pub(super) fn weight(x: f64) -> u64 {
    // Saturates, as casts of floats do.
    ((x * NULL as f64).round() as u64).min(HEAVIEST)
}

/// The exponential of `x`, by products and sums alone: the standard library's may differ in the
/// last place from machine to machine.
pub(super) fn exp(x: f64) -> f64 {
    // A Taylor series of a small part of x, squared ten times.
    const HALVINGS: u32 = 10;
    let small = x.clamp(-80.0, 80.0) / f64::from(1_u32 << HALVINGS);
    let mut term = 1.0;
    let mut sum = 1.0;
    for n in 1..12 {
        term *= small / f64::from(n);
        sum += term;
    }
    for _ in 0..HALVINGS {
        sum *= sum;
    }
    sum
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_exponential_is_that_of_the_library() {
        for at in -800..=800 {
            let x = f64::from(at) / 10.0;
            let close = (exp(x) / x.exp() - 1.0).abs();
            assert!(close < 1e-11, "e^{x}: off by {close}");
        }
        assert_eq!(exp(0.0), 1.0);
        assert_eq!(exp(1e9), exp(80.0));
    }

    #[test]
    fn weights_are_bounded() {
        assert_eq!(weight(exp(0.0)), NULL);
        assert_eq!(weight(exp(80.0)), HEAVIEST);
        assert_eq!(weight(exp(-80.0)), 0);
        assert_eq!((fixed(1.0), fixed(0.5)), (ONE, ONE / 2));
    }
}
