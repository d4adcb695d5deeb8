//! Numbers that look random and are the same on every machine.

/// xoshiro256++ 1.0 (Blackman and Vigna, 2019), seeded by splitmix64 as its authors advise.
///
/// Kept here because the stream is part of what a seed means: it must not change with a
/// dependency's version or with the platform's word size.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rng {
    state: [u64; 4],
}

impl Rng {
    /// The stream of `seed`; any number will do.
    #[must_use]
    pub fn new(seed: u64) -> Self {
        let mut mix = seed;
        let state = std::array::from_fn(|_| {
            mix = mix.wrapping_add(0x9e37_79b9_7f4a_7c15);
            let z = (mix ^ (mix >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
            let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
            z ^ (z >> 31)
        });
        Self { state }
    }

    /// The state of the stream: what [`from_state`](Self::from_state) goes on from.
    #[must_use]
    pub const fn state(&self) -> [u64; 4] {
        self.state
    }

    /// A stream in this state; `None` for all zeros, which no stream reaches and none leaves.
    #[must_use]
    pub fn from_state(state: [u64; 4]) -> Option<Self> {
        (state != [0; 4]).then_some(Self { state })
    }

    /// 64 random bits.
    #[inline]
    pub const fn next_u64(&mut self) -> u64 {
        let s = &mut self.state;
        let result = s[0].wrapping_add(s[3]).rotate_left(23).wrapping_add(s[0]);
        let t = s[1] << 17;
        s[2] ^= s[0];
        s[3] ^= s[1];
        s[1] ^= s[2];
        s[0] ^= s[3];
        s[2] ^= t;
        s[3] = s[3].rotate_left(45);
        result
    }

    /// Uniform in [0, 1), a multiple of 2^-53.
    #[inline]
    pub fn uniform(&mut self) -> f64 {
        (self.next_u64() >> 11) as f64 * (1.0 / (1_u64 << 53) as f64)
    }

    /// Uniform in `0..n`, or 0 when `n` is 0 (Lemire's multiplication, without bias).
    #[inline]
    pub fn below(&mut self, n: u64) -> u64 {
        loop {
            let wide = u128::from(self.next_u64()) * u128::from(n);
            // Draws below 2^64 mod n would make some numbers more likely than others.
            if (wide as u64) >= n.wrapping_neg().checked_rem(n).unwrap_or(0) {
                return (wide >> 64) as u64;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The outputs of the authors' C code from this state.
    #[test]
    fn the_stream_is_the_authors() {
        let mut rng = Rng { state: [1, 2, 3, 4] };
        let first = [
            41_943_041,
            58_720_359,
            3_588_806_011_781_223,
            3_591_011_842_654_386,
            9_228_616_714_210_784_205,
            9_973_669_472_204_895_162,
        ];
        for expected in first {
            assert_eq!(rng.next_u64(), expected);
        }
        // splitmix64 from 0 starts with e220a8397b1dcdaf, the first word of the state.
        assert_eq!(Rng::new(0).next_u64(), 5_987_356_902_031_041_503);
    }

    #[test]
    fn a_stream_goes_on_from_its_state() {
        let mut rng = Rng::new(5);
        rng.next_u64();
        let mut again = Rng::from_state(rng.state()).expect("a state of a stream");
        assert_eq!([again.next_u64(), again.next_u64()], [rng.next_u64(), rng.next_u64()]);
        assert_eq!(Rng::from_state([0; 4]), None);
    }

    #[test]
    fn draws_are_in_range() {
        let mut rng = Rng::new(3);
        assert!((0..1000).map(|_| rng.uniform()).all(|u| (0.0..1.0).contains(&u)));
        let mut seen = [0; 7];
        (0..7000).for_each(|_| seen[rng.below(7) as usize] += 1);
        assert!(seen.iter().all(|n| (800..1200).contains(n)), "{seen:?}");
        assert_eq!((rng.below(0), rng.below(1)), (0, 0));
        assert!((0..100).all(|_| rng.below(u64::MAX) < u64::MAX));
    }
}
