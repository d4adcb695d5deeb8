use slotstream_core::ErrorKind;

use super::InstructionSet;

/// A [`Cpu`](crate::Cpu) that cannot be had.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CpuError {
    /// Zero threads were asked for.
    #[error("0 threads cannot compute: ask for at least 1")]
    NoThreads,
    /// This machine does not have the instruction set.
    #[error("this machine lacks {wanted}; the best that it has is {best}")]
    #[non_exhaustive]
    Unavailable {
        /// The set asked for.
        wanted: InstructionSet,
        /// What [`InstructionSet::detect`] says.
        best: InstructionSet,
    },
    /// The operating system refused the threads.
    #[error("{threads} compute threads cannot be started; ask for fewer")]
    #[non_exhaustive]
    Threads {
        /// Threads asked for.
        threads: usize,
        /// The reason.
        source: std::io::Error,
    },
}

impl CpuError {
    /// What the caller can do about it.
    #[must_use]
    pub const fn kind(&self) -> ErrorKind {
        match self {
            Self::NoThreads | Self::Unavailable { .. } => ErrorKind::User,
            Self::Threads { .. } => ErrorKind::Transient,
        }
    }
}
