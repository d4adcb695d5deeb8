//! Output files that replace nothing before the work has begun.

use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// A file that is opened at once, so that one that cannot be written is known, and changed only
/// from [`begin`](Self::begin) on: what is written before is kept in memory. When that never comes,
/// a file that was there is as it was, and one that was not is gone again. Clones share the file.
#[derive(Clone, Debug)]
pub(crate) struct LateFile(Arc<Mutex<Inner>>);

#[derive(Debug)]
struct Inner {
    file: File,
    path: PathBuf,
    /// It was not there before.
    is_new: bool,
    /// What was written before the beginning; `None` from then on.
    early: Option<Vec<u8>>,
}

impl LateFile {
    /// Opens `path`, which need not be there.
    ///
    /// # Errors
    /// The system's.
    pub(crate) fn open(path: &Path) -> io::Result<Self> {
        let fresh = OpenOptions::new().write(true).create_new(true).open(path);
        let (file, is_new) = match fresh {
            Ok(file) => (file, true),
            // There, a link to nowhere among them.
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
                let file =
                    OpenOptions::new().write(true).create(true).truncate(false).open(path)?;
                (file, false)
            }
            Err(error) => return Err(error),
        };
        let early = Some(Vec::new());
        Ok(Self(Arc::new(Mutex::new(Inner { file, path: path.into(), is_new, early }))))
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// From here on the file is what was and will be written. Once is enough.
    ///
    /// # Errors
    /// The system's.
    pub(crate) fn begin(&self) -> io::Result<()> {
        let mut inner = self.lock();
        let Some(early) = inner.early.take() else { return Ok(()) };
        // Pipes and devices have no length.
        if inner.file.metadata()?.is_file() {
            inner.file.set_len(0)?;
        }
        inner.file.write_all(&early)
    }
}

impl Write for LateFile {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let mut inner = self.lock();
        match &mut inner.early {
            Some(early) => early.write(bytes),
            None => inner.file.write(bytes),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        let mut inner = self.lock();
        match inner.early {
            Some(_) => Ok(()),
            None => inner.file.flush(),
        }
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        if self.is_new && self.early.is_some() {
            // Left behind empty is no harm.
            let _ = std::fs::remove_file(&self.path);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_changes_before_it_begins() {
        let folder = tempfile::tempdir().expect("a folder");
        let (there, new) = (folder.path().join("there"), folder.path().join("new"));
        std::fs::write(&there, "something long").expect("written");
        for path in [&there, &new] {
            let mut file = LateFile::open(path).expect("opens");
            file.write_all(b"early").expect("kept");
        }
        assert_eq!(std::fs::read(&there).expect("there"), b"something long");
        assert!(!new.exists());
        for path in [&there, &new] {
            let mut file = LateFile::open(path).expect("opens");
            file.write_all(b"early").expect("kept");
            file.begin().expect("begins");
            file.begin().expect("twice is once");
            file.write_all(b", late").expect("written");
            assert_eq!(std::fs::read(path).expect("there"), b"early, late");
        }
        assert!(LateFile::open(folder.path()).is_err(), "a folder");
        assert!(LateFile::open(&folder.path().join("none/such")).is_err());
    }

    #[cfg(unix)]
    #[test]
    fn devices_and_links_are_written_through() {
        let folder = tempfile::tempdir().expect("a folder");
        let (target, link) = (folder.path().join("target"), folder.path().join("link"));
        std::os::unix::fs::symlink(&target, &link).expect("a link");
        for path in [Path::new("/dev/null"), &link, &link] {
            let mut file = LateFile::open(path).expect("opens");
            file.begin().expect("begins");
            file.write_all(b"one").expect("written");
        }
        assert_eq!(std::fs::read(&target).expect("there"), b"one");
        assert!(link.is_symlink());
    }
}
