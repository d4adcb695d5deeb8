//! Every read of loading and of a generation goes wrong once.

use slotstream::core::ErrorKind;
use slotstream::{Engine, Error, Session, Sizing};
use slotstream_testkit::reader::Schedule;

use super::{Armed, WAYS, Way, armed_engine, assert_sound, build_with};
use crate::rig::{builder, chain, golden, greedy, random_builder, random_golden, session};

const TOKENS: usize = 4;

fn kind_of(way: Way) -> ErrorKind {
    match way {
        Way::Faulty | Way::Torn => ErrorKind::Transient,
        Way::Short => ErrorKind::Corrupt,
    }
}

fn generation(session: &mut Session, prompt: &[u32]) -> Result<Vec<u32>, Error> {
    session.prefill(prompt)?;
    session.generate_ids(TOKENS).ignoring_eos(true).collect()
}

/// Fails read `n` of a generation: a typed error, a sound pool; the hurt session goes on to the
/// right tokens. Gives whether the read took place.
fn hurt(
    engine: &Engine,
    reader: &dyn Armed,
    way: Way,
    n: u64,
    prompt: &[u32],
    want: &[u32],
) -> bool {
    reader.arm(Schedule::Nth(n));
    let mut hurt = session(engine);
    let error = match generation(&mut hurt, prompt) {
        Err(error) => error,
        Ok(tokens) => {
            assert_eq!(tokens, want, "{way:?} read {n}");
            return false;
        }
    };
    assert_eq!(error.kind(), kind_of(way), "{way:?} read {n}: {}", chain(&error));
    assert!(chain(&error).contains(".safetensors"), "{way:?} read {n}: {}", chain(&error));
    assert_sound(engine);
    reader.arm(Schedule::Never);
    let mut generated = hurt.generated().to_vec();
    while generated.len() < TOKENS {
        generated.push(hurt.next().expect("the next request works"));
    }
    assert_eq!(generated, want, "{way:?} read {n}");
    true
}

/// Fails each `step`-th read of a generation until there is none left to fail.
fn every_read(way: Way, step: u64) {
    let prompt = random_golden("p1.input_ids");
    let want = &random_golden("p1.greedy.ids")[..TOKENS];
    let (engine, reader) = armed_engine(random_builder(), way);
    let loaded = reader.reads();
    assert_eq!(generation(&mut session(&engine), &prompt).expect("runs"), want);
    let cold = reader.reads() - loaded;
    // What is resident differs from one request to the next, and with it the number of reads.
    let mut n = 0;
    while hurt(&engine, &*reader, way, n, &prompt, want) {
        n += step;
    }
    assert!(n > cold / 2, "{way:?}: {n} reads failed, a cold generation does {cold}");
    // The next request, of another session.
    reader.arm(Schedule::Never);
    assert_eq!(generation(&mut session(&engine), &prompt).expect("works"), want);
}

#[test]
fn every_read_of_a_generation_fails_once() {
    every_read(Way::Faulty, 1);
}

/// The same path as of those that fail; in development builds a prime step.
#[test]
fn reads_of_a_generation_come_short_or_torn() {
    let step = if cfg!(debug_assertions) { 7 } else { 1 };
    every_read(Way::Short, step);
    every_read(Way::Torn, step);
}

/// The trained model has 12 layers and 672 records; in development builds a prime step still
/// reaches all kinds of reads and all layers.
#[test]
fn reads_of_the_trained_model_go_wrong() {
    let prompt = &golden("p1.input_ids")[..2];
    let (engine, reader) = armed_engine(builder().sizing(Sizing::Slots(18)), Way::Faulty);
    let want = greedy(&mut session(&engine), prompt, TOKENS);
    let step = if cfg!(debug_assertions) { 37 } else { 1 };
    let mut n = 0;
    while hurt(&engine, &*reader, Way::Faulty, n, prompt, &want) {
        n += step;
    }
    assert!(n > 1000, "{n} reads");
}

#[test]
fn every_read_of_loading_goes_wrong_once() {
    let prompt = random_golden("p1.input_ids");
    let want = &random_golden("p1.greedy.ids")[..TOKENS];
    let (_, reader) = armed_engine(random_builder(), Way::Faulty);
    let reads = reader.reads();
    assert!(reads > 100, "{reads} reads load the dense weights");
    for way in WAYS {
        for n in 0..reads {
            let (engine, _) = build_with(random_builder(), way, Schedule::Nth(n));
            let error = engine.expect_err("a read of loading fails");
            assert_eq!(error.kind(), kind_of(way), "{way:?} read {n}: {}", chain(&error));
            assert!(chain(&error).contains(".safetensors"), "{way:?} {n}: {}", chain(&error));
        }
        let (engine, _) = armed_engine(random_builder(), way);
        assert_eq!(generation(&mut session(&engine), &prompt).expect("runs"), want);
    }
}

#[test]
fn a_failed_read_names_record_tensor_and_place() {
    let (engine, reader) = armed_engine(builder().sizing(Sizing::Slots(18)), Way::Faulty);
    let mut session = session(&engine);
    reader.arm(Schedule::Every(1));
    let error = session.prefill(&golden("p1.input_ids")[..3]).expect_err("all reads fail");
    let chain = chain(&error);
    for word in ["layer 0", "expert", "switch_mlp", "offset", ".safetensors"] {
        assert!(chain.contains(word), "{word} is missing from: {chain}");
    }
}
