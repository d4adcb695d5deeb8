//! Errors of the names and shapes in this crate, and the kinds that all crates sort theirs into.

use std::io;

use crate::FileId;

/// What a caller can do about an error. Every error enum of the workspace has a `kind()`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ErrorKind {
    /// The request is wrong: change an argument, a flag or a configuration.
    User,
    /// A file is damaged, incomplete or not of the expected form.
    Corrupt,
    /// The machine or the file system failed; the same request may succeed later.
    Transient,
    /// The caller cancelled the work.
    Cancelled,
    /// A contract was broken by this library or by a user's policy, reader or forecaster.
    Bug,
}

impl ErrorKind {
    /// The kind of an error of the system at a file that somebody named: [`User`](Self::User) where
    /// another path or other rights would help, else [`Transient`](Self::Transient).
    #[must_use]
    pub fn of_file(error: &io::Error) -> Self {
        match error.kind() {
            io::ErrorKind::NotFound
            | io::ErrorKind::PermissionDenied
            | io::ErrorKind::IsADirectory
            | io::ErrorKind::NotADirectory
            | io::ErrorKind::AlreadyExists
            | io::ErrorKind::ReadOnlyFilesystem
            | io::ErrorKind::InvalidFilename => Self::User,
            _ => Self::Transient,
        }
    }
}

/// An impossible shape, extent or format.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum CoreError {
    /// The numbers of a geometry contradict each other.
    #[error(
        "{layers} layers of {experts} experts with top-{top_k} routing: each must be at least 1 \
         and top-k at most the number of experts"
    )]
    #[non_exhaustive]
    Geometry {
        /// `num_hidden_layers`.
        layers: u16,
        /// `num_experts`.
        experts: u16,
        /// `num_experts_per_tok`.
        top_k: u16,
    },
    /// An extent ends beyond what a file position can name, or beyond its parent.
    #[error("{len} bytes at offset {offset} of {file} are out of range")]
    #[non_exhaustive]
    ExtentOverflow {
        /// The file.
        file: FileId,
        /// First byte.
        offset: u64,
        /// Length in bytes.
        len: u64,
    },
    /// An affine format that no kernel knows.
    #[error(
        "affine quantization with {bits} bits in groups of {group_size}: expected 4 or 8 bits in \
         groups of 32, 64 or 128"
    )]
    #[non_exhaustive]
    Affine {
        /// `bits` of the quantization block.
        bits: u32,
        /// `group_size` of the quantization block.
        group_size: u32,
    },
    /// Expert widths that do not consist of whole groups.
    #[error(
        "experts of {intermediate} x {hidden} do not consist of whole groups of {group_size}, or \
         exceed 2^20"
    )]
    #[non_exhaustive]
    ExpertShape {
        /// `hidden_size`.
        hidden: usize,
        /// `moe_intermediate_size`.
        intermediate: usize,
        /// Group size of the experts' quantization.
        group_size: usize,
    },
}

impl CoreError {
    /// What the caller can do about it.
    #[must_use]
    pub const fn kind(&self) -> ErrorKind {
        match self {
            Self::Geometry { .. } | Self::Affine { .. } | Self::ExpertShape { .. } => {
                ErrorKind::User
            }
            Self::ExtentOverflow { .. } => ErrorKind::Corrupt,
        }
    }
}
