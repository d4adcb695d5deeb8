//! Their figures: what the article (26 October 2026) and the original's records say. Nothing here
//! was measured by us.

use slotstream_replay::{Rate, Summary};

/// Passes of the article's traces, and those that are not counted.
pub(super) const PASSES: usize = 1500;
pub(super) const WARM_UP: usize = 300;

/// The article's disks in bytes a second: raw, and through the original's engine.
pub(super) const RAW_DISK: f64 = 17.3e9;
pub(super) const ENGINE_DISK: f64 = 12e9;

/// A row of the simulation: experts a layer, pool in GB, hit rate, misses and megabytes a token.
pub(super) struct Simulated {
    pub(super) per_layer: usize,
    pub(super) pool_gb: f64,
    pub(super) hit_rate: f64,
    pub(super) misses: f64,
    pub(super) mb: f64,
}

/// The article's simulation of the shared CLOCK pool.
pub(super) const SIMULATION: [Simulated; 6] = [
    simulated(30, 4.0, 0.551, 215.0, 596.0),
    simulated(60, 8.0, 0.747, 122.0, 336.0),
    simulated(100, 13.3, 0.858, 68.0, 188.0),
    simulated(156, 20.7, 0.926, 35.0, 98.0),
    simulated(256, 34.0, 0.970, 14.0, 40.0),
    simulated(400, 53.1, 0.986, 7.0, 19.0),
];

const fn simulated(
    per_layer: usize,
    pool_gb: f64,
    hit_rate: f64,
    misses: f64,
    mb: f64,
) -> Simulated {
    Simulated { per_layer, pool_gb, hit_rate, misses, mb }
}

/// Experts a layer of the plan that the original's receipts are about.
pub(super) const PLAN_PER_LAYER: usize = 156;

/// A workload of the original's receipts (median round) and what the article computes of it.
pub(super) struct Receipt {
    pub(super) workload: &'static str,
    pub(super) tokens: f64,
    pub(super) decode_s: f64,
    pub(super) hit_rate: f64,
    pub(super) read_gb: f64,
    pub(super) wait_s: f64,
    pub(super) tok_s: f64,
    pub(super) mb_a_token: f64,
    pub(super) wait_share: f64,
    pub(super) rest_ms: f64,
}

pub(super) const RECEIPTS: [Receipt; 3] = [
    Receipt {
        workload: "short prompt",
        tokens: 256.0,
        decode_s: 12.20,
        hit_rate: 0.898,
        read_gb: 13.73,
        wait_s: 2.06,
        tok_s: 20.91,
        mb_a_token: 53.8,
        wait_share: 0.17,
        rest_ms: 39.7,
    },
    Receipt {
        workload: "longer context",
        tokens: 256.0,
        decode_s: 10.77,
        hit_rate: 0.959,
        read_gb: 7.45,
        wait_s: 1.13,
        tok_s: 23.69,
        mb_a_token: 29.2,
        wait_share: 0.11,
        rest_ms: 37.8,
    },
    Receipt {
        workload: "coding answer",
        tokens: 81.0,
        decode_s: 3.69,
        hit_rate: 0.804,
        read_gb: 8.97,
        wait_s: 1.11,
        tok_s: 21.59,
        mb_a_token: 112.1,
        wait_share: 0.30,
        rest_ms: 32.2,
    },
];

/// Speeds, and what the article computes of them: GB/s if nothing hits, and the least hit rates
/// with the raw disk and the engine's.
pub(super) const FLOORS: [(f64, f64, f64, f64); 3] =
    [(20.91, 27.7, 0.38, 0.57), (21.59, 28.7, 0.40, 0.58), (23.69, 31.4, 0.45, 0.62)];

/// Slots of the 33 GB plan, the bytes of its pool, and its other rows in GB.
pub(super) const PLAN_SLOTS: usize = 7509;
pub(super) const PLAN_POOL: u64 = 20_760_883_200;
pub(super) const PLAN_ROWS: [(&str, f64); 5] = [
    ("fixed", 5.3),
    ("prefill workspace", 2.66),
    ("draft head", 1.6),
    ("lookahead", 0.43),
    ("retained state", 1.25),
];

/// Recall of three forecasts, and the share of lookups that still waits by the article.
pub(super) const FORECASTS: [(f64, f64); 3] = [(0.62, 0.028), (0.73, 0.020), (0.80, 0.015)];

/// Seconds of one read of a record, alone.
pub(super) const READ_S: f64 = 292e-6;

/// One Mac with two disks: experts a layer, tokens a second with the internal disk and with the
/// other, bytes a second of the other, and those assumed of the internal one with the records a
/// token that follow.
pub(super) const DISKS_PER_LAYER: usize = 119;
pub(super) const INTERNAL_TOK_S: f64 = 15.93;
pub(super) const USB_TOK_S: f64 = 2.98;
pub(super) const USB_DISK: f64 = 0.9e9;
pub(super) const INTERNAL_DISKS: [(f64, f64); 2] = [(12e9, 96.0), (17e9, 94.0)];
pub(super) const DISKS_HIT_RATE: f64 = 0.80;
pub(super) const DISKS_SIMULATED: f64 = 0.89;

/// A row of the comparison of policies: experts a layer, and by how many points of the hit rate
/// LRU and equal partitions lead CLOCK by the article. Ranges and bounds are texts.
pub(super) const POLICIES: [(usize, &str, &str); 5] = [
    (20, "4", "7"),
    (30, "0.5 to 2.2", "3"),
    (60, "0.5 to 2.2", "under 1"),
    (100, "0.5 to 2.2", "under 1"),
    (156, "0.5 to 2.2", "under 1"),
];

/// Passes of both summaries, from an empty pool.
pub(super) const SUMMARY_PASSES: usize = 220;

/// Policies and experts a layer of the hit rates in the summaries.
pub(super) const SUMMARY_POOLS: [(&str, usize); 4] =
    [("clock", 30), ("lru", 20), ("lru", 30), ("lru", 60)];

/// What is known of a trace: records used, the share of the lookups that the busiest tenth of the
/// records serves, the hit rates of [`SUMMARY_POOLS`].
pub(super) struct Known {
    pub(super) records_used: usize,
    pub(super) top_tenth: f64,
    pub(super) rates: [Option<f64>; 4],
}

/// The article's synthetic trace.
pub(super) const ARTICLE: Known = Known {
    records_used: 10_397,
    top_tenth: 0.81,
    rates: [Some(0.561), None, Some(0.568), Some(0.754)],
};

/// The original's recorded trace (M1).
pub(super) const ORIGINAL: Known = Known {
    records_used: 9956,
    top_tenth: 0.709,
    rates: [Some(0.557), Some(0.473), Some(0.568), Some(0.707)],
};

impl Known {
    /// What a fit may use: both know the same five figures.
    pub(super) fn summary(&self, layers: usize) -> Summary {
        let known = SUMMARY_POOLS.iter().zip(self.rates).filter(|((_, size), _)| *size != 20);
        let rates = known.filter_map(|((policy, per_layer), rate)| {
            Some(Rate::new(*policy, per_layer * layers, rate?))
        });
        Summary::new(SUMMARY_PASSES, self.records_used, self.top_tenth, rates.collect())
    }
}
