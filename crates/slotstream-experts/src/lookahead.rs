//! What reading ahead did, by the layer for which it was done.

use std::time::Duration;

/// What was forecast and read ahead for one layer, in the passes that could read ahead: those of
/// few rows that were not swept.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct LayerLookahead {
    /// Distinct records that were forecast, each counted once a pass.
    pub forecast: u64,
    /// Distinct records that the layer demanded.
    pub demanded: u64,
    /// Of these, those that had been forecast.
    pub foreseen: u64,
    /// Records that were not resident when the layer demanded them; adopted ones included.
    pub misses: u64,
    /// Records that were read ahead.
    pub issued: u64,
    /// Forecast records that were not resident and for which no slot was reserved: a bound was
    /// reached, or the policy did not want them.
    pub refused: u64,
    /// Forecasts that came after the demand.
    pub too_late: u64,
    /// Adopted records whose bytes were there.
    pub on_time: u64,
    /// Adopted records whose reads were still queued or running.
    pub late: u64,
    /// Records that were read for nothing.
    pub expired: u64,
    /// Records whose reads were called off before they began.
    pub cancelled: u64,
    /// Records whose reads failed; a demand reads them again.
    pub failed: u64,
    /// Payload bytes that were read and not used.
    pub wasted_bytes: u64,
    /// Time in which the layer could compute nothing because a record had not landed.
    pub wait: Duration,
}

impl LayerLookahead {
    /// Records that were adopted: `on_time + late`.
    #[must_use]
    pub const fn adopted(&self) -> u64 {
        self.on_time + self.late
    }

    /// Share of the records that were read ahead that were adopted.
    #[must_use]
    pub fn precision(&self) -> Option<f64> {
        share(self.adopted(), self.issued)
    }

    /// Share of the misses that were adopted.
    #[must_use]
    pub fn recall(&self) -> Option<f64> {
        share(self.adopted(), self.misses)
    }

    /// Share of the demanded records that had been forecast.
    #[must_use]
    pub fn agreement(&self) -> Option<f64> {
        share(self.foreseen, self.demanded)
    }

    /// An estimate of the wait that the records on time would have cost: as much each as the
    /// records that the layer did wait for.
    #[must_use]
    pub fn wait_removed(&self) -> Duration {
        let waited = self.misses.saturating_sub(self.on_time);
        if waited == 0 {
            return Duration::ZERO;
        }
        self.wait.mul_f64(self.on_time as f64 / waited as f64)
    }

    /// Adds what happened for another layer, or in another run.
    pub fn add(&mut self, other: &Self) {
        self.forecast += other.forecast;
        self.demanded += other.demanded;
        self.foreseen += other.foreseen;
        self.misses += other.misses;
        self.issued += other.issued;
        self.refused += other.refused;
        self.too_late += other.too_late;
        self.on_time += other.on_time;
        self.late += other.late;
        self.expired += other.expired;
        self.cancelled += other.cancelled;
        self.failed += other.failed;
        self.wasted_bytes += other.wasted_bytes;
        self.wait += other.wait;
    }
}

fn share(part: u64, whole: u64) -> Option<f64> {
    (whole > 0).then(|| part as f64 / whole as f64)
}

/// What reading ahead did since the counters were last reset.
#[derive(Clone, Debug, Default, PartialEq)]
#[non_exhaustive]
pub struct LookaheadMetrics {
    /// By target layer.
    pub layers: Vec<LayerLookahead>,
    /// Passes that read ahead.
    pub passes: u64,
    /// Passes that did not because passes were no faster for it, or to compare.
    pub passes_without: u64,
    /// How often it was turned off.
    pub backed_off: u64,
    /// Seconds of a pass without and with it, as last compared.
    pub compared: Option<(f64, f64)>,
}

impl LookaheadMetrics {
    pub(crate) fn new(layers: usize) -> Self {
        Self { layers: vec![LayerLookahead::default(); layers], ..Self::default() }
    }

    /// All layers together.
    #[must_use]
    pub fn total(&self) -> LayerLookahead {
        let mut total = LayerLookahead::default();
        self.layers.iter().for_each(|layer| total.add(layer));
        total
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn shares_and_sums() {
        let mut one = LayerLookahead::default();
        assert_eq!((one.precision(), one.recall(), one.agreement()), (None, None, None));
        assert_eq!(one.wait_removed(), Duration::ZERO);
        (one.issued, one.on_time, one.late, one.misses) = (10, 4, 2, 8);
        (one.demanded, one.foreseen, one.wait) = (20, 15, Duration::from_millis(8));
        assert_eq!((one.precision(), one.recall()), (Some(0.6), Some(0.75)));
        assert_eq!(one.agreement(), Some(0.75));
        // Two late ones and two that were read on demand: 2 ms each.
        assert_eq!(one.wait_removed(), Duration::from_millis(8));
        let two = LookaheadMetrics { layers: vec![one; 2], ..LookaheadMetrics::new(2) };
        assert_eq!((two.total().issued, two.total().wait), (20, 2 * one.wait));
    }
}
