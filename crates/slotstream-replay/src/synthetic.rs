//! Routing without a model: skewed, drifting popularity in every layer.

use rayon::prelude::*;
use slotstream_core::{
    EventSink, ExpertIdx, Geometry, LayerIdx, PassId, Phase, Rng, Routing, SessionId, Step,
};

use crate::{ReplayError, Requests};

/// A recipe for synthetic routing, one row a pass.
///
/// In each layer, expert number `r` of a random order has popularity `(r + 1)^-skew` (Zipf). On
/// top, each expert has a preference of its own that drifts from pass to pass: a stationary
/// autoregressive process with standard deviation `drift` (in log popularity) and half-life
/// `half_life`, so that experts come and go together with what a text is about. A pass draws its
/// top-k without replacement, in proportion to popularity times `e^preference` (Gumbel top-k).
///
/// The same recipe and seed give the same routing on every machine.
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub struct Synthetic {
    /// Exponent of the popularity: 0 is uniform.
    pub skew: f64,
    /// Standard deviation of the drifting preference, in natural logarithms.
    pub drift: f64,
    /// Passes after which half of a preference is forgotten.
    pub half_life: f64,
    /// Passes.
    pub passes: usize,
    /// Seed.
    pub seed: u64,
}

impl Synthetic {
    /// A recipe of `passes` passes with these three knobs.
    ///
    /// # Errors
    /// [`ReplayError::Knob`] when `skew` or `drift` is negative or above 50, `half_life` is not
    /// between 0.01 and 1e9, or one of them is not a number.
    pub fn new(skew: f64, drift: f64, half_life: f64) -> Result<Self, ReplayError> {
        let knobs = [
            ("skew", skew, 0.0, 50.0),
            ("drift", drift, 0.0, 50.0),
            ("half_life", half_life, 0.01, 1e9),
        ];
        for (name, value, least, most) in knobs {
            if !(least..=most).contains(&value) {
                return Err(ReplayError::Knob { name, value, least, most });
            }
        }
        Ok(Self { skew, drift, half_life, passes: 1500, seed: 0 })
    }

    /// Another number of passes; 1,500 unless told.
    #[must_use]
    pub const fn passes(mut self, passes: usize) -> Self {
        self.passes = passes;
        self
    }

    /// Another seed; 0 unless told.
    #[must_use]
    pub const fn seed(mut self, seed: u64) -> Self {
        self.seed = seed;
        self
    }

    /// The requests for a model of this geometry, drawn on all threads of the current rayon pool:
    /// layers do not depend on each other. Takes about 20 ns a record and pass on one.
    #[must_use]
    pub fn requests(&self, geometry: Geometry) -> Requests {
        let (top_k, passes) = (geometry.top_k(), self.passes);
        let routes: Vec<Vec<ExpertIdx>> = (0..geometry.layers())
            .into_par_iter()
            .map(|at| {
                let mut layer = Layer::new(self, &geometry, at as u64);
                let (mut route, mut routes) = (Vec::with_capacity(top_k), Vec::new());
                for _ in 0..passes {
                    layer.draw(self, top_k, &mut route);
                    routes.extend_from_slice(&route);
                }
                routes
            })
            .collect();
        let mut requests = Requests::new(geometry);
        self.tell(geometry, &mut requests, |pass, layer, route| {
            route.extend_from_slice(&routes[layer][pass * top_k..][..top_k]);
        });
        requests
    }

    /// Tells the requests to `sink`, as an engine would, and keeps none of them.
    pub fn play(&self, geometry: Geometry, sink: &mut dyn EventSink) {
        let mut layers: Vec<Layer> =
            (0..geometry.layers()).map(|at| Layer::new(self, &geometry, at as u64)).collect();
        self.tell(geometry, sink, |_, layer, route| {
            layers[layer].draw(self, geometry.top_k(), route);
        });
    }

    /// Tells `sink` the routes that `draw` puts into an empty list, by pass and layer.
    fn tell(
        &self,
        geometry: Geometry,
        sink: &mut dyn EventSink,
        mut draw: impl FnMut(usize, usize, &mut Vec<ExpertIdx>),
    ) {
        let mut route = Vec::with_capacity(geometry.top_k());
        for pass in 0..self.passes {
            let step = Step {
                pass: PassId::new(pass as u64 + 1),
                phase: Phase::Decode,
                session: SessionId::new(0),
                position: pass as u64,
                tokens: &[0],
            };
            sink.on_step(&step);
            for layer in 0..geometry.layers() {
                route.clear();
                draw(pass, layer, &mut route);
                let at = LayerIdx::new(u16::try_from(layer).unwrap_or(u16::MAX));
                sink.on_routing(&Routing::new(&step, at, geometry.top_k(), &route, &[]));
            }
        }
    }
}

/// One layer's popularity, preferences and generator.
struct Layer {
    /// By expert: the logarithm of its popularity.
    popularity: Vec<f64>,
    preference: Vec<f64>,
    rng: Rng,
    /// Scratch: score and expert.
    scores: Vec<(f64, u16)>,
}

impl Layer {
    fn new(recipe: &Synthetic, geometry: &Geometry, at: u64) -> Self {
        let experts = geometry.experts();
        // Layers are independent of each other and of their number.
        let mut rng = Rng::new(recipe.seed.wrapping_mul(0x0001_0000_0001).wrapping_add(at));
        let mut popularity: Vec<f64> =
            (0..experts).map(|rank| -recipe.skew * libm::log(rank as f64 + 1.0)).collect();
        for last in (1..experts).rev() {
            let other = rng.below(last as u64 + 1) as usize;
            popularity.swap(last, other);
        }
        let preference = (0..experts).map(|_| recipe.drift * normal(&mut rng)).collect();
        Self { popularity, preference, rng, scores: Vec::with_capacity(experts) }
    }

    /// The next route, best first.
    fn draw(&mut self, recipe: &Synthetic, top_k: usize, route: &mut Vec<ExpertIdx>) {
        let keep = libm::exp2(-1.0 / recipe.half_life);
        let fresh = recipe.drift * (1.0 - keep * keep).max(0.0).sqrt();
        self.scores.clear();
        for (at, preference) in self.preference.iter_mut().enumerate() {
            if fresh > 0.0 {
                *preference = keep * *preference + fresh * normal(&mut self.rng);
            }
            // The largest of popularity * e^preference / exponential draws is a draw in
            // proportion to the weights.
            let score = self.popularity[at] + *preference - libm::log(exponential(&mut self.rng));
            self.scores.push((score, u16::try_from(at).unwrap_or(u16::MAX)));
        }
        let best_first = |a: &(f64, u16), b: &(f64, u16)| b.0.total_cmp(&a.0).then(a.1.cmp(&b.1));
        if top_k < self.scores.len() {
            self.scores.select_nth_unstable_by(top_k - 1, best_first);
            self.scores.truncate(top_k);
        }
        self.scores.sort_unstable_by(best_first);
        route.clear();
        route.extend(self.scores.iter().map(|(_, expert)| ExpertIdx::new(*expert)));
    }
}

/// An exponential draw, above 0.
fn exponential(rng: &mut Rng) -> f64 {
    -libm::log(1.0 - rng.uniform()) + f64::MIN_POSITIVE
}

/// A nearly normal draw with mean 0 and variance 1: the sum of six uniform ones.
fn normal(rng: &mut Rng) -> f64 {
    // Two draws of 32 bits from one of 64.
    let mut sum = 0.0;
    for _ in 0..3 {
        let bits = rng.next_u64();
        sum += (bits >> 32) as f64 + (bits & 0xffff_ffff) as f64;
    }
    // Each has mean (2^32 - 1) / 2 and variance 2^64 / 12.
    (sum / 4_294_967_296.0 - 3.0) * std::f64::consts::SQRT_2
}

#[cfg(test)]
mod tests {
    use super::*;

    fn small() -> Geometry {
        Geometry::new(3, 40, 4).expect("legal")
    }

    fn counts(requests: &Requests) -> Vec<usize> {
        let mut counts = vec![0; requests.geometry().experts()];
        for pass in requests.passes() {
            let visit = pass.visits().next().expect("a layer");
            visit.ids().iter().for_each(|id| counts[id.index()] += 1);
        }
        counts
    }

    #[test]
    fn a_seed_means_one_trace() {
        let recipe = Synthetic::new(0.8, 1.0, 30.0).expect("legal").passes(50);
        let all = |requests: &Requests| -> Vec<u16> {
            let visits = requests.passes().flat_map(|pass| pass.visits());
            visits.flat_map(|visit| visit.ids().iter().map(|id| id.get())).collect()
        };
        let ids = |recipe: Synthetic| all(&recipe.requests(small()));
        assert_eq!(ids(recipe), ids(recipe));
        assert_ne!(ids(recipe), ids(recipe.seed(1)));
        // Pinned: another machine, another release must give the same.
        assert_eq!(ids(recipe)[..12], PINNED);
        let requests = recipe.requests(small());
        assert_eq!((requests.passes().len(), requests.lookups()), (50, 50 * 12));
        // Told one by one they are the same.
        let mut told = Requests::new(small());
        recipe.play(small(), &mut told);
        assert_eq!(all(&told), all(&requests));
    }

    const PINNED: [u16; 12] = [36, 8, 17, 28, 9, 32, 12, 13, 33, 12, 20, 0];

    #[test]
    fn knobs_do_what_they_say() {
        // Without skew and drift all experts are equal: 4 of 40, 4,000 passes.
        let flat = Synthetic::new(0.0, 0.0, 1.0).expect("legal").passes(4000);
        let counts_flat = counts(&flat.requests(small()));
        assert!(counts_flat.iter().all(|n| (320..480).contains(n)), "{counts_flat:?}");
        // With skew 1 the first of 40 has 1/H(40) = 0.234 of the first draw.
        let skewed = Synthetic::new(1.0, 0.0, 1.0).expect("legal").passes(4000);
        let mut counts_skewed = counts(&skewed.requests(small()));
        counts_skewed.sort_unstable();
        assert!(counts_skewed[39] > 2000 && counts_skewed[0] < 150, "{counts_skewed:?}");
        // Drift makes neighbours alike and leaves distant passes as they were.
        let drifting = Synthetic::new(0.0, 3.0, 20.0).expect("legal").passes(2000);
        let requests = drifting.requests(small());
        let same = |distance: usize| {
            let first = |at| requests.pass(at).expect("there").visits().next().expect("a layer");
            let shared = |at| {
                let (a, b) = (first(at), first(at + distance));
                a.ids().iter().filter(|id| b.ids().contains(id)).count()
            };
            (0..1500).map(shared).sum::<usize>() as f64 / 6000.0
        };
        assert!(same(1) > 0.3, "{}", same(1));
        assert!(same(400) < 0.16, "{}", same(400));
    }

    #[test]
    fn illegal_knobs_are_named() {
        for (skew, drift, half_life) in
            [(-1.0, 0.0, 1.0), (0.0, f64::NAN, 1.0), (0.0, 0.0, 0.0), (99.0, 0.0, 1.0)]
        {
            assert!(Synthetic::new(skew, drift, half_life).is_err());
        }
    }

    #[test]
    fn the_normal_draw_has_mean_0_and_variance_1() {
        let mut rng = Rng::new(9);
        let draws: Vec<f64> = (0..100_000).map(|_| normal(&mut rng)).collect();
        let mean = draws.iter().sum::<f64>() / 1e5;
        let variance = draws.iter().map(|x| x * x).sum::<f64>() / 1e5;
        assert!(mean.abs() < 0.02 && (variance - 1.0).abs() < 0.02, "{mean} {variance}");
    }
}
