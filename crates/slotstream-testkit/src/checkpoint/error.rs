//! Why a checkpoint could not be written.

use std::path::{Path, PathBuf};

use slotstream_checkpoint::CheckpointError;
use slotstream_core::ErrorKind;

/// Why a checkpoint could not be written or edited.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum WriteError {
    /// The operating system refused.
    #[error("cannot {action} {}", path.display())]
    #[non_exhaustive]
    Io {
        /// The file or folder.
        path: PathBuf,
        /// What was tried.
        action: &'static str,
        /// The system's own error.
        source: std::io::Error,
    },
    /// The config or the source folder is not a legal checkpoint.
    #[error("the source {} is not usable", path.display())]
    #[non_exhaustive]
    Source {
        /// The config or folder.
        path: PathBuf,
        /// What is wrong with it.
        source: Box<CheckpointError>,
    },
    /// JSON that cannot be edited, because it does not parse.
    #[error("{} holds no JSON object", path.display())]
    #[non_exhaustive]
    Json {
        /// The file.
        path: PathBuf,
        /// What the parser says.
        source: serde_json::Error,
    },
    /// Whoever watched the progress ended it.
    #[error("writing {} was given up: what is there is no legal checkpoint", path.display())]
    #[non_exhaustive]
    Cancelled {
        /// The folder.
        path: PathBuf,
    },
    /// What was to be changed is not there: the folder is not the one that was expected.
    #[error("{} holds no `{what}` to change", path.display())]
    #[non_exhaustive]
    Nothing {
        /// The file.
        path: PathBuf,
        /// What was looked for.
        what: String,
    },
    /// A norm weight of a dtype that cannot be rewritten.
    #[error("{}: norm `{tensor}` is {found}, expected BF16 or F32", path.display())]
    #[non_exhaustive]
    NormDtype {
        /// The file.
        path: PathBuf,
        /// The tensor.
        tensor: String,
        /// Its dtype.
        found: &'static str,
    },
}

impl WriteError {
    pub(crate) fn io(path: &Path, action: &'static str, source: std::io::Error) -> Self {
        Self::Io { path: path.into(), action, source }
    }

    pub(crate) fn source_of(path: &Path, source: CheckpointError) -> Self {
        Self::Source { path: path.into(), source: Box::new(source) }
    }

    pub(crate) fn json(path: &Path, source: serde_json::Error) -> Self {
        Self::Json { path: path.into(), source }
    }

    pub(crate) fn nothing(path: &Path, what: &str) -> Self {
        Self::Nothing { path: path.into(), what: what.to_owned() }
    }

    /// What the caller can do about it.
    #[must_use]
    pub fn kind(&self) -> ErrorKind {
        match self {
            Self::Io { .. } => ErrorKind::Transient,
            Self::Cancelled { .. } => ErrorKind::Cancelled,
            Self::Source { source, .. } => source.kind(),
            Self::Json { .. } => ErrorKind::Corrupt,
            Self::NormDtype { .. } | Self::Nothing { .. } => ErrorKind::User,
        }
    }
}
