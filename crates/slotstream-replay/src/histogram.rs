//! Counts by whole number.

use std::ops::Range;

/// How often each whole number was seen.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Histogram {
    counts: Vec<u64>,
    total: u64,
}

impl Histogram {
    /// Nothing was seen yet.
    #[must_use]
    pub const fn new() -> Self {
        Self { counts: Vec::new(), total: 0 }
    }

    /// `value` was seen once more. Memory grows with the largest value.
    #[inline]
    pub fn add(&mut self, value: usize) {
        if value >= self.counts.len() {
            self.counts.resize(value + 1, 0);
        }
        self.counts[value] += 1;
        self.total += 1;
    }

    /// By value, up to the largest one, how often it was seen.
    #[must_use]
    pub fn counts(&self) -> &[u64] {
        &self.counts
    }

    /// How many were seen.
    #[must_use]
    pub const fn total(&self) -> u64 {
        self.total
    }

    /// How many were smaller than `value`.
    #[must_use]
    pub fn below(&self, value: usize) -> u64 {
        self.counts[..value.min(self.counts.len())].iter().sum()
    }

    /// The mean; `None` when nothing was seen.
    #[must_use]
    pub fn mean(&self) -> Option<f64> {
        let sum: f64 =
            self.counts.iter().enumerate().map(|(value, count)| value as f64 * *count as f64).sum();
        (self.total > 0).then(|| sum / self.total as f64)
    }

    /// The smallest value that is not below a `share` of what was seen: 0.5 is the median.
    /// `None` when nothing was seen.
    #[must_use]
    pub fn quantile(&self, share: f64) -> Option<usize> {
        let wanted = (share.clamp(0.0, 1.0) * self.total as f64).max(1.0);
        let mut seen = 0;
        self.counts.iter().position(|count| {
            seen += count;
            seen as f64 >= wanted
        })
    }

    /// The same by powers of two: 0, 1, 2 to 3, 4 to 7, up to the largest value.
    pub fn buckets(&self) -> impl Iterator<Item = (Range<usize>, u64)> + '_ {
        let begins = std::iter::once(0).chain((0..usize::BITS - 1).map(|power| 1 << power));
        begins.take_while(|begin| *begin < self.counts.len()).map(|begin: usize| {
            let end = (2 * begin).max(1);
            (begin..end, self.counts[begin..end.min(self.counts.len())].iter().sum())
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sums_by_hand() {
        let mut seen = Histogram::new();
        assert_eq!((seen.mean(), seen.quantile(0.5), seen.buckets().count()), (None, None, 0));
        for value in [0, 3, 3, 5, 9] {
            seen.add(value);
        }
        assert_eq!((seen.total(), seen.mean()), (5, Some(4.0)));
        assert_eq!(
            (seen.quantile(0.0), seen.quantile(0.5), seen.quantile(1.0)),
            (Some(0), Some(3), Some(9))
        );
        assert_eq!((seen.below(3), seen.below(4), seen.below(1000)), (1, 3, 5));
        let buckets: Vec<_> = seen.buckets().collect();
        assert_eq!(buckets, [(0..1, 1), (1..2, 0), (2..4, 2), (4..8, 1), (8..16, 1)]);
    }
}
