//! Reports: fixed columns, sums over traces, and the details of a run against a plain recount.

use std::collections::{BTreeMap, HashSet};

use slotstream_cache::{Clock, Lru};
use slotstream_core::{ExpertKey, Geometry};
use slotstream_replay::{
    Detail, LookupEvent, Lookups, Opt, Phases, Report, Requests, Simulation, Synthetic,
};

fn sample(seed: u64) -> Requests {
    let recipe = Synthetic::new(0.8, 1.5, 20.0).unwrap().passes(150).seed(seed);
    recipe.requests(Geometry::new(4, 24, 3).unwrap())
}

#[test]
fn csv_starts_as_promised_and_adds_up() {
    let mut report = Report::new().record_bytes(2_000_000);
    for (seed, trace) in [(1, "a.txt"), (2, "b,c.txt")] {
        let requests = sample(seed);
        let simulation = Simulation::new(30);
        let runs = [
            simulation.run(&requests, Clock::new()).unwrap(),
            simulation.run(&requests, Opt::new(&requests)).unwrap(),
            simulation.run(&requests, Lru::new()).unwrap(),
        ];
        for (name, run) in ["clock", "opt", "layer-local:lru"].into_iter().zip(&runs) {
            report.push(trace, name, 30, run.count(Phases::Decode), name == "opt");
        }
    }
    let csv = report.table().csv();
    assert!(csv.starts_with("policy,slots,lookups,hits,misses,hit_rate,"), "{csv}");
    let rows: Vec<Vec<&str>> = csv.lines().skip(1).map(|line| line.split(',').collect()).collect();
    assert_eq!(rows.len(), 6);
    for row in &rows {
        let number = |at: usize| row[at].parse::<f64>().unwrap();
        assert_eq!(number(2), number(3) + number(4));
        assert_eq!(number(2), 150.0 * 4.0 * 3.0);
        assert!((number(5) - number(3) / number(2)).abs() < 1e-6);
        assert!((number(10) - number(4) / 150.0).abs() < 1e-6);
        assert!((number(11) - 2.0 * number(10)).abs() < 1e-5);
    }
    assert_eq!((rows[2][0], rows[0][12], rows[1][12]), ("layer-local:lru", "0.000000", "1.000000"));
    assert!(csv.contains("\"b,c.txt\""));

    let summary = report.summary(1).csv();
    let lines: Vec<Vec<&str>> = summary.lines().map(|line| line.split(',').collect()).collect();
    assert_eq!(lines.len(), 4);
    assert_eq!(lines[0][..3], ["policy", "slots", "lookups"]);
    let number = |at: usize| lines[3][at].parse::<f64>().unwrap();
    let rates: Vec<f64> = [2, 5].map(|row: usize| rows[row][5].parse().unwrap()).to_vec();
    assert_eq!(number(2), 2.0 * 150.0 * 4.0 * 3.0);
    assert!((number(5) - (rates[0] + rates[1]) / 2.0).abs() < 2e-6);
    assert_eq!((lines[3][14], lines[3][15]), ("mean", "2"));
    assert!(number(16) <= number(18) && number(18) <= number(5));
    assert!(number(5) <= number(19) && number(19) <= number(17));
    assert_eq!((rows[0][13], rows[1][13]), ("modelled", "exact"));
    let mut both = report.table();
    both.append(&report.summary(1));
    assert_eq!(both.rows().len(), 9);
    assert_eq!(report.table_of("a.txt").rows().len(), 3);
}

/// All lookups are told, in order, with the record that each miss drives out; the table of layers
/// and the ages are recounted from them.
#[test]
fn events_are_the_whole_story() {
    let requests = sample(5);
    let geometry = *requests.geometry();
    let mut events: Vec<LookupEvent> = Vec::new();
    let mut detail = Detail::new(geometry, Phases::Decode);
    let simulation = Simulation::new(30).warm_up(20);
    let mut observer =
        (Lookups::new(Phases::Decode, |event: &LookupEvent| events.push(*event)), &mut detail);
    let run = simulation.run_with(&requests, Lru::new(), &mut observer).unwrap();
    let count = run.count(Phases::Decode);
    assert_eq!(run, simulation.run(&requests, Lru::new()).unwrap());
    assert_eq!(events.len() as u64, count.lookups());
    let hits = events.iter().filter(|event| event.hit).count() as u64;
    assert_eq!(hits, count.lookups.hits);

    // By layer.
    for row in detail.layers() {
        let of: Vec<_> = events.iter().filter(|event| event.key.layer() == row.layer).collect();
        assert_eq!(row.lookups, of.len() as u64);
        assert_eq!(row.hits, of.iter().filter(|event| event.hit).count() as u64);
        assert!((row.occupancy - 7.5 - row.borrowed + row.lent).abs() < 1e-9, "{row:?}");
    }
    let occupied: f64 = detail.layers().iter().map(|row| row.occupancy).sum();
    assert!((occupied - 30.0).abs() < 1e-9, "the pool is full: {occupied}");

    // A victim was there, and is not any more.
    let mut there: HashSet<ExpertKey> = HashSet::new();
    let mut known = 0;
    for event in &events {
        match (event.hit, event.victim) {
            (true, victim) => assert_eq!(victim, None),
            (false, Some(victim)) => known += usize::from(there.remove(&victim)),
            (false, None) => panic!("the pool was full after the warm-up: {event:?}"),
        }
        there.insert(event.key);
    }
    assert!(known > 100 && there.len() >= 30, "{known}, {}", there.len());
    assert_eq!(detail.eviction_age_passes().total(), count.lookups.misses);
    assert_eq!(events[0].pass, requests.pass(20).unwrap().step().pass);
}

/// The ages by hand: three slots, single keys, LRU.
#[test]
fn ages_by_hand() {
    let requests = crate::support::keys(&[0, 1, 2, 0, 3, 0, 4]);
    let mut detail = Detail::new(*requests.geometry(), Phases::All);
    Simulation::new(3).unfloored().run_with(&requests, Lru::new(), &mut detail).unwrap();
    // 3 drives out 1 (pass 1, now 4), 4 drives out 2 (pass 2, now 6).
    let ages: BTreeMap<usize, u64> = detail
        .eviction_age_passes()
        .counts()
        .iter()
        .copied()
        .enumerate()
        .filter(|(_, count)| *count > 0)
        .collect();
    assert_eq!(ages, BTreeMap::from([(3, 1), (4, 1)]));
    assert_eq!(detail.eviction_age_visits().mean(), Some(3.5));
    assert!(detail.table().text().starts_with("layer  lookups  hits  hit rate"));
    assert_eq!(detail.eviction_age_passes().table().rows().len(), 4);
}
