//! Files that change while an engine reads them.

use std::fs::{self, File, OpenOptions};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use slotstream::core::ErrorKind;
use slotstream::io::ReaderKind;
use slotstream::{Engine, Error, Sizing};
use tempfile::TempDir;

use crate::rig::{chain, greedy, random_golden, random_model, session};

/// Does something to a shard.
type Change = fn(&Path);

/// A copy of the random checkpoint in a folder of its own.
fn copied() -> (TempDir, PathBuf) {
    let folder = tempfile::tempdir().expect("a temporary folder");
    for entry in fs::read_dir(random_model()).expect("a fixture") {
        let from = entry.expect("readable").path();
        fs::copy(&from, folder.path().join(from.file_name().expect("a file"))).expect("copies");
    }
    let shard = folder.path().join("model-00002.safetensors");
    (folder, shard)
}

fn engine(folder: &Path, kind: ReaderKind) -> Engine {
    let builder = Engine::builder(folder).sizing(Sizing::Slots(8)).context(256).threads(1);
    builder.reader(kind).build().expect("builds")
}

fn truncate(shard: &Path) {
    let length = fs::metadata(shard).expect("there").len();
    let file = OpenOptions::new().write(true).open(shard).expect("opens");
    file.set_len(length - 1024).expect("truncates");
}

fn cut_to_nothing(shard: &Path) {
    File::create(shard).expect("truncates");
}

fn replace(shard: &Path) {
    let other = shard.with_extension("new");
    fs::copy(shard, &other).expect("copies");
    fs::rename(&other, shard).expect("replaces");
}

fn remove(shard: &Path) {
    fs::remove_file(shard).expect("removes");
}

fn grow(shard: &Path) {
    let mut file = OpenOptions::new().append(true).open(shard).expect("opens");
    file.write_all(b"more").expect("appends");
}

/// Other bytes, the same length.
fn overwrite(shard: &Path) {
    let mut bytes = fs::read(shard).expect("reads");
    let at = bytes.len() / 2;
    bytes[at..].fill(0x55);
    // Not `fs::write`, which truncates first.
    let mut file = OpenOptions::new().write(true).open(shard).expect("opens");
    file.write_all(&bytes).expect("overwrites");
}

fn touch(shard: &Path) {
    let file = OpenOptions::new().write(true).open(shard).expect("opens");
    let time = SystemTime::now() + Duration::from_secs(60);
    file.set_modified(time).expect("sets the time");
}

#[test]
fn a_shard_that_changes_while_open_is_named() {
    let changes: [(&str, Change); 7] = [
        ("truncated", truncate),
        ("cut to nothing", cut_to_nothing),
        ("replaced", replace),
        ("removed", remove),
        ("grown", grow),
        ("overwritten", overwrite),
        ("touched", touch),
    ];
    let (prompt, want) = (random_golden("p17.input_ids"), random_golden("p17.greedy.ids"));
    for kind in [ReaderKind::Buffered, ReaderKind::Uncached] {
        for (what, change) in changes {
            let (folder, shard) = copied();
            let engine = engine(folder.path(), kind);
            let mut running = session(&engine);
            assert_eq!(greedy(&mut running, &prompt, 2), want[..2], "{what}");
            change(&shard);
            let fresh = session(&engine).prefill(&prompt);
            for result in [running.next().map(drop), fresh, running.next().map(drop)] {
                let error = result.expect_err(what);
                assert!(matches!(error, Error::Changed { .. }), "{what}: {}", chain(&error));
                assert_eq!(error.kind(), ErrorKind::Corrupt, "{what}: {}", chain(&error));
                for word in ["model-00002.safetensors", "build a new engine"] {
                    assert!(chain(&error).contains(word), "{what}: {}", chain(&error));
                }
            }
            engine.inspect(|experts| experts.pool().validate()).expect("consistent");
        }
    }
}

/// Putting the old file back does not bring a spoilt engine back.
#[test]
fn a_change_is_never_forgotten() {
    let (folder, shard) = copied();
    let engine = engine(folder.path(), ReaderKind::Buffered);
    let prompt = random_golden("p17.input_ids");
    let before = fs::metadata(&shard).expect("there").modified().expect("a time");
    touch(&shard);
    session(&engine).prefill(&prompt).expect_err("changed");
    let file = OpenOptions::new().write(true).open(&shard).expect("opens");
    file.set_modified(before).expect("sets the time");
    let error = session(&engine).prefill(&prompt).expect_err("stays so");
    assert!(matches!(error, Error::Changed { .. }), "{}", chain(&error));
}

#[test]
fn files_in_memory_cannot_change() {
    let (folder, shard) = copied();
    let engine = engine(folder.path(), ReaderKind::Memory);
    remove(&shard);
    let tokens = greedy(&mut session(&engine), &random_golden("p17.input_ids"), 2);
    assert_eq!(tokens, random_golden("p17.greedy.ids")[..2]);
}
