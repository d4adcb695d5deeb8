//! Statistics against counts by the plain definition.

use std::collections::{BTreeSet, HashMap};

use proptest::prelude::*;
use slotstream_cache::Lru;
use slotstream_core::Geometry;
use slotstream_replay::{Phases, Recording, Requests, Simulation, Stats, shuffled};

use crate::places::bundled;
use crate::support::{keys, passes, requests};

/// Every lookup in order: its pass and record.
fn lookups(requests: &Requests) -> Vec<(usize, usize)> {
    let experts = requests.geometry().experts();
    let visits = requests.passes().flat_map(|pass| pass.visits().map(move |v| (pass.index(), v)));
    visits
        .flat_map(|(pass, visit)| {
            let base = visit.layer().index() * experts;
            visit.experts().iter().map(move |expert| (pass, base + expert.index()))
        })
        .collect()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn reuse_by_definition(passes in passes((2, 12, 3), 3, 30)) {
        let requests = requests(Geometry::new(2, 12, 3).unwrap(), &passes);
        let stats = Stats::of(&requests, Phases::All);
        let lookups = lookups(&requests);
        let (mut distances, mut times, mut first) = (HashMap::new(), HashMap::new(), 0);
        for (now, (pass, record)) in lookups.iter().enumerate() {
            match lookups[..now].iter().rposition(|(_, before)| before == record) {
                Some(before) => {
                    let between: BTreeSet<_> =
                        lookups[before + 1..now].iter().map(|(_, record)| record).collect();
                    *distances.entry(between.len()).or_insert(0) += 1;
                    *times.entry(pass - lookups[before].0).or_insert(0) += 1;
                }
                None => first += 1,
            }
        }
        for (seen, expected) in
            [(&stats.reuse_distance, distances), (&stats.reuse_passes, times)]
        {
            let found: HashMap<usize, u64> = seen.counts().iter().copied().enumerate()
                .filter(|(_, count)| *count > 0).collect();
            prop_assert_eq!(found, expected);
        }
        prop_assert_eq!(stats.first_uses, first);
        prop_assert_eq!(stats.lookups, lookups.len() as u64);
        prop_assert_eq!(stats.uses(), requests.uses());
        prop_assert_eq!(stats.ceiling(), Some(1.0 - first as f64 / lookups.len() as f64));
    }

    /// One key a pass: the whole curve of LRU from one look through the trace.
    #[test]
    fn stack_distances_are_lru(list in prop::collection::vec(0_u16..40, 1..400)) {
        let requests = keys(&list);
        let stats = Stats::of(&requests, Phases::All);
        for slots in [1, 2, 3, 7, 15, 39, 40] {
            let run = Simulation::new(slots).unfloored().run(&requests, Lru::new()).unwrap();
            prop_assert_eq!(run.count(Phases::All).lookups.hits, stats.lru_hits(slots), "{}", slots);
        }
    }

    #[test]
    fn a_shuffle_keeps_the_passes(passes in passes((2, 8, 2), 2, 30), seed: u64) {
        let requests = requests(Geometry::new(2, 8, 2).unwrap(), &passes);
        let mixed = shuffled(&requests, seed);
        prop_assert_eq!(mixed.rejected(), 0);
        prop_assert_eq!(mixed.uses(), requests.uses());
        let visits = |requests: &Requests| {
            let mut all: Vec<_> = requests.passes().map(|pass| {
                (pass.step().phase == slotstream_core::Phase::Decode,
                 pass.visits().map(|v| (v.layer(), v.ids().to_vec())).collect::<Vec<_>>())
            }).collect();
            all.sort();
            all
        };
        prop_assert_eq!(visits(&mixed), visits(&requests));
        prop_assert_eq!(lookups(&shuffled(&requests, seed)), lookups(&mixed));
    }
}

#[test]
fn skew_and_likeness_by_hand() {
    let geometry = Geometry::new(2, 10, 2).unwrap();
    let requests = requests(
        geometry,
        &[
            // A prompt of two rows.
            vec![(0, vec![0, 1, 1, 2]), (1, vec![4, 5, 6, 7])],
            vec![(0, vec![1, 2]), (1, vec![6, 8])],
            vec![(0, vec![0, 2]), (1, vec![9, 3])],
        ],
    );
    let all = Stats::of(&requests, Phases::All);
    // Layer 0: 1 of 2, 2 of 2, 1 of 2; layer 1: 0, 1, 0 of 2.
    assert_eq!(all.layers[0].same_as_previous, Some(4.0 / 6.0));
    assert_eq!(all.layers[1].same_as_previous, Some(1.0 / 6.0));
    let decode = Stats::of(&requests, Phases::Decode);
    assert_eq!(decode.layers[0].same_as_previous, Some(3.0 / 4.0));
    assert_eq!((all.lookups, decode.lookups), (15, 8));
    assert_eq!((all.records_used(), decode.records_used()), (10, 7));
    // Record 0.2 is looked up three times; two of twenty records make a tenth.
    assert_eq!((all.top_share(0.05), all.top_share(0.1)), (3.0 / 15.0, 5.0 / 15.0));
    assert_eq!((all.top_share(0.0), all.top_share(1.0)), (0.0, 1.0));
    // Decode: 0.0, 0.1, 0.2 twice, 1.6 were used by the prompt.
    assert_eq!(decode.first_uses, 3);
}

#[test]
fn nothing_is_no_figure() {
    let requests = Requests::new(Geometry::new(2, 4, 1).unwrap());
    let stats = Stats::of(&requests, Phases::All);
    assert_eq!((stats.lookups, stats.ceiling(), stats.records_used()), (0, None, 0));
    assert_eq!(stats.layers[0].same_as_previous, None);
    assert_eq!(stats.reuse_distance.mean(), None);
    assert_eq!(shuffled(&requests, 1).passes().len(), 0);
}

/// The figures that came with two of the bundled traces, computed by other programs: shares of
/// the busiest 67 records, records used, likeness of tokens in the first and the last layer, hit
/// rates of an LRU that takes one record at a time with 67, 168 and 336 slots.
#[test]
fn bundled_traces_have_the_figures_that_came_with_them() {
    let figures = [
        (
            "prose-austen",
            (0.335_648_149, 663),
            (0.139_956_564, 0.455_266_154),
            [0.006_202_980, 0.418_221_933, 0.733_280_888],
        ),
        (
            "book-nomicon",
            (0.224_754_050, 669),
            (0.139_848, 0.285_776),
            [0.005_325_883, 0.316_361_039, 0.630_805_122],
        ),
    ];
    for (name, (top, used), (first, last), lru) in figures {
        let requests = Recording::open(bundled(name)).unwrap().requests().unwrap();
        let stats = Stats::of(&requests, Phases::Decode);
        let near = |found: f64, golden: f64| {
            assert!((found - golden).abs() < 1e-6, "{name}: {found} instead of {golden}");
        };
        near(stats.top_share(67.0 / 672.0), top);
        assert_eq!(stats.records_used(), used);
        near(stats.layers[0].same_as_previous.unwrap(), first);
        near(stats.layers[11].same_as_previous.unwrap(), last);
        for (slots, golden) in [67, 168, 336].into_iter().zip(lru) {
            near(stats.lru_hits(slots) as f64 / stats.lookups as f64, golden);
        }
    }
}
