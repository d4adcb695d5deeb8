//! Ghost pools against replays of the same requests.

use slotstream_cache::{CacheError, parse_policy, policy_names};
use slotstream_core::{Attached, ErrorKind, EventSink, Geometry};
use slotstream_replay::{Opt, PoolSize, ReplayError, Shadows, Simulation, Synthetic};

fn attached(geometry: Geometry, slots: usize) -> Attached<'static> {
    Attached { geometry, record_bytes: 0, slots, floor: 4, policy: "clock" }
}

#[test]
fn a_ghost_counts_what_a_replay_counts() {
    let geometry = Geometry::new(5, 24, 3).unwrap();
    let recipe = Synthetic::new(0.9, 1.2, 25.0).unwrap().passes(200);
    let requests = recipe.requests(geometry);
    let names: Vec<String> = policy_names()
        .map(|name| if name.ends_with(':') { name + "clock" } else { name })
        .collect();
    let mut shadows = Shadows::new();
    for name in &names {
        shadows.add_named(&format!("{name}@30")).unwrap();
    }
    shadows.add_named("opt").unwrap();
    shadows.add("own", Some(PoolSize::Routes(1.0)), parse_policy("lru").unwrap());
    shadows.on_attach(&attached(geometry, 40));
    recipe.play(geometry, &mut shadows);
    assert_eq!(shadows.rejected(), 0);
    let reports = shadows.reports().unwrap();
    assert_eq!(reports.len(), names.len() + 2);
    for (report, name) in reports.iter().zip(&names) {
        let policy = parse_policy(name).unwrap();
        let run = Simulation::new(30).unfloored().run(&requests, policy).unwrap();
        assert!(report.fault.is_none(), "{name}: {:?}", report.fault);
        assert_eq!((report.slots, report.counters), (30, run.counters), "{name}");
    }
    let opt = Simulation::new(40).unfloored().run(&requests, Opt::new(&requests)).unwrap();
    let best = &reports[names.len()];
    assert_eq!((best.name, best.slots, best.counters), ("opt", 40, opt.counters));
    assert_eq!((reports[names.len() + 1].name, reports[names.len() + 1].slots), ("own", 15));
}

#[test]
fn counting_begins_again_and_residents_stay() {
    let geometry = Geometry::new(3, 16, 2).unwrap();
    let (first, then) = (Synthetic::new(1.0, 1.0, 9.0).unwrap().passes(50), 25);
    let mut shadows = Shadows::new();
    shadows.add_named("lru@12").unwrap();
    shadows.add_named("opt@12").unwrap();
    shadows.on_attach(&attached(geometry, 12));
    let requests = first.requests(geometry);
    for pass in requests.passes() {
        if pass.index() == then {
            shadows.reset_counters();
        }
        shadows.on_step(&pass.step());
        pass.visits().for_each(|visit| shadows.on_routing(&visit.routing(&pass.step())));
    }
    let replay = Simulation::new(12).unfloored().warm_up(then);
    let lru = replay.run(&requests, parse_policy("lru").unwrap()).unwrap().counters;
    let opt = replay.run(&requests, Opt::new(&requests)).unwrap().counters;
    let reports = shadows.reports().unwrap();
    assert_eq!((reports[0].counters.decode, reports[1].counters.decode), (lru.decode, opt.decode));
}

#[test]
fn what_cannot_be_is_said() {
    let geometry = Geometry::new(3, 16, 2).unwrap();
    let mut shadows = Shadows::new();
    for text in ["lru@", "lru@0", "lru@x", "opt@-1"] {
        let error = shadows.add_named(text).unwrap_err();
        assert!(matches!(error, ReplayError::Size { .. }), "{text}: {error}");
        assert_eq!(error.kind(), ErrorKind::User);
    }
    assert!(matches!(shadows.add_named("lrru@3"), Err(ReplayError::Policy { .. })));
    shadows.add_named("per-layer:lru@5").unwrap();
    shadows.add_named("lru").unwrap();
    shadows.add_named("opt").unwrap();
    // Before it is attached, and of another geometry, nothing is counted.
    let other = Synthetic::new(1.0, 0.0, 1.0).unwrap().passes(1);
    other.play(geometry, &mut shadows);
    assert!(shadows.reports().unwrap().is_empty());
    assert_eq!(shadows.rejected(), 3);
    shadows.on_attach(&attached(geometry, 0));
    other.play(Geometry::new(4, 16, 2).unwrap(), &mut shadows);
    assert_eq!(shadows.rejected(), 4);
    let reports = shadows.reports().unwrap();
    assert!(matches!(reports[0].fault, Some(CacheError::Bind { .. })), "{:?}", reports[0]);
    assert!(matches!(reports[1].fault, Some(CacheError::NoSlots)));
    assert!(matches!(reports[2].fault, Some(CacheError::NoSlots)));
}

/// What shadows say that they will hold is no less than what they take, at the published shape.
#[test]
fn planned_bytes_are_enough() {
    let geometry = Geometry::new(48, 512, 10).expect("legal");
    let tokens = 40;
    let recipe = Synthetic::new(0.75, 2.45, 620.0).expect("legal").passes(tokens);
    for name in ["lru", "clock@30%", "lfu", "lirs", "2q", "wtinylfu", "arc", "analogue", "opt"] {
        let mut shadows = Shadows::new();
        shadows.add_named(name).expect("a name");
        let planned = shadows.planned_bytes(&geometry, tokens);
        let pool =
            Attached { geometry, record_bytes: 0, slots: 7_509, floor: 640, policy: "clock" };
        let taken = allocation_counter::measure(|| {
            shadows.on_attach(&pool);
            recipe.play(geometry, &mut shadows);
        });
        // The recipe's own lists are gone by then.
        let taken = u64::try_from(taken.bytes_current).expect("it holds something");
        assert!(taken <= planned, "{name}: {taken} bytes of {planned}");
    }
}
