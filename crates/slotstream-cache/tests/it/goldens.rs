//! Miss counts of plain key traces, equal to libCacheSim's.

use serde_json::Value;
use slotstream_cache::{Clock, Lru};

use crate::support::{misses, optimum};

const GOLDENS: &str = include_str!("../fixtures/libcachesim.json");
const TRACES: [(&str, &str); 2] = [
    ("zipf", include_str!("../fixtures/zipf.keys.txt")),
    ("prose-austen", include_str!("../fixtures/prose-austen.keys.txt")),
];

fn keys(text: &str) -> Vec<usize> {
    text.lines().map(|line| line.parse().unwrap()).collect()
}

#[test]
fn miss_counts_equal_libcachesim() {
    let goldens: Value = serde_json::from_str(GOLDENS).unwrap();
    for (name, text) in TRACES {
        let keys = keys(text);
        let sizes = goldens["misses"][name].as_object().unwrap();
        assert_eq!(sizes.len(), 8);
        for (slots, expected) in sizes {
            let slots = slots.parse().unwrap();
            let found = [
                ("Clock_init1", misses(&keys, slots, Clock::new())),
                ("Clock", misses(&keys, slots, Clock::cold())),
                ("LRU", misses(&keys, slots, Lru::new())),
                ("Belady", optimum(&keys, slots)),
            ];
            for (policy, found) in found {
                assert_eq!(Some(found), expected[policy].as_u64(), "{policy}, {name} at {slots}");
            }
        }
    }
}

#[test]
fn the_zipf_trace_is_what_its_note_says() {
    let weights: Vec<f64> = (0..400).map(|i| (f64::from(i) + 1.0).powf(-0.9)).collect();
    let total: f64 = weights.iter().sum();
    let mut sum = 0.0;
    let cumulative: Vec<f64> = weights
        .iter()
        .map(|weight| {
            sum += weight;
            sum / total
        })
        .collect();
    let mut state = 12_345_u64;
    let made: Vec<usize> = (0..12_000)
        .map(|at| {
            state = state.wrapping_mul(6_364_136_223_846_793_005);
            state = state.wrapping_add(1_442_695_040_888_963_407);
            let u = (state >> 33) as f64 / f64::from(1_u32 << 31);
            let rank = cumulative.partition_point(|weight| *weight < u).min(399);
            (rank + 7 * (at / 1500)) % 400 * 173 % 400
        })
        .collect();
    assert_eq!(made, keys(TRACES[0].1));
}
