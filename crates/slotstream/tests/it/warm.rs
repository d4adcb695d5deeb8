//! Warm starts: the records of another process, its policy's state, and the same tokens.

use std::fs;
use std::io::ErrorKind as Io;
use std::path::Path;

use slotstream::cache::parse_policy;
use slotstream::checkpoint::container::{ContainerKind, Digest};
use slotstream::core::{CancelToken, ErrorKind, ExpertKey, Geometry};
use slotstream::experts::ExpertsError;
use slotstream::io::ReaderKind;
use slotstream::warm::{WarmError, WarmSet, WarmStarted};
use slotstream::{ContainerChoice, Engine, EngineBuilder, Error, Sizing};
use slotstream_testkit::reader::Schedule;

use crate::container::repacked;
use crate::rig::{builder, chain, faulty, golden, greedy, random_builder, session, tiny_model};

const TOKENS: usize = 24;

fn tokens(engine: &Engine) -> Vec<u32> {
    greedy(&mut session(engine), &golden("p1.input_ids"), TOKENS)
}

fn expected() -> Vec<u32> {
    golden("p1.greedy_ids")[..TOKENS].to_vec()
}

fn policy(name: &str) -> Box<dyn slotstream::core::EvictionPolicy> {
    parse_policy(name).expect("a listed name")
}

/// What an engine that has run leaves to the next one.
fn left(builder: EngineBuilder) -> WarmSet {
    let engine = builder.build().expect("builds");
    tokens(&engine);
    engine.warm_set().expect("reads the identity")
}

fn started(engine: &Engine, set: &WarmSet) -> WarmStarted {
    engine.warm_start(set, &CancelToken::new()).expect("a set of this model")
}

fn resident(engine: &Engine) -> Vec<ExpertKey> {
    engine.inspect(|experts| {
        let pool = experts.pool();
        pool.validate().expect("consistent");
        assert_eq!(pool.open_claims(), 0);
        let mut keys: Vec<_> = pool.states().filter_map(|(slot, _)| pool.key(slot)).collect();
        keys.sort_unstable();
        keys
    })
}

#[test]
fn the_records_are_back_in_runs_and_the_tokens_the_same() {
    let folder = repacked(&tiny_model(), &ContainerKind::ALL, false);
    let container = || ContainerChoice::Folder(folder.path().into());
    let set = left(builder());
    assert_eq!((set.records.len(), set.policy.as_str()), (201, "analogue"));
    assert!(set.state.is_some());
    let mut records = set.records.clone();
    records.sort_unstable();
    for builder in [
        builder(),
        builder().reader(ReaderKind::Direct).lanes(1),
        builder().container(container()),
        builder().container(container()).reader(ReaderKind::Direct),
        builder().container(container()).reader(ReaderKind::Uring).lanes(2).verify_reads(true),
        builder().container(container()).reader(ReaderKind::Memory).policy(policy("lru")),
    ] {
        let engine = builder.build().expect("builds");
        let begun = started(&engine, &set);
        assert_eq!(resident(&engine), records);
        assert_eq!(begun.policy_state, engine.policy_name() == "analogue");
        let read = begun.records;
        assert_eq!((read.asked, read.admitted, read.refused, read.left_out), (201, 201, 0, 0));
        // Neighbours come at once: fewer reads than pieces, or than records.
        let apart = if engine.container().is_some() { 201 } else { 9 * 201 };
        assert!(read.reads < apart * 3 / 4, "{} reads", read.reads);
        assert!(read.bytes >= 201 * 27_648, "{} bytes", read.bytes);
        let mut session = session(&engine);
        assert_eq!(greedy(&mut session, &golden("p1.input_ids"), TOKENS), expected());
        assert!(session.metrics().prefill.hits > 0);
    }
}

#[test]
fn every_policy_begins_with_what_it_had() {
    for name in slotstream::cache::policy_names() {
        let name = if name.ends_with(':') { name + "clock" } else { name };
        let set = left(builder().policy(policy(&name)));
        let engine = builder().policy(policy(&name)).build().expect("builds");
        let begun = started(&engine, &set);
        assert_eq!(begun.policy_state, set.state.is_some(), "{name}");
        let read = begun.records;
        assert_eq!(read.admitted + read.refused, set.records.len(), "{name}: {read:?}");
        assert_eq!(tokens(&engine), expected(), "{name}");
    }
}

#[test]
fn pools_of_other_sizes_take_what_fits() {
    let set = left(builder());
    for (slots, left_out) in [(18, 201 - 18), (100, 101), (672, 0)] {
        let engine = builder().sizing(Sizing::Slots(slots)).build().expect("builds");
        let read = started(&engine, &set).records;
        assert_eq!((read.admitted, read.left_out), (slots.min(201), left_out));
        assert_eq!(resident(&engine).len(), slots.min(201));
        assert_eq!(tokens(&engine), expected());
    }
}

#[test]
fn what_does_not_fit_is_refused_and_the_engine_stays_cold_and_works() {
    let set = left(builder());
    let refused = |change: &dyn Fn(&mut WarmSet)| {
        let mut other = set.clone();
        change(&mut other);
        let engine = builder().build().expect("builds");
        let error = engine.warm_start(&other, &CancelToken::new()).expect_err("another one");
        assert!(resident(&engine).is_empty());
        assert_eq!(tokens(&engine), expected());
        error
    };
    let error = refused(&|set| set.model = Digest::new([7; 32]));
    assert!(matches!(&error, Error::WarmStart(e) if matches!(**e, WarmError::OtherModel { .. })));
    assert_eq!(error.kind(), ErrorKind::User);
    assert!(error.to_string().contains("another model: 0707070707070707"), "{error}");
    assert!(error.to_string().contains("; begin without it, and write one with"), "{error}");
    let error = refused(&|set| set.geometry = Geometry::new(12, 56, 5).expect("legal"));
    assert_eq!(error.kind(), ErrorKind::Corrupt, "{error}");
    let error = refused(&|set| set.state = Some(b"no state".to_vec()));
    assert!(matches!(&error, Error::WarmStart(e) if matches!(**e, WarmError::PolicyState { .. })));
    let random = random_builder().build().expect("builds").warm_set().expect("reads");
    let engine = builder().build().expect("builds");
    assert!(engine.warm_start(&random, &CancelToken::new()).is_err());

    started(&engine, &set);
    let error = engine.warm_start(&set, &CancelToken::new()).expect_err("it has records now");
    assert!(error.to_string().contains("has 201 records already"), "{error}");
    assert_eq!(tokens(&engine), expected());
}

#[test]
fn reads_that_fail_leave_an_empty_pool() {
    let set = left(builder());
    for nth in [0, 40, 120] {
        let (engine, reader) = faulty(builder(), Io::InvalidData);
        reader.arm(Schedule::Nth(nth));
        let error = engine.warm_start(&set, &CancelToken::new()).expect_err("one read fails");
        let Error::Experts(ExpertsError::ReadRun { .. }) = &error else { panic!("{error:?}") };
        assert!(resident(&engine).is_empty());
        engine.inspect(|experts| {
            assert_eq!(*experts.pool().counters(), slotstream::cache::PoolCounters::default());
        });
        reader.arm(Schedule::Never);
        assert_eq!(tokens(&engine), expected());
        let engine = builder().build().expect("builds");
        assert_eq!(started(&engine, &set).records.admitted, 201);
    }
}

#[test]
fn a_cancelled_one_leaves_an_empty_pool() {
    let set = left(builder());
    let engine = builder().build().expect("builds");
    let cancel = CancelToken::new();
    cancel.cancel();
    let error = engine.warm_start(&set, &cancel).expect_err("cancelled");
    assert_eq!(error.kind(), ErrorKind::Cancelled, "{}", chain(&error));
    assert!(resident(&engine).is_empty());
    assert_eq!(started(&engine, &set).records.admitted, 201);
    assert_eq!(tokens(&engine), expected());
}

#[test]
fn files_are_refused_by_name() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("tiny.warm");
    let missing = WarmSet::read(&path).expect_err("not there yet");
    assert!(missing.is_missing(), "{missing:?}");
    let set = left(builder());
    set.write(&path).expect("writes");
    assert_eq!(WarmSet::read(&path).expect("just written"), set);
    let named = |path: &Path| {
        let error = WarmSet::read(path).expect_err("damaged");
        assert!(error.to_string().contains(&path.display().to_string()), "{error}");
        (error.kind(), chain(&error))
    };
    let mut bytes = fs::read(&path).expect("there");
    let middle = bytes.len() / 2;
    bytes[middle] ^= 1;
    fs::write(&path, &bytes).expect("writes");
    let (kind, said) = named(&path);
    assert!(kind == ErrorKind::Corrupt && said.contains("checksum"), "{said}");
    fs::write(&path, &bytes[..middle]).expect("writes");
    assert_eq!(named(&path).0, ErrorKind::Corrupt);
    assert!(named(folder.path()).1.contains("no regular file"));
    assert!(named(Path::new("/dev/null")).1.contains("no regular file"));
    let huge = folder.path().join("huge");
    fs::File::create(&huge).and_then(|file| file.set_len((1 << 28) + 1)).expect("sparse");
    assert!(named(&huge).1.contains("more than 268435456 bytes"));
    let error = set.write("/dev/null").expect_err("no file");
    assert!(chain(&error).contains("no regular file"), "{error}");
    let error = set.write(folder.path().join("no/such/folder")).expect_err("no folder");
    assert_eq!(error.kind(), ErrorKind::Transient);
}
