//! Room on a disk.

use std::io;
use std::path::Path;

use crate::Failure;

/// Room that is left free beyond what is written: headers, the file system's own books.
const SPARE: u64 = 64 << 20;

/// Refuses to write `bytes` into a folder whose disk has no room for them.
///
/// # Errors
/// [`Failure::Space`]; [`Failure::File`] when the folder is not there.
pub(crate) fn need(folder: &Path, bytes: u64) -> Result<(), Failure> {
    let failed = |errno| Failure::File { path: folder.into(), source: io::Error::from(errno) };
    let space = rustix::fs::statvfs(folder).map_err(failed)?;
    let free = space.f_bavail.saturating_mul(space.f_frsize);
    let needed = bytes.saturating_add(SPARE);
    if needed > free {
        return Err(Failure::Space { path: folder.into(), needed, free });
    }
    Ok(())
}
