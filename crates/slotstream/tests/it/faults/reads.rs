//! Every read of loading goes wrong once, and reads of the trained model.

use slotstream::Sizing;
use slotstream::io::ReaderKind;
use slotstream_testkit::reader::Schedule;

use super::matrix::{generation, hurt, kind_of};
use super::{Under, WAYS, Way, armed_engine, build_with};
use crate::rig::{builder, chain, golden, greedy, random_builder, random_golden, session};

const TOKENS: usize = 4;
const BUFFERED: Under = Under::Kind(ReaderKind::Buffered);

/// The trained model has 12 layers and 672 records; in development builds a prime step still
/// reaches all kinds of reads and all layers.
#[test]
fn reads_of_the_trained_model_go_wrong() {
    let prompt = &golden("p1.input_ids")[..2];
    let what = (BUFFERED, Way::Faulty);
    let (engine, reader) = armed_engine(builder().sizing(Sizing::Slots(18)), what);
    let want = greedy(&mut session(&engine), prompt, TOKENS);
    let step = if cfg!(debug_assertions) { 37 } else { 1 };
    let mut n = 0;
    while hurt(&engine, &*reader, what, n, prompt, &want) {
        n += step;
    }
    assert!(n > 1000, "{n} reads");
}

#[test]
fn every_read_of_loading_goes_wrong_once() {
    let prompt = random_golden("p1.input_ids");
    let want = &random_golden("p1.greedy.ids")[..TOKENS];
    let (_, reader) = armed_engine(random_builder(), (BUFFERED, Way::Faulty));
    let reads = reader.reads();
    assert!(reads > 100, "{reads} reads load the dense weights");
    for way in WAYS {
        for n in 0..reads {
            let (engine, _) = build_with(random_builder(), (BUFFERED, way), Schedule::Nth(n));
            let error = engine.expect_err("a read of loading fails");
            assert_eq!(error.kind(), kind_of(way), "{way:?} read {n}: {}", chain(&error));
            assert!(chain(&error).contains(".safetensors"), "{way:?} {n}: {}", chain(&error));
        }
        let (engine, _) = armed_engine(random_builder(), (BUFFERED, way));
        assert_eq!(generation(&mut session(&engine), &prompt, TOKENS).expect("runs"), want);
    }
}

#[test]
fn a_failed_read_names_record_tensor_and_place() {
    let what = (BUFFERED, Way::Faulty);
    let (engine, reader) = armed_engine(builder().sizing(Sizing::Slots(18)), what);
    let mut session = session(&engine);
    reader.arm(Schedule::Every(1));
    let error = session.prefill(&golden("p1.input_ids")[..3]).expect_err("all reads fail");
    let chain = chain(&error);
    for word in ["layer 0", "expert", "switch_mlp", "offset", ".safetensors"] {
        assert!(chain.contains(word), "{word} is missing from: {chain}");
    }
}
