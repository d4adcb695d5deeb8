//! OPT is optimal: against every possible choice on small cases, against every policy on larger
//! ones.

use std::collections::{HashMap, HashSet};

use proptest::prelude::*;
use slotstream_core::Geometry;
use slotstream_replay::{
    Opt, Phases, ReplayError, Requests, Simulation, all_policies, named_policy,
};

use crate::support::{Visit, keys, passes, requests};

/// The calls that a pool of `slots` slots gets, each a set of records as bits.
fn calls(geometry: Geometry, passes: &[Vec<Visit>], slots: usize) -> Vec<u32> {
    let mut calls = Vec::new();
    for (layer, ids) in passes.iter().flatten() {
        let bit =
            |expert: &u16| 1 << (usize::from(*layer) * geometry.experts() + usize::from(*expert));
        let mut distinct: Vec<u16> = ids.clone();
        distinct.sort_unstable();
        distinct.dedup();
        calls.extend(distinct.chunks(slots).map(|wave| wave.iter().map(bit).sum::<u32>()));
    }
    calls
}

/// The fewest misses over every choice of victims: all subsets of what is resident, not asked
/// for, and as many as are needed.
fn fewest(calls: &[u32], slots: u32) -> u64 {
    let mut states: HashMap<u32, u64> = HashMap::from([(0, 0)]);
    for call in calls {
        let mut next = HashMap::new();
        for (resident, misses) in states {
            let missing = (call & !resident).count_ones();
            let needed = (resident.count_ones() + missing).saturating_sub(slots);
            let evictable = resident & !call;
            // All subsets of `evictable`.
            let mut victims = evictable;
            loop {
                if victims.count_ones() == needed {
                    let now = misses + u64::from(missing);
                    next.entry(resident & !victims | call)
                        .and_modify(|least: &mut u64| *least = now.min(*least))
                        .or_insert(now);
                }
                if victims == 0 {
                    break;
                }
                victims = (victims - 1) & evictable;
            }
        }
        states = next;
    }
    states.into_values().min().unwrap()
}

fn misses(requests: &Requests, policy: &str, slots: usize) -> Result<u64, ReplayError> {
    let policy = named_policy(policy, requests)?;
    let run = Simulation::new(slots).unfloored().run(requests, policy)?;
    Ok(run.count(Phases::All).lookups.misses)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(4000))]

    #[test]
    fn no_choice_of_victims_misses_less(
        (shape, passes, slots) in prop_oneof![
            passes((1, 7, 1), 1, 14).prop_map(|passes| ((1, 7, 1), passes)),
            passes((1, 9, 3), 1, 10).prop_map(|passes| ((1, 9, 3), passes)),
            passes((2, 5, 2), 3, 6).prop_map(|passes| ((2, 5, 2), passes)),
            passes((3, 4, 2), 2, 5).prop_map(|passes| ((3, 4, 2), passes)),
        ].prop_flat_map(|(shape, passes)| (Just(shape), Just(passes), 1_usize..=6))
    ) {
        let geometry = Geometry::new(shape.0, shape.1, shape.2).unwrap();
        let requests = requests(geometry, &passes);
        let run = Simulation::new(slots).unfloored().run(&requests, Opt::new(&requests)).unwrap();
        let found = run.count(Phases::All).lookups.misses;
        let least = fewest(&calls(geometry, &passes, slots), u32::try_from(slots).unwrap());
        prop_assert_eq!(found, least);
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(60))]

    #[test]
    fn no_policy_beats_it(
        (passes, slots) in (passes((3, 16, 3), 4, 60), 1_usize..=48)
    ) {
        let requests = requests(Geometry::new(3, 16, 3).unwrap(), &passes);
        let least = misses(&requests, "opt", slots).unwrap();
        let mut replayed = 0;
        for name in all_policies() {
            match misses(&requests, &name, slots) {
                Ok(misses) => {
                    prop_assert!(misses >= least, "{} misses {} times, opt {}", name, misses, least);
                    replayed += 1;
                }
                // A policy may refuse a pool.
                Err(ReplayError::Pool { layer: None, .. }) => {}
                Err(error) => panic!("{name}: {error}"),
            }
        }
        prop_assert!(replayed >= 3);
    }
}

/// By hand: three slots, Belady's own kind of example.
#[test]
fn the_furthest_goes() {
    let requests = keys(&[0, 1, 2, 3, 0, 1, 4, 0, 1, 2, 3, 4]);
    assert_eq!(misses(&requests, "opt", 3).unwrap(), 7);
    assert_eq!(misses(&requests, "lru", 3).unwrap(), 10);
}

/// The same instance, after a reset, on other requests, in a pool of another geometry.
#[test]
fn it_knows_its_own_requests_only() {
    let requests = keys(&[0, 1, 2, 3, 0, 1, 4, 0, 1, 2, 3, 4]);
    let other = keys(&[4, 3, 2, 1, 0, 1, 2, 3, 4, 4, 3, 2]);
    let lawful = Simulation::new(3).unfloored().run(&other, Opt::new(&requests)).unwrap();
    assert_eq!(lawful.count(Phases::All).lookups(), 12);
    let wide = keys(&[5]);
    let refused = Simulation::new(1).unfloored().run(&wide, Opt::new(&requests));
    assert!(matches!(refused, Err(ReplayError::Pool { layer: None, .. })), "{refused:?}");
}

/// Every distinct record once: as few misses as any pool can have.
#[test]
fn a_pool_of_all_records_has_compulsory_misses_only() {
    let draws = [5, 1, 3, 3, 5, 0, 1, 2, 2, 5];
    let requests = keys(&draws);
    let distinct: HashSet<u16> = draws.into_iter().collect();
    for name in all_policies() {
        match misses(&requests, &name, 6) {
            Ok(misses) => assert_eq!(misses, distinct.len() as u64, "{name}"),
            Err(ReplayError::Pool { layer: None, .. }) => {}
            Err(error) => panic!("{name}: {error}"),
        }
    }
}
