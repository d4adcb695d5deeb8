//! What a caller can do about an error.

use std::path::Path;

use slotstream_core::{CoreError, ErrorKind};

use super::CheckpointError;

impl CheckpointError {
    pub(crate) fn io(path: &Path, action: &'static str, source: std::io::Error) -> Self {
        Self::Io { path: path.into(), action, source }
    }

    pub(crate) fn shape(path: &Path, source: CoreError) -> Self {
        Self::Shape { path: path.into(), source }
    }

    /// What the caller can do about it.
    #[must_use]
    pub fn kind(&self) -> ErrorKind {
        use std::io::ErrorKind as Io;
        match self {
            Self::Io { source, .. } => match source.kind() {
                Io::NotFound | Io::PermissionDenied | Io::NotADirectory => ErrorKind::User,
                _ => ErrorKind::Transient,
            },
            Self::Read { source, .. } => source.kind(),
            Self::FileType { .. }
            | Self::ModelType { .. }
            | Self::NoShards { .. }
            | Self::Quantization { .. }
            | Self::NoSuchTensor { .. }
            | Self::NoConfig { .. }
            | Self::NormFormName { .. } => ErrorKind::User,
            _ => ErrorKind::Corrupt,
        }
    }
}
