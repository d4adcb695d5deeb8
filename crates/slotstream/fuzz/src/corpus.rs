//! The committed inputs: real shapes, and whatever was once a finding.

use std::io;
use std::path::{Path, PathBuf};

use crate::Target;

/// The folder of a target's inputs.
#[must_use]
pub fn folder(target: &Target) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("corpus").join(target.name)
}

/// Name and bytes of each input, in the order of their names.
///
/// # Errors
/// The system's, with the path.
pub fn read(target: &Target) -> io::Result<Vec<(String, Vec<u8>)>> {
    let folder = folder(target);
    let named =
        |path: &Path, e: io::Error| io::Error::new(e.kind(), format!("{}: {e}", path.display()));
    let mut inputs = Vec::new();
    for entry in std::fs::read_dir(&folder).map_err(|e| named(&folder, e))? {
        let path = entry.map_err(|e| named(&folder, e))?.path();
        let name = path.file_name().map(|name| name.to_string_lossy().into_owned());
        inputs.push((name.unwrap_or_default(), std::fs::read(&path).map_err(|e| named(&path, e))?));
    }
    inputs.sort();
    Ok(inputs)
}
