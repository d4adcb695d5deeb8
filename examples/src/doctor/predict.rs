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
    /// Seconds of a token's reads, hidden by arithmetic or not.
    pub(super) read_s: f64,
    /// Bytes read a token.
    pub(super) token_bytes: f64,
}

impl Model<'_> {
    pub(super) fn predict(&self, hits: &Hits) -> Prediction {
        let Token { compute_s, wait_s, read_s } = self.token(hits.rate);
        let rate = |hit, pace| self.token_at(hit, pace).tok_s();
        Prediction {
            tok_s: rate(hits.rate, Pace::Median),
            low: rate(hits.low, Pace::Slow),
            high: rate(hits.high, Pace::Fast),
            token_s: compute_s + wait_s,
            compute_s,
            wait_s,
            read_s,
            token_bytes: (1.0 - hits.rate) * looked_up(self.checkpoint) as f64,
        }
    }

    /// A token at a hit rate.
    pub(super) fn token(&self, hit_rate: f64) -> Token {
        self.token_at(hit_rate, Pace::Median)
    }

    /// Tokens a second at a hit rate.
    pub(super) fn tok_s(&self, hit_rate: f64) -> f64 {
        self.token(hit_rate).tok_s()
    }

    /// What a token takes.
    ///
    /// Each lookup misses by itself; all misses of a layer are read at once, and land one after
    /// another. Meanwhile the shared expert and the resident ones are computed, then each that has
    /// landed. What reading takes of the processors is taken from the arithmetic.
    fn token_at(&self, hit_rate: f64, pace: Pace) -> Token {
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
        let (miss, mut wait_s, mut read_s, mut moved) = (1.0 - hit_rate, 0.0, 0.0, 0.0);
        for misses in 1..=top_k {
            let chance = binomial(top_k, misses, miss);
            let resident = (top_k - misses) as f64 * record;
            let meanwhile = each * (shared / layers + resident);
            let seconds = self.disk.seconds(misses, pace);
            wait_s += layers * chance * waited(seconds, misses, meanwhile, each * record);
            read_s += layers * chance * seconds;
            moved += layers * chance * misses as f64 * record;
        }
        let compute_s = compute + moved / 1e9 * self.disk.processor_s_gb / cores;
        Token { compute_s, wait_s, read_s }
    }
}

/// Seconds of a token.
#[derive(Clone, Copy, Debug)]
pub(super) struct Token {
    compute_s: f64,
    pub(super) wait_s: f64,
    read_s: f64,
}

impl Token {
    fn tok_s(&self) -> f64 {
        1.0 / (self.compute_s + self.wait_s).max(1e-9)
    }
}

/// How long a layer waits for `misses` records that land evenly over `seconds`, when it has other work
/// for `meanwhile` and then `each` for a record that is there.
fn waited(seconds: f64, misses: usize, meanwhile: f64, each: f64) -> f64 {
    let landed = |record: usize| seconds * record as f64 / misses.max(1) as f64;
    let late = |record: usize| landed(record) - meanwhile - (record - 1) as f64 * each;
    (1..=misses).map(late).fold(0.0, f64::max)
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
    fn a_layer_waits_for_what_its_arithmetic_does_not_hide() {
        let near = |a: f64, b: f64| assert!((a - b).abs() < 1e-12, "{a} {b}");
        near(waited(8.0, 4, 0.0, 0.0), 8.0);
        near(waited(8.0, 4, 3.0, 0.0), 5.0);
        // The disk is slower: all but the last are computed meanwhile.
        near(waited(8.0, 4, 3.0, 1.0), 2.0);
        // The arithmetic is slower: only the first is waited for.
        near(waited(8.0, 4, 1.0, 5.0), 1.0);
        near(waited(8.0, 4, 9.0, 5.0), 0.0);
        near(waited(0.0, 0, 0.0, 1.0), 0.0);
    }

    #[test]
    fn chances_add_up() {
        for p in [0.0, 0.2, 1.0] {
            let sum: f64 = (0..=10).map(|k| binomial(10, k, p)).sum();
            let mean: f64 = (0..=10).map(|k| k as f64 * binomial(10, k, p)).sum();
            assert!((sum - 1.0).abs() < 1e-12 && (mean - 10.0 * p).abs() < 1e-12, "{p}");
        }
    }
}
