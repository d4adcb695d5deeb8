//! What a provider counts.

use std::time::Duration;

/// What a provider waited for and guessed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct ExpertMetrics {
    /// Time in which nothing could be computed because a record had not landed.
    pub wait: Duration,
    /// Records whose reads into the pool were queued.
    pub records_read: u64,
    /// Layers of passes that were swept: their experts were read outside of the pool.
    pub sweeps: u64,
    /// Records that sweeps read.
    pub swept_records: u64,
    /// Records that sweeps found in the pool and did not read.
    pub swept_resident: u64,
    /// Reads of sweeps.
    pub sweep_runs: u64,
    /// Bytes of these reads, small gaps between records included.
    pub sweep_bytes: u64,
    /// The longest of these reads, in bytes.
    pub longest_run: u64,
    /// Records that were admitted at the end of a prompt.
    pub hot_admitted: u64,
    /// Records that the policy did not admit.
    pub hot_refused: u64,
    /// Waves beyond the first of each layer.
    pub waves: u64,
    /// Predictions of the forecaster.
    pub predictions: u64,
    /// Of these, the ones that were dropped because they named no record of the model, another
    /// layer's deadline or no probability.
    pub predictions_dropped: u64,
}
