//! Law 1 through a mirror, whatever becomes of a copy, and which copies are refused.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::mpsc::channel;
use std::time::Duration;

use slotstream::checkpoint::Checkpoint;
use slotstream::checkpoint::container::{ContainerKind, Repack};
use slotstream::core::{ErrorKind, RecordReader};
use slotstream::io::{IoError, MirrorReader, ReaderKind, open_reader};
use slotstream::{ContainerChoice, EngineBuilder, Error, Sizing};
use slotstream_testkit::reader::{Fault, FaultyReader, Schedule, SlowReader};

use crate::rig::{builder, chain, golden, greedy, session, tiny_model};

const TOKENS: usize = 24;

fn small() -> EngineBuilder {
    builder().sizing(Sizing::Slots(40)).container(ContainerChoice::Shards)
}

fn shards() -> Vec<PathBuf> {
    Checkpoint::open(&tiny_model()).expect("legal").files().to_vec()
}

fn copied(files: &[PathBuf]) -> tempfile::TempDir {
    let folder = tempfile::tempdir().expect("a folder");
    for file in files {
        fs::copy(file, folder.path().join(file.file_name().expect("a name"))).expect("copied");
    }
    folder
}

fn repacked() -> tempfile::TempDir {
    let folder = tempfile::tempdir().expect("a folder");
    let checkpoint = Checkpoint::open(&tiny_model()).expect("legal");
    let repack = Repack::new(&checkpoint, folder.path()).only(&ContainerKind::ALL);
    repack.run(&mut |_| std::ops::ControlFlow::Continue(())).expect("repacks");
    folder
}

#[test]
fn mirrors_change_no_token_and_tell_who_read_what() {
    let (want, prompt) = (&golden("p1.greedy_ids")[..TOKENS], golden("p1.input_ids"));
    let (model, other) = (copied(&shards()), copied(&shards()));
    let container = repacked();
    let within = |folder: &Path| {
        builder().sizing(Sizing::Slots(40)).container(ContainerChoice::Folder(folder.into()))
    };
    let packed: Vec<PathBuf> =
        ["experts.slots", "ngram.rows"].map(|name| container.path().join(name)).into();
    let packed = copied(&packed);
    for kind in ReaderKind::ALL {
        for (builder, own, mirrors) in [
            (small(), tiny_model(), vec![model.path(), other.path()]),
            // Only the container's files are on the other disk.
            (within(container.path()), container.path().into(), vec![packed.path()]),
        ] {
            let mirrored = |builder, folder: &&Path| EngineBuilder::mirror(builder, *folder);
            let engine = mirrors.iter().fold(builder.reader(*kind), mirrored).build();
            let engine = engine.expect("builds");
            assert_eq!(engine.reader_mode().name, "mirror");
            assert_eq!(greedy(&mut session(&engine), &prompt, TOKENS), want, "{kind}");
            let shares = engine.mirror_shares();
            let folders: Vec<_> = shares.iter().map(|share| share.folder.as_path()).collect();
            assert_eq!((folders[0], &folders[1..]), (own.as_path(), &mirrors[..]));
            for share in &shares {
                assert!(share.share.bytes > 0 && share.share.reads > 0, "{kind}: {shares:?}");
                assert_eq!(share.share.left_out, None, "{kind}");
            }
        }
    }
    assert!(small().build().expect("builds").mirror_shares().is_empty());
}

/// A copy fails in the middle of a run: the others read on, and it is named.
#[test]
fn a_copy_that_fails_in_mid_run_changes_no_token() {
    let (want, prompt) = (&golden("p1.greedy_ids")[..TOKENS], golden("p1.input_ids"));
    for failing in [0, 1] {
        for after in [0, 40, 500] {
            let (tell, hear) = channel();
            let open = move |paths: &[PathBuf]| {
                let copy = |which| {
                    let inner = open_reader(ReaderKind::Buffered, paths)?;
                    // The other one is slow, so that this one is chosen.
                    let slow = Duration::from_micros(if which == failing { 0 } else { 500 });
                    let inner = SlowReader::new(inner, slow);
                    let faulty = FaultyReader::new(inner, Schedule::Never, Fault::Errno(5));
                    Ok::<_, IoError>(Arc::new(faulty))
                };
                let copies = [0, 1].map(copy);
                let copies = copies.into_iter().collect::<Result<Vec<_>, IoError>>()?;
                let mirror = MirrorReader::new(copies.iter().map(|c| Arc::clone(c) as _).collect());
                let mirror = Arc::new(mirror?);
                tell.send((copies, Arc::clone(&mirror)))?;
                Ok(mirror as Arc<dyn RecordReader>)
            };
            let engine = small().open_reader(Box::new(open)).build().expect("builds");
            let (copies, mirror) = hear.recv().expect("opened");
            // From some read on all of them fail.
            copies[failing].arm(Schedule::Nth(after));
            let mut session = session(&engine);
            let mut tokens = greedy(&mut session, &prompt, 4);
            copies[failing].arm(Schedule::Always);
            let more = session.generate_ids(TOKENS - 4).ignoring_eos(true);
            tokens.extend(more.map(|token| token.expect("the other copy is there")));
            assert_eq!(tokens, want, "copy {failing} after {after}");
            let shares = mirror.shares();
            assert!(shares[failing].left_out.is_some(), "{shares:?}");
            assert_eq!(shares[1 - failing].left_out, None, "{shares:?}");
            engine.inspect(|experts| experts.pool().validate()).expect("consistent");
        }
    }
}

/// Damage that no sample meets is found by a read, and nobody says that a file changed.
#[test]
fn damaged_records_of_a_copy_are_told_as_a_difference() {
    let container = repacked();
    let copy = copied(&[container.path().join("experts.slots")]);
    let path = copy.path().join("experts.slots");
    let mut bytes = fs::read(&path).expect("read");
    let samples = [0, bytes.len() / 2, bytes.len() - 4096];
    for (at, byte) in bytes.iter_mut().enumerate() {
        if !samples.iter().any(|sample| (*sample..*sample + 4096).contains(&at)) {
            *byte ^= 1;
        }
    }
    fs::write(&path, &bytes).expect("written");
    let choice = ContainerChoice::Folder(container.path().into());
    let builder = builder().sizing(Sizing::Slots(40)).container(choice).mirror(copy.path());
    let engine = builder.build().expect("the samples are the same");
    let mut session = session(&engine);
    let error = session.prefill(&golden("p1.input_ids")).expect_err("records differ");
    assert!(matches!(error, Error::CopiesDiffer { .. }), "{error:?}");
    assert_eq!(error.kind(), ErrorKind::Corrupt);
    let text = chain(&error);
    for words in [&*path.display().to_string(), "is no copy of", "repack"] {
        assert!(text.contains(words), "{text}");
    }
    assert!(!text.contains("changed"), "{text}");
}

#[test]
fn copies_that_differ_are_refused_and_folders_without_any() {
    let shards = shards();
    let folder = copied(&shards);
    let path = folder.path().join(shards[0].file_name().expect("a name"));
    let mut bytes = fs::read(&path).expect("read");
    *bytes.last_mut().expect("not empty") ^= 1;
    fs::write(&path, &bytes).expect("written");
    let error = small().mirror(folder.path()).build().expect_err("it differs");
    assert!(matches!(error, Error::Io(IoError::CopiesDiffer { .. })), "{error:?}");
    assert_eq!(error.kind(), ErrorKind::Corrupt);
    assert!(chain(&error).contains(&path.display().to_string()), "{}", chain(&error));
    bytes.pop();
    fs::write(&path, &bytes).expect("written");
    let error = small().mirror(folder.path()).build().expect_err("it is shorter");
    assert!(chain(&error).contains("bytes and not"), "{}", chain(&error));
    let empty = tempfile::tempdir().expect("a folder");
    for folder in [empty.path(), Path::new("no/such/folder")] {
        let error = small().mirror(folder).build().expect_err("nothing there");
        assert!(matches!(error, Error::EmptyMirror { .. }), "{error:?}");
        assert_eq!(error.kind(), ErrorKind::User);
        let name = shards[0].file_name().expect("a name").to_string_lossy();
        assert!(error.to_string().contains(&*name), "{error}");
    }
    // A file by two names is no two copies.
    let (linked, hard) = (tempfile::tempdir().expect("a folder"), copied(&shards[1..]));
    let name = shards[0].file_name().expect("a name");
    symlink(&shards[0], linked.path().join(name)).expect("links");
    let copy = copied(&shards);
    fs::hard_link(copy.path().join(name), hard.path().join(name)).expect("links");
    for (mirrors, same) in [
        (vec![tiny_model()], [tiny_model(), tiny_model()]),
        (vec![linked.path().into()], [linked.path().into(), tiny_model()]),
        (vec![copy.path().into(), hard.path().into()], [hard.path().into(), copy.path().into()]),
        (vec![copy.path().into(); 2], [copy.path().into(), copy.path().into()]),
    ] {
        let error = mirrors.iter().fold(small(), EngineBuilder::mirror).build();
        let error = error.expect_err("no copy");
        assert!(matches!(error, Error::SameFile { .. }), "{error:?}");
        assert_eq!(error.kind(), ErrorKind::User);
        let [copy, file] = same.map(|folder: PathBuf| folder.join(name).display().to_string());
        let said = error.to_string();
        assert!(said.starts_with(&format!("{copy} is the same file as {file}, ")), "{said}");
    }
    let own = small().open_reader(Box::new(|paths| Ok(open_reader(ReaderKind::Buffered, paths)?)));
    let error = own.mirror(empty.path()).build();
    assert!(matches!(error, Err(Error::Option { option: "mirror", .. })), "{error:?}");
}
