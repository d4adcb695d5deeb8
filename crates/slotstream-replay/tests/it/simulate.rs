//! The simulator against sums by hand.

use std::error::Error;

use proptest::prelude::*;
use slotstream_cache::{CacheError, Clock, Lru, SlotPool, parse_policy};
use slotstream_core::{
    ErrorKind, EvictionPolicy, ExpertKey, Geometry, Incoming, LayerIdx, Origin, SlotId, SlotView,
};
use slotstream_replay::{Call, Observer, Phases, ReplayError, Simulation};

use crate::support::{Visit, passes, requests};

fn geometry() -> Geometry {
    Geometry::new(2, 6, 2).unwrap()
}

/// Two prompt rows, then three tokens.
fn small() -> slotstream_replay::Requests {
    requests(
        geometry(),
        &[
            vec![(0, vec![0, 1, 1, 2]), (1, vec![3, 4, 4, 3])],
            vec![(0, vec![1, 0]), (1, vec![3, 5])],
            vec![(0, vec![1, 2]), (1, vec![3, 5])],
            vec![(0, vec![4, 1]), (1, vec![0, 1])],
        ],
    )
}

#[test]
fn every_count_by_hand() {
    let run = Simulation::new(12).run(&small(), Lru::new()).unwrap();
    assert_eq!((run.policy.as_str(), run.slots), ("lru", 12));
    let (decode, all) = (run.count(Phases::Decode), run.count(Phases::All));
    // Prompt: 0.{0,1,2}, 1.{3,4} are new. Tokens: 1.5, 0.4, 1.0, 1.1 are new.
    assert_eq!((decode.lookups.hits, decode.lookups.misses, decode.tokens), (8, 4, 3));
    assert_eq!((all.lookups.hits, all.lookups.misses, all.tokens), (8, 9, 5));
    assert_eq!((all.lookups(), all.lookups.token_lookups), (17, 20));
    assert_eq!(decode.hit_rate(), Some(8.0 / 12.0));
    assert_eq!(all.token_hit_rate(), Some(8.0 / 20.0));
    assert_eq!(decode.misses_per_token(), Some(4.0 / 3.0));
    assert_eq!(all.mb_per_token(5_000_000), Some(9.0));
}

#[test]
fn the_warm_up_is_not_counted_but_fills_the_pool() {
    let warm = Simulation::new(12).warm_up(2).run(&small(), Lru::new()).unwrap();
    let all = warm.count(Phases::All);
    assert_eq!((all.lookups.hits, all.lookups.misses, all.tokens), (5, 3, 2));
    for passes in [4, 5, 100] {
        let none = Simulation::new(12).warm_up(passes).run(&small(), Lru::new()).unwrap();
        let all = none.count(Phases::All);
        assert_eq!((all.lookups(), all.tokens, all.hit_rate()), (0, 0, None), "{passes}");
    }
}

/// The first layer of the prompt has three distinct experts: with two slots it runs in waves.
#[test]
fn small_pools_run_in_waves() {
    struct Sizes(Vec<usize>, Vec<u16>);
    impl<P: EvictionPolicy> Observer<P> for Sizes {
        const IN_FLIGHT: bool = true;
        fn on_call(&mut self, call: &Call<'_>, pool: &SlotPool<P>) {
            assert_eq!(pool.running(), Some(call.layer));
            let misses = call.entries.iter().filter(|entry| !entry.is_hit()).count();
            assert_eq!(pool.open_claims(), misses);
            self.0.push(call.entries.len());
            if call.visit == 0 {
                self.1.extend(call.entries.iter().map(|entry| entry.expert.get()));
            }
        }
    }
    let mut sizes = Sizes(Vec::new(), Vec::new());
    let run = Simulation::new(2).unfloored().run_with(&small(), Clock::new(), &mut sizes).unwrap();
    assert_eq!(sizes.0, [2, 1, 2, 2, 2, 2, 2, 2, 2]);
    assert_eq!(sizes.1, [0, 1, 2]);
    assert_eq!(run.count(Phases::All).lookups(), 17);
}

/// Prompts of four experts in three slots, a token behind each: waves go by id, hits of a wave come
/// before its misses, and the last wave's victim is what the wave before used first.
#[test]
fn waves_are_counted_by_hand() {
    let visits = [vec![0, 1, 2, 3], vec![3, 0], vec![2, 5, 3, 1], vec![2, 1]];
    let passes: Vec<Vec<Visit>> = visits.into_iter().map(|ids| vec![(0, ids)]).collect();
    let requests = requests(Geometry::new(1, 6, 2).unwrap(), &passes);
    let simulation = Simulation::new(3).unfloored();
    let run = simulation.run(&requests, Lru::new()).unwrap();
    let (prefill, decode) = (&run.counters.prefill, &run.counters.decode);
    // 0 to 3 are new and push out 0; the second prompt finds 2 and 3, not 1 and 5.
    assert_eq!((prefill.hits, prefill.misses), (2, 6));
    assert_eq!((prefill.token_lookups, prefill.token_hits), (8, 2));
    // 3, not 0; then 1, not 2, which made room for 5.
    assert_eq!((decode.hits, decode.misses), (2, 2));
    assert_eq!((run.prefill_tokens, run.decode_tokens), (4, 2));
    assert_eq!(run.counters.evicted, 5);
    let warm = simulation.warm_up(1).run(&requests, Lru::new()).unwrap();
    assert_eq!((warm.counters.prefill.hits, warm.counters.prefill.misses), (2, 2));
    assert_eq!((warm.prefill_tokens, warm.counters.decode), (2, *decode));
}

#[test]
fn who_looks_on_is_told_when_counting_begins() {
    #[derive(Default)]
    struct Counted(Vec<(usize, bool)>);
    impl<P: EvictionPolicy> Observer<P> for Counted {
        fn on_call(&mut self, call: &Call<'_>, pool: &SlotPool<P>) {
            assert_eq!(pool.running(), None, "the call is over");
            self.0.push((call.pass, call.counted));
        }
    }
    let mut told = (Counted::default(), Some(Counted::default()));
    let simulation = Simulation::new(12).warm_up(2);
    let run = simulation.run_with(&small(), Lru::new(), &mut told).unwrap();
    let expected: Vec<(usize, bool)> = (0..8).map(|at| (at / 2, at / 2 >= 2)).collect();
    assert_eq!(told.0.0, expected);
    assert_eq!(told.1.map(|told| told.0), Some(expected));
    // All records fit, so nothing can do better.
    assert_eq!(simulation.ceiling(&small()).unwrap().counters, run.counters);
}

/// Looks at the pool during its calls, which go another way through it.
struct InFlight;

impl<P: EvictionPolicy> Observer<P> for InFlight {
    const IN_FLIGHT: bool = true;
    fn on_call(&mut self, _call: &Call<'_>, _pool: &SlotPool<P>) {}
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(96))]

    #[test]
    fn looking_at_running_calls_changes_nothing(
        passes in passes((2, 12, 3), 4, 40),
        slots in 1_usize..24,
        warm_up in 0_usize..20,
        policy in prop::sample::select(vec!["clock", "lru", "lfu", "s3fifo", "lirs"]),
    ) {
        let requests = requests(Geometry::new(2, 12, 3).unwrap(), &passes);
        let simulation = Simulation::new(slots).unfloored().warm_up(warm_up);
        let policy = || parse_policy(policy).expect("known");
        let plain = simulation.run(&requests, policy()).unwrap();
        let watched = simulation.run_with(&requests, policy(), &mut InFlight).unwrap();
        prop_assert_eq!(plain, watched);
    }
}

#[test]
fn floors_are_kept_unless_told() {
    let refused = Simulation::new(3).run(&small(), Clock::new()).unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::User);
    let ReplayError::Pool { source, .. } = &refused else { panic!("{refused}") };
    assert!(matches!(**source, CacheError::BelowFloor { .. }), "{source:?}");
    assert!(refused.source().unwrap().to_string().contains("below the floor"));
    assert!(Simulation::new(3).unfloored().run(&small(), Clock::new()).is_ok());
    let none = Simulation::new(0).unfloored().run(&small(), Clock::new()).unwrap_err();
    assert!(none.to_string().contains("clock with 0 slots"), "{none}");
}

/// Answers with a slot that is pinned as soon as it is asked.
#[derive(Debug)]
struct Stubborn(SlotId);

impl EvictionPolicy for Stubborn {
    fn on_insert(&mut self, slot: SlotId, _key: ExpertKey, _origin: Origin) {
        self.0 = slot;
    }
    fn on_hit(&mut self, _slot: SlotId, _key: ExpertKey) {}
    fn choose_victim(&mut self, _incoming: &Incoming, _view: &SlotView<'_>) -> Option<SlotId> {
        Some(self.0)
    }
    fn reset(&mut self) {}
}

#[test]
fn a_violation_says_who_and_where() {
    let error = Simulation::new(4).run(&small(), Stubborn(SlotId::new(0))).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Bug);
    let ReplayError::Pool { policy, slots, pass, layer, source, .. } = error else {
        panic!("{error}");
    };
    assert_eq!((policy.as_str(), slots, pass, layer), ("stubborn", 4, 0, Some(LayerIdx::new(1))));
    assert!(matches!(*source, CacheError::PolicyViolation { .. }), "{source:?}");
}
