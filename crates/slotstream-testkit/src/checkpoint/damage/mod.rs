//! Damaged checkpoints: what is done to a good folder, and what a reader must say of it.
//!
//! [`write_good`] writes a small folder that holds everything: config, generation config, index,
//! shards, tokenizer, template. Each [`Damage`] of [`all`] breaks it in one way. A reader of
//! checkpoints passes when it refuses every one with an error of that kind whose text, causes
//! included, has those words.
//!
//! ```
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! use slotstream_testkit::checkpoint::damage;
//!
//! let parent = tempfile::tempdir()?;
//! let folder = parent.path().join("model");
//! damage::write_good(&folder)?;
//! let cut = damage::all().find(|damage| damage.name() == "shard cut by 1 KiB").unwrap();
//! cut.apply(&folder)?;
//! let error = slotstream_checkpoint::Checkpoint::open(&folder).unwrap_err();
//! assert!(cut.is_checkpoint_error(&error) && error.kind() == cut.kind());
//! assert!(cut.says().iter().all(|words| error.to_string().contains(words)));
//! # Ok(())
//! # }
//! ```

mod configs;
mod files;
mod headers;
mod payload;
mod tensors;
mod texts;

use std::path::{Path, PathBuf};
use std::{fs, io};

use serde_json::{Map, Value, json};
use slotstream_checkpoint::CheckpointError;
use slotstream_core::ErrorKind;

use super::{CheckpointSpec, WriteError, edit, small_config};

/// What a damage leaves to be done by its caller: nothing, or why it could not be done.
type Broken = Result<(), WriteError>;

/// Name, kind of the error, what is done, what the checkpoint's error is, what its text says.
type Row = (
    &'static str,
    ErrorKind,
    fn(&Path) -> Broken,
    fn(&CheckpointError) -> bool,
    &'static [&'static str],
);

/// Name, kind of the error, what is done, and what the error's text says.
type TextRow = (&'static str, ErrorKind, fn(&Path) -> Broken, &'static [&'static str]);

/// Who finds a damage.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Found {
    /// Opening the checkpoint: config, index and headers.
    Opening,
    /// The checks that read a few bytes of payload: norms and constants of the n-gram hash.
    Payload,
    /// Looking at every scale, bias and float of the files.
    Values,
    /// Loading the tokenizer or the chat template.
    Text,
}

/// One way to break a good folder.
#[derive(Clone, Copy, Debug)]
pub struct Damage {
    name: &'static str,
    kind: ErrorKind,
    found: Found,
    apply: fn(&Path) -> Broken,
    is: Option<fn(&CheckpointError) -> bool>,
    says: &'static [&'static str],
}

impl Damage {
    /// What it is, in words; no two have the same name.
    #[must_use]
    pub const fn name(&self) -> &'static str {
        self.name
    }

    /// The kind of the error that it must give.
    #[must_use]
    pub const fn kind(&self) -> ErrorKind {
        self.kind
    }

    /// Who finds it.
    #[must_use]
    pub const fn found(&self) -> Found {
        self.found
    }

    /// What the error's text, with its causes, must contain: file, cause, and the remedy where
    /// there is one.
    #[must_use]
    pub const fn says(&self) -> &'static [&'static str] {
        self.says
    }

    /// Breaks a folder that [`write_good`] wrote.
    ///
    /// # Errors
    /// [`WriteError`] when the folder is another one, or the system refuses.
    pub fn apply(&self, folder: &Path) -> Result<(), WriteError> {
        (self.apply)(folder)
    }

    /// Whether this is the error that it must give; false for a damage of the text's files, whose
    /// errors are not the checkpoint's.
    #[must_use]
    pub fn is_checkpoint_error(&self, error: &CheckpointError) -> bool {
        self.is.is_some_and(|is| is(error))
    }
}

/// Every damage.
pub fn all() -> impl Iterator<Item = Damage> {
    let opening = [configs::CONFIGS, files::FILES, headers::HEADERS];
    let opening = opening.into_iter().chain([tensors::INDICES, tensors::TENSORS]);
    let rows = opening.flatten().map(|row| (row, Found::Opening));
    let rows = rows
        .chain(payload::PAYLOAD.iter().map(|row| (row, Found::Payload)))
        .chain(payload::VALUES.iter().map(|row| (row, Found::Values)));
    let rows = rows.map(|((name, kind, apply, is, says), found)| Damage {
        name,
        kind: *kind,
        found,
        apply: *apply,
        is: Some(*is),
        says,
    });
    rows.chain(texts::TEXTS.iter().map(|(name, kind, apply, says)| Damage {
        name,
        kind: *kind,
        found: Found::Text,
        apply: *apply,
        is: None,
        says,
    }))
}

/// Writes the good folder: four layers, several shards whose payload is a hole, an index, and
/// everything that text needs.
///
/// # Errors
/// [`WriteError::Io`].
pub fn write_good(folder: &Path) -> Result<(), WriteError> {
    CheckpointSpec::new(small_config())
        .generation(json!({ "eos_token_id": END }))
        .file_limit(400_000)
        .write_sparse(folder)?;
    texts::write(folder)
}

/// Name of the index.
const INDEX: &str = "model.safetensors.index.json";
/// Name of the first shard.
const FIRST: &str = "model-00001.safetensors";
/// A tensor of 32 values.
const NORM: &str = "language_model.model.layers.0.linear_attn.norm.weight";
/// A matrix that is not quantized.
const ROUTER: &str = "language_model.model.layers.0.mlp.gate.weight";
/// The token that ends a text.
const END: u32 = 96;

fn io<T>(path: &Path, action: &'static str, result: io::Result<T>) -> Result<T, WriteError> {
    result.map_err(|source| WriteError::io(path, action, source))
}

fn get(path: &Path) -> Result<Vec<u8>, WriteError> {
    io(path, "read", fs::read(path))
}

fn put(path: &Path, bytes: impl AsRef<[u8]>) -> Broken {
    io(path, "write", fs::write(path, bytes))
}

fn remove(path: &Path) -> Broken {
    io(path, "remove", fs::remove_file(path))
}

fn remove_all(path: &Path) -> Broken {
    io(path, "remove", fs::remove_dir_all(path))
}

fn make_folder(path: &Path) -> Broken {
    io(path, "create", fs::create_dir(path))
}

/// Puts a symbolic link in place of a file.
fn link(path: &Path, target: &Path) -> Broken {
    remove(path)?;
    io(path, "link", std::os::unix::fs::symlink(target, path))
}

/// Puts a socket in place of a file.
fn socket(path: &Path) -> Broken {
    remove(path)?;
    io(path, "bind", std::os::unix::net::UnixListener::bind(path)).map(drop)
}

/// Makes a file this long, with a hole.
fn stretch(path: &Path, len: u64) -> Broken {
    let file = io(path, "open", fs::OpenOptions::new().write(true).open(path))?;
    io(path, "stretch", file.set_len(len))
}

fn config(folder: &Path, edit: impl FnOnce(&mut Value)) -> Broken {
    edit::edit_json(&folder.join("config.json"), edit)
}

/// Sets a field of the text model.
fn text(folder: &Path, field: &str, value: Value) -> Broken {
    config(folder, |config| config["text_config"][field] = value)
}

/// Changes both quantization blocks alike.
fn quantization(folder: &Path, edit: impl FnOnce(&mut Value)) -> Broken {
    config(folder, |config| {
        edit(&mut config["quantization"]);
        config["quantization_config"] = config["quantization"].clone();
    })
}

fn index(folder: &Path, edit: impl FnOnce(&mut Map<String, Value>)) -> Broken {
    edit::edit_json(&folder.join(INDEX), |value| {
        if let Some(map) = value["weight_map"].as_object_mut() {
            edit(map);
        }
    })
}

/// The file that holds a tensor.
fn file_of(folder: &Path, tensor: &str) -> Result<PathBuf, WriteError> {
    let path = folder.join(INDEX);
    let value: Value =
        serde_json::from_slice(&get(&path)?).map_err(|e| WriteError::json(&path, e))?;
    match value["weight_map"][tensor].as_str() {
        Some(name) => Ok(folder.join(name)),
        None => Err(WriteError::nothing(&path, tensor)),
    }
}

/// Changes one tensor's entry of a header.
fn entry(folder: &Path, tensor: &str, edit: impl FnOnce(&mut Value)) -> Broken {
    edit::edit_header(&file_of(folder, tensor)?, |header| {
        if let Some(entry) = header.get_mut(tensor) {
            edit(entry);
        }
    })
}

/// Renames a tensor in its file and in the index.
fn rename(folder: &Path, from: &str, to: &str) -> Broken {
    let change = |map: &mut Map<String, Value>| {
        if let Some(value) = map.remove(from) {
            map.insert(to.to_owned(), value);
        }
    };
    edit::edit_header(&file_of(folder, from)?, change)?;
    index(folder, change)
}

/// Puts other bytes in place of the first shard's header.
fn header(folder: &Path, bytes: &[u8]) -> Broken {
    edit::replace_header(&folder.join(FIRST), bytes)
}

/// 200,000 opening brackets after some text.
fn brackets(before: &str) -> Vec<u8> {
    [before.as_bytes(), &[b'['; 200_000]].concat()
}
