//! From bytes and seconds to tokens a second.

use serde::Serialize;
use slotstream::checkpoint::{Checkpoint, TensorClass};

use super::compute::Compute;
use super::disk::{Disk, Pace};
use super::hits::Hits;
use super::looked_up;

/// What is known of a model on a machine.
#[derive(Clone, Copy)]
pub(super) struct Model<'a> {
    pub(super) checkpoint: &'a Checkpoint,
    pub(super) compute: &'a Compute,
    pub(super) disk: &'a Disk,
}

/// Decoding, predicted.
#[derive(Clone, Copy, Debug, Serialize)]
pub(super) struct Prediction {
    pub(super) tok_s: f64,
    /// With the low hit rate, and the slow quarters of disk and arithmetic.
    pub(super) low: f64,
    /// With the high hit rate, and the fast quarters.
    pub(super) high: f64,
    pub(super) token_s: f64,
    pub(super) compute_s: f64,
    pub(super) wait_s: f64,
    /// Bytes read a token.
    pub(super) token_bytes: f64,
}

impl Model<'_> {
    pub(super) fn predict(&self, hits: &Hits) -> Prediction {
        let (compute_s, wait_s) = self.token(hits.rate, Pace::Median);
        let rate = |hit, pace| {
            let (compute, wait) = self.token(hit, pace);
            1.0 / (compute + wait).max(1e-9)
        };
        Prediction {
            tok_s: rate(hits.rate, Pace::Median),
            low: rate(hits.low, Pace::Slow),
            high: rate(hits.high, Pace::Fast),
            token_s: compute_s + wait_s,
            compute_s,
            wait_s,
            token_bytes: (1.0 - hits.rate) * looked_up(self.checkpoint) as f64,
        }
    }

    /// Tokens a second at a hit rate.
    pub(super) fn tok_s(&self, hit_rate: f64) -> f64 {
        let (compute, wait) = self.token(hit_rate, Pace::Median);
        1.0 / (compute + wait).max(1e-9)
    }

    /// Seconds of a token's arithmetic, and those for which it waits for reads.
    ///
    /// Each lookup misses by itself; all misses of a layer are read at once, and meanwhile the
    /// shared expert and the resident ones are computed. What reading takes of the processors is
    /// taken from the arithmetic.
    fn token(&self, hit_rate: f64, pace: Pace) -> (f64, f64) {
        let geometry = self.checkpoint.geometry();
        let (layers, top_k) = (geometry.layers() as f64, geometry.top_k());
        let compute = match pace {
            Pace::Slow => self.compute.slow_s,
            Pace::Median => self.compute.token_s,
            Pace::Fast => self.compute.fast_s,
        };
        let each = compute / self.compute.token_bytes.max(1) as f64;
        let shared = self.checkpoint.ledger().row(TensorClass::SharedExpert).bytes as f64;
        let record = self.disk.record_bytes as f64;
        let cores = std::thread::available_parallelism().map_or(1, std::num::NonZero::get) as f64;
        let (miss, mut wait, mut moved) = (1.0 - hit_rate, 0.0, 0.0);
        for misses in 1..=top_k {
            let chance = binomial(top_k, misses, miss);
            let resident = (top_k - misses) as f64 * record;
            let meanwhile = each * (shared / layers + resident);
            wait += layers * chance * (self.disk.seconds(misses, pace) - meanwhile).max(0.0);
            moved += layers * chance * misses as f64 * record;
        }
        (compute + moved / 1e9 * self.disk.processor_s_gb / cores, wait)
    }
}

/// Chance of `k` among `n` when each has the chance `p`.
fn binomial(n: usize, k: usize, p: f64) -> f64 {
    let ways = (0..k).fold(1.0, |ways, i| ways * (n - i) as f64 / (i + 1) as f64);
    let (k, rest) = (k as i32, (n - k) as i32);
    ways * p.powi(k) * (1.0 - p).powi(rest)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn chances_add_up() {
        for p in [0.0, 0.2, 1.0] {
            let sum: f64 = (0..=10).map(|k| binomial(10, k, p)).sum();
            let mean: f64 = (0..=10).map(|k| k as f64 * binomial(10, k, p)).sum();
            assert!((sum - 1.0).abs() < 1e-12 && (mean - 10.0 * p).abs() < 1e-12, "{p}");
        }
    }
}
