//! JSON with typed errors: no duplicate keys, bounded nesting, checked field access.

use std::cell::RefCell;
use std::fmt;
use std::fs::{self, File};
use std::io::Read;
use std::ops::RangeInclusive;
use std::path::Path;

use serde::de::{DeserializeSeed, Error as _, MapAccess, SeqAccess, Visitor};
use serde_json::{Map, Value};

use crate::CheckpointError;

/// Reads a whole JSON file of at most `limit` bytes. Only regular files (or links to them) are
/// opened, so that a pipe cannot block.
pub(crate) fn read_file(path: &Path, limit: u64) -> Result<Vec<u8>, CheckpointError> {
    let found = regular_file_len(path)?;
    if found > limit {
        return Err(CheckpointError::FileTooLarge { path: path.into(), found, limit });
    }
    let file = File::open(path).map_err(|e| CheckpointError::io(path, "open", e))?;
    let mut bytes = Vec::new();
    file.take(limit).read_to_end(&mut bytes).map_err(|e| CheckpointError::io(path, "read", e))?;
    Ok(bytes)
}

/// What the system knows of a file or folder; links are followed.
pub(crate) fn metadata(path: &Path) -> Result<fs::Metadata, CheckpointError> {
    fs::metadata(path).map_err(|e| match is_link_loop(path) {
        true => CheckpointError::LinkLoop { path: path.into() },
        false => CheckpointError::io(path, "open", e),
    })
}

/// Whether a path is a symbolic link that leads back to itself, directly or through others.
#[must_use]
pub fn is_link_loop(path: &Path) -> bool {
    // Systems give up after 40 links or fewer.
    let mut at = path.to_path_buf();
    for _ in 0..=40 {
        match (fs::read_link(&at), at.parent()) {
            (Ok(target), Some(folder)) => at = folder.join(target),
            _ => return false,
        }
    }
    true
}

/// The size of a regular file; links are followed.
pub(crate) fn regular_file_len(path: &Path) -> Result<u64, CheckpointError> {
    let meta = metadata(path)?;
    if meta.is_file() {
        return Ok(meta.len());
    }
    let found = if meta.is_dir() { "a folder" } else { "neither a file nor a folder" };
    Err(CheckpointError::FileType { path: path.into(), expected: "a file", found })
}

/// Checks that `bytes` are UTF-8.
pub(crate) fn utf8<'a>(
    path: &Path,
    part: &'static str,
    bytes: &'a [u8],
) -> Result<&'a str, CheckpointError> {
    std::str::from_utf8(bytes).map_err(|e| CheckpointError::Utf8 {
        path: path.into(),
        part,
        offset: e.valid_up_to(),
    })
}

/// The typed form of a parser's error.
pub(crate) fn json_error(path: &Path, part: String, error: &serde_json::Error) -> CheckpointError {
    let (line, column) = (error.line(), error.column());
    let text = error.to_string();
    let reason = match text.rfind(" at line ") {
        Some(at) => text[..at].to_owned(),
        None => text,
    };
    CheckpointError::Json { path: path.into(), part, line, column, reason }
}

/// Parses a value. A key that appears twice, at any depth, is an error.
fn parse(path: &Path, part: &'static str, bytes: &[u8]) -> Result<Value, CheckpointError> {
    let text = utf8(path, part, bytes)?;
    let duplicate = RefCell::new(None);
    let mut parser = serde_json::Deserializer::from_str(text);
    let result = Strict { duplicate: &duplicate }.deserialize(&mut parser);
    let result = result.and_then(|value| parser.end().map(|()| value));
    if let Some(key) = duplicate.into_inner() {
        return Err(CheckpointError::DuplicateKey { path: path.into(), part, key });
    }
    result.map_err(|e| json_error(path, part.to_owned(), &e))
}

/// Parses an object. A key that appears twice, at any depth, is an error.
pub(crate) fn parse_object(
    path: &Path,
    part: &'static str,
    bytes: &[u8],
) -> Result<Map<String, Value>, CheckpointError> {
    match parse(path, part, bytes)? {
        Value::Object(map) => Ok(map),
        other => Err(CheckpointError::Field {
            path: path.into(),
            field: part.to_owned(),
            found: show(&other),
            expected: "an object".to_owned(),
        }),
    }
}

/// Checks that bytes are one JSON value: UTF-8, nested at most 128 deep, and no object with a key
/// twice. `path` and `part`, such as "the tokenizer", are for messages. For files that another
/// library then reads.
///
/// # Errors
/// [`CheckpointError::Utf8`], [`CheckpointError::Json`] with line and column,
/// [`CheckpointError::DuplicateKey`].
pub fn check_json(path: &Path, part: &'static str, bytes: &[u8]) -> Result<(), CheckpointError> {
    parse(path, part, bytes).map(drop)
}

/// A JSON value whose objects have no key twice.
struct Strict<'a> {
    duplicate: &'a RefCell<Option<String>>,
}

impl<'de> DeserializeSeed<'de> for Strict<'_> {
    type Value = Value;

    fn deserialize<D: serde::Deserializer<'de>>(self, deserializer: D) -> Result<Value, D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Strict<'_> {
    type Value = Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a JSON value")
    }

    fn visit_unit<E>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_bool<E>(self, value: bool) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_i64<E>(self, value: i64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_u64<E>(self, value: u64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_f64<E>(self, value: f64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_str<E>(self, value: &str) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_string<E>(self, value: String) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Value, A::Error> {
        let mut list = Vec::new();
        while let Some(value) = seq.next_element_seed(Strict { duplicate: self.duplicate })? {
            list.push(value);
        }
        Ok(Value::Array(list))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut entries: A) -> Result<Value, A::Error> {
        let mut map = Map::new();
        while let Some(key) = entries.next_key::<String>()? {
            if map.contains_key(&key) {
                *self.duplicate.borrow_mut() = Some(key);
                return Err(A::Error::custom("duplicate key"));
            }
            let value = entries.next_value_seed(Strict { duplicate: self.duplicate })?;
            map.insert(key, value);
        }
        Ok(Value::Object(map))
    }
}

/// A value as text, shortened.
pub(crate) fn show(value: &Value) -> String {
    let kind = match value {
        Value::Object(map) => return format!("an object with {} fields", map.len()),
        Value::Array(list) if list.len() > 8 => return format!("a list of {} items", list.len()),
        other => other.to_string(),
    };
    match kind.char_indices().nth(80) {
        Some((at, _)) => format!("{}...", &kind[..at]),
        None => kind,
    }
}

/// The fields of one object of a file; errors name file, field, value and expectation.
#[derive(Clone, Debug)]
pub(crate) struct Fields<'a> {
    path: &'a Path,
    prefix: String,
    map: &'a Map<String, Value>,
}

impl<'a> Fields<'a> {
    pub(crate) fn new(path: &'a Path, map: &'a Map<String, Value>) -> Self {
        Self { path, prefix: String::new(), map }
    }

    pub(crate) const fn path(&self) -> &'a Path {
        self.path
    }

    pub(crate) const fn map(&self) -> &'a Map<String, Value> {
        self.map
    }

    /// The dotted name of a field.
    pub(crate) fn full(&self, name: &str) -> String {
        format!("{}{name}", self.prefix)
    }

    /// A field; `null` counts as absent.
    pub(crate) fn get(&self, name: &str) -> Option<&'a Value> {
        self.map.get(name).filter(|value| !value.is_null())
    }

    pub(crate) fn bad(
        &self,
        name: &str,
        found: String,
        expected: impl Into<String>,
    ) -> CheckpointError {
        let (path, field) = (self.path.into(), self.full(name));
        CheckpointError::Field { path, field, found, expected: expected.into() }
    }

    fn wrong(&self, name: &str, value: &Value, expected: impl Into<String>) -> CheckpointError {
        self.bad(name, show(value), expected)
    }

    pub(crate) fn missing(&self, name: &str, expected: impl Into<String>) -> CheckpointError {
        let (path, field) = (self.path.into(), self.full(name));
        CheckpointError::MissingField { path, field, expected: expected.into() }
    }

    /// The fields of a nested object, when it is there.
    pub(crate) fn object(&self, name: &str) -> Result<Option<Fields<'a>>, CheckpointError> {
        match self.get(name) {
            None => Ok(None),
            Some(Value::Object(map)) => {
                Ok(Some(Fields { path: self.path, prefix: self.full(name) + ".", map }))
            }
            Some(other) => Err(self.wrong(name, other, "an object")),
        }
    }

    /// A whole number in a range, when it is there.
    pub(crate) fn opt_uint(
        &self,
        name: &str,
        range: &RangeInclusive<u64>,
    ) -> Result<Option<u64>, CheckpointError> {
        let Some(value) = self.get(name) else { return Ok(None) };
        match value.as_u64() {
            Some(number) if range.contains(&number) => Ok(Some(number)),
            _ => Err(self.wrong(name, value, uint_range(range))),
        }
    }

    /// A whole number in a range.
    pub(crate) fn uint(
        &self,
        name: &str,
        range: RangeInclusive<u64>,
    ) -> Result<u64, CheckpointError> {
        self.opt_uint(name, &range)?.ok_or_else(|| self.missing(name, uint_range(&range)))
    }

    /// A whole number from 1 to `max`, as a size.
    pub(crate) fn size(&self, name: &str, max: usize) -> Result<usize, CheckpointError> {
        let number = self.uint(name, 1..=max as u64)?;
        usize::try_from(number).map_err(|_| self.bad(name, number.to_string(), "a smaller number"))
    }

    /// A finite number within bounds, when it is there.
    pub(crate) fn opt_float(
        &self,
        name: &str,
        range: &RangeInclusive<f64>,
    ) -> Result<Option<f64>, CheckpointError> {
        let Some(value) = self.get(name) else { return Ok(None) };
        match value.as_f64() {
            Some(number) if range.contains(&number) => Ok(Some(number)),
            _ => {
                let (low, high) = (range.start(), range.end());
                Err(self.wrong(name, value, format!("a number from {low} to {high}")))
            }
        }
    }

    /// A truth value.
    pub(crate) fn bool_or(&self, name: &str, default: bool) -> Result<bool, CheckpointError> {
        match self.get(name) {
            None => Ok(default),
            Some(Value::Bool(value)) => Ok(*value),
            Some(other) => Err(self.wrong(name, other, "true or false")),
        }
    }

    /// A text, when it is there.
    pub(crate) fn opt_str(&self, name: &str) -> Result<Option<&'a str>, CheckpointError> {
        match self.get(name) {
            None => Ok(None),
            Some(Value::String(text)) => Ok(Some(text)),
            Some(other) => Err(self.wrong(name, other, "a text")),
        }
    }

    /// A list, when it is there.
    pub(crate) fn opt_list(&self, name: &str) -> Result<Option<&'a [Value]>, CheckpointError> {
        match self.get(name) {
            None => Ok(None),
            Some(Value::Array(list)) => Ok(Some(list)),
            Some(other) => Err(self.wrong(name, other, "a list")),
        }
    }

    /// One token id or a list of at most 64, each below `vocab`; empty when absent.
    pub(crate) fn tokens(&self, name: &str, vocab: u64) -> Result<Vec<u32>, CheckpointError> {
        let one;
        let list = match self.get(name) {
            None => return Ok(Vec::new()),
            Some(Value::Array(list)) => list.as_slice(),
            Some(other) => {
                one = [other.clone()];
                &one
            }
        };
        let expected = || format!("a token id below {vocab}, or a list of at most 64");
        if list.len() > 64 {
            return Err(self.bad(name, format!("a list of {} items", list.len()), expected()));
        }
        list.iter()
            .map(|value| match value.as_u64() {
                Some(id) if id < vocab => {
                    u32::try_from(id).map_err(|_| self.wrong(name, value, expected()))
                }
                _ => Err(self.wrong(name, value, expected())),
            })
            .collect()
    }
}

fn uint_range(range: &RangeInclusive<u64>) -> String {
    format!("a whole number from {} to {}", range.start(), range.end())
}
