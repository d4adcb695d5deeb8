//! Files that are missing, cut off or something else.

use std::fs;

use slotstream_checkpoint::CheckpointError as E;
use slotstream_testkit::checkpoint::edit;

use super::{FIRST, INDEX, Row, check};

#[test]
fn files() {
    let rows: &[Row] = &[
        (
            "shard cut by 1 KiB",
            |f| edit::cut_off(&f.join(FIRST), 1024).expect("cut"),
            |e| matches!(e, E::Truncated { expected, found, .. } if expected - found == 1024),
            &[FIRST, "download it again"],
        ),
        (
            "shard too long",
            |f| {
                let mut bytes = fs::read(f.join(FIRST)).expect("read");
                bytes.push(0);
                fs::write(f.join(FIRST), bytes).expect("written");
            },
            |e| matches!(e, E::TrailingBytes { .. }),
            &[FIRST],
        ),
        (
            "shards missing",
            |f| {
                fs::remove_file(f.join(FIRST)).expect("removed");
                fs::remove_file(f.join("model-00003.safetensors")).expect("removed");
            },
            |e| matches!(e, E::MissingShards { missing, .. } if missing.len() == 2),
            &["2 of ", FIRST, "model-00003.safetensors", "download them again"],
        ),
        (
            "shard missing without an index",
            |f| {
                fs::remove_file(f.join(INDEX)).expect("removed");
                fs::remove_file(f.join("model-00002.safetensors")).expect("removed");
            },
            |e| matches!(e, E::MissingShards { missing, .. } if missing.len() == 1),
            &["1 of ", "model-00002.safetensors"],
        ),
        (
            "shard is a folder",
            |f| {
                fs::remove_file(f.join(FIRST)).expect("removed");
                fs::create_dir(f.join(FIRST)).expect("made");
            },
            |e| matches!(e, E::FileType { .. }),
            &[FIRST, "a folder"],
        ),
        (
            "a folder named like a shard, no index",
            |f| {
                fs::remove_file(f.join(INDEX)).expect("removed");
                fs::create_dir(f.join("other.safetensors")).expect("made");
            },
            |e| matches!(e, E::FileType { .. }),
            &["other.safetensors", "a folder"],
        ),
        (
            "a loop of links",
            |f| {
                fs::remove_file(f.join(FIRST)).expect("removed");
                std::os::unix::fs::symlink(f.join(FIRST), f.join(FIRST)).expect("linked");
            },
            |e| matches!(e, E::Io { .. }),
            &[FIRST, "symbolic links"],
        ),
        (
            "a link to nowhere",
            |f| {
                fs::remove_file(f.join(FIRST)).expect("removed");
                std::os::unix::fs::symlink("/nowhere/at/all", f.join(FIRST)).expect("linked");
            },
            |e| matches!(e, E::MissingShards { .. }),
            &[FIRST],
        ),
        (
            "a socket in place of the config",
            |f| {
                fs::remove_file(f.join("config.json")).expect("removed");
                std::os::unix::net::UnixListener::bind(f.join("config.json")).expect("bound");
            },
            |e| matches!(e, E::FileType { .. }),
            &["config.json", "neither"],
        ),
        (
            "an empty folder",
            |f| {
                fs::remove_dir_all(f).expect("removed");
                fs::create_dir(f).expect("made");
            },
            |e| matches!(e, E::NoConfig { .. }),
            &["config.json"],
        ),
        (
            "only a config",
            |f| {
                let config = fs::read(f.join("config.json")).expect("read");
                fs::remove_dir_all(f).expect("removed");
                fs::create_dir(f).expect("made");
                fs::write(f.join("config.json"), config).expect("written");
            },
            |e| matches!(e, E::NoShards { .. }),
            &["no *.safetensors"],
        ),
        (
            "no folder",
            |f| fs::remove_dir_all(f).expect("removed"),
            |e| matches!(e, E::Io { .. }),
            &["model", "No such file"],
        ),
        (
            "a file in place of the folder",
            |f| {
                fs::remove_dir_all(f).expect("removed");
                fs::write(f, b"x").expect("written");
            },
            |e| matches!(e, E::FileType { .. }),
            &["expected a folder"],
        ),
        (
            "a huge config",
            |f| {
                let file = fs::File::create(f.join("config.json")).expect("made");
                file.set_len(1 << 40).expect("sized");
            },
            |e| matches!(e, E::FileTooLarge { .. }),
            &["config.json", "limit"],
        ),
    ];
    rows.iter().for_each(check);
}
