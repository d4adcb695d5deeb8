//! Records that are compared with their checksums when they are read.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::Path;

use slotstream::checkpoint::Checkpoint;
use slotstream::checkpoint::container::{ContainerKind, Repack};
use slotstream::core::ErrorKind;
use slotstream::io::ReaderKind;
use slotstream::{ContainerChoice, Engine, EngineBuilder, Error, Sizing};
use slotstream_testkit::reader::Schedule;

use super::matrix::{generation, hurt};
use super::{Under, Way, build_with};
use crate::container::repacked;
use crate::rig::{
    builder, chain, golden, greedy, random_builder, random_golden, random_model, session,
    tiny_model,
};

const TOKENS: usize = 4;

fn verified(builder: EngineBuilder, folder: &Path) -> EngineBuilder {
    builder.container(ContainerChoice::Folder(folder.into())).verify_reads(true)
}

/// Law 1.
#[test]
fn comparing_changes_no_token() {
    let folder = repacked(&tiny_model(), &ContainerKind::ALL, false);
    let want = &golden("p1.greedy_ids")[..TOKENS];
    for kind in ReaderKind::ALL {
        for sizing in [Sizing::Slots(18), Sizing::Share(0.3)] {
            let engine = verified(builder().reader(*kind).sizing(sizing), folder.path()).build();
            let engine = engine.expect("builds");
            let tokens = greedy(&mut session(&engine), &golden("p1.input_ids"), TOKENS);
            assert_eq!(tokens, want, "{kind} {sizing:?}");
            let why = &engine.reader_mode().why;
            assert!(why.contains("672 blocks are compared"), "{why}");
        }
    }
}

/// At every read of a record one bit is wrong, and the read succeeds.
#[test]
fn a_wrong_bit_is_found_at_every_read_of_a_record() {
    let folder = repacked(&random_model(), &ContainerKind::ALL, false);
    let prompt = random_golden("p1.input_ids");
    let want = &random_golden("p1.greedy.ids")[..TOKENS];
    let what = (Under::Kind(ReaderKind::Buffered), Way::Flipped);
    let builder = verified(random_builder(), folder.path());
    let (engine, reader) = build_with(builder, what, Schedule::Never);
    let engine = engine.expect("builds");
    // Afterwards all rows are in the cache: what is read is records.
    assert_eq!(generation(&mut session(&engine), &prompt, TOKENS).expect("runs"), want);
    let mut n = 0;
    while hurt(&engine, &*reader, what, n, &prompt, want) {
        n += 1;
    }
    assert!(n > 20, "{n} reads");
    reader.arm(Schedule::Never);
    assert_eq!(generation(&mut session(&engine), &prompt, TOKENS).expect("works"), want);
}

/// Flips a bit and puts the time of the file back, as a disk does.
fn flip(path: &Path, at: u64) {
    let file = File::options().read(true).write(true).open(path).expect("opens");
    let time = file.metadata().expect("there").modified().expect("a time");
    let mut byte = [0];
    file.read_exact_at(&mut byte, at).expect("reads");
    file.write_all_at(&[byte[0] ^ 8], at).expect("writes");
    file.set_modified(time).expect("sets the time");
}

#[test]
fn a_damaged_container_is_named_and_works_after_repair() {
    let folder = repacked(&random_model(), &ContainerKind::ALL, false);
    let (prompt, want) = (random_golden("p1.input_ids"), random_golden("p1.greedy.ids"));
    let build = || verified(random_builder(), folder.path()).build().expect("builds");
    let engine: Engine = build();
    let container = engine.container().expect("there");
    // The record that the prompt's first pass reads first.
    let record = engine.checkpoint().geometry().key(0).and_then(|key| container.extent(key));
    let first = record.expect("a record").offset();
    let path = container.folder().join("experts.slots");
    let records = engine.checkpoint().geometry().records() as u64;
    let stride = engine.checkpoint().record_layout().stride() as u64;
    let flip_all = || (0..records).for_each(|i| flip(&path, first + i * stride + 11));
    flip_all();
    let error = session(&engine).prefill(&prompt).expect_err("damaged");
    let told = chain(&error);
    assert_eq!(error.kind(), ErrorKind::Corrupt, "{told}");
    for word in
        ["experts.slots", "layer 0", "expert ", "offset ", "checksum ", "expected ", "--replace"]
    {
        assert!(told.contains(word), "{word}: {told}");
    }
    // As the disk gives the right bytes again, the same engine goes on.
    flip_all();
    assert_eq!(greedy(&mut session(&engine), &prompt, TOKENS), want[..TOKENS]);
    drop(engine);
    // The remedy is one. Without it nothing looks wrong with the container.
    flip_all();
    let checkpoint = Checkpoint::open(&random_model()).expect("legal");
    let repack = |replace| {
        let repack = Repack::new(&checkpoint, folder.path()).replace(replace);
        repack.run(&mut |_| std::ops::ControlFlow::Continue(())).expect("repacks");
    };
    repack(false);
    session(&build()).prefill(&prompt).expect_err("as damaged as before");
    repack(true);
    assert_eq!(greedy(&mut session(&build()), &prompt, TOKENS), want[..TOKENS]);
}

/// Every record of one copy is damaged: the mirror reads on from the other one.
#[test]
fn another_copy_stands_in_for_a_damaged_one() {
    let (prompt, want) = (random_golden("p1.input_ids"), random_golden("p1.greedy.ids"));
    for damaged in [0, 1] {
        let folders = [(); 2].map(|()| repacked(&random_model(), &ContainerKind::ALL, false));
        let builder = verified(random_builder(), folders[0].path()).mirror(folders[1].path());
        let engine = builder.build().expect("builds");
        let container = engine.container().expect("there");
        let geometry = engine.checkpoint().geometry();
        for number in 0..geometry.records() {
            let record = geometry.key(number).and_then(|key| container.extent(key));
            let path = folders[damaged].path().join("experts.slots");
            flip(&path, record.expect("a record").offset() + 11);
        }
        assert_eq!(greedy(&mut session(&engine), &prompt, TOKENS), want[..TOKENS]);
        let shares = engine.mirror_shares();
        let why = shares[damaged].share.left_out.as_deref().unwrap_or("it is still read");
        assert!(why.contains("checksum"), "{damaged}: {why}");
        assert_eq!(shares[1 - damaged].share.left_out, None, "{damaged}");
    }
}

#[test]
fn what_has_no_checksums_is_refused() {
    let rows = repacked(&random_model(), &[ContainerKind::Ngram], false);
    for choice in [ContainerChoice::Shards, ContainerChoice::Folder(rows.path().into())] {
        let builder = random_builder().container(choice.clone()).verify_reads(true);
        let planned = builder.plan().map(drop);
        for error in [planned, builder.build().map(drop)].map(|result| result.expect_err("no sums"))
        {
            assert!(matches!(error, Error::Option { .. }), "{choice:?}: {}", chain(&error));
            assert!(chain(&error).contains("experts.slots"), "{}", chain(&error));
        }
    }
}
