//! Each policy against its naive model, and against what no policy can beat.

mod arc;
mod clock;
mod fifo;
mod keys;
mod lirs;
mod lru;
pub(crate) mod play;
mod s3fifo;
mod sieve;
mod slru;
mod two_q;
mod w_tiny_lfu;

use proptest::prelude::*;
use slotstream_cache::{
    Arc, Clock, Fifo, LayerLocal, Lirs, Lru, PerLayer, S3Fifo, Sieve, Slru, TwoQ, WTinyLfu,
    parse_policy,
};
use slotstream_core::*;

use crate::support::{misses, optimum};
use crate::telling::every_policy;
use arc::NaiveArc;
use clock::NaiveClock;
use fifo::NaiveFifo;
use lirs::NaiveLirs;
use lru::{NaiveLocalLru, NaiveLru};
use play::{Event, Twins, events, play};
use s3fifo::NaiveS3Fifo;
use sieve::NaiveSieve;
use slru::NaiveSlru;
use two_q::NaiveTwoQ;
use w_tiny_lfu::NaiveWTinyLfu;

/// Plays `events` to the twins, and to others that are mostly shown one layer.
fn both<A: EvictionPolicy, B: EvictionPolicy>(events: &[Event], twins: impl Fn() -> Twins<A, B>) {
    play(events, twins());
    play(events, PerLayer::new(twins()));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    #[test]
    fn policies_equal_their_naive_models(events in events()) {
        play(&events, Twins(Clock::new(), NaiveClock::new(true)));
        play(&events, Twins(Clock::cold(), NaiveClock::new(false)));
        play(&events, Twins(Lru::new(), NaiveLru::default()));
        play(&events, Twins(LayerLocal::new(Lru::new()), NaiveLocalLru::default()));
    }

    #[test]
    fn queues_and_ghosts_equal_their_naive_models(events in events()) {
        both(&events, || Twins(Fifo::new(), NaiveFifo::default()));
        both(&events, || Twins(Sieve::new(), NaiveSieve::default()));
        for share in [0.0, 0.5, 0.8, 1.0] {
            both(&events, || Twins(Slru::with_protected(share), NaiveSlru::new(share)));
        }
        for (kin, kout) in [(0.25, 0.5), (0.0, 2.0), (1.0, 0.0)] {
            both(&events, || Twins(TwoQ::with(kin, kout), NaiveTwoQ::new(kin, kout)));
        }
        both(&events, || Twins(Arc::new(), NaiveArc::default()));
    }

    #[test]
    fn the_elaborate_ones_equal_their_naive_models(events in events()) {
        for (small, ghost, threshold) in [(0.1, 0.9, 2), (0.5, 0.3, 1), (0.3, 2.0, 3), (1.0, 0.0, 1)] {
            both(&events, || {
                let naive = NaiveS3Fifo::new(small, ghost, threshold);
                Twins(S3Fifo::with(small, ghost, u64::from(threshold)), naive)
            });
        }
        for (hir, stack) in [(0.01, 2.0), (0.3, 1.2), (1.0, 1.0), (0.5, 9.0)] {
            both(&events, || Twins(Lirs::with(hir, stack), NaiveLirs::new(hir, stack)));
        }
        for (window, protected, sample) in [(0.01, 0.8, 10), (0.4, 0.5, 1), (1.0, 1.0, 2)] {
            both(&events, || {
                let naive = NaiveWTinyLfu::new(window, protected, sample);
                Twins(WTinyLfu::with(window, protected, sample), naive)
            });
        }
    }

    #[test]
    fn no_policy_beats_the_optimum(
        keys in proptest::collection::vec(0..20_usize, 1..300),
        slots in 1..20_usize,
    ) {
        let best = optimum(&keys, slots);
        for name in every_policy() {
            let found = misses(&keys, slots, parse_policy(&name).unwrap());
            prop_assert!(found >= best, "{name} {found} < {best}");
        }
    }
}

/// The optimum itself, against all ways to choose victims.
#[test]
fn the_optimum_is_the_least_of_all() {
    fn least(keys: &[usize], resident: &mut Vec<usize>, slots: usize) -> u64 {
        let Some((key, rest)) = keys.split_first() else { return 0 };
        if resident.contains(key) {
            return least(rest, resident, slots);
        }
        if resident.len() < slots {
            resident.push(*key);
            let found = 1 + least(rest, resident, slots);
            resident.pop();
            return found;
        }
        (0..slots)
            .map(|at| {
                let old = std::mem::replace(&mut resident[at], *key);
                let found = 1 + least(rest, resident, slots);
                resident[at] = old;
                found
            })
            .min()
            .unwrap()
    }
    let mut state = 7_u32;
    for slots in 1..4 {
        for _ in 0..40 {
            let keys: Vec<usize> = (0..11)
                .map(|_| {
                    state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
                    (state >> 24) as usize % 5
                })
                .collect();
            assert_eq!(optimum(&keys, slots), least(&keys, &mut Vec::new(), slots), "{keys:?}");
        }
    }
}
