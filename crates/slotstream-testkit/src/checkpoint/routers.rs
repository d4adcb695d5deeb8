//! Random routers that prefer some experts.

use slotstream_core::Rng;

use super::random::Random;

/// Tokens that are drawn to see how skewed a router is.
const TOKENS: usize = 400;

/// How much a random router prefers some experts to others.
///
/// The expert of rank `r` (from 0; the order differs from layer to layer) has router weights of
/// size `(r + 1)^-exponent`. Its logits then spread that much less than those of the first one,
/// and reach the top-k that much less often. What a real router does, prefer what the text is
/// about, random weights cannot do.
#[derive(Clone, Debug, PartialEq)]
pub struct RouterSkew {
    /// By rank, at most 1.
    sizes: Vec<f32>,
    exponent: f64,
    top_tenth: f64,
}

impl RouterSkew {
    /// Routers over `experts` experts, `top_k` a token, whose busiest tenth of the experts serves
    /// about `top_tenth` of the lookups, or as near to it as such routers come: from what equal
    /// experts would serve to nearly all where a tenth of them is many times the top-k, to about
    /// half where it is not. [`top_tenth`](Self::top_tenth) says what came out.
    /// Found by drawing tokens with independent, normally distributed inputs; in a model, inputs
    /// have directions that they prefer, so a run may come out more skewed. `None` unless
    /// `top_tenth` is within 0 and 1 and there are more experts than `top_k`.
    #[must_use]
    pub fn fit(experts: usize, top_k: usize, top_tenth: f64) -> Option<Self> {
        if !(0.0..=1.0).contains(&top_tenth) || top_k == 0 || experts <= top_k || experts > 1 << 16
        {
            return None;
        }
        let normals = normals(TOKENS * experts);
        let at = |exponent: f64| Self::new(experts, top_k, exponent, &normals);
        // The share grows with the exponent until a handful of experts outshines all others: half
        // of the time their logits are negative, and somebody else is chosen.
        let coarse = (0..=16).map(|n| at(0.25 * f64::from(n)));
        let most = coarse.max_by(|a, b| a.top_tenth.total_cmp(&b.top_tenth))?;
        let (mut low, mut high) = (0.0_f64, most.exponent);
        for _ in 0..20 {
            let middle = f64::midpoint(low, high);
            if at(middle).top_tenth < top_tenth { low = middle } else { high = middle }
        }
        Some(at(high))
    }

    fn new(experts: usize, top_k: usize, exponent: f64, normals: &[f32]) -> Self {
        let sizes: Vec<f32> = (1..=experts).map(|r| (r as f64).powf(-exponent) as f32).collect();
        let mut uses = vec![0_u64; experts];
        for token in normals.chunks_exact(experts) {
            let mut logits: Vec<(f32, usize)> =
                token.iter().zip(&sizes).zip(0..).map(|((x, size), r)| (x * size, r)).collect();
            logits.select_nth_unstable_by(top_k - 1, |a, b| b.0.total_cmp(&a.0));
            logits[..top_k].iter().for_each(|(_, r)| uses[*r] += 1);
        }
        uses.sort_unstable_by(|a, b| b.cmp(a));
        let busiest: u64 = uses[..experts.div_ceil(10)].iter().sum();
        let top_tenth = busiest as f64 / (TOKENS * top_k) as f64;
        Self { sizes, exponent, top_tenth }
    }

    /// The exponent that was found.
    #[must_use]
    pub const fn exponent(&self) -> f64 {
        self.exponent
    }

    /// What the busiest tenth of the experts served of the drawn tokens' lookups.
    #[must_use]
    pub const fn top_tenth(&self) -> f64 {
        self.top_tenth
    }

    /// The sizes of a layer's rows by expert: the ranks in an order of the router's own.
    pub(crate) fn rows(&self, name: &str, seed: u64) -> Vec<f32> {
        let mut rng = Rng::new(Random::of(seed, name).next());
        let mut sizes = self.sizes.clone();
        for last in (1..sizes.len()).rev() {
            sizes.swap(last, rng.below(last as u64 + 1) as usize);
        }
        sizes
    }
}

/// Normally distributed numbers (the polar method).
fn normals(count: usize) -> Vec<f32> {
    let mut rng = Rng::new(1);
    let mut list = Vec::with_capacity(count + 1);
    while list.len() < count {
        let (a, b) = (2.0 * rng.uniform() - 1.0, 2.0 * rng.uniform() - 1.0);
        let square = a * a + b * b;
        if square > 0.0 && square < 1.0 {
            let factor = (-2.0 * square.ln() / square).sqrt();
            list.extend([(a * factor) as f32, (b * factor) as f32]);
        }
    }
    list.truncate(count);
    list
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_fit_has_the_share_that_was_asked_for() {
        for share in [0.3, 0.6, 0.8, 0.95] {
            let skew = RouterSkew::fit(512, 10, share).expect("legal");
            assert!((skew.top_tenth() - share).abs() < 0.03, "{share}: {}", skew.top_tenth());
            assert!(skew.exponent() > 0.0 && skew.sizes[0] == 1.0);
        }
        let few = RouterSkew::fit(56, 6, 0.9).expect("legal");
        assert!((0.4..0.6).contains(&few.top_tenth()), "{few:?}");
        let rows = RouterSkew::fit(64, 4, 0.5).expect("legal").rows("a", 1);
        let mut sorted = rows.clone();
        sorted.sort_by(|a, b| b.total_cmp(a));
        assert!(rows != sorted && sorted == RouterSkew::fit(64, 4, 0.5).expect("legal").sizes);
        for (experts, top_k, share) in [(8, 8, 0.5), (8, 0, 0.5), (8, 2, f64::NAN), (8, 2, 1.1)] {
            assert_eq!(RouterSkew::fit(experts, top_k, share), None);
        }
    }
}
