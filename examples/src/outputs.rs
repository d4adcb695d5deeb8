//! Which files a run may write.

use std::fs;
use std::io::ErrorKind;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use slotstream::{session_file, warm};

use crate::Failure;

/// Most links that are followed one after the other.
const MOST_LINKS: usize = 40;

/// A file that a run writes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct OutputFile<'a> {
    /// The option or command that names it.
    pub(crate) option: &'static str,
    pub(crate) path: &'a Path,
}

/// What a file that is replaced must be.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Kept {
    Session,
    WarmStart,
}

impl OutputFile<'_> {
    /// Refuses a file of the model.
    ///
    /// # Errors
    /// [`Failure::Option`].
    pub(crate) fn check_outside(self, model: &Path) -> Result<(), Failure> {
        if is_within(self.path, model) {
            return Err(self.refused("a file outside the model's folder"));
        }
        Ok(())
    }

    /// Refuses the file that another option names.
    ///
    /// # Errors
    /// [`Failure::Option`].
    pub(crate) fn check_other(self, other: Self) -> Result<(), Failure> {
        if is_same(self.path, other.path) {
            return Err(self.refused(&format!("another file than that of {}", other.option)));
        }
        Ok(())
    }

    /// Refuses a place where no such file can come to stand, and one where something else is.
    ///
    /// # Errors
    /// [`Failure::Option`]; [`Failure::File`] or [`Failure::ReadFile`] where the system does not let
    /// it be looked at.
    pub(crate) fn check_replaceable(self, kept: Kept) -> Result<(), Failure> {
        self.check_folder()?;
        match fs::metadata(self.path) {
            Err(source) if source.kind() == ErrorKind::NotFound => Ok(()),
            Err(source) => Err(Failure::File { path: self.path.into(), source }),
            Ok(found) if !found.is_file() => Err(self.refused("a regular file, or a new one")),
            Ok(found) if found.len() == 0 => Ok(()),
            Ok(_) => self.check_kept(kept),
        }
    }

    fn check_folder(self) -> Result<(), Failure> {
        let failed = |source| Failure::File { path: self.path.into(), source };
        if !fs::metadata(parent(self.path)).map_err(failed)?.is_dir() {
            return Err(failed(ErrorKind::NotADirectory.into()));
        }
        // `new/` has a name, and yet no file can have it.
        let name = self.path.as_os_str().as_encoded_bytes();
        if self.path.file_name().is_none() || name.ends_with(b"/") || name.ends_with(b"/.") {
            return Err(self.refused("a file, not a folder"));
        }
        Ok(())
    }

    fn check_kept(self, kept: Kept) -> Result<(), Failure> {
        let (known, expected) = match kept {
            Kept::Session => (
                session_file::is_session(self.path),
                "a new file, an empty one or one that holds a session: this one is something else",
            ),
            Kept::WarmStart => (
                warm::is_warm_start(self.path),
                "a new file, an empty one or one of a warm start: this one is something else",
            ),
        };
        match known {
            Ok(true) => Ok(()),
            Ok(false) => Err(self.refused(expected)),
            Err(source) => Err(Failure::ReadFile { path: self.path.into(), source }),
        }
    }

    fn refused(self, expected: &str) -> Failure {
        let value = self.path.display().to_string();
        Failure::Option { option: self.option, value, expected: expected.to_owned() }
    }
}

/// What a session's file is called until it is whole.
pub(crate) fn unfinished(path: &Path) -> PathBuf {
    let mut name = path.file_name().unwrap_or_default().to_owned();
    name.push(".part");
    path.with_file_name(name)
}

/// Whether `path` names a file of this folder, or would, through links as well; also one elsewhere that
/// a link of the folder leads to.
fn is_within(path: &Path, folder: &Path) -> bool {
    let Ok(real) = folder.canonicalize() else { return false };
    let lies = |path: Option<PathBuf>| path.is_some_and(|path| path.starts_with(&real));
    lies(parent(path).canonicalize().ok())
        || lies(place(path))
        || identity(path).is_some_and(|own| leads_to(&real, own))
}

/// Whether a name in the folder is one of this file.
fn leads_to(folder: &Path, own: (u64, u64)) -> bool {
    let Ok(entries) = fs::read_dir(folder) else { return false };
    entries.flatten().any(|entry| identity(&entry.path()) == Some(own))
}

/// Whether two paths name one file, be it there or not.
fn is_same(one: &Path, other: &Path) -> bool {
    let (own, place_of_one) = (identity(one), place(one));
    one == other
        || (own.is_some() && own == identity(other))
        || (place_of_one.is_some() && place_of_one == place(other))
}

/// Device and number of what is there.
fn identity(path: &Path) -> Option<(u64, u64)> {
    fs::metadata(path).ok().map(|found| (found.dev(), found.ino()))
}

/// Where a file is, or would be once it is made.
fn place(path: &Path) -> Option<PathBuf> {
    let mut path = path.to_owned();
    for _ in 0..MOST_LINKS {
        if let Ok(real) = path.canonicalize() {
            return Some(real);
        }
        let folder = parent(&path).canonicalize().ok()?;
        match fs::read_link(&path) {
            // A link to what is not there yet.
            Ok(target) => path = folder.join(target),
            Err(_) => return Some(folder.join(path.file_name()?)),
        }
    }
    None
}

/// The folder of a file.
fn parent(path: &Path) -> &Path {
    path.parent().filter(|parent| *parent != Path::new("")).unwrap_or(Path::new("."))
}
