//! Numbers that look random and are the same on every machine.

/// A xorshift generator.
#[derive(Debug)]
pub(crate) struct Dice(u64);

impl Dice {
    /// The sequence of `seed`, which is not 0.
    pub(crate) const fn new(seed: u64) -> Self {
        Self(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15))
    }

    /// A number below `n`.
    pub(crate) fn below(&mut self, n: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        // The remainder is below n, which is a usize.
        usize::try_from((self.0 >> 11) % n.max(1) as u64).unwrap_or(0)
    }

    pub(crate) fn percent(&mut self, chance: u32) -> bool {
        self.below(100) < chance as usize
    }
}
