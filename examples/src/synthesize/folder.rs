//! A folder that appears when it is complete.

use std::fs;
use std::path::{Path, PathBuf};

use crate::Failure;
use crate::space::need;

/// Refuses a folder that is there already.
pub(super) fn vacant(folder: &Path) -> Result<(), Failure> {
    for path in [folder, &part(folder)] {
        if path.symlink_metadata().is_ok() {
            return Err(Failure::Option {
                option: "--out",
                value: path.display().to_string(),
                expected: "a folder that is not there yet: remove it, or name another".into(),
            });
        }
    }
    Ok(())
}

/// Refuses a folder for which there is no room.
pub(super) fn room(folder: &Path, bytes: u64) -> Result<(), Failure> {
    need(&parent(folder), bytes)
}

/// A folder under a name of its own that goes unless it is finished.
#[derive(Debug)]
pub(super) struct Unfinished {
    part: PathBuf,
    folder: PathBuf,
}

impl Unfinished {
    /// Makes `FOLDER.part`.
    pub(super) fn begin(folder: &Path) -> Result<Self, Failure> {
        let part = part(folder);
        fs::create_dir(&part).map_err(|source| Failure::File { path: part.clone(), source })?;
        Ok(Self { part, folder: folder.into() })
    }

    pub(super) fn path(&self) -> &Path {
        &self.part
    }

    /// Gives it its name.
    pub(super) fn finish(self) -> Result<(), Failure> {
        let renamed = fs::rename(&self.part, &self.folder);
        renamed.map_err(|source| Failure::File { path: self.folder.clone(), source })
    }
}

impl Drop for Unfinished {
    fn drop(&mut self) {
        // After `finish` it is gone by that name; whatever else fails here cannot be helped.
        let _ = fs::remove_dir_all(&self.part);
    }
}

fn part(folder: &Path) -> PathBuf {
    // Without a slash at its end.
    let mut name = folder.components().collect::<PathBuf>().into_os_string();
    name.push(".part");
    name.into()
}

/// The folder that holds `folder`.
fn parent(folder: &Path) -> PathBuf {
    match folder.parent() {
        Some(parent) if parent != Path::new("") => parent.into(),
        _ => ".".into(),
    }
}
