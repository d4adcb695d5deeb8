//! A pool that changes its size: no token depends on it, and what stays is not read again.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use slotstream::cache::{CacheError, parse_policy};
use slotstream::core::{ErrorKind, ExpertIdx, ExpertKey, Extent, LayerIdx, Rng};
use slotstream::elastic::{Cause, ElasticOptions, Pressure, PressureSource};
use slotstream::experts::ExpertsError;
use slotstream::io::ReaderKind;
use slotstream::{Engine, Error, Sizing};
use slotstream_replay::{ExactReplay, PoolEnd, Shared, TraceOptions, TraceReader, TraceWriter};

use crate::container::repacked;
use crate::rig::{builder, counted, golden, session, tiny_model};

const TOKENS: usize = 32;

/// Generates the golden's tokens, and lets `between` do what it likes before each.
fn tokens(engine: &Engine, mut between: impl FnMut(usize)) -> Vec<u32> {
    let mut session = session(engine);
    session.prefill(&golden("p1.input_ids")).expect("runs");
    let next = |at| {
        between(at);
        session.next().expect("runs")
    };
    (0..TOKENS).map(next).collect()
}

fn expected() -> Vec<u32> {
    golden("p1.greedy_ids")[..TOKENS].to_vec()
}

#[test]
fn resizing_between_any_two_tokens_changes_none() {
    let folder =
        repacked(&tiny_model(), &slotstream::checkpoint::container::ContainerKind::ALL, false);
    let container = || slotstream::ContainerChoice::Folder(folder.path().into());
    for (policy, engine) in [
        ("analogue", builder()),
        ("lfu", builder().container(container()).reader(ReaderKind::Direct)),
        ("lru", builder().container(container()).reader(ReaderKind::Uring).lookahead("boundary-1")),
        ("random", builder().sizing(Sizing::Slots(18)).lookahead("attention-tap")),
    ] {
        let policy = parse_policy(policy).expect("a listed name");
        let engine = engine.policy(policy).build().expect("builds");
        let mut rng = Rng::new(3);
        let found = tokens(&engine, |at| {
            // Down to the floor, up to all records, and sometimes the same.
            let slots = [18, 19, 672, 18 + rng.below(655) as usize][at % 4];
            assert_eq!(engine.resize(slots).expect("lawful"), slots);
            assert_eq!((engine.pool_slots(), engine.current_plan().slots), (slots, slots));
            engine.inspect(|experts| {
                assert_eq!(experts.pool().slots(), slots);
                experts.pool().validate().expect("consistent");
            });
        });
        assert_eq!(found, expected());
    }
}

fn resident(engine: &Engine) -> Vec<ExpertKey> {
    let of = |experts: &slotstream::experts::StreamingExperts| {
        let pool = experts.pool();
        pool.states().filter_map(|(slot, _)| pool.key(slot)).collect()
    };
    engine.inspect(of)
}

#[test]
fn what_stays_is_not_read_again() {
    let (engine, reader) = counted(builder().sizing(Sizing::Share(1.0)));
    let geometry = engine.checkpoint().geometry();
    let keys = (0..geometry.layers() as u16).flat_map(|layer| {
        (0..geometry.experts() as u16)
            .map(move |expert| (LayerIdx::new(layer), ExpertIdx::new(expert)))
    });
    let pieces = |(layer, expert)| engine.checkpoint().expert_pieces(ExpertKey::new(layer, expert));
    let experts: BTreeSet<Extent> = keys.filter_map(pieces).flatten().collect();
    // Pieces of records; n-gram rows are another matter.
    let read = || reader.log().iter().filter(|extent| experts.contains(extent)).count();
    assert_eq!(tokens(&engine, |_| ()), expected());
    // Every record that was used has a slot, and nothing was evicted.
    let used = resident(&engine);
    assert_eq!((used.len() > 350, read()), (true, 9 * used.len()));
    assert_eq!(tokens(&engine, |_| ()), expected());
    assert_eq!(read(), 9 * used.len(), "everything is resident");
    engine.resize(300).expect("above the floor");
    let kept = resident(&engine);
    assert_eq!((kept.len(), &kept[..]), (300, &used[..300]));
    engine.resize(672).expect("as many as there are");
    assert_eq!(resident(&engine), kept, "growing moves nothing");
    assert_eq!(tokens(&engine, |_| ()), expected());
    // Nine pieces of each record that was given up, and not one of the others.
    assert_eq!(read(), 9 * (2 * used.len() - 300));
}

#[test]
fn sizes_that_cannot_be_are_refused_by_name() {
    let engine = builder().build().expect("builds");
    let error = engine.resize(17).expect_err("below the floor");
    let Error::Experts(ExpertsError::Cache { source: CacheError::BelowFloor { .. }, .. }) = error
    else {
        panic!("{error:?}")
    };
    assert_eq!(engine.pool_slots(), 201, "it is as it was");
    assert_eq!(engine.resize(10_000).expect("all records"), 672);
    let planned = engine.plan().total_bytes();
    assert_eq!(engine.current_plan().total_bytes(), planned + (672 - 201) * 32_768);

    let plan = builder().sizing(Sizing::Slots(100)).plan().expect("fits");
    let engine = builder().sizing(Sizing::Memory(plan.total_bytes() + (16 << 20)));
    let engine = engine.build().expect("builds");
    let most = engine.plan().slots;
    assert!((18..672).contains(&most), "{most}");
    let error = engine.resize(most + 1).expect_err("the budget is full");
    assert!(matches!(error, Error::Resize { most: m, .. } if m == most), "{error:?}");
    assert_eq!(error.kind(), ErrorKind::User);
    assert!(error.to_string().contains(&format!("{} slots are more", most + 1)), "{error}");
    assert_eq!(engine.resize(18).expect("the floor"), 18);
    assert_eq!(engine.resize(most).expect("as planned"), most);
}

/// Says what it is told to say.
#[derive(Clone, Debug, Default)]
struct Script(Arc<Mutex<Pressure>>);

impl Script {
    fn say(&self, pressure: Pressure) {
        *self.0.lock().expect("not poisoned") = pressure;
    }
}

impl PressureSource for Script {
    fn sample(&mut self) -> Pressure {
        *self.0.lock().expect("not poisoned")
    }
    fn name(&self) -> String {
        "a script".to_owned()
    }
}

const RESERVE: u64 = 64 << 20;

fn options() -> ElasticOptions {
    // Growing does not wait for the clock.
    ElasticOptions::new().with_interval(None).with_reserve(RESERVE).with_calm(Duration::ZERO)
}

#[test]
fn a_scripted_machine_is_followed_and_no_token_changes() {
    let script = Script::default();
    let engine = builder().elastic_by(options(), Box::new(script.clone())).build().expect("builds");
    let (short, plenty) =
        (Pressure::new().with_available(0), Pressure::new().with_available(1 << 40));
    let between = Pressure::new().with_available(RESERVE + 1);
    let mut sizes = Vec::new();
    let found = tokens(&engine, |at| {
        script.say(match at {
            0 => Pressure::new(),
            1 => short,
            2 => between,
            3 => plenty.with_stall(0.2),
            _ => plenty,
        });
        let resized = engine.adapt().expect("lawful");
        sizes.push((engine.pool_slots(), resized.map(|resized| resized.cause)));
    });
    assert_eq!(found, expected());
    // 96 MiB are missing: down to the floor. Tasks that wait find nothing left to give up.
    assert_eq!(
        sizes[..5],
        [
            (201, None),
            (18, Some(Cause::Available)),
            (18, None),
            (18, None),
            (18 + 201 / 8, Some(Cause::Plenty))
        ]
    );
    assert_eq!(sizes.last(), Some(&(201, None)), "whole again, and no larger: {sizes:?}");
    let figures = engine.elastic().expect("it is elastic");
    assert_eq!((figures.source.as_str(), figures.looks, figures.silent), ("a script", 32, 1));
    assert_eq!((figures.shrinks, figures.grows, figures.fewest), (1, 8, 18));
    assert_eq!(figures.last.map(|last| (last.cause, last.to)), Some((Cause::Plenty, 201)));
}

#[test]
fn bounds_of_an_elastic_pool() {
    let script = Script::default();
    let options = options().with_least_slots(150).with_stall(0.5);
    let engine = builder().elastic_by(options, Box::new(script.clone())).build().expect("builds");
    script.say(Pressure::new().with_stall(0.49));
    assert_eq!(engine.adapt().expect("lawful"), None);
    script.say(Pressure::new().with_stall(0.5));
    let resized = engine.adapt().expect("lawful").expect("tasks wait");
    assert_eq!((resized.from, resized.to, resized.cause), (201, 201 - 25, Cause::Stalled));
    script.say(Pressure::new().with_available(0));
    assert_eq!(engine.adapt().expect("lawful").map(|resized| resized.to), Some(150));
    assert_eq!(engine.adapt().expect("lawful"), None, "no fewer than asked for");
    for wrong in [0.0, -1.0, 1.5, f64::NAN] {
        let error = builder().elastic(options.with_stall(wrong)).build().expect_err("no share");
        assert!(matches!(error, Error::Option { option: "elastic stall", .. }), "{error}");
    }
    let often = options.with_interval(Some(Duration::from_nanos(1)));
    assert!(builder().elastic(often).build().is_err());
    let rigid = builder().build().expect("builds");
    assert_eq!((rigid.adapt().expect("nothing to do"), rigid.elastic()), (None, None));
}

/// The thread of an engine looks by itself, also while nobody runs anything, and ends with the engine.
#[test]
fn an_idle_engine_gives_memory_up() {
    let script = Script::default();
    script.say(Pressure::new().with_available(0));
    let options = options().with_interval(Some(Duration::from_millis(10)));
    let engine = builder().elastic_by(options, Box::new(script.clone())).build().expect("builds");
    while engine.pool_slots() > 18 {
        std::thread::sleep(Duration::from_millis(5));
    }
    script.say(Pressure::new().with_available(1 << 40));
    while engine.pool_slots() < 201 {
        std::thread::sleep(Duration::from_millis(5));
    }
    assert_eq!(tokens(&engine, |_| ()), expected());
    drop(engine);
    // Only the test's own handle is left once the thread has ended.
    while Arc::strong_count(&script.0) > 1 {
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// What changes the pool between two passes is in the recording.
#[test]
fn a_recording_with_resizes_is_replayed_exactly() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("run.trace");
    let trace = TraceWriter::create(&path, TraceOptions::new()).expect("creates");
    let trace = Shared::new(trace);
    let engine = builder().sink(Box::new(trace.clone())).build().expect("builds");
    let found = tokens(&engine, |at| {
        engine.resize([40, 201, 400][at % 3]).expect("lawful");
    });
    assert_eq!(found, expected());
    let end = engine.inspect(|experts| PoolEnd::of(experts.pool()));
    trace.with(|trace| trace.finish(Some(&end))).expect("writes");
    let reader = TraceReader::open(&path).expect("whole");
    let mut replay = ExactReplay::recorded(reader.header()).expect("a listed policy");
    let played = reader.play(&mut replay).expect("plays");
    let pool = replay.verify(&played).expect("the same");
    assert!(pool.counters().shrunk > 0 && *pool.counters() == end.counters);
}
