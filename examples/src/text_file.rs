//! Text in a file.

use std::fs::File;
use std::io::Read;
use std::path::Path;

use crate::Failure;

/// Reads a UTF-8 text of at most `limit` bytes.
pub(crate) fn read_text(path: &Path, limit: u64) -> Result<String, Failure> {
    let failed = |source| Failure::TextFile { path: path.into(), source };
    let mut text = String::new();
    let file = File::open(path).map_err(failed)?;
    let read = file.take(limit + 1).read_to_string(&mut text).map_err(failed)?;
    if read as u64 > limit {
        return Err(Failure::TextTooLarge { path: path.into(), limit });
    }
    Ok(text)
}
