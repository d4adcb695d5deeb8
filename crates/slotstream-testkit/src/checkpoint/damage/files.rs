//! Files that are missing, cut off or something else.

use std::path::Path;

use crate::checkpoint::edit;
use slotstream_checkpoint::CheckpointError as E;
use slotstream_core::ErrorKind::{Corrupt, User};

use super::{FIRST, INDEX, Row, get, link, make_folder, put, remove, remove_all, socket, stretch};

pub(super) const FILES: &[Row] = &[
    (
        "shard cut by 1 KiB",
        Corrupt,
        |f| edit::cut_off(&f.join(FIRST), 1024),
        |e| matches!(e, E::Truncated { expected, found, .. } if expected - found == 1024),
        &[FIRST, "download it again"],
    ),
    (
        "shard too long",
        Corrupt,
        |f| {
            let mut bytes = get(&f.join(FIRST))?;
            bytes.push(0);
            put(&f.join(FIRST), bytes)
        },
        |e| matches!(e, E::TrailingBytes { .. }),
        &[FIRST],
    ),
    (
        "shards missing",
        Corrupt,
        |f| {
            remove(&f.join(FIRST))?;
            remove(&f.join("model-00003.safetensors"))
        },
        |e| matches!(e, E::MissingShards { missing, .. } if missing.len() == 2),
        &["2 of ", FIRST, "model-00003.safetensors", "download them again"],
    ),
    (
        "shard missing without an index",
        Corrupt,
        |f| {
            remove(&f.join(INDEX))?;
            remove(&f.join("model-00002.safetensors"))
        },
        |e| matches!(e, E::MissingShards { missing, .. } if missing.len() == 1),
        &["1 of ", "model-00002.safetensors"],
    ),
    (
        "shard is a folder",
        User,
        |f| {
            remove(&f.join(FIRST))?;
            make_folder(&f.join(FIRST))
        },
        |e| matches!(e, E::FileType { .. }),
        &[FIRST, "a folder"],
    ),
    (
        "a folder named like a shard, no index",
        User,
        |f| {
            remove(&f.join(INDEX))?;
            make_folder(&f.join("other.safetensors"))
        },
        |e| matches!(e, E::FileType { .. }),
        &["other.safetensors", "a folder"],
    ),
    (
        "a loop of links",
        Corrupt,
        |f| link(&f.join(FIRST), &f.join(FIRST)),
        |e| matches!(e, E::LinkLoop { .. }),
        &[FIRST, "a loop of symbolic links", "download"],
    ),
    (
        "config is a loop of two links",
        Corrupt,
        |f| {
            link(&f.join("config.json"), Path::new("other"))?;
            put(&f.join("other"), b"")?;
            link(&f.join("other"), Path::new("config.json"))
        },
        |e| matches!(e, E::LinkLoop { .. }),
        &["config.json", "a loop of symbolic links"],
    ),
    (
        "index is a folder",
        User,
        |f| {
            remove(&f.join(INDEX))?;
            make_folder(&f.join(INDEX))
        },
        |e| matches!(e, E::FileType { .. }),
        &[INDEX, "a folder"],
    ),
    (
        "a link to nowhere",
        Corrupt,
        |f| link(&f.join(FIRST), Path::new("/nowhere/at/all")),
        |e| matches!(e, E::MissingShards { .. }),
        &[FIRST],
    ),
    (
        "a socket in place of the config",
        User,
        |f| socket(&f.join("config.json")),
        |e| matches!(e, E::FileType { .. }),
        &["config.json", "neither"],
    ),
    (
        "an empty folder",
        User,
        |f| {
            remove_all(f)?;
            make_folder(f)
        },
        |e| matches!(e, E::NoConfig { .. }),
        &["config.json"],
    ),
    (
        "only a config",
        User,
        |f| {
            let config = get(&f.join("config.json"))?;
            remove_all(f)?;
            make_folder(f)?;
            put(&f.join("config.json"), config)
        },
        |e| matches!(e, E::NoShards { .. }),
        &["no *.safetensors"],
    ),
    (
        "no folder",
        User,
        |f| remove_all(f),
        |e| matches!(e, E::Io { .. }),
        &["model", "No such file"],
    ),
    (
        "a file in place of the folder",
        User,
        |f| {
            remove_all(f)?;
            put(f, b"x")
        },
        |e| matches!(e, E::FileType { .. }),
        &["expected a folder"],
    ),
    (
        "a huge config",
        Corrupt,
        |f| stretch(&f.join("config.json"), 1 << 40),
        |e| matches!(e, E::FileTooLarge { .. }),
        &["config.json", "limit"],
    ),
];
