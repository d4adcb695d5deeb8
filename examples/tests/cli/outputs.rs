//! Files that `generate` and `chat` write: which are refused, before anything is generated.

use std::ffi::OsString;
use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;

use slotstream_examples::generate::run;
use slotstream_examples::{Console, Ended, Failure};

use super::chat::talk;
use super::{assert_user_error, bundled, output, utf8};

type Run = fn(Vec<OsString>, &mut Console<'_>) -> Result<Ended, Failure>;

/// Every name in a folder with what is in it.
fn contents(folder: &Path) -> Vec<(String, Vec<u8>)> {
    let mut all: Vec<_> = fs::read_dir(folder)
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.is_file())
        .map(|path| (path.display().to_string(), fs::read(&path).unwrap()))
        .collect();
    all.sort();
    all
}

fn refused(flags: &[&str], words: &str) {
    assert_user_error(run, &[&["--quiet", "--max-tokens", "2"], flags].concat(), words);
}

fn accepted(flags: &[&str]) {
    let (_, result) = output(run, &[&["--quiet", "--max-tokens", "2"], flags].concat());
    result.unwrap_or_else(|error| panic!("{flags:?}: {error}"));
}

#[test]
fn files_of_the_model_are_not_written() {
    let folder = tempfile::tempdir().unwrap();
    let model = folder.path().join("model");
    fs::create_dir(&model).unwrap();
    for entry in fs::read_dir(bundled()).unwrap() {
        let from = entry.unwrap().path();
        if from.is_file() {
            fs::copy(&from, model.join(from.file_name().unwrap())).unwrap();
        }
    }
    let before = contents(&model);
    let (link, nowhere) = (folder.path().join("link"), folder.path().join("nowhere"));
    let (alias, blob) = (folder.path().join("alias"), folder.path().join("blob"));
    symlink(model.join("config.json"), &link).unwrap();
    symlink(model.join("not yet"), &nowhere).unwrap();
    symlink(&model, &alias).unwrap();
    fs::write(&blob, b"").unwrap();
    symlink(&blob, model.join("linked")).unwrap();
    let paths =
        [model.join("config.json"), model.join("new"), link, nowhere, alias.join("x"), blob];
    let words = "a file outside the model's folder";
    for path in &paths {
        for option in ["--trace", "--save-session", "--warm-start"] {
            refused(&["--model", utf8(&model), option, utf8(path)], words);
        }
    }
    let lines: String = paths.iter().map(|path| format!("/save {}\n", utf8(path))).collect();
    let text = talk(&["--model", utf8(&model)], &lines);
    assert_eq!(text.matches(words).count(), paths.len(), "{text}");
    fs::remove_file(model.join("linked")).unwrap();
    assert_eq!(contents(&model), before);
}

#[test]
fn options_name_different_files() {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| utf8(&folder.path().join(name)).to_owned();
    let (one, part, link) = (at("one"), at("one.part"), at("link"));
    symlink(&one, &link).unwrap();
    for (first, second, path) in [
        ("--trace", "--save-session", &one),
        ("--save-session", "--trace", &link),
        ("--save-session", "--warm-start", &one),
        ("--warm-start", "--save-session", &link),
        ("--trace", "--load-session", &one),
        ("--warm-start", "--load-session", &link),
        ("--save-session", "--trace", &part),
        ("--save-session", "--warm-start", &part),
        ("--save-session", "--load-session", &part),
    ] {
        refused(&[first, &one, second, path], "another file than that of --");
    }
    assert_eq!(contents(folder.path()), [], "nothing was written");
    accepted(&["--save-session", &one]);
    let saved = fs::read(&one).unwrap();
    for option in ["--trace", "--warm-start"] {
        refused(&["--load-session", &one, option, &one], "another file than that of");
    }
    assert_eq!(fs::read(&one).unwrap(), saved);
    accepted(&["--load-session", &one, "--save-session", &one, "--trace", &at("trace")]);
    assert_ne!(fs::read(&one).unwrap(), saved);
}

/// Whatever a run reads is not written, by its own name or another one.
#[test]
fn what_is_read_is_not_written() {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| utf8(&folder.path().join(name)).to_owned();
    let (text, shards, mirror) = (at("text"), at("container"), at("mirror"));
    fs::write(&text, "CHAPTER II\n\nMr. Darcy ".repeat(40)).unwrap();
    for copy in [&shards, &mirror] {
        fs::create_dir(copy).unwrap();
        fs::write(folder.path().join(copy).join("of-it"), b"precious").unwrap();
    }
    fs::copy(bundled().join("model-00001.safetensors"), at("mirror/model-00001.safetensors"))
        .unwrap();
    let (hard, soft) = (at("hard"), at("soft"));
    let generated: Run = run;
    let perplexed: Run = slotstream_examples::perplexity::run;
    let probed: Run = slotstream_examples::probe_ssd::run;
    let model = bundled();
    let shard = model.join("model-00001.safetensors");
    for (program, input, option, read) in [
        (generated, &["--prompt-file", &text][..], "--trace", &text),
        (generated, &["--prompt-file", &text], "--save-session", &text),
        (generated, &["--prompt-file", &text], "--warm-start", &text),
        (generated, &["--container", &shards], "--trace", &at("container/of-it")),
        (generated, &["--mirror", &mirror], "--trace", &at("mirror/of-it")),
        (generated, &[], "--trace", &utf8(&shard).to_owned()),
        (perplexed, &["--text", &text], "--trace", &text),
        (perplexed, &[], "--trace", &utf8(&shard).to_owned()),
        (probed, &["--file", &text, "--bytes", "1KB"], "--plot", &text),
        (probed, &["--bytes", "1MB", "--rounds", "1"], "--plot", &utf8(&shard).to_owned()),
    ] {
        let before = fs::read(read).unwrap();
        symlink(read, &soft).unwrap();
        let linked = fs::hard_link(read, &hard).is_ok();
        let names = [Some(read), Some(&soft), linked.then_some(&hard)];
        for path in names.into_iter().flatten() {
            let result = output(program, &[input, &[option, path]].concat()).1;
            let error = result.expect_err("it is read");
            let words = slotstream_examples::describe(&error);
            assert!(
                words.contains("another file than") || words.contains("a file outside"),
                "{words}"
            );
            assert_eq!(error.exit_code(), 2, "{input:?} {option} {path}");
            assert_eq!(fs::read(read).unwrap(), before);
        }
        fs::remove_file(&soft).unwrap();
        let _ = fs::remove_file(&hard);
    }
}

#[test]
fn only_files_of_their_kind_are_replaced() {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| utf8(&folder.path().join(name)).to_owned();
    let (session, warm, other) = (at("session"), at("warm"), at("other"));
    fs::write(&session, b"").unwrap();
    for _ in 0..2 {
        accepted(&["--save-session", &session, "--warm-start", &warm]);
    }
    fs::write(&other, b"of somebody").unwrap();
    let before = contents(folder.path());
    let saves = "holds a session: this one is something else";
    let starts = "of a warm start: this one is something else";
    for (option, path, words) in [
        ("--save-session", &other, saves),
        ("--save-session", &warm, saves),
        ("--warm-start", &other, starts),
        ("--warm-start", &session, starts),
    ] {
        refused(&[option, path], &format!("{option} = {path}: expected"));
        refused(&[option, path], words);
    }
    refused(&["--warm-start-or-cold", "--warm-start", &other], starts);
    let text = talk(&[], &format!("Hi\n/save {other}\n/save {warm}\n/save {session}\n"));
    assert_eq!(text.matches(saves).count(), 2, "{text}");
    assert!(text.contains("2 messages in"), "{text}");
    assert_ne!(fs::read(&session).unwrap(), before[1].1, "replaced");
    fs::write(&session, &before[1].1).unwrap();
    assert_eq!(contents(folder.path()), before);
}

#[test]
fn places_where_no_file_can_be_are_refused_at_once() {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| utf8(&folder.path().join(name)).to_owned();
    fs::write(at("file"), b"").unwrap();
    let made = std::process::Command::new("mkfifo").arg(at("pipe")).status().unwrap();
    assert!(made.success());
    let places = [
        (at("no/such"), "cannot be written"),
        (at("file/below"), "cannot be written"),
        (at(""), "expected"),
        (at("new/"), "a file, not a folder"),
        (at("pipe"), "a regular file"),
        ("/dev/null".to_owned(), "a regular file"),
        (utf8(folder.path()).to_owned(), "a regular file"),
    ];
    for (place, words) in &places {
        for option in ["--save-session", "--warm-start"] {
            refused(&[option, place], words);
        }
        let text = talk(&[], &format!("/save {place}\n"));
        assert!(text.contains(words), "{place}: {text}");
    }
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 2);
}
