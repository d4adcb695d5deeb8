//! Figures over many traces.

use slotstream_core::Rng;

/// The mean of a figure over traces, and how sure it is.
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub struct Interval {
    /// Traces.
    pub count: usize,
    /// Mean.
    pub mean: f64,
    /// Smallest.
    pub min: f64,
    /// Largest.
    pub max: f64,
    /// Lower end of the 95% interval of the mean.
    pub low: f64,
    /// Upper end of the 95% interval of the mean.
    pub high: f64,
}

/// Bootstrap samples.
const SAMPLES: usize = 4000;

impl Interval {
    /// Of these figures; `None` when there is none. The 95% interval is the percentile bootstrap
    /// (Efron 1979): the traces are drawn again, with replacement, 4,000 times by `seed`. One
    /// figure has no width.
    #[must_use]
    pub fn of(figures: &[f64], seed: u64) -> Option<Self> {
        let count = figures.len();
        if count == 0 {
            return None;
        }
        let mean = |sum: f64| sum / count as f64;
        let mut rng = Rng::new(seed);
        let mut means: Vec<f64> = (0..SAMPLES)
            .map(|_| mean((0..count).map(|_| figures[rng.below(count as u64) as usize]).sum()))
            .collect();
        means.sort_by(f64::total_cmp);
        let at = |share: f64| means[((SAMPLES - 1) as f64 * share).round() as usize];
        Some(Self {
            count,
            mean: mean(figures.iter().sum()),
            min: figures.iter().copied().fold(f64::INFINITY, f64::min),
            max: figures.iter().copied().fold(f64::NEG_INFINITY, f64::max),
            low: at(0.025),
            high: at(0.975),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sample_of_known_spread() {
        // Mean 10.5, standard deviation 5.77: the interval of the mean is near +-2.53.
        let figures: Vec<f64> = (1..=20).map(f64::from).collect();
        let interval = Interval::of(&figures, 7).expect("figures");
        assert_eq!(
            (interval.count, interval.mean, interval.min, interval.max),
            (20, 10.5, 1.0, 20.0)
        );
        assert!((interval.low - 7.97).abs() < 0.35, "{interval:?}");
        assert!((interval.high - 13.03).abs() < 0.35, "{interval:?}");
        assert_eq!(Interval::of(&figures, 7), Some(interval));
        assert_ne!(Interval::of(&figures, 8), Some(interval));
    }

    #[test]
    fn one_figure_and_none() {
        let one = Interval::of(&[0.5], 1).expect("a figure");
        assert_eq!((one.low, one.mean, one.high), (0.5, 0.5, 0.5));
        assert_eq!(Interval::of(&[], 1), None);
    }
}
