//! Output files that get their names when they are whole.

use std::fs::{self, File, Metadata, OpenOptions, Permissions};
use std::io::{self, Write};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use tempfile::NamedTempFile;

use crate::outputs::place;

/// Names of what is written as it comes, whatever the shell has put there.
const STREAMS: [&str; 4] = ["/dev/stdout", "/dev/stderr", "/dev/fd", "/proc"];

/// A file that is written beside its place and takes it by [`finish`](Self::finish); whatever ends the run
/// before leaves what was there. Pipes and devices are written into.
#[derive(Debug)]
pub(crate) enum WholeFile {
    /// With the place that it will take.
    Beside(NamedTempFile, PathBuf),
    Stream(File),
}

impl WholeFile {
    /// Begins a file at `path`, or where a link of that name leads.
    ///
    /// # Errors
    /// The system's.
    pub(crate) fn create(path: &Path) -> io::Result<Self> {
        let found = fs::metadata(path).ok();
        if found.as_ref().is_some_and(|found| is_stream(path, found)) {
            return OpenOptions::new().write(true).open(path).map(Self::Stream);
        }
        let target = place(path).ok_or(io::ErrorKind::NotFound)?;
        if found.is_some() {
            // One that may not be written is not replaced.
            OpenOptions::new().write(true).open(&target)?;
        }
        let file = beside(&target)?;
        if let Some(found) = found {
            file.as_file().set_permissions(found.permissions())?;
        }
        Ok(Self::Beside(file, target))
    }

    /// Writes all of a file.
    ///
    /// # Errors
    /// The system's.
    pub(crate) fn write(path: &Path, bytes: &[u8]) -> io::Result<()> {
        let mut file = Self::create(path)?;
        file.write_all(bytes)?;
        file.finish()
    }

    /// It is whole and takes its place.
    ///
    /// # Errors
    /// The system's.
    pub(crate) fn finish(self) -> io::Result<()> {
        match self {
            Self::Stream(mut file) => file.flush(),
            Self::Beside(file, target) => {
                file.as_file().sync_all()?;
                file.persist(target).map(drop).map_err(|failed| failed.error)
            }
        }
    }
}

impl Write for WholeFile {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            Self::Beside(file, _) => file.write(bytes),
            Self::Stream(file) => file.write(bytes),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        match self {
            Self::Beside(file, _) => file.flush(),
            Self::Stream(file) => file.flush(),
        }
    }
}

/// Makes a file of a name of its own beside `path` that goes when it is dropped.
pub(crate) fn beside(path: &Path) -> io::Result<NamedTempFile> {
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
    let mut name = path.file_name().unwrap_or_default().to_owned();
    name.push(".");
    // As any file that a program makes: the user's mask says who may read it.
    tempfile::Builder::new()
        .prefix(&name)
        .suffix(".part")
        .permissions(Permissions::from_mode(0o666))
        .tempfile_in(folder.unwrap_or(Path::new(".")))
}

/// Whether what is `found` at `path` is written into, never replaced.
pub(crate) fn is_stream(path: &Path, found: &Metadata) -> bool {
    !found.is_file() && !found.is_dir() || STREAMS.iter().any(|stream| path.starts_with(stream))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_finished_changes_nothing() {
        let folder = tempfile::tempdir().expect("a folder");
        let at = |name: &str| folder.path().join(name);
        let names = || fs::read_dir(folder.path()).expect("there").count();
        fs::write(at("there"), "something long").expect("written");
        fs::set_permissions(at("there"), Permissions::from_mode(0o640)).expect("its own");
        std::os::unix::fs::symlink(at("there"), at("link")).expect("a link");
        std::os::unix::fs::symlink(at("new"), at("nowhere")).expect("a link");
        for name in ["there", "new", "link", "nowhere"] {
            let mut file = WholeFile::create(&at(name)).expect("begins");
            file.write_all(b"half").expect("written");
        }
        assert_eq!((fs::read(at("there")).expect("there"), names()), (b"something long".into(), 3));
        for name in ["link", "nowhere"] {
            WholeFile::write(&at(name), b"whole").expect("written");
            assert!(at(name).is_symlink());
        }
        for name in ["there", "new"] {
            assert_eq!(fs::read(at(name)).expect("there"), b"whole");
        }
        let mode = fs::metadata(at("there")).expect("there").permissions().mode();
        assert_eq!((mode & 0o777, names()), (0o640, 4));
        WholeFile::write(Path::new("/dev/null"), b"whole").expect("written");
        assert!(WholeFile::create(folder.path()).is_err(), "a folder");
        assert!(WholeFile::create(&at("none/such")).is_err());
    }
}
