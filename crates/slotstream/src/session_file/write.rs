//! Writing a file so that it is there whole or not at all.

use std::fs::{self, File, OpenOptions};
use std::io::{self, BufWriter, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use super::sections::Sections;
use super::{BUFFER, SessionFileError};
use crate::{Error, atomic};

/// Writes `NAME.part` beside `path`, or another file where somebody writes that already, and gives it its
/// name once it is whole and on the disk; gives the number of bytes. What cannot be finished is removed.
pub(super) fn atomically(
    path: &Path,
    write: impl FnOnce(&mut Sections<'_, BufWriter<&File>>) -> Result<(), Error>,
) -> Result<u64, Error> {
    check_place(path)?;
    let (file, part) = open(path)?;
    let written = write_to(path, &file, write).and_then(|written| {
        fs::rename(&part, path).map_err(|e| SessionFileError::io(path, "rename", e))?;
        Ok(written)
    });
    match written {
        Ok(written) => {
            sync_folder(path)?;
            Ok(written)
        }
        Err(error) => {
            // It is still locked, or has a name of its own, and so is nobody else's.
            let _ = fs::remove_file(&part);
            Err(error)
        }
    }
}

/// Whether a file may come to stand here: what is there already must be a file, or a link.
fn check_place(path: &Path) -> Result<(), SessionFileError> {
    match fs::symlink_metadata(path) {
        Ok(meta) if !meta.is_file() && !meta.is_symlink() => {
            Err(SessionFileError::NotAFile { path: path.into() })
        }
        Err(e) if e.kind() != io::ErrorKind::NotFound => {
            Err(SessionFileError::io(path, "look at", e))
        }
        _ => Ok(()),
    }
}

fn part_of(path: &Path) -> Result<PathBuf, SessionFileError> {
    let Some(name) = path.file_name() else {
        return Err(SessionFileError::NotAFile { path: path.into() });
    };
    let mut name = name.to_owned();
    name.push(".part");
    Ok(path.with_file_name(name))
}

/// Opens an unfinished file that nobody else writes.
fn open(path: &Path) -> Result<(File, PathBuf), SessionFileError> {
    let part = part_of(path)?;
    match lock(&part)? {
        Some(file) => Ok((file, part)),
        None => atomic::create_beside(path).map_err(|e| SessionFileError::io(path, "write", e)),
    }
}

/// Opens `NAME.part` and locks it; `None` where somebody else has done so.
fn lock(part: &Path) -> Result<Option<File>, SessionFileError> {
    let failed = |e| SessionFileError::io(part, "open", e);
    // A link could lead to a file of somebody else's, and a pipe has no end.
    match fs::symlink_metadata(part) {
        Ok(meta) if !meta.is_file() || meta.nlink() > 1 => {
            return Err(SessionFileError::NotAFile { path: part.into() });
        }
        Err(e) if e.kind() != io::ErrorKind::NotFound => return Err(failed(e)),
        _ => {}
    }
    let mut options = OpenOptions::new();
    options.custom_flags(rustix::fs::OFlags::NOFOLLOW.bits().cast_signed());
    let file = options.write(true).create(true).truncate(false).open(part).map_err(failed)?;
    match file.try_lock() {
        Ok(()) => {}
        Err(fs::TryLockError::WouldBlock) => return Ok(None),
        Err(fs::TryLockError::Error(e)) => return Err(SessionFileError::io(part, "lock", e)),
    }
    // Whoever had the lock before may have finished the file and given it its name.
    let opened = file.metadata().map_err(failed)?;
    let same = fs::metadata(part)
        .is_ok_and(|there| (there.dev(), there.ino()) == (opened.dev(), opened.ino()));
    if !same {
        return Ok(None);
    }
    file.set_len(0).map_err(|e| SessionFileError::io(part, "empty", e))?;
    Ok(Some(file))
}

fn write_to(
    path: &Path,
    file: &File,
    write: impl FnOnce(&mut Sections<'_, BufWriter<&File>>) -> Result<(), Error>,
) -> Result<u64, Error> {
    let mut sections = Sections::new(path, BufWriter::with_capacity(BUFFER, file));
    write(&mut sections)?;
    let (written, mut buffered) = sections.finish();
    buffered.flush().map_err(|e| SessionFileError::io(path, "write", e))?;
    drop(buffered);
    file.sync_all().map_err(|e| SessionFileError::io(path, "sync", e))?;
    Ok(written)
}

/// Makes the name of a finished file last.
fn sync_folder(path: &Path) -> Result<(), SessionFileError> {
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
    let folder = folder.unwrap_or(Path::new("."));
    let synced = File::open(folder).and_then(|folder| folder.sync_all());
    synced.map_err(|e| SessionFileError::io(folder, "sync the folder of", e))
}
