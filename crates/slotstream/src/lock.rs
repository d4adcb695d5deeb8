//! One process a model: an advisory lock.

use std::collections::HashMap;
use std::fs::{self, File, OpenOptions, TryLockError};
use std::io::{Read, Write};
use std::path::{Path, PathBuf};
use std::sync::{Arc, LazyLock, Weak};

use parking_lot::Mutex;
use slotstream_checkpoint::container::Digest;

use crate::Error;

/// What an engine does about other processes that run its model. Each engine would plan for the memory
/// that is available before either has used it.
///
/// The lock is a file of the user's (in `$XDG_RUNTIME_DIR/slotstream`, else in
/// `$XDG_CACHE_HOME/slotstream` or `$HOME/.cache/slotstream`), never in the model's folder. It is named
/// after the model's content, so two copies of a model share it. It ends with the process, however that
/// ends. Engines of one process share it, too: planning for both is up to whoever builds them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ModelLock {
    /// Takes no lock and looks at none.
    Off,
    /// Takes the lock where it is free, and logs a warning where it is not.
    #[default]
    Warn,
    /// Takes the lock, or ends building with [`Error::Locked`]. Where there is no place for locks it
    /// logs a warning and goes on.
    Refuse,
}

/// What became of the lock of an engine.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ModelLockState {
    /// None was wanted.
    Off,
    /// This process holds it.
    Held {
        /// The lock file.
        path: PathBuf,
    },
    /// Another process holds it.
    Elsewhere {
        /// Its number, as it says itself.
        holder: Option<u32>,
        /// The lock file.
        path: PathBuf,
    },
    /// There was no place for it.
    Unavailable {
        /// What was tried, and what the system said.
        why: String,
    },
}

/// The locks of this process, by file: `flock` would shut out a second engine of the same process.
static HELD: LazyLock<Mutex<HashMap<PathBuf, Weak<File>>>> = LazyLock::new(Mutex::default);

/// What an engine holds; the lock ends with the last engine of the process that has it.
#[derive(Debug)]
pub(crate) struct Guard {
    pub(crate) state: ModelLockState,
    _file: Option<Arc<File>>,
}

/// Takes the lock of a model, as far as `wish` says.
pub(crate) fn take(
    wish: ModelLock,
    identity: impl FnOnce() -> Result<Digest, Error>,
) -> Result<Guard, Error> {
    if wish == ModelLock::Off {
        return Ok(Guard { state: ModelLockState::Off, _file: None });
    }
    let guard = match folders().as_slice() {
        [] => Guard::unavailable("neither XDG_RUNTIME_DIR, XDG_CACHE_HOME nor HOME is set".into()),
        folders => take_in(folders, &identity()?),
    };
    match &guard.state {
        ModelLockState::Elsewhere { holder, path } if wish == ModelLock::Refuse => {
            return Err(Error::Locked { holder: *holder, path: path.clone() });
        }
        ModelLockState::Elsewhere { holder, .. } => tracing::warn!(
            holder,
            "another process has this model loaded: two engines together may take more memory than there \
             is"
        ),
        ModelLockState::Unavailable { why } => {
            tracing::warn!(why, "no lock says that this process runs the model");
        }
        _ => {}
    }
    Ok(guard)
}

/// Where locks may lie, the best place first.
fn folders() -> Vec<PathBuf> {
    let variable = |name| std::env::var_os(name).filter(|value| !value.is_empty());
    let home = variable("HOME").map(|home| PathBuf::from(home).join(".cache"));
    let places = [variable("XDG_RUNTIME_DIR"), variable("XDG_CACHE_HOME")]
        .map(|place| place.map(PathBuf::from));
    let places = places.into_iter().chain([home]).flatten().filter(|place| place.is_absolute());
    places.map(|place| place.join("slotstream")).collect()
}

/// Takes the lock in the first folder that can hold it.
fn take_in(folders: &[PathBuf], identity: &Digest) -> Guard {
    let mut said = Vec::new();
    for folder in folders {
        let path = folder.join(format!("{identity:.32}.lock"));
        match try_take(folder, &path) {
            Ok(guard) => return guard,
            Err(error) => said.push(format!("{}: {error}", path.display())),
        }
    }
    Guard::unavailable(said.join("; "))
}

fn try_take(folder: &Path, path: &Path) -> std::io::Result<Guard> {
    // Held until the end: two threads that build engines at once must not both lock.
    let mut held = HELD.lock();
    if let Some(file) = held.get(path).and_then(Weak::upgrade) {
        return Ok(Guard::held(path, file));
    }
    fs::create_dir_all(folder)?;
    let options = OpenOptions::new().read(true).write(true).create(true).truncate(false).clone();
    let mut file = options.open(path)?;
    match file.try_lock() {
        Ok(()) => {
            // For the other's message only.
            let _ = file.set_len(0).and_then(|()| writeln!(file, "{}", std::process::id()));
            let file = Arc::new(file);
            held.retain(|_, file| file.strong_count() > 0);
            held.insert(path.to_owned(), Arc::downgrade(&file));
            Ok(Guard::held(path, file))
        }
        Err(TryLockError::WouldBlock) => {
            let mut text = String::new();
            let _ = file.take(32).read_to_string(&mut text);
            let (holder, path) = (text.trim().parse().ok(), path.to_owned());
            Ok(Guard { state: ModelLockState::Elsewhere { holder, path }, _file: None })
        }
        Err(TryLockError::Error(error)) => Err(error),
    }
}

impl Guard {
    fn held(path: &Path, file: Arc<File>) -> Self {
        Self { state: ModelLockState::Held { path: path.to_owned() }, _file: Some(file) }
    }

    fn unavailable(why: String) -> Self {
        Self { state: ModelLockState::Unavailable { why }, _file: None }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn identity(byte: u8) -> Digest {
        Digest::new([byte; 32])
    }

    #[test]
    fn engines_of_a_process_share_it_and_the_last_one_ends_it() {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let folders = [folder.path().join("not/yet/there")];
        let first = take_in(&folders, &identity(1));
        let ModelLockState::Held { path } = first.state.clone() else { panic!("{first:?}") };
        assert_eq!(path, folders[0].join("01010101010101010101010101010101.lock"));
        let pid = fs::read_to_string(&path).expect("there");
        assert_eq!(pid, format!("{}\n", std::process::id()));
        let second = take_in(&folders, &identity(1));
        assert_eq!(second.state, first.state);
        let other = take_in(&folders, &identity(2));
        assert!(matches!(other.state, ModelLockState::Held { path: p } if p != path));
        // As another process sees it.
        let stranger = File::open(&path).expect("there");
        drop(first);
        assert!(matches!(stranger.try_lock(), Err(TryLockError::WouldBlock)));
        drop(second);
        stranger.try_lock().expect("nobody holds it now");
        let late = take_in(&folders, &identity(1));
        let expected = ModelLockState::Elsewhere { holder: Some(std::process::id()), path };
        assert_eq!(late.state, expected);
    }

    #[test]
    fn a_place_that_cannot_be_written_is_passed_over() {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let blocked = folder.path().join("file");
        fs::write(&blocked, "no folder").expect("writes");
        let guard = take_in(&[blocked.join("a"), folder.path().join("b")], &identity(3));
        assert!(matches!(guard.state, ModelLockState::Held { .. }), "{guard:?}");
        let guard = take_in(&[blocked.join("a")], &identity(3));
        let ModelLockState::Unavailable { why } = guard.state else { panic!("{guard:?}") };
        assert!(why.contains("file/a"), "{why}");
    }

    #[test]
    fn nobody_computes_an_identity_for_nothing() {
        let guard = take(ModelLock::Off, || unreachable!("it is not wanted")).expect("nothing");
        assert_eq!(guard.state, ModelLockState::Off);
    }
}
