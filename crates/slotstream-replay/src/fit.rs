//! Knobs of a synthetic trace that reproduce the published summary of a real one.

use std::ops::ControlFlow;

use slotstream_core::Geometry;

use crate::stats::top_share;
use crate::{Phases, ReplayError, Requests, Simulation, Synthetic, named_policy};

/// What is known of a trace that is not at hand.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct Summary {
    /// Passes that it covers, from an empty pool.
    pub passes: usize,
    /// Records that were used at least once.
    pub records_used: usize,
    /// Share of the lookups that the busiest tenth of all records serves.
    pub top_tenth: f64,
    /// Hit rates by policy and slots.
    pub rates: Vec<Rate>,
}

/// The hit rate of one policy at one size.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct Rate {
    /// A name for [`parse_policy`](slotstream_cache::parse_policy).
    pub policy: String,
    /// Slots of the pool.
    pub slots: usize,
    /// Hits of lookups.
    pub hit_rate: f64,
}

impl Rate {
    /// `policy` hits `hit_rate` of the lookups with `slots` slots.
    #[must_use]
    pub fn new(policy: impl Into<String>, slots: usize, hit_rate: f64) -> Self {
        Self { policy: policy.into(), slots, hit_rate }
    }
}

impl Summary {
    /// What is known.
    #[must_use]
    pub const fn new(passes: usize, records_used: usize, top_tenth: f64, rates: Vec<Rate>) -> Self {
        Self { passes, records_used, top_tenth, rates }
    }

    /// The same figures of a trace that is at hand; `like` says which hit rates.
    ///
    /// # Errors
    /// [`ReplayError`] for a policy that is unknown or refuses its pool.
    pub fn measure(requests: &Requests, like: &[Rate]) -> Result<Self, ReplayError> {
        let uses = requests.uses();
        let rates = like
            .iter()
            .map(|rate| {
                let policy = named_policy(&rate.policy, requests)?;
                let run = Simulation::new(rate.slots).unfloored().run(requests, policy)?;
                let hit_rate = run.count(Phases::Decode).hit_rate().unwrap_or(0.0);
                Ok(Rate { hit_rate, ..rate.clone() })
            })
            .collect::<Result<_, ReplayError>>()?;
        Ok(Self {
            passes: requests.passes().len(),
            records_used: uses.iter().filter(|n| **n > 0).count(),
            top_tenth: top_share(&uses, 0.1),
            rates,
        })
    }

    /// How far `other` is from this one: squares of what is off, in units of 2 points of a hit
    /// rate, 10 points of the busiest tenth's share and 8% of the records used.
    fn distance(&self, other: &Self, records: usize) -> f64 {
        let used = |summary: &Self| summary.records_used as f64 / (0.08 * records as f64);
        let square = |x: f64| x * x;
        let rates = self.rates.iter().zip(&other.rates);
        square(used(self) - used(other))
            + square((self.top_tenth - other.top_tenth) / 0.1)
            + rates.map(|(a, b)| square((a.hit_rate - b.hit_rate) / 0.02)).sum::<f64>()
    }
}

/// Knobs, and how close they come.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct Fit {
    /// The recipe, with the passes of the target.
    pub recipe: Synthetic,
    /// Its figures.
    pub summary: Summary,
    /// Sum of squares of what is off; 1 a figure is 2 points of a hit rate.
    pub distance: f64,
}

/// Traces that a fit draws.
const TRIALS: usize = 90;

/// Searches the three knobs whose trace comes closest to `target` (Nelder and Mead, 1965, from
/// the best of a coarse grid). `progress` hears of every trial: its number, out of how many; it
/// ends the search by a break.
///
/// # Errors
/// [`ReplayError`] for a policy that is unknown or refuses its pool;
/// [`ReplayError::Cancelled`] after a break.
pub fn fit(
    geometry: Geometry,
    target: &Summary,
    seed: u64,
    mut progress: impl FnMut(usize, usize) -> ControlFlow<()>,
) -> Result<Fit, ReplayError> {
    let mut trials = 0;
    let mut trial = |knobs: [f64; 3]| -> Result<(f64, [f64; 3]), ReplayError> {
        let fit = attempt(geometry, target, seed, knobs)?;
        trials += 1;
        if progress(trials.min(TRIALS), TRIALS).is_break() {
            return Err(ReplayError::Cancelled);
        }
        Ok((fit.distance, knobs))
    };
    let mut grid = Vec::new();
    for skew in [0.5, 0.9, 1.3] {
        for drift in [0.6, 1.6, 2.6] {
            for half_life in [10.0, 100.0, 600.0_f64] {
                grid.push(trial([skew, drift, libm::log(half_life)])?);
            }
        }
    }
    let best = grid.into_iter().min_by(|a, b| a.0.total_cmp(&b.0)).map_or([1.0; 3], |(_, k)| k);
    let mut simplex = vec![trial(best)?];
    for (at, step) in [0.15, 0.4, 0.5].into_iter().enumerate() {
        let mut knobs = best;
        knobs[at] += step;
        simplex.push(trial(knobs)?);
    }
    for _ in 0..28 {
        simplex.sort_by(|a, b| a.0.total_cmp(&b.0));
        improve(&mut simplex, &mut trial)?;
    }
    simplex.sort_by(|a, b| a.0.total_cmp(&b.0));
    attempt(geometry, target, seed, simplex[0].1)
}

/// One step of Nelder and Mead on a sorted simplex.
fn improve(
    simplex: &mut [(f64, [f64; 3])],
    trial: &mut impl FnMut([f64; 3]) -> Result<(f64, [f64; 3]), ReplayError>,
) -> Result<(), ReplayError> {
    let (worst, rest) = simplex.split_last_mut().unwrap_or_else(|| unreachable!("four corners"));
    let corners = rest.len() as f64;
    let centre: [f64; 3] =
        std::array::from_fn(|at| rest.iter().map(|(_, k)| k[at]).sum::<f64>() / corners);
    let along = |by: f64| std::array::from_fn(|at| centre[at] + by * (worst.1[at] - centre[at]));
    let reflected = trial(along(-1.0))?;
    if reflected.0 < rest[0].0 {
        let further = trial(along(-2.0))?;
        *worst = if further.0 < reflected.0 { further } else { reflected };
    } else if reflected.0 < rest[rest.len() - 1].0 {
        *worst = reflected;
    } else {
        let inner = trial(along(if reflected.0 < worst.0 { -0.5 } else { 0.5 }))?;
        if inner.0 < worst.0.min(reflected.0) {
            *worst = inner;
        } else {
            let best = rest[0].1;
            for corner in &mut simplex[1..] {
                *corner = trial(std::array::from_fn(|at| (corner.1[at] + best[at]) / 2.0))?;
            }
        }
    }
    Ok(())
}

/// The trace of the given skew, drift and logarithm of the half-life, moved into range.
fn attempt(
    geometry: Geometry,
    target: &Summary,
    seed: u64,
    [skew, drift, half_life]: [f64; 3],
) -> Result<Fit, ReplayError> {
    let half_life = libm::exp(half_life.clamp(0.0, 12.0));
    let recipe = Synthetic::new(skew.clamp(0.0, 10.0), drift.clamp(0.0, 10.0), half_life)?
        .passes(target.passes)
        .seed(seed);
    let summary = Summary::measure(&recipe.requests(geometry), &target.rates)?;
    let distance = target.distance(&summary, geometry.records());
    Ok(Fit { recipe, summary, distance })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A trace of known knobs is found again by its summary alone.
    #[test]
    fn knobs_are_found_again() {
        let geometry = Geometry::new(6, 64, 4).expect("legal");
        let hidden = Synthetic::new(0.8, 1.8, 60.0).expect("legal").passes(300).seed(5);
        let like =
            [Rate::new("clock", 60, 0.0), Rate::new("lru", 60, 0.0), Rate::new("lru", 120, 0.0)];
        let target = Summary::measure(&hidden.requests(geometry), &like).expect("lawful");
        let mut heard = 0;
        let fit = fit(geometry, &target, 1, |at, of| {
            heard += 1;
            assert!(at <= of);
            ControlFlow::Continue(())
        })
        .expect("lawful");
        assert!(heard > 27);
        assert!(fit.distance < 1.5, "{fit:?} against {target:?}");
        for (found, wanted) in fit.summary.rates.iter().zip(&target.rates) {
            assert!((found.hit_rate - wanted.hit_rate).abs() < 0.02, "{found:?} {wanted:?}");
        }
    }

    #[test]
    fn a_search_ends_when_it_is_told_to() {
        let geometry = Geometry::new(2, 16, 2).expect("legal");
        let target = Summary::new(10, 20, 0.3, vec![Rate::new("clock", 8, 0.3)]);
        let mut heard = 0;
        let ended = fit(geometry, &target, 0, |at, _| {
            heard = at;
            if at < 3 { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
        });
        assert!(matches!(ended, Err(ReplayError::Cancelled)), "{ended:?}");
        assert_eq!(heard, 3);
    }
}
