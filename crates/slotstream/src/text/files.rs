//! The files of a model folder that text needs.

use std::fs::File;
use std::io::{ErrorKind, Read};
use std::path::Path;

use slotstream_checkpoint::is_link_loop;

use super::TextError;

/// Reads a file of at most `limit` bytes.
pub(super) fn read_limited(path: &Path, limit: u64) -> Result<Vec<u8>, TextError> {
    let failed = |source| TextError::Read { path: path.into(), source };
    // Before opening: a pipe would wait for a writer, a device has no end.
    let metadata = std::fs::metadata(path).map_err(|source| match is_link_loop(path) {
        true => TextError::LinkLoop { path: path.into() },
        false => failed(source),
    })?;
    if !metadata.is_file() {
        return Err(TextError::NotAFile { path: path.into() });
    }
    if metadata.len() > limit {
        return Err(TextError::TooLarge { path: path.into(), limit });
    }
    let mut bytes = Vec::new();
    let file = File::open(path).map_err(failed)?;
    let read = file.take(limit + 1).read_to_end(&mut bytes);
    if read.map_err(failed)? as u64 > limit {
        return Err(TextError::TooLarge { path: path.into(), limit });
    }
    Ok(bytes)
}

/// The bytes of a file that may be absent. A link that leads nowhere is not absent: what it
/// should lead to was not downloaded.
pub(super) fn read_if_there(path: &Path, limit: u64) -> Result<Option<Vec<u8>>, TextError> {
    if is_there(path) { read_limited(path, limit).map(Some) } else { Ok(None) }
}

/// Whether anything has this name, be it of use or not.
pub(crate) fn is_there(path: &Path) -> bool {
    !path.symlink_metadata().is_err_and(|e| e.kind() == ErrorKind::NotFound)
}
