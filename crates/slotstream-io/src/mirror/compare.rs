//! Whether copies are copies.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use slotstream_core::{Extent, FileId, RecordReader};

use crate::IoError;
use crate::files::MAX_FILES;

/// Reads of each file that are compared whole.
pub(super) const FIRST_READS: u8 = 4;

/// Bytes of each sample.
const SAMPLE: u64 = 4096;

type Reader = Arc<dyn RecordReader>;

/// Compares every copy with the first: the number of files, which it returns, and the length and
/// three samples of each that the copy does not lack.
pub(super) fn files(copies: &[(Reader, Vec<FileId>)]) -> Result<usize, IoError> {
    let numbers = || (0..MAX_FILES).map_while(|i| u16::try_from(i).ok()).map(FileId::new);
    let count = |reader: &Reader| numbers().take_while(|file| reader.path(*file).is_some()).count();
    let [(first, _), others @ ..] = copies else { return Ok(0) };
    let files = count(first);
    for (other, lacks) in others {
        let found = count(other);
        if found != files {
            let what = format!("it has {found} files and not {files}");
            return Err(differ([first, other], FileId::new(0), what));
        }
        for file in numbers().take(files).filter(|file| !lacks.contains(file)) {
            lengths([first, other], file)?;
        }
    }
    Ok(files)
}

fn lengths(pair: [&Reader; 2], file: FileId) -> Result<(), IoError> {
    let known = pair.map(|reader| reader.file_len(file));
    // A copy that does not know its length is sampled by that of the other.
    let Some(expected) = known[0].or(known[1]) else { return Ok(()) };
    if let Some(found) = known[1]
        && expected != found
    {
        let what = format!("it has {found} bytes and not {expected}");
        return Err(differ(pair, file, what));
    }
    let middle = (expected / 2).min(expected.saturating_sub(SAMPLE));
    for offset in [0, middle, expected.saturating_sub(SAMPLE)] {
        // Inside a file that is open, so in range.
        if let Ok(extent) = Extent::new(file, offset, SAMPLE.min(expected - offset)) {
            sample(pair, &extent)?;
        }
    }
    Ok(())
}

fn sample(pair: [&Reader; 2], extent: &Extent) -> Result<(), IoError> {
    let mut samples = [vec![0; extent.len() as usize], vec![0; extent.len() as usize]];
    for (reader, sample) in pair.iter().zip(&mut samples) {
        reader.read_exact_at(extent, sample).map_err(|source| {
            let path = name(reader, extent.file());
            IoError::CopyUnread { path, source }
        })?;
    }
    let [a, b] = &samples;
    match difference(pair, extent, [a, b]) {
        Some(Difference { first, other, what }) => {
            Err(IoError::CopiesDiffer { first, other, what })
        }
        None => Ok(()),
    }
}

/// Two files that should be the same, and what differs.
#[derive(Debug)]
pub(super) struct Difference {
    pub(super) first: PathBuf,
    pub(super) other: PathBuf,
    pub(super) what: String,
}

/// What differs, if the bytes do.
pub(super) fn difference(
    pair: [&Reader; 2],
    extent: &Extent,
    [a, b]: [&[u8]; 2],
) -> Option<Difference> {
    let i = a.iter().zip(b).position(|(a, b)| a != b)?;
    let [first, other] = pair.map(|reader| name(reader, extent.file()));
    let what = format!(
        "its byte at offset {} is {} and not {} as in {}",
        extent.offset() + i as u64,
        b[i],
        a[i],
        first.display()
    );
    Some(Difference { first, other, what })
}

fn differ(pair: [&Reader; 2], file: FileId, what: String) -> IoError {
    let [first, other] = pair.map(|reader| name(reader, file));
    IoError::CopiesDiffer { first, other, what }
}

fn name(reader: &Reader, file: FileId) -> PathBuf {
    reader.path(file).map_or_else(PathBuf::new, Path::to_path_buf)
}
