//! An exact replay arrives where the run did, and anything else is an error.

use slotstream_cache::{SlotPool, parse_policy, policy_names};
use slotstream_core::{
    BindError, EvictionPolicy, ExpertKey, Geometry, Incoming, Origin, Outcome, RemoveCause, SlotId,
    SlotView,
};
use slotstream_replay::{
    Event, ExactReplay, Modelled, Phases, PoolEnd, Recording, Simulation, TraceError, TraceOptions,
    TraceReader, TraceWriter,
};

use crate::engine::{CALM, Engine, Habits, WILD};

pub(crate) fn geometry() -> Geometry {
    Geometry::new(3, 10, 2).expect("legal")
}

/// A recorded run and the records in its slots at the end.
pub(crate) fn record(
    policy: &str,
    slots: usize,
    (seed, habits): (u64, Habits),
    passes: usize,
    detail: bool,
) -> (Vec<u8>, PoolEnd, Vec<Option<ExpertKey>>) {
    let mut bytes = Vec::new();
    let options = TraceOptions::new().with_model("random").with_note("made up").with_detail(detail);
    let mut writer = TraceWriter::new(&mut bytes, "memory", options);
    let policy = parse_policy(policy).expect("a known name");
    let mut engine = Engine::new(geometry(), slots, policy, (seed, habits), &mut writer);
    engine.run(passes);
    let (end, content) = (PoolEnd::of(engine.pool()), content(engine.pool()));
    writer.finish(Some(&end)).expect("memory is enough");
    drop(writer);
    (bytes, end, content)
}

fn content(pool: &SlotPool) -> Vec<Option<ExpertKey>> {
    (0..pool.slots() as u32).map(|slot| pool.key(SlotId::new(slot))).collect()
}

fn replay(bytes: &[u8], policy: &str) -> Result<SlotPool, TraceError> {
    let reader = TraceReader::new(bytes, "memory")?;
    let policy = parse_policy(policy).expect("a known name");
    let mut replay = ExactReplay::with_pool(reader.header(), policy)?;
    let played = reader.play(&mut replay)?;
    replay.verify(&played)
}

/// Every policy; a combinator's name ends in a colon.
pub(crate) fn policies() -> impl Iterator<Item = String> {
    policy_names().map(|name| if name.ends_with(':') { name + "clock" } else { name })
}

#[test]
fn every_policy_arrives_where_the_run_did() {
    let mut events = [0_u64; 3];
    for policy in policies() {
        for (slots, habits) in [(4, CALM), (4, WILD), (7, WILD), (18, WILD), (30, WILD)] {
            if policy.starts_with("per-layer") && slots < 6 {
                // Three layers, two experts a token: no room for a route of each.
                let own = parse_policy(&policy).expect("a known name");
                assert!(SlotPool::new(geometry(), slots, own).is_err(), "{policy} {slots}");
                continue;
            }
            for seed in 0..6 {
                let (bytes, end, live) = record(&policy, slots, (seed, habits), 120, false);
                let what = format!("{policy} {slots} {habits:?} seed {seed}");
                let pool = replay(&bytes, &policy).unwrap_or_else(|e| panic!("{what}: {e}"));
                assert_eq!(*pool.counters(), end.counters, "{what}");
                assert_eq!(content(&pool), live, "{what}");
                pool.validate().expect("consistent");
                let counters = pool.counters();
                events[0] += counters.read_failed;
                events[1] += counters.withdrawn;
                events[2] += counters.decode.adopted + counters.prefill.adopted;
            }
        }
    }
    assert!(events.iter().all(|n| *n > 100), "failures, withdrawals, adoptions: {events:?}");
}

/// Answers every twentieth question for a victim against its contract.
#[derive(Debug, Default)]
struct Unlawful {
    lru: slotstream_cache::Lru,
    questions: u32,
}

impl EvictionPolicy for Unlawful {
    fn bind(&mut self, geometry: &Geometry, slots: usize) -> Result<(), BindError> {
        self.lru.bind(geometry, slots)
    }
    fn on_insert(&mut self, slot: SlotId, key: ExpertKey, origin: Origin) {
        self.lru.on_insert(slot, key, origin);
    }
    fn on_hit(&mut self, slot: SlotId, key: ExpertKey) {
        self.lru.on_hit(slot, key);
    }
    fn on_remove(&mut self, slot: SlotId, key: ExpertKey, cause: RemoveCause) {
        self.lru.on_remove(slot, key, cause);
    }
    fn choose_victim(&mut self, incoming: &Incoming, view: &SlotView<'_>) -> Option<SlotId> {
        self.questions += 1;
        if self.questions.is_multiple_of(20) {
            return None;
        }
        self.lru.choose_victim(incoming, view)
    }
    fn reset(&mut self) {
        *self = Self::default();
    }
}

#[test]
fn refused_waves_are_refused_again() {
    let habits = Habits { speculates: false, ..WILD };
    let mut bytes = Vec::new();
    let mut writer = TraceWriter::new(&mut bytes, "memory", TraceOptions::new());
    let policy = Box::<Unlawful>::default();
    let mut engine = Engine::new(geometry(), 5, policy, (9, habits), &mut writer);
    engine.run(300);
    let end = PoolEnd::of(engine.pool());
    writer.finish(Some(&end)).expect("memory is enough");
    drop(writer);
    let events = TraceReader::new(&bytes[..], "memory").expect("whole").events();
    let refused = |e: &Event| matches!(e, Event::Outcome(Outcome::Refused { .. }));
    assert!(events.map(|e| e.expect("whole")).filter(refused).count() > 20);
    let replay = |policy: Box<dyn EvictionPolicy>| {
        let reader = TraceReader::new(&bytes[..], "memory").expect("whole");
        let mut replay = ExactReplay::with_pool(reader.header(), policy).expect("legal");
        let played = reader.play(&mut replay).expect("whole");
        replay.verify(&played)
    };
    let pool = replay(Box::<Unlawful>::default()).expect("the same");
    assert_eq!(pool.counters(), &end.counters);
    // A lawful policy has nothing to be refused for.
    let error = replay(parse_policy("lru").expect("known")).expect_err("other answers");
    assert!(matches!(error, TraceError::Diverged { .. }), "{error}");
}

#[test]
fn another_policy_diverges_or_is_found_out() {
    let (bytes, ..) = record("lru", 7, (1, WILD), 200, false);
    for other in ["clock", "clock-cold"] {
        let error = replay(&bytes, other).expect_err("another policy");
        let known = matches!(error, TraceError::Diverged { .. } | TraceError::Pool { .. });
        assert!(known, "{error}");
    }
    let reader = TraceReader::new(&bytes[..], "memory").expect("whole");
    let policy = parse_policy("clock").expect("known");
    let error = ExactReplay::new(reader.header(), policy).expect_err("another name");
    assert!(error.to_string().contains("lru"), "{error}");
    assert_eq!(error.kind(), slotstream_core::ErrorKind::User);
    // Without failures nothing but the counters at the end can tell.
    let (bytes, ..) = record("lru", 7, (1, CALM), 200, false);
    let error = replay(&bytes, "clock").expect_err("another policy");
    assert!(matches!(error, TraceError::Diverged { .. }), "{error}");
}

#[test]
fn requests_alone_are_no_exact_replay() {
    let recording = Recording::from_bytes("keys", &b"a\nb\na\n"[..]).expect("keys");
    let policy = || parse_policy("lru").expect("known");
    let error = ExactReplay::new(recording.header(), policy()).expect_err("of no pool");
    assert!(matches!(error, TraceError::Diverged { event: 0, .. }), "{error}");
    let header = {
        let mut header = recording.header().clone();
        header.slots = 2;
        header
    };
    let mut replay = ExactReplay::with_pool(&header, policy()).expect("two slots");
    recording.play(&mut replay).expect("reads");
    let error = replay.finish().expect_err("no outcomes");
    let TraceError::Diverged { event: 2, ref expected, .. } = error else { panic!("{error}") };
    assert!(expected.contains("the call of layer 0"), "{error}");
}

#[test]
fn a_cut_recording_replays_as_far_as_it_goes() {
    let (bytes, ..) = record("clock", 7, (3, WILD), 1500, false);
    let cut = &bytes[..bytes.len() * 2 / 3];
    let reader = TraceReader::new(cut, "memory").expect("its header").lenient(true);
    let policy = parse_policy("clock").expect("known");
    let mut replay = ExactReplay::new(reader.header(), policy).expect("same");
    let played = reader.play(&mut replay).expect("lenient");
    assert!(matches!(played.fault, Some(TraceError::Truncated { .. })), "{played:?}");
    assert!(played.whole_passes > 500 && played.end.is_none(), "{played:?}");
    assert!(replay.error().is_none());
    replay.pool().validate().expect("consistent");
}

#[test]
fn the_same_requests_in_another_pool() {
    let (bytes, end, _) = record("lru", 7, (1, CALM), 300, false);
    let model = |slots, policy: &str, latency| {
        let reader = TraceReader::new(&bytes[..], "memory").expect("whole");
        let policy = parse_policy(policy).expect("known");
        let mut replay = Modelled::new(reader.header(), slots, policy, latency).expect("legal");
        reader.play(&mut replay).expect("whole");
        replay.pool().validate().expect("consistent");
        replay.finish().expect("runs")
    };
    // Nothing failed, nothing was read ahead: the model is the run.
    let same = model(7, "lru", 0);
    assert_eq!(same.pool, end);
    assert!(same.mode.to_string().starts_with("modelled:"), "{}", same.mode);
    assert!(model(14, "lru", 0).counters().hit_rate() > same.counters().hit_rate());
    let whole = model(30, "clock", 0);
    assert_eq!(whole.counters().evicted, 0);
}

#[test]
fn forecasts_arrive_after_their_latency() {
    let (bytes, ..) = record("lru", 9, (2, WILD), 400, false);
    let model = |latency| {
        let reader = TraceReader::new(&bytes[..], "memory").expect("whole");
        let policy = parse_policy("lru").expect("known");
        let mut replay = Modelled::new(reader.header(), 9, policy, latency).expect("legal");
        reader.play(&mut replay).expect("whole");
        replay.pool().validate().expect("consistent");
        replay.finish().expect("runs").forecasts
    };
    let (soon, never) = (model(0), model(u64::MAX));
    assert!(soon.adopted > 20 && soon.late == 0 && soon.expired > 20, "{soon:?}");
    assert!(never.adopted == 0 && never.late > 20, "{never:?}");
    assert_eq!(soon.reserved, never.reserved);
}

#[test]
fn a_model_counts_as_a_simulation_does_after_a_warm_up() {
    let (bytes, ..) = record("lru", 7, (1, CALM), 300, false);
    let recording = Recording::from_bytes("memory", &bytes[..]).expect("whole");
    let requests = recording.requests().expect("whole");
    for warm_up in [0, 1, 120, 299, 300, 400] {
        let policy = parse_policy("clock").expect("known");
        let simulation = Simulation::new(9).warm_up(warm_up);
        let run = simulation.run(&requests, policy).expect("a lawful policy");
        let policy = parse_policy("clock").expect("known");
        let model = Modelled::new(recording.header(), 9, policy, 3).expect("legal");
        let mut model = model.warm_up(warm_up as u64);
        recording.play(&mut model).expect("whole");
        let model = model.finish().expect("runs");
        assert_eq!(*model.counters(), run.counters, "{warm_up}");
        for phases in [Phases::Decode, Phases::All] {
            assert_eq!(model.count(phases), run.count(phases), "{warm_up}");
        }
        assert_eq!(run.count(Phases::All).tokens > 0, warm_up < 300);
    }
}

#[test]
fn what_differs_at_the_end_is_named() {
    let (bytes, end, _) = record("lru", 7, (1, CALM), 60, false);
    let figures: Vec<_> = end.figures().collect();
    assert_eq!(figures.len(), 26);
    assert_eq!(figures[0], ("slots", 7));
    let value = |name: &str| figures.iter().find(|figure| figure.0 == name).expect(name).1;
    let counters = &end.counters;
    assert_eq!(value("decode_hits"), counters.decode.hits);
    assert_eq!(value("prefill_token_hits"), counters.prefill.token_hits);
    assert_eq!(value("claims_demand"), counters.claims.demand);
    assert_eq!((value("evicted"), value("cleared")), (counters.evicted, counters.cleared));
    assert_eq!(end.differences(end).count(), 0);
    // The same run, of which somebody says otherwise.
    let mut told = end;
    told.counters.evicted += 2;
    let expected = vec![("evicted", counters.evicted, counters.evicted + 2)];
    assert_eq!(end.differences(told).collect::<Vec<_>>(), expected);
    let reader = TraceReader::new(&bytes[..], "memory").expect("whole");
    let mut replay = ExactReplay::recorded(reader.header()).expect("a built-in policy");
    let mut played = reader.play(&mut replay).expect("whole");
    played.end.as_mut().expect("an end").pool = Some(told);
    let error = replay.verify(&played).expect_err("they differ").to_string();
    let words = format!("expected evicted {0}, found evicted {1}:", expected[0].1, expected[0].2);
    assert!(error.contains(&words), "{error}");
}
