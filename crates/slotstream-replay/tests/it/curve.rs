//! Many policies and sizes at once are the same as one after the other.

use std::sync::Mutex;

use slotstream_cache::{Clock, Lru};
use slotstream_core::{CancelToken, ErrorKind, EvictionPolicy, Geometry};
use slotstream_replay::{
    Chart, Measure, Opt, Phases, ReplayError, Requests, Run, Simulation, Synthetic, curve,
};

fn sample() -> Requests {
    let recipe = Synthetic::new(0.8, 1.5, 20.0).unwrap().passes(120).seed(3);
    recipe.requests(Geometry::new(4, 24, 3).unwrap())
}

fn names(names: &[&str]) -> Vec<String> {
    names.iter().map(ToString::to_string).collect()
}

#[test]
fn points_are_single_runs_in_order() {
    let requests = sample();
    let simulation = Simulation::new(0).warm_up(10);
    let done = Mutex::new(Vec::new());
    let policies = names(&["lru", "opt", "clock"]);
    let points =
        curve(&requests, &policies, &[60, 12, 30], &simulation, &|n| done.lock().unwrap().push(n))
            .unwrap();
    fn single<P: EvictionPolicy>(requests: &Requests, slots: usize, policy: P) -> Run {
        Simulation::new(slots).warm_up(10).run(requests, policy).unwrap()
    }
    let mut at = points.iter();
    for policy in &policies {
        for slots in [60, 12, 30] {
            let expected = match policy.as_str() {
                "lru" => single(&requests, slots, Lru::new()),
                "clock" => single(&requests, slots, Clock::new()),
                _ => single(&requests, slots, Opt::new(&requests)),
            };
            let point = at.next().unwrap();
            assert_eq!((&point.policy, point.slots), (policy, slots));
            assert_eq!(point.outcome.as_ref().unwrap(), &expected);
        }
    }
    let mut done = done.into_inner().unwrap();
    done.sort_unstable();
    assert_eq!(done, (1..=9).collect::<Vec<_>>());
}

#[test]
fn names_refusals_and_the_end() {
    let requests = sample();
    let simulation = Simulation::new(0);
    let all = |policies: &[&str], slots: &[usize], simulation: &Simulation| {
        curve(&requests, &names(policies), slots, simulation, &|_| {})
    };
    let unknown = all(&["lru", "Opt"], &[20], &simulation).unwrap_err();
    assert!(matches!(unknown, ReplayError::Policy { .. }), "{unknown}");
    assert_eq!(unknown.kind(), ErrorKind::User);
    // One size below the floor spoils its own point only.
    let points = all(&["lru"], &[1, 20], &simulation).unwrap();
    assert!(matches!(points[0].outcome, Err(ReplayError::Pool { layer: None, .. })));
    assert!(points[1].outcome.is_ok());
    let cancel = CancelToken::new();
    cancel.cancel();
    let cancelled = all(&["lru"], &[20], &simulation.cancel(cancel)).unwrap_err();
    assert_eq!(cancelled.kind(), ErrorKind::Cancelled);
}

/// More slots never cost OPT a hit.
#[test]
fn opt_rises_with_the_size() {
    let requests = sample();
    let slots: Vec<usize> = (12..=96).step_by(6).collect();
    let points = curve(&requests, &names(&["opt"]), &slots, &Simulation::new(0), &|_| {}).unwrap();
    let hits: Vec<u64> = points
        .iter()
        .map(|point| point.outcome.as_ref().unwrap().count(Phases::All).lookups.hits)
        .collect();
    assert!(hits.is_sorted(), "{hits:?}");
    assert!(hits[0] < hits[hits.len() - 1]);
}

#[test]
fn charts_name_what_they_show() {
    let mut chart = Chart::new("a < b & c").ceiling(Some(0.93)).logarithmic(true);
    chart.push("clock", &[(20, 0.31), (10, 0.12), (40, 0.5)]);
    chart.push("opt", &[(10, 0.4), (20, 0.6), (40, 0.8)]);
    let svg = chart.svg().unwrap();
    for words in
        ["a &lt; b &amp; c", "clock", "opt", "pool, slots", "hit rate, %", "first uses only"]
    {
        assert!(svg.contains(words), "{words} in {svg}");
    }
    let at = |name: &str| svg.find(&format!("\n{name}\n")).expect(name);
    assert!(at("opt") < at("clock"), "opt leads the legend");
    let misses = chart.clone().measure(Measure::MissRatio).logarithmic(false).svg().unwrap();
    assert!(misses.contains("miss ratio, %"));
    assert_ne!(misses, svg);
    let at = |name: &str| misses.find(&format!("\n{name}\n")).expect(name);
    assert!(at("clock") < at("opt"), "the legend goes from the top to the bottom");
    assert!(!svg.contains("token routes"));
    let routes = chart.clone().routes_of(8).svg().unwrap();
    assert!(routes.contains("pool, token routes of 8 slots") && routes.contains("pool, slots"));
    let empty = Chart::new("").svg().unwrap_err();
    assert_eq!(empty.kind(), ErrorKind::User);
    // One size is drawn as well.
    let mut one = Chart::new("one");
    one.push("lru", &[(7, 0.0)]);
    for logarithmic in [false, true] {
        assert!(one.clone().logarithmic(logarithmic).svg().unwrap().contains("lru"));
    }
    // The page grows with the legend.
    let mut many = Chart::new("many");
    (0..60).for_each(|number| many.push(&format!("policy-{number}"), &[(7, 0.1), (9, 0.2)]));
    let svg = many.svg().unwrap();
    let height = svg.split("height=\"").nth(1).and_then(|rest| rest.split('"').next());
    let height: f64 = height.and_then(|text| text.parse().ok()).expect("a height");
    let last = svg.split("policy-59").next().and_then(|text| text.rsplit(" y=\"").next());
    let last: f64 = last.and_then(|text| text.split('"').next()?.parse().ok()).expect("a place");
    assert!(last < height, "{last} of {height}");
}
