//! Files that are there whole, or as they were.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

/// Writes `bytes` to `path` by way of a file beside it, which takes its place once all of it is on the
/// disk. A link is followed: what it points to is replaced. Where several write at once, each has a file
/// of its own beside it, and the last one stays.
pub(crate) fn replace(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let target = fs::canonicalize(path).unwrap_or_else(|_| path.to_owned());
    let (file, beside) = create_beside(&target)?;
    let written = write(file, bytes).and_then(|()| fs::rename(&beside, &target));
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

/// Makes a file beside `path` that nobody else has: `NAME.PROCESS.NUMBER.part`.
pub(crate) fn create_beside(path: &Path) -> io::Result<(File, PathBuf)> {
    static NEXT: AtomicU64 = AtomicU64::new(0);
    let name = path.file_name().ok_or_else(|| io::Error::from(io::ErrorKind::InvalidInput))?;
    loop {
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let mut beside = name.to_owned();
        beside.push(format!(".{}.{number}.part", std::process::id()));
        let beside = path.with_file_name(beside);
        match OpenOptions::new().write(true).create_new(true).open(&beside) {
            Ok(file) => return Ok((file, beside)),
            // Of a process that was killed and had the same number, perhaps on another machine.
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
            Err(error) => return Err(error),
        }
    }
}

fn write(mut file: File, bytes: &[u8]) -> io::Result<()> {
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
    }

    /// What a killed process leaves is not the file, and does not hinder the next one.
    #[test]
    fn names_that_are_taken_are_passed_over() {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let path = folder.path().join("file");
        let (_, first) = create_beside(&path).expect("makes");
        let name = first.to_str().expect("UTF-8").strip_suffix(".part").expect("its end");
        let (name, number) = name.rsplit_once('.').expect("a number");
        let number: u64 = number.parse().expect("a number");
        // Tests beside this one take numbers, too.
        let left: Vec<_> =
            (number + 1..number + 100).map(|next| format!("{name}.{next}.part")).collect();
        for left in &left {
            fs::write(left, b"half").expect("writes");
        }
        replace(&path, b"whole").expect("writes");
        assert_eq!(fs::read(&path).expect("there"), b"whole");
        for left in &left {
            assert_eq!(fs::read(left).expect("there"), b"half");
        }
    }

    #[test]
    fn of_several_at_once_the_last_whole_one_stays() {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let path = folder.path().join("file");
        const LEN: usize = 1 << 18;
        let one_of_them = || {
            let bytes = fs::read(&path).expect("there");
            assert!(bytes.len() == LEN && bytes.iter().all(|byte| *byte == bytes[0]), "mixed");
        };
        replace(&path, &[0; LEN]).expect("writes");
        std::thread::scope(|scope| {
            for byte in 1..=4 {
                let path = &path;
                scope.spawn(move || {
                    for _ in 0..20 {
                        replace(path, &[byte; LEN]).expect("nobody is in the way");
                    }
                });
            }
            (0..100).for_each(|_| one_of_them());
        });
        one_of_them();
        assert_eq!(fs::read_dir(folder.path()).expect("there").count(), 1, "nothing else is left");
    }
}
