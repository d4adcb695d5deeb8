//! Files that are there whole, or as they were.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Write};
use std::path::Path;

/// Writes `bytes` to `path` by way of a file beside it, which takes its place once all of it is on the
/// disk. A link is followed: what it points to is replaced.
pub(crate) fn replace(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let target = fs::canonicalize(path).unwrap_or_else(|_| path.to_owned());
    let name = target.file_name().ok_or_else(|| io::Error::from(io::ErrorKind::InvalidInput))?;
    let mut beside = name.to_owned();
    beside.push(format!(".{}.part", std::process::id()));
    let beside = target.with_file_name(beside);
    let written = write_new(&beside, bytes).and_then(|()| fs::rename(&beside, &target));
    if written.is_err() {
        // It is of no use; the error is what counts.
        let _ = fs::remove_file(&beside);
    }
    written?;
    let folder = target.parent().filter(|folder| !folder.as_os_str().is_empty());
    File::open(folder.unwrap_or(Path::new(".")))?.sync_all()
}

/// Whether a file is there, is a regular one and begins with these bytes.
pub(crate) fn begins_with(path: &Path, magic: [u8; 8]) -> io::Result<bool> {
    // Before it is opened: a pipe would wait for its other end.
    let found = fs::metadata(path)?;
    if !found.is_file() || found.len() < magic.len() as u64 {
        return Ok(false);
    }
    let mut begin = [0; 8];
    File::open(path)?.read_exact(&mut begin)?;
    Ok(begin == magic)
}

fn write_new(path: &Path, bytes: &[u8]) -> io::Result<()> {
    // One of that name is of a process that was killed and had the same number.
    let _ = fs::remove_file(path);
    let mut file = OpenOptions::new().write(true).create_new(true).open(path)?;
    file.write_all(bytes)?;
    file.sync_all()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_old_file_stays_until_the_new_one_is_whole() {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let path = folder.path().join("file");
        replace(&path, b"old").expect("writes");
        let link = folder.path().join("link");
        std::os::unix::fs::symlink(&path, &link).expect("links");
        replace(&link, b"new").expect("writes");
        assert_eq!(fs::read(&path).expect("there"), b"new");
        assert!(fs::symlink_metadata(&link).expect("there").is_symlink());
        assert_eq!(fs::read_dir(folder.path()).expect("there").count(), 2, "nothing else is left");
        assert!(replace(&folder.path().join("no/such/folder"), b"x").is_err());
        // What a killed process leaves is not the file, and does not hinder the next one.
        let left = folder.path().join(format!("file.{}.part", std::process::id()));
        fs::write(&left, b"half").expect("writes");
        assert_eq!(fs::read(&path).expect("there"), b"new");
        replace(&path, b"newer").expect("writes");
        assert_eq!(fs::read(&path).expect("there"), b"newer");
        assert!(!left.exists());
    }
}
