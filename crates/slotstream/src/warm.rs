//! A warm start: which records were resident, and what the policy knew, from one process to the next.
//!
//! Ids and the policy's state are kept, not bytes. `docs/formats.md` describes the file.

mod wire;

use std::fs::{self, File};
use std::io::{self, Read};
use std::path::{Path, PathBuf};

use slotstream_checkpoint::container::Digest;
use slotstream_core::{BindError, CancelToken, ErrorKind, ExpertKey, Geometry};
pub use slotstream_experts::WarmStart;

use crate::{Engine, Error};

/// Most bytes of a file that is read.
const LIMIT: u64 = 1 << 28;

/// What a file of a warm start can be refused for.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum WarmError {
    /// Something is wrong with a file.
    #[error("the warm start {} cannot be used", path.display())]
    #[non_exhaustive]
    File {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        source: Box<WarmError>,
    },
    /// The system refused.
    #[error("it could not be {doing}")]
    #[non_exhaustive]
    Io {
        /// What was to be done.
        doing: &'static str,
        /// What the system said.
        source: io::Error,
    },
    /// It is a folder, a device or a pipe.
    #[error("it is no regular file")]
    #[non_exhaustive]
    NotAFile {},
    /// It has more bytes than any such file.
    #[error("it has more than {limit} bytes")]
    #[non_exhaustive]
    TooLarge {
        /// Most bytes that are read.
        limit: u64,
    },
    /// It is not what it should be.
    #[error("it is damaged, or no file of a warm start: {what}")]
    #[non_exhaustive]
    Damaged {
        /// What was found.
        what: &'static str,
    },
    /// Another version wrote it.
    #[error(
        "it has version {found} of the format, this program reads {expected}: begin without it, and write \
         it anew"
    )]
    #[non_exhaustive]
    Version {
        /// Its version.
        found: u32,
        /// The one that is read.
        expected: u32,
    },
    /// It was saved by an engine of another model.
    #[error(
        "it was saved with another model: {found:.16}, this one is {expected:.16}; begin without it, and \
         write one with this model"
    )]
    #[non_exhaustive]
    OtherModel {
        /// This model.
        expected: Digest,
        /// The file's.
        found: Digest,
    },
    /// The policy does not take the state that is in it.
    #[error(
        "the policy {policy} does not take the state that is in it: begin without it, or with its records \
         alone (`state: None`)"
    )]
    #[non_exhaustive]
    PolicyState {
        /// The policy.
        policy: String,
        /// Why.
        source: BindError,
    },
    /// The pool has records already.
    #[error("the pool has {resident} records already: a warm start comes before the first pass")]
    #[non_exhaustive]
    NotEmpty {
        /// How many.
        resident: usize,
    },
}

impl WarmError {
    /// What the caller can do about it.
    #[must_use]
    pub fn kind(&self) -> ErrorKind {
        match self {
            Self::File { source, .. } => source.kind(),
            Self::Io { .. } => ErrorKind::Transient,
            Self::NotAFile {}
            | Self::Version { .. }
            | Self::OtherModel { .. }
            | Self::PolicyState { .. }
            | Self::NotEmpty { .. } => ErrorKind::User,
            Self::TooLarge { .. } | Self::Damaged { .. } => ErrorKind::Corrupt,
        }
    }

    fn of(self, path: &Path) -> Self {
        Self::File { path: path.to_owned(), source: Box::new(self) }
    }

    /// Whether there is no such file.
    #[must_use]
    pub fn is_missing(&self) -> bool {
        match self {
            Self::File { source, .. } => source.is_missing(),
            Self::Io { source, .. } => source.kind() == io::ErrorKind::NotFound,
            _ => false,
        }
    }
}

/// Whether a regular file begins as every file of a warm start does; nothing else of it is looked at.
///
/// # Errors
/// The system's.
pub fn is_warm_start(path: &Path) -> io::Result<bool> {
    crate::atomic::begins_with(path, wire::MAGIC)
}

/// Which records a pool had, and what its policy knew: what a warm start begins with.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct WarmSet {
    /// Of which model.
    pub model: Digest,
    /// Its layers, experts and top-k.
    pub geometry: Geometry,
    /// The policy's name.
    pub policy: String,
    /// What the policy knew; `None` where it keeps nothing.
    pub state: Option<Vec<u8>>,
    /// The records, each once.
    pub records: Vec<ExpertKey>,
}

impl WarmSet {
    /// Reads a file's bytes.
    ///
    /// # Errors
    /// [`WarmError::Damaged`] or [`WarmError::Version`].
    pub fn from_bytes(bytes: &[u8]) -> Result<Self, WarmError> {
        wire::read(bytes)
    }

    /// The bytes of a file.
    #[must_use]
    pub fn to_bytes(&self) -> Vec<u8> {
        wire::write(self)
    }

    /// Reads a file.
    ///
    /// # Errors
    /// [`WarmError::File`] with the file's name and what is wrong with it.
    pub fn read(path: impl AsRef<Path>) -> Result<Self, WarmError> {
        let path = path.as_ref();
        let read = || {
            let io = |source| WarmError::Io { doing: "read", source };
            // Before it is opened: a pipe would wait for its other end.
            if !fs::metadata(path).map_err(io)?.is_file() {
                return Err(WarmError::NotAFile {});
            }
            let mut bytes = Vec::new();
            File::open(path).map_err(io)?.take(LIMIT + 1).read_to_end(&mut bytes).map_err(io)?;
            if bytes.len() as u64 > LIMIT {
                return Err(WarmError::TooLarge { limit: LIMIT });
            }
            Self::from_bytes(&bytes)
        };
        read().map_err(|error| error.of(path))
    }

    /// Writes a file, in place of one that is there: under another name in the same folder first, so that
    /// a program that is killed leaves the old one whole.
    ///
    /// # Errors
    /// [`WarmError::File`] with the file's name and what the system said.
    pub fn write(&self, path: impl AsRef<Path>) -> Result<(), WarmError> {
        let path = path.as_ref();
        let write = || match fs::metadata(path) {
            Ok(found) if !found.is_file() => Err(WarmError::NotAFile {}),
            _ => crate::atomic::replace(path, &self.to_bytes())
                .map_err(|source| WarmError::Io { doing: "written", source }),
        };
        write().map_err(|error| error.of(path))
    }
}

/// What a warm start found and did.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct WarmStarted {
    /// What was read back.
    pub records: WarmStart,
    /// Whether the policy took its state over. It does not where there is none, or where another policy
    /// had left it.
    pub policy_state: bool,
    /// How long it took.
    pub time: std::time::Duration,
}

impl Engine {
    /// Which records are resident now, and what the policy knows: what a later process can
    /// [begin with](Self::warm_start). Waits for its turn as a pass does.
    ///
    /// # Errors
    /// [`Error::Container`] when the model's identity cannot be read from its files.
    pub fn warm_set(&self) -> Result<WarmSet, Error> {
        let model = crate::identity::model_identity(self.checkpoint())?;
        let runtime = self.runtime()?;
        let pool = runtime.experts.pool();
        Ok(WarmSet {
            model,
            geometry: *pool.geometry(),
            policy: pool.policy().name(),
            state: pool.policy().export(),
            records: pool.states().filter_map(|(slot, _)| pool.key(slot)).collect(),
        })
    }

    /// Begins with the records that another process had: the policy takes its state over, if it is the
    /// same policy, and the records are read in one sweep over the files, as far as there are slots.
    /// Before the first pass. No token depends on it.
    ///
    /// # Errors
    /// The engine stays as it was, cold and fit for use, after [`Error::WarmStart`] (another model,
    /// a state that the policy does not take, a pool that is not empty), a failed read, and
    /// an error of kind `Cancelled` when `cancel` was set.
    pub fn warm_start(&self, set: &WarmSet, cancel: &CancelToken) -> Result<WarmStarted, Error> {
        let begun = std::time::Instant::now();
        let expected = crate::identity::model_identity(self.checkpoint())?;
        if set.model != expected {
            return Err(WarmError::OtherModel { expected, found: set.model }.into());
        }
        if set.geometry != self.checkpoint().geometry() {
            let what = "its layers, experts and top-k are not those of its model";
            return Err(WarmError::Damaged { what }.into());
        }
        let mut runtime = self.runtime()?;
        let pool = runtime.experts.pool();
        let resident = pool.resident_count();
        if resident > 0 {
            return Err(WarmError::NotEmpty { resident }.into());
        }
        let state = set.state.as_deref().filter(|_| set.policy == pool.policy().name());
        // A policy may panic; the next turn then empties the pool.
        runtime.set_busy(true);
        let imported = state.map(|state| runtime.experts.import_policy(state)).transpose();
        let records = match imported {
            Ok(_) => runtime.experts.warm_start(&set.records, cancel).map_err(Error::from),
            Err(source) => {
                Err(WarmError::PolicyState { policy: set.policy.clone(), source }.into())
            }
        };
        runtime.after_pass(&**self.0.model.ops());
        runtime.set_busy(false);
        drop(runtime);
        // After the reads and before anything is used.
        self.check_unchanged()?;
        let (policy_state, time) = (state.is_some(), begun.elapsed());
        Ok(WarmStarted { records: records?, policy_state, time })
    }
}
