//! Frequencies as logarithms, so that fading is a subtraction and comparisons are exact.

/// Fractional bits.
const BITS: u32 = 32;
const ONE: f64 = (1_u64 << BITS) as f64;

/// The base-2 logarithm of a frequency, in units of 2^-32.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Level(i64);

/// By how much a level falls with each token: `2^32 / half_life`, rounded.
pub(super) fn fall_of(half_life: f64) -> i64 {
    // In range: half-lives are at least a half.
    (ONE / half_life).round() as i64
}

impl Level {
    /// Of what was never used, or too long ago to tell.
    pub(super) const NEVER: Self = Self(i64::MIN);

    /// Below this a frequency is nothing: 2^-1000.
    const LOWEST: i64 = -1000 << BITS;

    /// What `tokens` tokens take away.
    pub(super) fn fall(fall: i64, tokens: u64) -> i64 {
        i64::try_from(tokens).unwrap_or(i64::MAX).saturating_mul(fall)
    }

    /// The level `tokens` tokens later.
    pub(super) fn fallen(self, fall: i64, tokens: u64) -> Self {
        let level = self.0.saturating_sub(Self::fall(fall, tokens));
        if level < Self::LOWEST { Self::NEVER } else { Self(level) }
    }

    /// The level after a use now.
    pub(super) fn used(self) -> Self {
        Self::of(self.value() + 1.0)
    }

    /// The level of a frequency.
    pub(super) fn of(frequency: f64) -> Self {
        // A NaN becomes level 0; nobody has one.
        if frequency <= 0.0 { Self::NEVER } else { Self((frequency.log2() * ONE).round() as i64) }
    }

    /// The frequency.
    pub(super) fn value(self) -> f64 {
        if self == Self::NEVER { 0.0 } else { (self.0 as f64 / ONE).exp2() }
    }

    /// What a level of token number `tokens` would be had it never fallen: this orders the
    /// records of a layer whatever its tokens do later.
    pub(super) fn standing(self, fall: i64, tokens: u64) -> i64 {
        if self == Self::NEVER { i64::MIN } else { self.0.saturating_add(Self::fall(fall, tokens)) }
    }

    pub(super) const fn bits(self) -> i64 {
        self.0
    }

    /// A level of that many bits; `None` when no frequency has it.
    pub(super) fn from_bits(bits: i64) -> Option<Self> {
        let is_level = bits == Self::NEVER.0 || (Self::LOWEST..64 << BITS).contains(&bits);
        is_level.then_some(Self(bits))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_level_is_the_sum_of_faded_uses() {
        for half_life in [0.5, 1.0, 7.0, 16.0, 1000.0] {
            let fall = fall_of(half_life);
            let (mut level, mut sum) = (Level::NEVER, 0.0);
            for gap in [1_u64, 1, 3, 20, 2, 1, 1, 400, 1] {
                level = level.fallen(fall, gap).used();
                sum = sum * (-(gap as f64) / half_life).exp2() + 1.0;
                assert!((level.value() / sum - 1.0).abs() < 1e-6, "{half_life} {sum}");
                assert_eq!(Level::from_bits(level.bits()), Some(level));
            }
        }
    }

    #[test]
    fn nothing_overflows() {
        let fall = fall_of(0.5);
        let once = Level::NEVER.used();
        assert_eq!(once, Level::of(1.0));
        assert_eq!(once.fallen(fall, 499).value(), (-998.0_f64).exp2());
        assert_eq!(once.fallen(fall, 501), Level::NEVER);
        assert_eq!(once.fallen(fall, u64::MAX), Level::NEVER);
        assert_eq!(Level::NEVER.fallen(fall, u64::MAX), Level::NEVER);
        assert_eq!(once.standing(fall, u64::MAX), i64::MAX);
        assert_eq!(Level::from_bits(i64::MAX), None);
        assert_eq!(Level::from_bits(i64::MIN), Some(Level::NEVER));
    }

    /// Half a life later, half is left; the order of two does not change with time.
    #[test]
    fn levels_fall_together() {
        let fall = fall_of(16.0);
        let (old, new) = (Level::of(3.0), Level::of(1.0));
        assert_eq!(old.fallen(fall, 16), Level::of(1.5));
        assert!(old.standing(fall, 10) > new.standing(fall, 20));
        assert!(old.standing(fall, 10) < new.standing(fall, 40));
    }
}
