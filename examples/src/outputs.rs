//! Which files a run may write.

use std::borrow::Cow;
use std::fs::{self, File};
use std::io::{self, ErrorKind, Read};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use crate::Failure;
use crate::whole_file::{self, is_stream};

/// Most links that are followed one after the other.
const MOST_LINKS: usize = 40;

/// A file that a run writes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct OutputFile<'a> {
    /// The option or command that names it.
    pub(crate) option: &'static str,
    pub(crate) path: &'a Path,
    pub(crate) kind: Kind,
}

/// What a file that is written will be, and one that is replaced must be.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Kind {
    /// Ends "a file ...".
    pub(crate) what: &'static str,
    /// Whether a file is one.
    pub(crate) is: fn(&Path) -> io::Result<bool>,
    pub(crate) way: Way,
}

/// How a file is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Way {
    /// Into what is there, pipes and devices too.
    #[cfg(feature = "engine")]
    Into,
    /// By a whole one that takes its place, or that of what a link leads to; pipes and devices are written
    /// into.
    WholeOrInto,
    /// By a whole one that takes its place, or that of what a link leads to.
    #[cfg(feature = "engine")]
    Whole,
    /// By a whole one that takes its place, or that of a link.
    #[cfg(feature = "engine")]
    WholeForLink,
}

/// A session that goes on in another run.
#[cfg(feature = "engine")]
pub(crate) const SESSION: Kind = Kind {
    what: "that holds a session",
    is: slotstream::session_file::is_session,
    way: Way::WholeForLink,
};

/// A drawing.
pub(crate) const CHART: Kind =
    Kind { what: "of a chart", is: |path| begins_with(path, b"<svg"), way: Way::WholeOrInto };

/// What a run reads.
#[derive(Clone, Debug)]
pub(crate) enum Input<'a> {
    /// A file, by the option that names it.
    File(&'static str, Cow<'a, Path>),
    /// A folder, by what it is: nothing in it is written, be it read or not.
    Folder(&'static str, Cow<'a, Path>),
}

/// Refuses outputs of which one is read by the run, is that of another one, would replace something of
/// another kind, or cannot be written.
///
/// # Errors
/// [`Failure::Option`]; [`Failure::File`] or [`Failure::ReadFile`] where the system does not let it be
/// written or looked at.
pub(crate) fn check(outputs: &[OutputFile<'_>], inputs: &[Input<'_>]) -> Result<(), Failure> {
    for output in outputs {
        inputs.iter().try_for_each(|input| output.check_unread(input))?;
    }
    for (number, output) in outputs.iter().enumerate() {
        outputs[number + 1..].iter().try_for_each(|other| output.check_other(other))?;
    }
    outputs.iter().try_for_each(OutputFile::check_place)
}

/// Whether a file begins so.
pub(crate) fn begins_with(path: &Path, begin: &[u8]) -> io::Result<bool> {
    let mut found = Vec::new();
    File::open(path)?.take(begin.len() as u64).read_to_end(&mut found)?;
    Ok(found == begin)
}

impl OutputFile<'_> {
    /// Refuses a file that is read.
    ///
    /// # Errors
    /// [`Failure::Option`].
    pub(crate) fn check_unread(&self, input: &Input<'_>) -> Result<(), Failure> {
        match input {
            Input::File(option, path) if is_same(self.path, path) => {
                Err(self.refused(&format!("another file than that of {option}")))
            }
            Input::Folder(what, path) if is_within(self.path, path) => {
                Err(self.refused(&format!("a file outside {what}")))
            }
            _ => Ok(()),
        }
    }

    fn check_other(&self, other: &Self) -> Result<(), Failure> {
        self.check_unread(&Input::File(other.option, other.path.into()))
    }

    /// Refuses a place where no such file can come to stand, and one where something else is.
    fn check_place(&self) -> Result<(), Failure> {
        self.check_folder()?;
        let way = self.kind.way;
        match fs::metadata(self.path) {
            Err(source) if source.kind() == ErrorKind::NotFound => {}
            Err(source) => return Err(self.failed(source)),
            Ok(found) if !found.is_dir() && way.streams() && is_stream(self.path, &found) => {
                return Ok(());
            }
            Ok(found) if !found.is_file() => {
                return Err(self.refused("a regular file, or a new one"));
            }
            Ok(found) if found.len() == 0 => {}
            Ok(_) => self.check_kind()?,
        }
        way.check_rights(self.path).map_err(|source| self.failed(source))
    }

    fn check_folder(&self) -> Result<(), Failure> {
        if !fs::metadata(parent(self.path)).map_err(|source| self.failed(source))?.is_dir() {
            return Err(self.failed(ErrorKind::NotADirectory.into()));
        }
        // `new/` has a name, and yet no file can have it.
        let name = self.path.as_os_str().as_encoded_bytes();
        if self.path.file_name().is_none() || name.ends_with(b"/") || name.ends_with(b"/.") {
            return Err(self.refused("a file, not a folder"));
        }
        Ok(())
    }

    fn check_kind(&self) -> Result<(), Failure> {
        let Kind { what, is, .. } = self.kind;
        match is(self.path) {
            Ok(true) => Ok(()),
            Ok(false) => Err(self.refused(&format!(
                "a new file, an empty one or one {what}: this one is something else"
            ))),
            Err(source) => Err(Failure::ReadFile { path: self.path.into(), source }),
        }
    }

    fn failed(&self, source: io::Error) -> Failure {
        Failure::File { path: self.path.into(), source }
    }

    fn refused(&self, expected: &str) -> Failure {
        let value = self.path.display().to_string();
        Failure::Option { option: self.option, value, expected: expected.to_owned() }
    }
}

impl Way {
    /// Whether pipes and devices are written into.
    fn streams(self) -> bool {
        match self {
            Self::WholeOrInto => true,
            #[cfg(feature = "engine")]
            Self::Into => true,
            #[cfg(feature = "engine")]
            Self::Whole | Self::WholeForLink => false,
        }
    }

    /// Tries whether a file can be made where one will be.
    fn check_rights(self, path: &Path) -> io::Result<()> {
        match self {
            // It is opened before the work.
            #[cfg(feature = "engine")]
            Self::Into => Ok(()),
            #[cfg(feature = "engine")]
            Self::WholeForLink => whole_file::beside(path).map(drop),
            _ => whole_file::beside(&place(path).unwrap_or_else(|| path.to_owned())).map(drop),
        }
    }
}

/// What a session's file is called until it is whole.
#[cfg(feature = "engine")]
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
pub(crate) fn place(path: &Path) -> Option<PathBuf> {
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
