//! Containers of another checkpoint, or of one that has changed.

use std::fs;
use std::ops::ControlFlow;
use std::os::unix::fs::FileExt;
use std::path::Path;

use slotstream_checkpoint::Checkpoint;
use slotstream_checkpoint::container::{Container, ContainerError, Progress, Repack};
use slotstream_core::{ErrorKind, ExpertIdx, ExpertKey, LayerIdx};
use slotstream_testkit::checkpoint::{CheckpointSpec, edit, small_config};

use super::{go_on, open, repacked};
use crate::random_fixture;

/// A copy of the fixture with its container beside it.
fn copy() -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    edit::copy_folder(&random_fixture(), folder.path()).unwrap();
    let checkpoint = open(folder.path());
    Repack::new(&checkpoint, folder.path()).run(&mut go_on).unwrap();
    Container::open(folder.path(), &checkpoint).expect("fresh");
    folder
}

/// Whether a repack may replace a stale container without being told to.
#[derive(PartialEq)]
enum Whose {
    /// It is of no use to anybody.
    Nobodys,
    /// It may be another model's.
    Anothers,
}

/// Asserts that the container is refused with these words and the way out, and that the way out
/// is one.
#[track_caller]
fn assert_stale(folder: &Path, whose: &Whose, words: &str) {
    let checkpoint = open(folder);
    let error = Container::open(folder, &checkpoint).expect_err("stale");
    assert!(matches!(error, ContainerError::Stale { .. }), "{error:?}");
    assert_eq!(error.kind(), ErrorKind::User);
    let (text, path) = (error.to_string(), folder.display());
    let flag = if *whose == Whose::Anothers { " --replace`" } else { "`" };
    let remedy = format!("`repack --model {path} --out {path}{flag}");
    for words in [words, &remedy, " is stale: "] {
        assert!(text.contains(words), "{words}: {text}");
    }
    let repack = Repack::new(&checkpoint, folder);
    if *whose == Whose::Anothers {
        let error = repack.clone().run(&mut go_on).expect_err("it may be of use");
        assert_eq!(error.kind(), ErrorKind::User);
        let text = error.to_string();
        assert!(matches!(error, ContainerError::OtherModel { .. }), "{text}");
        for words in ["--replace", "was made from other weights", "this checkpoint has"] {
            assert!(text.contains(words), "{words}: {text}");
        }
        assert!(repack.plan().is_err(), "nor would it be planned");
        assert!(repack.clone().resume(true).run(&mut go_on).is_err(), "nor resumed");
        Container::open(folder, &checkpoint).expect_err("nothing was written");
    }
    let repack = repack.replace(*whose == Whose::Anothers);
    repack.run(&mut go_on).expect("replaced");
    let container = Container::open(folder, &checkpoint).expect("fresh");
    container.verify(&checkpoint, None, &mut go_on).expect("the same");
}

#[test]
fn another_config() {
    let folder = copy();
    edit::edit_json(&folder.path().join("config.json"), |config| {
        config["note"] = "nothing that matters".into();
    })
    .unwrap();
    assert_stale(folder.path(), &Whose::Nobodys, "config.json is another one: expected SHA-256");
}

#[test]
fn another_header() {
    let folder = copy();
    let shard = folder.path().join("model-00002.safetensors");
    edit::edit_header(&shard, |header| {
        header.insert("__metadata__".into(), serde_json::json!({"format": "other"}));
    })
    .unwrap();
    assert_stale(folder.path(), &Whose::Anothers, "model-00002.safetensors has another size");
    // The same size, other words.
    edit::edit_header(&shard, |header| {
        header.insert("__metadata__".into(), serde_json::json!({"format": "OTHER"}));
    })
    .unwrap();
    assert_stale(
        folder.path(),
        &Whose::Anothers,
        "the header of model-00002.safetensors is another one",
    );
}

#[test]
fn another_name() {
    let folder = copy();
    let rename = |from: &str, to: &str| {
        fs::rename(folder.path().join(from), folder.path().join(to)).unwrap();
        let index = folder.path().join("model.safetensors.index.json");
        let text = fs::read_to_string(&index).unwrap().replace(from, to);
        fs::write(index, text).unwrap();
    };
    rename("model-00002.safetensors", "other.safetensors");
    assert_stale(
        folder.path(),
        &Whose::Anothers,
        "it knows other files: expected other.safetensors",
    );
}

#[test]
fn other_weights_in_the_same_shapes() {
    let folder = copy();
    let checkpoint = open(folder.path());
    let key = ExpertKey::new(LayerIdx::new(2), ExpertIdx::new(0));
    let scales = checkpoint.expert_pieces(key).unwrap()[4];
    let path = &checkpoint.files()[scales.file().index()];
    let shard = fs::OpenOptions::new().write(true).open(path).unwrap();
    shard.write_all_at(&[0x12], scales.offset() + 10).unwrap();
    assert_stale(folder.path(), &Whose::Anothers, "the weights are others in the same shapes");
}

/// The same config and headers, other weights.
fn two_models(folder: &Path) -> [Checkpoint; 2] {
    let spec = CheckpointSpec::new(small_config());
    [1, 2].map(|seed| {
        let model = folder.join(seed.to_string());
        spec.write_random(&model, seed).unwrap();
        open(&model)
    })
}

#[test]
fn another_model() {
    let folder = tempfile::tempdir().unwrap();
    let [a, b] = two_models(folder.path());
    let (out, _) = repacked(&a, false);
    // The same config and headers, other weights.
    let text = Container::open(out.path(), &b).expect_err("of another model").to_string();
    assert!(text.contains("the weights are others"), "{text}");
    // Another config.
    let other = open(&random_fixture());
    let text = Container::open(out.path(), &other).expect_err("of another model").to_string();
    assert!(text.contains("config.json is another one"), "{text}");
    for checkpoint in [&b, &other] {
        let error = Repack::new(checkpoint, out.path()).run(&mut go_on).expect_err("a's");
        assert!(matches!(error, ContainerError::OtherModel { .. }), "{error}");
    }
    Container::open(out.path(), &a).expect("as it was");
    Repack::new(&b, out.path()).replace(true).run(&mut go_on).expect("replaced");
    Container::open(out.path(), &b).expect("b's");
}

/// An unfinished file of another model is not written over by going on.
#[test]
fn the_rest_of_another_model() {
    let folder = tempfile::tempdir().unwrap();
    let [a, b] = two_models(folder.path());
    let out = tempfile::tempdir().unwrap();
    let stop = &mut |progress: Progress| match progress.done {
        0 => ControlFlow::Continue(()),
        _ => ControlFlow::Break(()),
    };
    Repack::new(&a, out.path()).step_bytes(1).run(stop).expect_err("stopped");
    let part = out.path().join("experts.slots.part");
    let rest = fs::read(&part).expect("a rest");
    let error = Repack::new(&b, out.path()).resume(true).run(&mut go_on).expect_err("a's");
    assert!(matches!(&error, ContainerError::OtherModel { path, .. } if *path == part), "{error}");
    assert!(fs::read(&part).expect("still there") == rest);
    Repack::new(&b, out.path()).resume(true).replace(true).run(&mut go_on).expect("replaced");
    Container::open(out.path(), &b).expect("b's").verify(&b, None, &mut go_on).expect("whole");
}

#[test]
fn what_nobody_can_read_is_not_replaced() {
    let folder = copy();
    let checkpoint = open(folder.path());
    let path = folder.path().join("experts.slots");
    let good = fs::read(&path).unwrap();
    for (at, byte) in [(0, b'x'), (8, 9)] {
        let mut other = good.clone();
        other[at] = byte;
        fs::write(&path, &other).unwrap();
        let repack = Repack::new(&checkpoint, folder.path());
        let error = repack.clone().run(&mut go_on).expect_err("whose is it?");
        assert!(matches!(error, ContainerError::Foreign { .. }), "{error}");
        assert!(fs::read(&path).unwrap() == other, "as it was");
        repack.replace(true).run(&mut go_on).expect("replaced");
        assert!(fs::read(&path).unwrap() == good);
    }
}

/// Going on writes over nothing but what an earlier run left.
#[test]
fn the_rest_of_something_else() {
    let checkpoint = open(&random_fixture());
    let (whole, _) = repacked(&checkpoint, false);
    let good = fs::read(whole.path().join("experts.slots")).unwrap();
    let mut version = good.clone();
    version[8] = 9;
    let noise: Vec<u8> = (0..40_000_u32).map(|n| ((n * n) >> 7) as u8 | 1).collect();
    for (what, rest) in
        [("text", b"a letter to somebody".to_vec()), ("noise", noise), ("version", version)]
    {
        let out = tempfile::tempdir().unwrap();
        let part = out.path().join("experts.slots.part");
        fs::write(&part, &rest).unwrap();
        let repack = Repack::new(&checkpoint, out.path());
        let resume = repack.clone().resume(true);
        let error = resume.clone().run(&mut go_on).expect_err(what);
        assert!(matches!(&error, ContainerError::Foreign { path, .. } if *path == part), "{error}");
        let told = error.to_string();
        assert!(told.contains("remove it") && told.contains("--replace"), "{told}");
        assert!(resume.plan().is_err() && error.kind() == ErrorKind::User);
        assert!(fs::read(&part).unwrap() == rest && !out.path().join("ngram.rows").exists());
        resume.replace(true).run(&mut go_on).expect("replaced");
        assert!(fs::read(out.path().join("experts.slots")).unwrap() == good);
    }
    // What a run leaves that was cut off before its header was whole.
    let page = 16_384;
    for rest in [vec![], vec![0; page], [&good[..9], &vec![0; page]].concat(), good[..5].to_vec()] {
        let out = tempfile::tempdir().unwrap();
        fs::write(out.path().join("experts.slots.part"), &rest).unwrap();
        Repack::new(&checkpoint, out.path()).resume(true).run(&mut go_on).expect("its own");
        assert!(fs::read(out.path().join("experts.slots")).unwrap() == good);
    }
}

/// A link is as good as the file that it leads to; what is no file is refused before a byte of any
/// file is written, and stays.
#[test]
fn links_and_what_is_no_file() {
    let folder = tempfile::tempdir().unwrap();
    let [a, b] = two_models(folder.path());
    let (out, _) = repacked(&a, false);
    let link = |to: &Path, at: &Path| std::os::unix::fs::symlink(to, at).unwrap();
    let others = tempfile::tempdir().unwrap();
    let path = others.path().join("experts.slots");
    link(&out.path().join("experts.slots"), &path);
    let error = Repack::new(&b, others.path()).run(&mut go_on).expect_err("a's");
    assert!(matches!(error, ContainerError::OtherModel { .. }), "{error}");
    assert!(path.is_symlink() && fs::read_dir(others.path()).unwrap().count() == 1);
    let files = Repack::new(&a, others.path()).run(&mut go_on).expect("a's own");
    assert!(path.is_symlink() && files[0].kept == files[0].bytes, "{files:?}");

    for name in ["experts.slots", "ngram.rows", "experts.slots.part", "ngram.rows.part"] {
        for (what, words) in [
            ("folder", "is a folder"),
            ("socket", "is a socket"),
            ("dangling", if name.ends_with(".part") { "is a link" } else { "leads nowhere" }),
        ] {
            let out = tempfile::tempdir().unwrap();
            let path = out.path().join(name);
            match what {
                "folder" => fs::create_dir(&path).unwrap(),
                "socket" => drop(std::os::unix::net::UnixListener::bind(&path).unwrap()),
                _ => link(&out.path().join("nothing"), &path),
            }
            let repack = Repack::new(&a, out.path());
            let replace = repack.clone().replace(true);
            for repack in [repack.clone(), repack.resume(true), replace] {
                let error = repack.clone().run(&mut go_on).expect_err(what);
                let told = error.to_string();
                assert!(matches!(error, ContainerError::NotAFile { .. }), "{error}");
                assert!(told.contains(words) && told.contains(name), "{told}");
                assert!(told.contains("remove it") && repack.plan().is_err(), "{told}");
                assert_eq!(error.kind(), ErrorKind::User);
                assert_eq!(fs::read_dir(out.path()).unwrap().count(), 1, "{name} {what}");
            }
        }
    }
}

/// Opening does not pass over what has a container's name.
#[test]
fn a_link_that_leads_nowhere_is_no_missing_file() {
    let checkpoint = open(&random_fixture());
    let (out, _) = repacked(&checkpoint, false);
    let path = out.path().join("experts.slots");
    fs::rename(&path, out.path().join("moved")).unwrap();
    let container = Container::open(out.path(), &checkpoint).expect("rows alone");
    assert!(container.experts().is_none() && container.ngram().is_some());
    std::os::unix::fs::symlink("nowhere", &path).unwrap();
    let error = Container::open(out.path(), &checkpoint).expect_err("nowhere");
    assert!(matches!(&error, ContainerError::NotAFile { path: p, .. } if *p == path), "{error}");
    fs::remove_file(out.path().join("ngram.rows")).unwrap();
    assert!(Container::is_in(out.path()), "nor is it looked for elsewhere");
    // One that leads somewhere is as good as the file.
    fs::remove_file(&path).unwrap();
    std::os::unix::fs::symlink("moved", &path).unwrap();
    assert!(Container::open(out.path(), &checkpoint).expect("linked").experts().is_some());
    // Without a byte, it says so, and what helps.
    fs::remove_file(&path).unwrap();
    fs::write(&path, []).unwrap();
    let told = Container::open(out.path(), &checkpoint).expect_err("empty").to_string();
    assert!(told.contains("begins with nothing") && told.contains("repack it"), "{told}");
}

/// A flipped bit of a record: nothing else shows that the file is damaged.
#[test]
fn a_finished_file_is_written_anew_when_told_so() {
    let folder = copy();
    let checkpoint = open(folder.path());
    let path = folder.path().join("experts.slots");
    let good = fs::read(&path).unwrap();
    let mut damaged = good.clone();
    let at = damaged.len() - 20_000;
    damaged[at] ^= 1;
    fs::write(&path, &damaged).unwrap();
    let repack = Repack::new(&checkpoint, folder.path());
    repack.run(&mut go_on).expect("finished already");
    assert!(fs::read(&path).unwrap() == damaged);
    // A run that was cut off goes on, although the damaged file is still there.
    let replace = repack.clone().step_bytes(1).replace(true);
    let stop = &mut |progress: Progress| match progress.done {
        0 => ControlFlow::Continue(()),
        _ => ControlFlow::Break(()),
    };
    replace.run(stop).expect_err("stopped");
    assert!(fs::read(&path).unwrap() == damaged);
    let files = replace.clone().resume(true).run(&mut go_on).expect("replaced");
    assert!(fs::read(&path).unwrap() == good);
    assert!(files[0].kept > 0 && files[0].kept < files[0].bytes, "{files:?}");
    // Without resuming, an unfinished file is begun anew.
    replace.clone().resume(false).run(stop).expect_err("stopped");
    assert!(folder.path().join("experts.slots.part").is_file());
    let files = replace.resume(false).run(&mut go_on).expect("anew");
    assert!(files[0].kept == 0 && fs::read(&path).unwrap() == good, "{files:?}");
}

#[test]
fn a_shard_that_nothing_was_copied_from_does_not_matter() {
    let folder = tempfile::tempdir().unwrap();
    CheckpointSpec::new(small_config()).file_limit(20_000).write_random(folder.path(), 1).unwrap();
    let checkpoint = open(folder.path());
    let (out, container) = repacked(&checkpoint, false);
    let sources = &container.experts().unwrap().source.shards;
    assert!(sources.len() < checkpoint.files().len());
    let used = |name: &str| sources.iter().any(|shard| shard.name == name);
    let free = checkpoint.files().iter().find(|path| {
        let name = path.file_name().unwrap().to_str().unwrap();
        !used(name) && !container.ngram().unwrap().source.shards.iter().any(|s| s.name == name)
    });
    edit::edit_header(free.expect("a shard of dense tensors"), |header| {
        header.insert("__metadata__".into(), serde_json::json!({"format": "other"}));
    })
    .unwrap();
    Container::open(out.path(), &open(folder.path())).expect("as good as before");
}

#[test]
fn one_byte_that_no_sample_sees_is_found_by_verifying() {
    let folder = copy();
    let checkpoint = open(folder.path());
    let container = Container::open(folder.path(), &checkpoint).unwrap();
    let key = checkpoint.geometry().key(5).unwrap();
    let record = container.extent(key).unwrap();
    let piece = container.expert_pieces(key).unwrap()[6];
    let row = container.ngram_row_extent(77).unwrap();
    let end = container.ngram().unwrap().file_len() - 1;
    for (file, offset, words) in [
        (0, piece.offset() + 3, format!("the record {key}, Down Weight: byte")),
        (0, record.end(), format!("padding of the record {key}")),
        (1, row.offset() + 1, "the n-gram row 77: byte".into()),
        (1, end, "the padding at the end".into()),
    ] {
        let path = &container.files()[file];
        let open = fs::OpenOptions::new().read(true).write(true).open(path).unwrap();
        let mut byte = [0];
        open.read_exact_at(&mut byte, offset).unwrap();
        open.write_all_at(&[byte[0] ^ 4], offset).unwrap();
        let error = container.verify(&checkpoint, None, &mut go_on).expect_err("differs");
        assert_eq!(error.kind(), ErrorKind::Corrupt);
        let text = error.to_string();
        assert!(text.contains(&words) && text.contains(&offset.to_string()), "{text}");
        open.write_all_at(&byte, offset).unwrap();
        container.verify(&checkpoint, None, &mut go_on).expect("the same again");
    }
    // Of the source: the first byte of the piece.
    let source = checkpoint.expert_pieces(key).unwrap()[6];
    let path = &checkpoint.files()[source.file().index()];
    let shard = fs::OpenOptions::new().read(true).write(true).open(path).unwrap();
    let mut byte = [0];
    shard.read_exact_at(&mut byte, source.offset()).unwrap();
    shard.write_all_at(&[byte[0] ^ 1], source.offset()).unwrap();
    let text = container.verify(&checkpoint, None, &mut go_on).expect_err("differs").to_string();
    let place = format!("byte {} of {}", source.offset(), path.display());
    assert!(text.contains(&place), "{place}: {text}");
}
