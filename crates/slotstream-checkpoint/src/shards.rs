//! Which files make up a checkpoint.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io::ErrorKind;
use std::path::{Component, Path, PathBuf};

use serde_json::Value;

use crate::CheckpointError;
use crate::json::{self, Fields};

/// The largest index that is read (the real one has 317,973 bytes).
const INDEX_LIMIT: u64 = 32 << 20;
/// As many files as a `FileId` can number.
const SHARD_LIMIT: usize = u16::MAX as usize;
/// Name of the index.
const INDEX_NAME: &str = "model.safetensors.index.json";
/// Name of the draft head's own file, which no index lists.
const DRAFT_NAME: &str = "mtp.safetensors";

/// `model.safetensors.index.json`: which tensors each file holds.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Index {
    /// Tensor names by file name.
    pub files: BTreeMap<String, BTreeSet<String>>,
}

impl Index {
    /// Checks the bytes of an index; `path` is for messages.
    ///
    /// # Errors
    /// Names the entry and what is wrong with it.
    pub fn from_json(path: &Path, bytes: &[u8]) -> Result<Self, CheckpointError> {
        let map = json::parse_object(path, "the index", bytes)?;
        let fields = Fields::new(path, &map);
        let expected = "an object from tensor names to file names";
        let Some(weights) = fields.object("weight_map")? else {
            return Err(fields.missing("weight_map", expected));
        };
        let mut files = BTreeMap::<String, BTreeSet<String>>::new();
        for (tensor, file) in weights.map() {
            let Value::String(file) = file else {
                return Err(weights.bad(tensor, json::show(file), "a file name"));
            };
            if !is_plain_name(file) {
                let (path, tensor, file) = (path.into(), tensor.clone(), file.clone());
                return Err(CheckpointError::ShardName { path, tensor, file });
            }
            files.entry(file.clone()).or_default().insert(tensor.clone());
        }
        if files.is_empty() {
            return Err(fields.bad("weight_map", "empty".to_owned(), expected));
        }
        Ok(Self { files })
    }
}

/// Whether a name stays in its folder on every platform.
fn is_plain_name(name: &str) -> bool {
    let mut parts = Path::new(name).components();
    matches!((parts.next(), parts.next()), (Some(Component::Normal(part)), None) if part == name)
        && !name.contains(['/', '\\', '\0', ':'])
}

/// One file of a checkpoint.
#[derive(Clone, Debug)]
pub(crate) struct Shard {
    pub(crate) path: PathBuf,
    /// The tensors that the index puts here; `None` where no index says.
    pub(crate) indexed: Option<BTreeSet<String>>,
}

/// The files of a checkpoint in the order of their names, and safetensors files that no index
/// names.
pub(crate) struct ShardList {
    pub(crate) shards: Vec<Shard>,
    pub(crate) ignored: Vec<PathBuf>,
}

impl ShardList {
    pub(crate) fn find(folder: &Path) -> Result<Self, CheckpointError> {
        let present = safetensors_names(folder)?;
        let path = folder.join(INDEX_NAME);
        let list = match path.symlink_metadata() {
            Err(e) if e.kind() == ErrorKind::NotFound => Self::without_index(folder, &present)?,
            _ => {
                let index = Index::from_json(&path, &json::read_file(&path, INDEX_LIMIT)?)?;
                Self::with_index(folder, index, &present)?
            }
        };
        let found = list.shards.len();
        if found > SHARD_LIMIT {
            let (folder, limit) = (folder.into(), SHARD_LIMIT);
            return Err(CheckpointError::TooManyShards { folder, found, limit });
        }
        Ok(list)
    }

    fn with_index(
        folder: &Path,
        index: Index,
        present: &BTreeSet<String>,
    ) -> Result<Self, CheckpointError> {
        let total = index.files.len();
        let missing: Vec<_> = index
            .files
            .keys()
            .filter(|name| {
                // A link whose target is gone is a file that was not downloaded, too.
                fs::metadata(folder.join(name)).is_err_and(|e| e.kind() == ErrorKind::NotFound)
            })
            .cloned()
            .collect();
        if !missing.is_empty() {
            return Err(CheckpointError::MissingShards { folder: folder.into(), missing, total });
        }
        let mut ignored = Vec::new();
        let mut files: BTreeMap<_, _> =
            index.files.into_iter().map(|(name, tensors)| (name, Some(tensors))).collect();
        for name in present {
            if files.contains_key(name) {
                continue;
            }
            if name == DRAFT_NAME {
                files.insert(name.clone(), None);
            } else {
                tracing::warn!(file = name, "the index does not name this file: ignored");
                ignored.push(folder.join(name));
            }
        }
        let shards = files
            .into_iter()
            .map(|(name, indexed)| Shard { path: folder.join(name), indexed })
            .collect();
        Ok(Self { shards, ignored })
    }

    fn without_index(folder: &Path, present: &BTreeSet<String>) -> Result<Self, CheckpointError> {
        if present.is_empty() {
            return Err(CheckpointError::NoShards { folder: folder.into() });
        }
        let missing = missing_numbers(present);
        if !missing.is_empty() {
            let total = present.len() + missing.len();
            return Err(CheckpointError::MissingShards { folder: folder.into(), missing, total });
        }
        let shards =
            present.iter().map(|name| Shard { path: folder.join(name), indexed: None }).collect();
        Ok(Self { shards, ignored: Vec::new() })
    }
}

/// Names of the safetensors files in a folder, hidden ones excepted.
/// The file in a model's folder with what was learnt of its routes; it holds no tensor of the model.
pub const SIDECAR_NAME: &str = "lookahead.safetensors";

fn safetensors_names(folder: &Path) -> Result<BTreeSet<String>, CheckpointError> {
    let fail = |e| CheckpointError::io(folder, "list", e);
    let mut names = BTreeSet::new();
    for entry in fs::read_dir(folder).map_err(fail)? {
        let name = entry.map_err(fail)?.file_name();
        if let Some(name) = name.to_str()
            && name.ends_with(".safetensors")
            && !name.starts_with('.')
            // What was learnt of the model is no part of it.
            && name != SIDECAR_NAME
        {
            names.insert(name.to_owned());
        }
    }
    Ok(names)
}

/// Names that are missing from rows of numbered files: `model-00002.safetensors` between 1 and
/// 3, or any number of `model-00001-of-00004.safetensors`.
fn missing_numbers(present: &BTreeSet<String>) -> Vec<String> {
    let mut rows = BTreeMap::<(&str, usize, &str), usize>::new();
    for name in present {
        if let Some((stem, digits, rest)) = numbered(name)
            && let Ok(number) = digits.parse::<usize>()
        {
            let last = rest
                .strip_prefix("-of-")
                .and_then(|rest| rest.strip_suffix(".safetensors")?.parse().ok())
                .unwrap_or(number);
            let highest = rows.entry((stem, digits.len(), rest)).or_default();
            *highest = (*highest).max(last);
        }
    }
    let mut missing = Vec::new();
    for ((stem, width, rest), last) in rows {
        for number in 1..=last.min(SHARD_LIMIT) {
            let name = format!("{stem}{number:0width$}{rest}");
            if !present.contains(&name) {
                missing.push(name);
            }
        }
    }
    missing
}

/// Splits `model-00001….safetensors` into stem, digits and rest.
fn numbered(name: &str) -> Option<(&str, &str, &str)> {
    let start = name.find(|c: char| c.is_ascii_digit())?;
    let len = name[start..].find(|c: char| !c.is_ascii_digit())?;
    let (stem, tail) = name.split_at(start);
    let (digits, rest) = tail.split_at(len);
    let known = rest == ".safetensors" || rest.starts_with("-of-");
    (stem.ends_with('-') && len == 5 && known).then_some((stem, digits, rest))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn set(names: &[&str]) -> BTreeSet<String> {
        names.iter().map(|name| (*name).to_owned()).collect()
    }

    #[test]
    fn plain_names() {
        assert!(is_plain_name("model-00001.safetensors"));
        for name in ["", ".", "..", "/a", "../a", "a/b", "a/", "./a", "a\\b", "c:a", "a\0"] {
            assert!(!is_plain_name(name), "{name:?}");
        }
    }

    #[test]
    fn gaps_in_numbers() {
        let names = set(&["model-00001.safetensors", "model-00003.safetensors"]);
        assert_eq!(missing_numbers(&names), ["model-00002.safetensors"]);
        let names = set(&["model-00002-of-00003.safetensors"]);
        assert_eq!(missing_numbers(&names).len(), 2);
        assert!(missing_numbers(&set(&["model.safetensors", "mtp.safetensors"])).is_empty());
        let names = set(&["x-99999-of-18446744073709551615.safetensors"]);
        assert!(missing_numbers(&names).len() <= SHARD_LIMIT);
    }
}
