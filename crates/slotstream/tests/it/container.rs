//! Law 1 through a repacked container, and which container is taken.

use std::fs;
use std::path::{Path, PathBuf};

use slotstream::checkpoint::Checkpoint;
use slotstream::checkpoint::container::{ContainerKind, Repack};
use slotstream::core::{Alignment, ErrorKind, ExpertIdx, ExpertKey, LayerIdx};
use slotstream::experts::RecordIndex;
use slotstream::io::ReaderKind;
use slotstream::{
    CheckpointIndex, ContainerChoice, Engine, EngineBuilder, Error, PrefillSweep, Sizing,
};
use slotstream_testkit::reader::Schedule;

use crate::rig::{
    builder, chain, faulty, golden, greedy, random_builder, random_golden, random_model, session,
    tiny_model,
};

const TOKENS: usize = 24;

pub(crate) fn repacked(model: &Path, kinds: &[ContainerKind], pad: bool) -> tempfile::TempDir {
    let folder = tempfile::tempdir().expect("a folder");
    let checkpoint = Checkpoint::open(model).expect("legal");
    let repack = Repack::new(&checkpoint, folder.path()).only(kinds).pad_rows(pad);
    repack.run(&mut |_| std::ops::ControlFlow::Continue(())).expect("repacks");
    folder
}

fn within(builder: EngineBuilder, folder: &Path) -> EngineBuilder {
    builder.container(ContainerChoice::Folder(folder.into()))
}

fn tokens(builder: EngineBuilder) -> Vec<u32> {
    let engine = builder.build().expect("builds");
    greedy(&mut session(&engine), &golden("p1.input_ids"), TOKENS)
}

#[test]
fn containers_and_readers_change_no_token() {
    let expected = &golden("p1.greedy_ids")[..TOKENS];
    for (kinds, pad) in [
        (&ContainerKind::ALL[..], false),
        (&[ContainerKind::Experts], false),
        (&[ContainerKind::Ngram], true),
    ] {
        let folder = repacked(&tiny_model(), kinds, pad);
        for kind in ReaderKind::ALL {
            for sizing in [Sizing::Slots(18), Sizing::Share(0.3)] {
                let engine = within(builder().reader(*kind).sizing(sizing), folder.path());
                assert_eq!(tokens(engine), expected, "{kinds:?} {kind} {sizing:?}");
            }
            // Runs of neighbouring records.
            let engine =
                within(builder().reader(*kind).prefill_sweep(PrefillSweep::Rows(8)), folder.path());
            assert_eq!(tokens(engine), expected, "{kinds:?} {kind} swept");
        }
        // Without a cache every row is read.
        let engine = within(builder().ngram_cache_rows(0).lanes(1), folder.path());
        assert_eq!(tokens(engine), expected, "{kinds:?}");
    }
    // Modules that straddle files, data at odd offsets.
    let folder = repacked(&random_model(), &ContainerKind::ALL, false);
    let engine = within(random_builder().sizing(Sizing::Slots(8)), folder.path()).build();
    let (prompt, want) = (random_golden("p17.input_ids"), random_golden("p17.greedy.ids"));
    assert_eq!(greedy(&mut session(&engine.expect("builds")), &prompt, want.len()), want);
}

/// A record is one read and a row is one read; what is asked for is counted as before.
#[test]
fn a_record_is_one_read() {
    let folder = repacked(&tiny_model(), &ContainerKind::ALL, false);
    let counts = |builder: EngineBuilder| {
        let builder = builder.chunk(64).sizing(Sizing::Share(0.3));
        let engine = builder.ngram_cache_rows(0).build().expect("builds");
        let mut session = session(&engine);
        greedy(&mut session, &golden("p1.input_ids"), TOKENS);
        let total = session.metrics().total();
        (total.reads, total.misses, total.bytes_read)
    };
    let (reads, misses, bytes) = counts(within(builder(), folder.path()));
    let (pieces, same, same_bytes) = counts(builder().container(ContainerChoice::Shards));
    assert_eq!((misses, bytes), (same, same_bytes));
    let rows = reads - misses;
    assert_eq!(pieces, 9 * misses + 3 * rows);
}

#[test]
fn a_container_beside_the_model_is_found_and_a_stale_one_refused() {
    let parent = tempfile::tempdir().expect("a folder");
    let model = parent.path().join("model");
    fs::create_dir(&model).expect("made");
    for entry in fs::read_dir(tiny_model()).expect("there").flatten() {
        if entry.path().is_file() {
            fs::copy(entry.path(), model.join(entry.file_name())).expect("copied");
        }
    }
    let build =
        |choice| Engine::builder(&model).sizing(Sizing::Slots(40)).container(choice).build();
    let found = || {
        let engine = build(ContainerChoice::Beside).expect("builds");
        engine.container().map(|container| container.folder().to_owned())
    };
    assert_eq!(found(), None);
    let beside: PathBuf = parent.path().join("model.container");
    let made = repacked(&model, &ContainerKind::ALL, false);
    fs::rename(made.path(), &beside).expect("moved");
    assert_eq!(found(), Some(beside.canonicalize().expect("there")));
    assert!(build(ContainerChoice::Shards).expect("builds").container().is_none());
    // One in the model's own folder comes first.
    for name in ["experts.slots", "ngram.rows"] {
        fs::copy(beside.join(name), model.join(name)).expect("copied");
    }
    assert_eq!(found(), Some(model.clone()));
    let error = build(ContainerChoice::Folder(parent.path().join("no"))).expect_err("none there");
    assert_eq!(error.kind(), ErrorKind::User, "{error}");
    // Another config: whatever was repacked is of another model.
    let config = fs::read_to_string(model.join("config.json")).expect("read");
    fs::write(model.join("config.json"), config + "\n").expect("written");
    for choice in [ContainerChoice::Beside, ContainerChoice::Folder(beside)] {
        let error = build(choice).expect_err("stale");
        assert!(matches!(error, Error::Container(_)), "{error:?}");
        let text = chain(&error);
        assert!(text.contains("config.json") && text.contains("repack --model"), "{text}");
    }
    assert!(build(ContainerChoice::Shards).is_ok());
}

#[test]
fn every_failed_read_names_the_record_or_the_row() {
    let folder = repacked(&tiny_model(), &ContainerKind::ALL, false);
    let (prompt, want) = (golden("p1.input_ids"), golden("p1.greedy_ids"));
    let builder = builder().sizing(Sizing::Slots(40)).chunk(64).ngram_cache_rows(0);
    let builder = within(builder, folder.path());
    let (engine, reader) = faulty(builder, std::io::ErrorKind::InvalidData);
    let (mut rows, mut records) = (0, 0);
    for read in 0..200 {
        reader.arm(Schedule::Nth(read * 3));
        let error = session(&engine).prefill(&prompt).expect_err("a read failed");
        reader.arm(Schedule::Never);
        let text = chain(&error);
        let (row, record) = (text.contains("n-gram row"), text.contains("experts.slots"));
        rows += usize::from(row);
        records += usize::from(record);
        assert!(row || record, "read {read}: {text}");
        engine.inspect(|experts| experts.pool().validate()).expect("consistent");
    }
    assert!(rows > 10 && records > 20, "{rows} rows, {records} records");
    assert_eq!(greedy(&mut session(&engine), &prompt, 4), want[..4]);
}

#[test]
fn a_reader_of_whole_blocks_is_asked_for_whole_strides() {
    let folder = repacked(&tiny_model(), &ContainerKind::ALL, false);
    let checkpoint = std::sync::Arc::new(Checkpoint::open(&tiny_model()).expect("legal"));
    let open = || slotstream::checkpoint::container::Container::open(folder.path(), &checkpoint);
    let index = |length| {
        let alignment = Alignment { memory: 1, offset: 1, length };
        let container = std::sync::Arc::new(open().expect("fresh"));
        CheckpointIndex::new(checkpoint.clone()).with_container(container, alignment)
    };
    let key = ExpertKey::new(LayerIdx::new(3), ExpertIdx::new(5));
    let (record, stride) = (27_648, checkpoint.record_layout().stride() as u64);
    for (length, len) in [(0, record), (1, record), (512, record), (4096, stride)] {
        let whole = index(length).whole(key).expect("there");
        assert_eq!((whole.len(), whole.offset() % 16_384), (len, 0), "{length}");
    }
    let none = ExpertKey::new(LayerIdx::new(3), ExpertIdx::new(56));
    assert_eq!(index(1).whole(none), None);
}
