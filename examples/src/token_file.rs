//! Token ids in a safetensors file.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use slotstream_checkpoint::{CheckpointError, Dtype, Header, HeaderTensor};
use slotstream_core::ErrorKind;

/// The largest tensor of ids that is read.
const LIMIT: u64 = 1 << 30;

/// Windows of token ids, all of one length.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct TokenWindows {
    /// Name of the tensor.
    pub tensor: String,
    /// Tokens of a window.
    pub width: usize,
    /// The windows one after the other.
    pub ids: Vec<u32>,
}

/// Why windows cannot be read.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TokenFileError {
    /// The file is no safetensors file.
    #[error("the file of token windows is not valid")]
    #[non_exhaustive]
    File {
        /// What is wrong with it.
        source: Box<CheckpointError>,
    },
    /// The file cannot be read.
    #[error("tensor `{tensor}` of {} cannot be read", path.display())]
    #[non_exhaustive]
    Read {
        /// The file.
        path: PathBuf,
        /// The tensor.
        tensor: String,
        /// The system's reason.
        source: io::Error,
    },
    /// There is no such tensor, or none or several to choose from.
    #[error(
        "{} has {} as token windows: name one as FILE:TENSOR; integer tensors are: {}",
        path.display(),
        if wanted.is_empty() { "no single tensor to take".to_owned() } else { format!("no tensor `{wanted}`") },
        candidates.join(", ")
    )]
    #[non_exhaustive]
    NoTensor {
        /// The file.
        path: PathBuf,
        /// The tensor asked for; empty when none was.
        wanted: String,
        /// Tensors that could be meant.
        candidates: Vec<String>,
    },
    /// The tensor is not one of token windows.
    #[error(
        "tensor `{tensor}` of {} is {dtype} {shape:?}, expected I32, U32 or I64 of shape \
         [windows, tokens] or [tokens], at most 1 GiB",
        path.display()
    )]
    #[non_exhaustive]
    Form {
        /// The file.
        path: PathBuf,
        /// The tensor.
        tensor: String,
        /// Its type.
        dtype: &'static str,
        /// Its shape.
        shape: Vec<u64>,
    },
    /// A value that is no token id.
    #[error("value {index} of tensor `{tensor}` of {} is {value}: no token id", path.display())]
    #[non_exhaustive]
    Id {
        /// The file.
        path: PathBuf,
        /// The tensor.
        tensor: String,
        /// Position of the value.
        index: usize,
        /// The value.
        value: i64,
    },
}

impl TokenFileError {
    /// What the caller can do about it.
    #[must_use]
    pub fn kind(&self) -> ErrorKind {
        match self {
            Self::File { source } => source.kind(),
            Self::Read { .. } => ErrorKind::Transient,
            Self::Id { .. } => ErrorKind::Corrupt,
            Self::NoTensor { .. } | Self::Form { .. } => ErrorKind::User,
        }
    }
}

/// Reads token windows. `what` is `FILE` or `FILE:TENSOR`; without a tensor's name the file must
/// have exactly one integer tensor of two dimensions.
///
/// # Errors
/// [`TokenFileError`] names the file and the tensor.
pub fn read_windows(what: &str) -> Result<TokenWindows, TokenFileError> {
    let (path, wanted) = match what.rsplit_once(':') {
        Some((file, tensor)) if !Path::new(what).exists() => (Path::new(file), tensor),
        _ => (Path::new(what), ""),
    };
    let header = Header::read(path).map_err(|e| TokenFileError::File { source: Box::new(e) })?;
    let tensor = choose(path, &header, wanted)?;
    let form = || TokenFileError::Form {
        path: path.into(),
        tensor: tensor.name.clone(),
        dtype: tensor.dtype.name(),
        shape: tensor.shape.clone(),
    };
    let width = match *tensor.shape {
        [width] | [_, width] if width > 0 => usize::try_from(width).map_err(|_| form())?,
        _ => return Err(form()),
    };
    let len = tensor.end - tensor.begin;
    if !is_integer(tensor.dtype) || len > LIMIT {
        return Err(form());
    }
    let mut bytes = vec![0; usize::try_from(len).map_err(|_| form())?];
    File::open(path)
        .and_then(|file| file.read_exact_at(&mut bytes, header.data_start + tensor.begin))
        .map_err(|source| TokenFileError::Read {
            path: path.into(),
            tensor: tensor.name.clone(),
            source,
        })?;
    let ids = decode(&bytes, tensor.dtype).enumerate().map(|(index, value)| {
        u32::try_from(value).map_err(|_| TokenFileError::Id {
            path: path.into(),
            tensor: tensor.name.clone(),
            index,
            value,
        })
    });
    Ok(TokenWindows { tensor: tensor.name.clone(), width, ids: ids.collect::<Result<_, _>>()? })
}

fn is_integer(dtype: Dtype) -> bool {
    matches!(dtype, Dtype::I32 | Dtype::U32 | Dtype::I64)
}

fn choose<'h>(
    path: &Path,
    header: &'h Header,
    wanted: &str,
) -> Result<&'h HeaderTensor, TokenFileError> {
    let integers = || header.tensors.iter().filter(|tensor| is_integer(tensor.dtype));
    let found = if wanted.is_empty() {
        let mut tables = integers().filter(|tensor| tensor.shape.len() == 2);
        tables.next().filter(|_| tables.next().is_none())
    } else {
        header.tensors.iter().find(|tensor| tensor.name == wanted)
    };
    found.ok_or_else(|| {
        let mut candidates: Vec<_> = integers().map(|tensor| tensor.name.clone()).collect();
        candidates.sort();
        TokenFileError::NoTensor { path: path.into(), wanted: wanted.to_owned(), candidates }
    })
}

/// The values of a little-endian integer tensor.
fn decode(bytes: &[u8], dtype: Dtype) -> Box<dyn Iterator<Item = i64> + '_> {
    let (words, _) = bytes.as_chunks::<4>();
    match dtype {
        Dtype::I64 => Box::new(bytes.as_chunks::<8>().0.iter().map(|b| i64::from_le_bytes(*b))),
        Dtype::U32 => Box::new(words.iter().map(|b| i64::from(u32::from_le_bytes(*b)))),
        _ => Box::new(words.iter().map(|b| i64::from(i32::from_le_bytes(*b)))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use safetensors::tensor::{Dtype as Kind, TensorView, serialize_to_file};

    fn file(tensors: &[(&str, Kind, &[usize], &[u8])]) -> tempfile::NamedTempFile {
        let file = tempfile::NamedTempFile::new().unwrap();
        let views = tensors.iter().map(|(name, dtype, shape, bytes)| {
            (*name, TensorView::new(*dtype, shape.to_vec(), bytes).unwrap())
        });
        serialize_to_file(views, None, file.path()).unwrap();
        file
    }

    #[test]
    fn the_only_table_of_integers_is_found() {
        let ids: Vec<u8> = [1_i32, 2, 3, 4, 5, 6].iter().flat_map(|i| i.to_le_bytes()).collect();
        let long: Vec<u8> = [7_i64, 8].iter().flat_map(|i| i.to_le_bytes()).collect();
        let file = file(&[
            ("a", Kind::I32, &[2, 3], &ids),
            ("b", Kind::I64, &[2], &long),
            ("c", Kind::F32, &[2, 3], &ids),
        ]);
        let path = file.path().display();
        let found = read_windows(&path.to_string()).unwrap();
        assert_eq!(
            found,
            TokenWindows { tensor: "a".into(), width: 3, ids: vec![1, 2, 3, 4, 5, 6] }
        );
        assert_eq!(read_windows(&format!("{path}:b")).unwrap().ids, [7, 8]);
        let error = read_windows(&format!("{path}:c")).unwrap_err();
        assert!(matches!(error, TokenFileError::Form { .. }), "{error}");
        let error = read_windows(&format!("{path}:d")).unwrap_err();
        assert!(
            matches!(&error, TokenFileError::NoTensor { candidates, .. } if *candidates == ["a", "b"])
        );
    }

    #[test]
    fn what_is_no_id_is_refused() {
        let ids: Vec<u8> = [1_i32, -2].iter().flat_map(|i| i.to_le_bytes()).collect();
        let file = file(&[("a", Kind::I32, &[1, 2], &ids)]);
        let error = read_windows(&file.path().display().to_string()).unwrap_err();
        assert!(matches!(error, TokenFileError::Id { index: 1, value: -2, .. }));
        assert_eq!(error.kind(), ErrorKind::Corrupt);
        let error = read_windows("no/such/file").unwrap_err();
        assert_eq!(error.kind(), ErrorKind::User);
    }
}
