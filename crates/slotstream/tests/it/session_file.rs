//! Sessions in files: they go on as if they had never ended, and whatever is not whole or of
//! something else is refused by name.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

use proptest::prelude::*;
use slotstream::checkpoint::container::Digest;
use slotstream::core::{CancelToken, ErrorKind, LayerIdx};
use slotstream::machine::Machine;
use slotstream::ops::HostOps;
use slotstream::sampling::SamplingParams;
use slotstream::session_file::{SESSION_VERSION, SessionFileError, verify};
use slotstream::{Arithmetic, Engine, Error, Session, SessionOptions, Sizing};

use crate::rig::{
    Trip, builder, golden, greedy, random_builder, random_golden, random_model, session, tiny_model,
};

fn scratch() -> (tempfile::TempDir, PathBuf) {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let path = folder.path().join("own.session");
    (folder, path)
}

fn some(session: &mut Session, count: usize) -> Vec<u32> {
    let ids = session.generate_ids(count).ignoring_eos(true);
    ids.collect::<Result<_, _>>().expect("runs")
}

fn refused(engine: &Engine, path: &Path) -> SessionFileError {
    match engine.load_session(path) {
        Err(Error::SessionFile(error)) => *error,
        other => panic!("not refused by its file: {other:?}"),
    }
}

/// A small file: 20 tokens of the random model, two of them generated.
fn small() -> (Engine, tempfile::TempDir, PathBuf) {
    let engine = random_builder().build().expect("builds");
    let (folder, path) = scratch();
    let mut session = session(&engine);
    greedy(&mut session, &random_golden("p17.input_ids"), 2);
    let written = session.save(&path).expect("writes");
    assert_eq!(written, fs::metadata(&path).expect("is there").len());
    (engine, folder, path)
}

#[test]
fn a_loaded_session_goes_on_bit_for_bit() {
    let (prompt, want) = (golden("p1.input_ids"), golden("p1.greedy_ids"));
    let (_folder, path) = scratch();
    let first = builder().threads(2).build().expect("builds");
    let mut own = session(&first);
    assert_eq!(greedy(&mut own, &prompt, 9), want[..9]);
    own.save(&path).expect("writes");
    let (tokens, logits) = (own.tokens().to_vec(), own.logits().to_vec());
    drop((own, first));
    // Another pool, reader, chunk, context, number of threads and of rows kept.
    let engines = [
        builder(),
        builder().sizing(Sizing::Slots(18)).chunk(7).threads(2).context(512),
        builder().sizing(Sizing::Share(1.0)).rollback_rows(3).checkpoints(0),
        random_of_lanes(),
    ];
    for engine in engines {
        let engine = engine.build().expect("builds");
        let mut loaded = engine.load_session(&path).expect("its own");
        assert_eq!((loaded.tokens(), loaded.generated()), (&tokens[..], &want[..9]));
        assert_eq!(loaded.logits(), logits);
        assert_eq!(some(&mut loaded, 12), want[9..21]);
        assert_eq!(loaded.metrics().total().tokens, 12, "nothing ran again");
        // Its prompt is known as far as it goes.
        let more = [&prompt[..], &want[..21], &[11]].concat();
        assert_eq!(loaded.prompt(&more).expect("runs"), prompt.len() + 20);
        let mut fresh = session(&engine);
        fresh.prefill(&more).expect("runs");
        assert!(loaded.logits() == fresh.logits());
        // Saved again, loaded again, forked.
        loaded.save(&path).expect("writes");
        let mut again = engine.load_session(&path).expect("its own");
        let mut fork = again.fork().expect("copies");
        let next = some(&mut fresh, 5);
        assert_eq!((some(&mut again, 5), some(&mut fork, 5)), (next.clone(), next));
        let mut back = session(&engine);
        greedy(&mut back, &prompt, 9);
        back.save(&path).expect("writes");
    }
}

fn random_of_lanes() -> slotstream::EngineBuilder {
    builder().lanes(2).threads(3).reader(slotstream::io::ReaderKind::Memory)
}

#[test]
fn draws_and_unrun_tokens_are_kept() {
    let engine = builder().build().expect("builds");
    let (_folder, path) = scratch();
    let sampling =
        SamplingParams { temperature: 0.9, top_p: 0.9, seed: 7, ..SamplingParams::GREEDY };
    let mut own = engine.session(SessionOptions::new().with_sampling(sampling)).expect("legal");
    // Nothing has run: an empty session is a session.
    own.save(&path).expect("writes");
    let mut empty = engine.load_session(&path).expect("its own");
    assert!(empty.tokens().is_empty() && empty.logits().is_empty());
    assert!(matches!(empty.next(), Err(Error::NoPrompt { .. })));
    own.prefill(&golden("p1.input_ids")).expect("runs");
    empty.prefill(&golden("p1.input_ids")).expect("runs");
    assert_eq!(some(&mut own, 5), some(&mut empty, 5));
    own.set_note(b"of ours").expect("short");
    assert!(matches!(own.set_note(vec![0; (16 << 20) + 1]), Err(Error::Option { .. })));
    own.save(&path).expect("writes");
    let mut loaded = engine.load_session(&path).expect("its own");
    assert_eq!((loaded.note(), own.fork().expect("copies").note()), (&b"of ours"[..], own.note()));
    assert_eq!(some(&mut own, 10), some(&mut loaded, 10));
    loaded.set_sampling(SamplingParams::GREEDY).expect("legal");
    let tokens = loaded.tokens().to_vec();
    let mut fresh = session(&engine);
    assert_eq!(some(&mut loaded, 3), greedy(&mut fresh, &tokens, 3));
}

#[test]
fn a_session_that_was_cut_off_is_saved_whole() {
    let trip = Trip::default();
    let engine = random_builder().chunk(5).sink(Box::new(trip.clone())).build().expect("builds");
    let (_folder, path) = scratch();
    let (prompt, want) = (random_golden("p17.input_ids"), random_golden("p17.greedy.ids"));
    let token = CancelToken::new();
    let mut own = session(&engine);
    own.set_cancel(token.clone());
    own.prompt(&prompt[..6]).expect("runs");
    trip.set(Some((LayerIdx::new(1), token)));
    own.prompt(&prompt).expect_err("cancelled");
    trip.set(None);
    assert_eq!(own.save(&path).expect_err("still cancelled").kind(), ErrorKind::Cancelled);
    assert!(!path.exists());
    own.set_cancel(CancelToken::new());
    own.save(&path).expect("runs what is missing, and writes");
    let mut loaded = engine.load_session(&path).expect("its own");
    assert_eq!(some(&mut loaded, 4), want[..4]);
}

#[test]
fn what_is_of_something_else_is_refused_by_name() {
    let (_folder, path) = scratch();
    let engine = builder().build().expect("builds");
    let mut own = session(&engine);
    own.prompt(&golden("p1.input_ids")).expect("runs");
    own.save(&path).expect("writes");
    let foreign = |engine: &Engine| match refused(engine, &path) {
        error @ SessionFileError::Foreign { what, .. } => {
            assert_eq!(error.kind(), ErrorKind::User);
            assert!(error.to_string().contains(&path.display().to_string()), "{error}");
            what
        }
        other => panic!("{other}"),
    };
    let fast = builder().arithmetic(Arithmetic::Fast).build().expect("builds");
    assert_eq!(foreign(&fast), "arithmetic");
    let ops =
        std::sync::Arc::new(HostOps::new(std::sync::Arc::new(slotstream::kernels::Reference)));
    assert_eq!(foreign(&builder().ops(ops).build().expect("builds")), "arithmetic");
    let other = Engine::builder(random_model()).sizing(Sizing::Share(0.5)).build().expect("builds");
    assert_eq!(foreign(&other), "model, by its config");
    let copied = Copied::new();
    let twin = copied.build();
    twin.load_session(&path).expect("a copy of the model is the model");
    copied.edit("chat_template.jinja", |bytes| bytes.extend(b"{# #}"));
    assert_eq!(foreign(&copied.build()), "chat template");
    copied.restore("chat_template.jinja");
    copied.edit("tokenizer.json", |bytes| bytes.push(b'\n'));
    assert_eq!(foreign(&copied.build()), "tokenizer");
    copied.restore("tokenizer.json");
    copied.edit("config.json", |bytes| bytes.push(b'\n'));
    assert_eq!(foreign(&copied.build()), "model, by its config");
    copied.restore("config.json");
    // The first byte of the last tensor, and the last one of all.
    for back in [1, 2] {
        copied.edit(&copied.shard(), |bytes| {
            let at = bytes.len() - back;
            bytes[at] ^= 1;
        });
        assert_eq!(foreign(&copied.build()), "model, by its weights");
        copied.restore(&copied.shard());
    }
    let norms = copied.builder().norms(slotstream::checkpoint::NormForm::Raw);
    assert_eq!(foreign(&norms.build().expect("builds")), "norm form");
    let short = builder().context(64).build().expect("builds");
    let error = refused(&short, &path);
    assert!(matches!(error, SessionFileError::TooLong { tokens: 96, context: 64, .. }), "{error}");
}

/// A copy of the bundled model.
struct Copied(tempfile::TempDir);

impl Copied {
    fn new() -> Self {
        let copied = Self(tempfile::tempdir().expect("a temporary folder"));
        for entry in fs::read_dir(tiny_model()).expect("the model") {
            let path = entry.expect("a file").path();
            if path.is_file() {
                fs::copy(&path, copied.0.path().join(path.file_name().expect("named")))
                    .expect("copies");
            }
        }
        copied
    }

    fn shard(&self) -> String {
        let mut names: Vec<String> = fs::read_dir(self.0.path())
            .expect("the copy")
            .map(|entry| entry.expect("a file").file_name().to_string_lossy().into_owned())
            .filter(|name| name.ends_with(".safetensors"))
            .collect();
        names.sort();
        names.pop().expect("a shard")
    }

    fn builder(&self) -> slotstream::EngineBuilder {
        Engine::builder(self.0.path()).sizing(Sizing::Share(0.3)).threads(1).context(1024)
    }

    fn build(&self) -> Engine {
        self.builder().build().expect("builds")
    }

    fn edit(&self, name: &str, edit: impl FnOnce(&mut Vec<u8>)) {
        let path = self.0.path().join(name);
        let mut bytes = fs::read(&path).expect("is there");
        edit(&mut bytes);
        fs::write(&path, bytes).expect("writes");
    }

    fn restore(&self, name: &str) {
        fs::copy(tiny_model().join(name), self.0.path().join(name)).expect("copies");
    }
}

#[test]
fn every_flipped_bit_of_the_header_and_some_of_each_section_are_found() {
    let (engine, _folder, path) = small();
    let whole = fs::read(&path).expect("is there");
    let header = 276 + "exact cpu 2".len();
    // All of the header, each byte of tokens and logits' beginning, and then every 97th byte; the
    // last bytes are a checksum's.
    let tail = whole.len() - 5..whole.len();
    let places = (0..header + 90).chain((header + 90..whole.len()).step_by(97)).chain(tail);
    for at in places {
        for bit in [1_u8, 0x80] {
            let mut bytes = whole.clone();
            bytes[at] ^= bit;
            fs::write(&path, &bytes).expect("writes");
            let error = refused(&engine, &path);
            let named = match &error {
                SessionFileError::Magic { .. } => at < 8,
                SessionFileError::Version { found, known, .. } => {
                    *known == SESSION_VERSION && *found != *known && (8..10).contains(&at)
                }
                SessionFileError::Field { .. } => (10..16).contains(&at),
                SessionFileError::Length { .. } => (12..16).contains(&at),
                SessionFileError::Checksum { .. } => at >= 12,
                _ => false,
            };
            assert!(named, "byte {at}: {error}");
            if at >= header {
                let words = error.to_string();
                let (tokens, logits) = (words.contains("the tokens"), words.contains("the logits"));
                let in_tokens = at < header + 4 * 19 + 4;
                assert!(tokens == in_tokens || logits, "byte {at}: {words}");
            }
        }
    }
    fs::write(&path, &whole).expect("writes");
    engine.load_session(&path).expect("whole again");
}

#[test]
fn every_length_is_refused_but_its_own() {
    let (engine, _folder, path) = small();
    let whole = fs::read(&path).expect("is there");
    let lens = (0..300).chain((300..whole.len()).step_by(61)).chain([whole.len() - 1]);
    for len in lens {
        fs::write(&path, &whole[..len]).expect("writes");
        let error = refused(&engine, &path);
        assert!(matches!(error, SessionFileError::Length { .. }), "{len} bytes: {error}");
        assert_eq!(error.kind(), ErrorKind::Corrupt);
    }
    fs::write(&path, [&whole[..], &[0]].concat()).expect("writes");
    assert!(matches!(refused(&engine, &path), SessionFileError::Length { .. }));
}

/// What stands in a payload instead, and where.
type Edits = Vec<(usize, Vec<u8>)>;

/// Sets bytes of the payload and the checksum of the header right again.
fn forge(bytes: &[u8], edits: &Edits) -> Vec<u8> {
    let mut bytes = bytes.to_vec();
    for (at, with) in edits {
        bytes[20 + at..][..with.len()].copy_from_slice(with);
    }
    let end = 20 + u32::from_le_bytes(bytes[12..16].try_into().expect("4 bytes")) as usize;
    let checksum = crc32([&bytes[..16], &bytes[20..end]]);
    bytes[16..20].copy_from_slice(&checksum.to_le_bytes());
    bytes
}

/// CRC-32 bit by bit.
fn crc32<'a>(parts: impl IntoIterator<Item = &'a [u8]>) -> u32 {
    let mut crc = u32::MAX;
    for byte in parts.into_iter().flatten() {
        crc ^= u32::from(*byte);
        for _ in 0..8 {
            crc = (crc >> 1) ^ if crc & 1 == 1 { 0xEDB8_8320 } else { 0 };
        }
    }
    !crc
}

#[test]
fn fields_that_cannot_be_are_named_whatever_the_checksum_says() {
    let (engine, _folder, path) = small();
    let whole = fs::read(&path).expect("is there");
    assert_eq!(forge(&whole, &Edits::new()), whole, "the checksum is that of the format");
    let number = |at, value: u64| vec![(at, value.to_le_bytes().to_vec())];
    let float = |at, value: f32| vec![(at, value.to_le_bytes().to_vec())];
    let huge = u64::MAX;
    let cases: Vec<(Edits, &str)> = vec![
        (number(128, 2), "norm form"),
        (number(136, 5), "bytes, expected 5"),
        (number(144, huge), "tokens"),
        // More tokens than the file has, and than fit in the context.
        (number(144, 200), "length of the file"),
        (number(144, 1 << 31), "the context here"),
        (number(152, huge), "position"),
        (number(152, 20), "position"),
        (number(152, 3), "length of the file"),
        (number(160, 20), "end of the prompt"),
        (number(168, 1), "logits"),
        (number(168, huge), "logits"),
        (float(176, f32::NAN), "temperature"),
        (float(180, 0.0), "top_p"),
        (float(188, -1.0), "repetition_penalty"),
        (number(200, 1 << 32), "top-k"),
        (vec![(216, vec![0; 32])], "state of the draws"),
        (number(248, 1 << 25), "note"),
        (number(248, 3), "length of the file"),
        (vec![(256, vec![0xff])], "name of the arithmetic"),
        (vec![(256, vec![b'\n'])], "name of the arithmetic"),
        (vec![(256, vec![b'E'])], "another arithmetic"),
        (vec![(0, vec![0; 32])], "another model, by its config"),
        (vec![(32, vec![0; 32])], "another model, by its weights"),
    ];
    for (edits, words) in cases {
        fs::write(&path, forge(&whole, &edits)).expect("writes");
        let error = refused(&engine, &path).to_string();
        assert!(error.contains(words), "{words}: {error}");
    }
    // A token that the model does not know, with a lawful checksum.
    let mut bytes = whole.clone();
    let at = 276 + "exact cpu 2".len();
    bytes[at..at + 4].copy_from_slice(&u32::MAX.to_le_bytes());
    let sum = crc32([&1_u32.to_le_bytes()[..], &bytes[at..at + 4 * 19]]);
    bytes[at + 4 * 19..][..4].copy_from_slice(&sum.to_le_bytes());
    fs::write(&path, &bytes).expect("writes");
    let error = refused(&engine, &path);
    assert!(matches!(error, SessionFileError::Field { field: "token", .. }), "{error}");
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, failure_persistence: None, ..ProptestConfig::default() })]

    /// Whatever becomes of some bytes: an error by the file's name, never a session of other tokens.
    #[test]
    fn damaged_files_are_refused(
        edits in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..4),
        cut in prop::option::of(any::<prop::sample::Index>()),
    ) {
        thread_local! {
            static SMALL: (Engine, tempfile::TempDir, PathBuf, Vec<u8>) = {
                let (engine, folder, path) = small();
                let bytes = fs::read(&path).expect("is there");
                (engine, folder, path, bytes)
            };
        }
        SMALL.with(|(engine, _, path, whole)| {
            let mut bytes = whole.clone();
            for (at, byte) in &edits {
                let at = at.index(bytes.len());
                bytes[at] = *byte;
            }
            if let Some(cut) = cut {
                bytes.truncate(cut.index(bytes.len()));
            }
            fs::write(path, &bytes).expect("writes");
            let same = bytes == *whole;
            match engine.load_session(path) {
                Ok(_) => assert!(same, "damage was not seen"),
                Err(error) => assert!(!same && matches!(error, Error::SessionFile(_)), "{error}"),
            }
        });
    }
}

#[test]
fn a_file_is_verified_without_a_model() {
    let (engine, _folder, path) = small();
    let bytes = fs::read(&path).expect("is there");
    let config = engine.checkpoint().config();
    let header = verify(&path, config, &bytes[..], bytes.len() as u64).expect("whole");
    assert_eq!((header.tokens, header.position, header.prompt_end), (19, 18, 17));
    assert_eq!(&header.identity, engine.session_identity().expect("reads"));
    assert_ne!(header.identity.weights, Digest::new([0; 32]));
    for at in [30, 300, bytes.len() - 1] {
        let mut bytes = bytes.clone();
        bytes[at] ^= 4;
        let error = verify(&path, config, &bytes[..], bytes.len() as u64).expect_err("damaged");
        assert_eq!(error.kind(), ErrorKind::Corrupt, "{error}");
    }
}

#[test]
fn what_stands_in_the_way_is_left_alone() {
    let (engine, folder, path) = small();
    let mut own = engine.load_session(&path).expect("its own");
    let mut fails = |path: &Path| match own.save(path) {
        Err(Error::SessionFile(error)) => *error,
        other => panic!("{}: {other:?}", path.display()),
    };
    let whole = fs::read(&path).expect("is there");
    let at = |name: &str| folder.path().join(name);
    fs::create_dir(at("folder")).expect("makes");
    assert!(matches!(fails(&at("folder")), SessionFileError::NotAFile { .. }));
    assert!(matches!(fails(Path::new("/")), SessionFileError::NotAFile { .. }));
    assert!(matches!(fails(Path::new("/dev/null")), SessionFileError::NotAFile { .. }));
    let error = fails(&at("nowhere/own.session"));
    assert_eq!(error.kind(), ErrorKind::User, "{error}");
    // Links and folders where the unfinished file would be.
    symlink(&path, at("other.part")).expect("links");
    assert!(matches!(fails(&at("other")), SessionFileError::NotAFile { .. }));
    fs::hard_link(&path, at("third.part")).expect("links");
    assert!(matches!(fails(&at("third")), SessionFileError::NotAFile { .. }));
    fs::create_dir(at("fourth.part")).expect("makes");
    assert!(matches!(fails(&at("fourth")), SessionFileError::NotAFile { .. }));
    assert_eq!(fs::read(&path).expect("is there"), whole);
    // Somebody writes there already, and goes on undisturbed.
    let part = fs::File::create(at("own.session.part")).expect("makes");
    part.lock().expect("locks");
    fs::write(at("own.session.part"), b"half").expect("writes");
    own.save(&path).expect("writes");
    assert_eq!(fs::read(&path).expect("is there"), whole);
    assert_eq!(fs::read(at("own.session.part")).expect("is there"), b"half");
    drop(part);
    // A rest of an earlier save is written over; a link is replaced, not what it leads to.
    fs::write(at("own.session.part"), vec![7; 1 << 20]).expect("writes");
    symlink(at("precious"), at("link")).expect("links");
    fs::write(at("precious"), b"of somebody").expect("writes");
    for name in ["own.session", "link"] {
        own.save(at(name)).expect("writes");
        engine.load_session(at(name)).expect("whole");
    }
    assert_eq!(fs::read(at("precious")).expect("is there"), b"of somebody");
    assert!(!at("own.session.part").exists());
    // Reading refuses the same things, and says what is missing.
    for wrong in [at("folder"), PathBuf::from("/dev/null")] {
        assert!(matches!(refused(&engine, &wrong), SessionFileError::NotAFile { .. }));
    }
    assert_eq!(refused(&engine, &at("missing")).kind(), ErrorKind::User);
}

/// Sessions of other lengths and of one name: what is there is one of them at any time, and whole.
#[test]
fn of_several_that_save_at_once_the_last_stays() {
    let engine = random_builder().build().expect("builds");
    let (folder, path) = scratch();
    let mut sessions: Vec<Session> = (0..4).map(|_| session(&engine)).collect();
    for (own, generated) in sessions.iter_mut().zip(1..) {
        greedy(own, &random_golden("p17.input_ids"), generated);
    }
    let tokens: Vec<Vec<u32>> = sessions.iter().map(|own| own.tokens().to_vec()).collect();
    sessions[0].save(&path).expect("writes");
    let one_of_them = || {
        let loaded = engine.load_session(&path).expect("whole");
        assert!(tokens.iter().any(|tokens| tokens == loaded.tokens()));
    };
    std::thread::scope(|scope| {
        for own in &mut sessions {
            let path = &path;
            scope.spawn(move || {
                for _ in 0..10 {
                    own.save(path).expect("nobody is in the way");
                }
            });
        }
        (0..20).for_each(|_| one_of_them());
    });
    one_of_them();
    assert_eq!(fs::read_dir(folder.path()).expect("there").count(), 1, "nothing else is left");
}

#[test]
fn nothing_is_written_to_the_models_folder() {
    let copied = Copied::new();
    let names = || {
        let entries = fs::read_dir(copied.0.path()).expect("the copy");
        let mut names: Vec<_> = entries.map(|entry| entry.expect("a file").file_name()).collect();
        names.sort();
        names
    };
    let before = names();
    let (_folder, path) = scratch();
    let engine = copied.build();
    let mut own = session(&engine);
    own.prompt(&golden("p1.input_ids")).expect("runs");
    own.save(&path).expect("writes");
    engine.load_session(&path).expect("its own");
    assert_eq!(names(), before);
}

#[test]
fn loading_keeps_to_the_plan() {
    let machine = Machine::default();
    let all = builder().sizing(Sizing::Share(1.0)).machine(machine).plan().expect("fits");
    let engine = builder().sizing(Sizing::Memory(all.total_bytes())).machine(machine);
    let engine = engine.build().expect("builds");
    let (_folder, path) = scratch();
    let mut own = session(&engine);
    own.prefill(&vec![1; 1000]).expect("planned");
    own.save(&path).expect("writes");
    let error = engine.load_session(&path).expect_err("no room for two");
    assert!(matches!(error, Error::State { .. }), "{error}");
    drop(own);
    let mut loaded = engine.load_session(&path).expect("now there is");
    loaded.next().expect("goes on");
}

/// The child of the test below: writes until it is killed.
#[test]
#[ignore = "the child of another test"]
fn child_that_saves_again_and_again() {
    let Some(path) = std::env::var_os("SLOTSTREAM_TEST_SAVES") else { return };
    let engine = builder().build().expect("builds");
    let mut own = session(&engine);
    own.prefill(&golden("p1.input_ids")).expect("runs");
    // So that writing takes long enough to be hit.
    own.set_note(vec![7; 16 << 20]).expect("just short enough");
    loop {
        own.save(&path).expect("writes");
        own.next().expect("runs");
    }
}

#[test]
fn killed_in_mid_write_it_leaves_the_old_one() {
    use std::process::{Command, Stdio};
    let (folder, path) = scratch();
    let part = folder.path().join("own.session.part");
    let engine = builder().build().expect("builds");
    let config = engine.checkpoint().config();
    let (mut cut, mut longest) = (0, 0);
    for _ in 0..40 {
        let mut child = Command::new(std::env::current_exe().expect("this test"))
            .args(["--ignored", "--exact", "session_file::child_that_saves_again_and_again"])
            .env("SLOTSTREAM_TEST_SAVES", &path)
            .stdout(Stdio::null())
            .spawn()
            .expect("starts");
        // Once there is a whole file, while the next one is being written.
        while !path.exists() || !part.exists() {
            assert!(child.try_wait().expect("waits").is_none(), "the child ended by itself");
            std::thread::yield_now();
        }
        child.kill().expect("SIGKILL");
        child.wait().expect("waits");
        // The old one is whole, whatever is left of the next one.
        let mut loaded = engine.load_session(&path).expect("the last whole one");
        let tokens = loaded.tokens().to_vec();
        assert!(tokens.starts_with(&golden("p1.input_ids")));
        let mut fresh = session(&engine);
        assert_eq!(some(&mut loaded, 2), greedy(&mut fresh, &tokens, 2));
        longest = longest.max(tokens.len());
        if let Ok(left) = fs::read(&part) {
            cut += usize::from(verify(&part, config, &left[..], left.len() as u64).is_err());
        }
        if cut >= 3 {
            break;
        }
    }
    assert!(cut >= 3, "no kill hit a write");
    assert!(longest >= 96);
    // What is left is in nobody's way.
    engine.load_session(&path).expect("whole").save(&path).expect("writes");
    assert!(!part.exists());
}
