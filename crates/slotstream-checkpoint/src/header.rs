//! The header of a safetensors file.
//!
//! Eight bytes of little-endian length, then JSON of that length, then the data. The data of all
//! tensors must fill the rest of the file exactly, as the format demands: no overlap, no gap, no
//! trailing bytes. A file that breaks this is not the one that its header describes. The data may
//! start at an odd offset.

use std::cell::RefCell;
use std::fmt;
use std::fs::File;
use std::io::Read;
use std::path::Path;

use serde::de::{DeserializeSeed, Error as _, IgnoredAny, MapAccess, SeqAccess, Visitor};

use crate::json::{json_error, regular_file_len, utf8};
use crate::{CheckpointError, Dtype};

/// The longest header that the format allows.
const HEADER_LIMIT: u64 = 100_000_000;
/// More tensors than any real shard has by two orders of magnitude.
const TENSOR_LIMIT: usize = 1 << 18;
/// More dimensions than any tensor has.
const RANK_LIMIT: usize = 8;

/// One tensor as a header describes it.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct HeaderTensor {
    /// The name, as written.
    pub name: String,
    /// Type of a value.
    pub dtype: Dtype,
    /// Dimensions.
    pub shape: Vec<u64>,
    /// First byte in the data area.
    pub begin: u64,
    /// One past the last byte in the data area.
    pub end: u64,
}

/// A checked header.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Header {
    /// The tensors in the order of their data.
    pub tensors: Vec<HeaderTensor>,
    /// Where the data area starts in the file.
    pub data_start: u64,
    /// Size of the file.
    pub file_len: u64,
}

impl Header {
    /// Reads the header of a file and nothing else.
    ///
    /// # Errors
    /// Names the file and what is wrong with it.
    pub fn read(path: &Path) -> Result<Self, CheckpointError> {
        let found = regular_file_len(path)?;
        if found < 10 {
            return Err(CheckpointError::NoHeader { path: path.into(), found });
        }
        let mut file = File::open(path).map_err(|e| CheckpointError::io(path, "open", e))?;
        let fail = |e| CheckpointError::io(path, "read the header of", e);
        let mut length = [0; 8];
        file.read_exact(&mut length).map_err(fail)?;
        let (length, available) = (u64::from_le_bytes(length), found - 8);
        if !(2..=HEADER_LIMIT.min(available)).contains(&length) {
            let (path, limit) = (path.into(), HEADER_LIMIT);
            return Err(CheckpointError::HeaderLength { path, length, available, limit });
        }
        // The length is checked against the file and the cap. The first byte decides whether
        // the rest is worth reading.
        let mut json = vec![0; 1];
        file.read_exact(&mut json).map_err(fail)?;
        if json[0] == b'{' {
            file.take(length - 1).read_to_end(&mut json).map_err(fail)?;
        }
        if json[0] == b'{' && json.len() as u64 != length {
            return Err(fail(std::io::ErrorKind::UnexpectedEof.into()));
        }
        let mut header = Self::from_json(path, &json, available - length)?;
        header.data_start = 8 + length;
        header.file_len = found;
        Ok(header)
    }

    /// Checks the JSON of a header whose file has `data_len` bytes after it; `path` is for
    /// messages.
    ///
    /// # Errors
    /// Names the tensor and what is wrong with it.
    pub fn from_json(path: &Path, json: &[u8], data_len: u64) -> Result<Self, CheckpointError> {
        let text = utf8(path, "the header", json)?;
        let sink = Sink { path, tensors: Vec::new(), fault: None, at: None };
        let sink = RefCell::new(sink);
        let mut parser = serde_json::Deserializer::from_str(text);
        let result = HeaderSeed { sink: &sink }.deserialize(&mut parser);
        let result = result.and_then(|()| parser.end());
        let Sink { mut tensors, fault, at, .. } = sink.into_inner();
        if let Some(fault) = fault {
            return Err(fault);
        }
        if let Err(error) = result {
            let part = match at {
                Some(name) => format!("the header at tensor `{name}`"),
                None => "the header".to_owned(),
            };
            return Err(json_error(path, part, &error));
        }
        tensors.sort_by_key(|tensor| (tensor.begin, tensor.end));
        check_duplicates(path, &tensors)?;
        let data_start = 8 + json.len() as u64;
        let header = Self { tensors, data_start, file_len: data_start.saturating_add(data_len) };
        header.check_placement(path)?;
        Ok(header)
    }

    /// The data must follow each other without overlap or gap and end with the file.
    fn check_placement(&self, path: &Path) -> Result<(), CheckpointError> {
        let (mut expected, mut previous) = (0, "");
        for tensor in &self.tensors {
            if tensor.begin != expected {
                return Err(CheckpointError::TensorPlacement {
                    path: path.into(),
                    tensor: tensor.name.clone(),
                    previous: previous.to_owned(),
                    expected,
                    found: tensor.begin,
                });
            }
            (expected, previous) = (tensor.end, &tensor.name);
        }
        let (expected, found) = (self.data_start.saturating_add(expected), self.file_len);
        match expected.cmp(&found) {
            std::cmp::Ordering::Greater => {
                Err(CheckpointError::Truncated { path: path.into(), expected, found })
            }
            std::cmp::Ordering::Less => {
                Err(CheckpointError::TrailingBytes { path: path.into(), expected, found })
            }
            std::cmp::Ordering::Equal => Ok(()),
        }
    }
}

fn check_duplicates(path: &Path, tensors: &[HeaderTensor]) -> Result<(), CheckpointError> {
    let mut names: Vec<&str> = tensors.iter().map(|t| t.name.as_str()).collect();
    names.sort_unstable();
    match names.windows(2).find(|pair| pair[0] == pair[1]) {
        None => Ok(()),
        Some(pair) => Err(CheckpointError::DuplicateKey {
            path: path.into(),
            part: "the header",
            key: pair[0].to_owned(),
        }),
    }
}

/// Collects what the visitors find; the typed fault survives the parser's own error type.
struct Sink<'a> {
    path: &'a Path,
    tensors: Vec<HeaderTensor>,
    fault: Option<CheckpointError>,
    at: Option<String>,
}

impl Sink<'_> {
    fn accept(&mut self, name: String, raw: Raw) -> Result<(), CheckpointError> {
        let path = || self.path.to_path_buf();
        let missing =
            |field| CheckpointError::TensorField { path: path(), tensor: name.clone(), field };
        let number = |field, found: i128| match u64::try_from(found) {
            Ok(n) if i64::try_from(n).is_ok() => Ok(n),
            _ => Err(CheckpointError::TensorNumber {
                path: path(),
                tensor: name.clone(),
                field,
                found,
            }),
        };
        let dtype = raw.dtype.ok_or_else(|| missing("dtype"))?;
        let dtype = Dtype::from_name(&dtype).ok_or_else(|| CheckpointError::UnknownDtype {
            path: path(),
            tensor: name.clone(),
            found: dtype.chars().take(40).collect(),
        })?;
        let shape = raw.shape.ok_or_else(|| missing("shape"))?;
        let shape = shape.into_iter().map(|n| number("shape", n)).collect::<Result<Vec<_>, _>>()?;
        let offsets = raw.offsets.ok_or_else(|| missing("data_offsets"))?;
        let [begin, end] = offsets[..] else { return Err(missing("data_offsets")) };
        let (begin, end) = (number("data_offsets", begin)?, number("data_offsets", end)?);
        let bytes = shape
            .iter()
            .try_fold(1_u64, |n, dim| n.checked_mul(*dim))
            .and_then(|values| dtype.bytes_of(values));
        let Some(expected) = bytes else {
            return Err(CheckpointError::ShapeOverflow { path: path(), tensor: name, shape });
        };
        if end.checked_sub(begin) != Some(expected) {
            let (path, tensor) = (path(), name);
            return Err(CheckpointError::TensorBytes { path, tensor, begin, end, expected });
        }
        if self.tensors.len() == TENSOR_LIMIT {
            let what = format!("more tensors than fit, from `{name}` on");
            return Err(CheckpointError::HeaderLimit { path: path(), what, limit: TENSOR_LIMIT });
        }
        self.tensors.push(HeaderTensor { name, dtype, shape, begin, end });
        Ok(())
    }
}

struct HeaderSeed<'s, 'p> {
    sink: &'s RefCell<Sink<'p>>,
}

impl<'de> DeserializeSeed<'de> for HeaderSeed<'_, '_> {
    type Value = ();

    fn deserialize<D: serde::Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_map(self)
    }
}

impl<'de> Visitor<'de> for HeaderSeed<'_, '_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object with a field for each tensor")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut entries: A) -> Result<(), A::Error> {
        let mut metadata = false;
        while let Some(name) = entries.next_key::<String>()? {
            self.sink.borrow_mut().at = Some(name.chars().take(200).collect());
            if name == "__metadata__" {
                let mut sink = self.sink.borrow_mut();
                if std::mem::replace(&mut metadata, true) {
                    let (path, part) = (sink.path.into(), "the header");
                    sink.fault = Some(CheckpointError::DuplicateKey { path, part, key: name });
                    return Err(A::Error::custom("duplicate key"));
                }
                entries.next_value::<IgnoredAny>()?;
                sink.at = None;
                continue;
            }
            let raw = entries.next_value_seed(EntrySeed { name: &name, sink: self.sink })?;
            let mut sink = self.sink.borrow_mut();
            if let Err(fault) = sink.accept(name, raw) {
                sink.fault = Some(fault);
                return Err(A::Error::custom("refused"));
            }
            sink.at = None;
        }
        Ok(())
    }
}

/// The three fields of an entry, before any check.
#[derive(Default)]
struct Raw {
    dtype: Option<String>,
    shape: Option<Vec<i128>>,
    offsets: Option<Vec<i128>>,
}

struct EntrySeed<'s, 'p> {
    name: &'s str,
    sink: &'s RefCell<Sink<'p>>,
}

impl EntrySeed<'_, '_> {
    fn duplicate<E: serde::de::Error>(&self, field: &str) -> E {
        let mut sink = self.sink.borrow_mut();
        let key = format!("{}.{field}", self.name);
        let (path, part) = (sink.path.into(), "the header");
        sink.fault = Some(CheckpointError::DuplicateKey { path, part, key });
        E::custom("duplicate key")
    }
}

impl<'de> DeserializeSeed<'de> for EntrySeed<'_, '_> {
    type Value = Raw;

    fn deserialize<D: serde::Deserializer<'de>>(self, deserializer: D) -> Result<Raw, D::Error> {
        deserializer.deserialize_map(self)
    }
}

impl<'de> Visitor<'de> for EntrySeed<'_, '_> {
    type Value = Raw;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object with dtype, shape and data_offsets")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut fields: A) -> Result<Raw, A::Error> {
        let mut raw = Raw::default();
        while let Some(field) = fields.next_key::<String>()? {
            let again = match field.as_str() {
                "dtype" => raw.dtype.replace(fields.next_value()?).is_some(),
                "shape" => raw.shape.replace(fields.next_value::<Counts>()?.0).is_some(),
                "data_offsets" => raw.offsets.replace(fields.next_value::<Counts>()?.0).is_some(),
                _ => {
                    fields.next_value::<IgnoredAny>()?;
                    false
                }
            };
            if again {
                return Err(self.duplicate(&field));
            }
        }
        Ok(raw)
    }
}

/// A short list of whole numbers.
struct Counts(Vec<i128>);

impl<'de> serde::Deserialize<'de> for Counts {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_seq(CountsVisitor)
    }
}

struct CountsVisitor;

impl<'de> Visitor<'de> for CountsVisitor {
    type Value = Counts;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "a list of at most {RANK_LIMIT} whole numbers")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Counts, A::Error> {
        let mut list = Vec::new();
        while let Some(number) = seq.next_element::<Count>()? {
            if list.len() == RANK_LIMIT {
                return Err(A::Error::invalid_length(list.len() + 1, &self));
            }
            list.push(number.0);
        }
        Ok(Counts(list))
    }
}

struct Count(i128);

impl<'de> serde::Deserialize<'de> for Count {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(CountVisitor)
    }
}

struct CountVisitor;

impl Visitor<'_> for CountVisitor {
    type Value = Count;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a whole number")
    }

    fn visit_u64<E>(self, value: u64) -> Result<Count, E> {
        Ok(Count(value.into()))
    }

    fn visit_i64<E>(self, value: i64) -> Result<Count, E> {
        Ok(Count(value.into()))
    }
}
