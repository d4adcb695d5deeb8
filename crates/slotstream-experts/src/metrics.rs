//! What a provider counts.

use std::time::Duration;

/// What a provider waited for and guessed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct ExpertMetrics {
    /// Time in which nothing could be computed because a record had not landed.
    pub wait: Duration,
    /// Records whose reads were queued.
    pub records_read: u64,
    /// Waves beyond the first of each layer.
    pub waves: u64,
    /// Predictions of the forecaster.
    pub predictions: u64,
    /// Of these, the ones that were dropped because they named no record of the model, another
    /// layer's deadline or no probability.
    pub predictions_dropped: u64,
}
