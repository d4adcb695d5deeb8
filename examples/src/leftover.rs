//! What runs leave behind that were killed hard, and how the next one knows.

use std::fs::{self, File};
use std::io;
use std::path::Path;
use std::time::Duration;

/// Between its making and its holding nobody may take a thing for a leftover.
const FRESH: Duration = Duration::from_secs(60);

/// Says that a file or a folder is used, for as long as the answer lives: however the process ends, the
/// system forgets it then.
pub(crate) fn hold(path: &Path) -> io::Result<File> {
    let held = File::open(path)?;
    held.try_lock()?;
    Ok(held)
}

/// Removes files and folders of `folder` whose names begin and end like this and that nobody
/// [holds](hold). What cannot be looked at or removed stays.
pub(crate) fn sweep(folder: &Path, begin: &str, end: &str) {
    let Ok(entries) = fs::read_dir(folder) else { return };
    for path in entries.flatten().map(|entry| entry.path()) {
        let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
        if name.starts_with(begin) && name.ends_with(end) && is_left(&path).unwrap_or(false) {
            let folder = path.is_dir();
            let _ = if folder { fs::remove_dir_all(&path) } else { fs::remove_file(&path) };
        }
    }
}

fn is_left(path: &Path) -> io::Result<bool> {
    let found = fs::symlink_metadata(path)?;
    // Of a pipe or a link nothing is ours.
    if !found.is_file() && !found.is_dir() {
        return Ok(false);
    }
    let old = found.modified()?.elapsed().is_ok_and(|age| age >= FRESH);
    Ok(old && File::open(path)?.try_lock().is_ok())
}

#[cfg(test)]
mod tests {
    use std::time::SystemTime;

    use super::*;

    #[test]
    fn what_nobody_holds_and_is_old_goes() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        let old = SystemTime::now() - 2 * FRESH;
        for name in ["mine-1.x", "mine-2.x", "other.x", "mine-3.y"] {
            let file = File::create(at(name)).unwrap();
            file.set_modified(old).unwrap();
        }
        File::create(at("mine-4.x")).unwrap();
        fs::create_dir(at("mine-5.x")).unwrap();
        fs::write(at("mine-5.x/inner"), "inner").unwrap();
        File::open(at("mine-5.x")).unwrap().set_modified(old).unwrap();
        std::os::unix::fs::symlink(at("other.x"), at("mine-6.x")).unwrap();
        let held = hold(&at("mine-2.x")).unwrap();
        let left = || {
            sweep(folder.path(), "mine-", ".x");
            let names = fs::read_dir(folder.path()).unwrap().flatten();
            let mut names: Vec<_> =
                names.map(|entry| entry.file_name().into_string().unwrap()).collect();
            names.sort();
            names
        };
        assert_eq!(left(), ["mine-2.x", "mine-3.y", "mine-4.x", "mine-6.x", "other.x"]);
        drop(held);
        assert_eq!(left(), ["mine-3.y", "mine-4.x", "mine-6.x", "other.x"]);
    }
}
