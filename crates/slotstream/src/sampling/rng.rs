//! xoshiro256++ 1.0 (Blackman and Vigna, 2019), seeded by splitmix64 as its authors advise.
//!
//! Kept here because the stream is part of what a seed means: it must not change with a
//! dependency's version or with the platform's word size.

#[derive(Clone, Debug)]
pub(super) struct Rng {
    state: [u64; 4],
}

impl Rng {
    pub(super) fn new(seed: u64) -> Self {
        let mut mix = seed;
        let state = std::array::from_fn(|_| {
            mix = mix.wrapping_add(0x9e37_79b9_7f4a_7c15);
            let z = (mix ^ (mix >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
            let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
            z ^ (z >> 31)
        });
        Self { state }
    }

    #[cfg(test)]
    pub(super) const fn from_state(state: [u64; 4]) -> Self {
        Self { state }
    }

    pub(super) fn next_u64(&mut self) -> u64 {
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
    pub(super) fn uniform(&mut self) -> f64 {
        (self.next_u64() >> 11) as f64 * (1.0 / (1_u64 << 53) as f64)
    }
}
