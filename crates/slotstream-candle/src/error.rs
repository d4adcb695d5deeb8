//! Errors of the ops and of slot memory.

use slotstream_core::{ErrorKind, SlotId};
use slotstream_kernels::MatrixError;
use slotstream_kernels::metal::PlanError;

/// An op, a slot or a provider that could not do what it was asked.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// candle refused.
    #[error("candle refused in {op}")]
    #[non_exhaustive]
    Candle {
        /// The op.
        op: &'static str,
        /// candle's own error.
        source: candle_core::Error,
    },
    /// A tensor has the wrong shape.
    #[error("{op}: {tensor} has shape {found:?}, expected {expected:?}")]
    #[non_exhaustive]
    Shape {
        /// The op.
        op: &'static str,
        /// Which of its arguments.
        tensor: &'static str,
        /// Shape expected.
        expected: Vec<usize>,
        /// Shape found.
        found: Vec<usize>,
    },
    /// A tensor has the wrong element type, lies on another device, or is not contiguous.
    #[error("{op}: {tensor} is {found}, expected {expected}")]
    #[non_exhaustive]
    Storage {
        /// The op.
        op: &'static str,
        /// Which of its arguments.
        tensor: &'static str,
        /// What was expected.
        expected: &'static str,
        /// What was found.
        found: String,
    },
    /// A number is out of range.
    #[error("{op}: {what} is {value}, expected less than {limit}")]
    #[non_exhaustive]
    Range {
        /// The op.
        op: &'static str,
        /// Which number.
        what: &'static str,
        /// Its value.
        value: u64,
        /// One past the largest legal value.
        limit: u64,
    },
    /// Weight bytes that are not a matrix of the stated shape.
    #[error("{op}: the weights do not fit their shape")]
    #[non_exhaustive]
    Matrix {
        /// The op.
        op: &'static str,
        /// What does not fit.
        source: MatrixError,
    },
    /// A launch that no device would take.
    #[error("{op}: there is no launch for these shapes")]
    #[non_exhaustive]
    Plan {
        /// The op.
        op: &'static str,
        /// What is wrong with it.
        source: PlanError,
    },
    /// A slot that cannot be lent now.
    #[error("{slot} cannot be lent for {purpose}: it is {state}")]
    #[non_exhaustive]
    SlotBusy {
        /// The slot.
        slot: SlotId,
        /// `reading` or `writing`.
        purpose: &'static str,
        /// What it is doing.
        state: &'static str,
    },
    /// A slot beyond the end of the arena.
    #[error("{slot} was asked for, the arena has {slots} slots")]
    #[non_exhaustive]
    NoSuchSlot {
        /// The slot.
        slot: SlotId,
        /// Slots of the arena.
        slots: usize,
    },
    /// The system refused slot memory.
    #[error("the system refused {bytes} bytes of slot memory; ask for fewer slots or less memory")]
    #[non_exhaustive]
    SlotMemory {
        /// Bytes asked for.
        bytes: u64,
        /// The system's own error.
        source: std::io::Error,
    },
    /// There is no GPU that this can run on.
    #[error("Metal cannot be used: {why}")]
    #[non_exhaustive]
    NoMetal {
        /// What is missing.
        why: &'static str,
    },
    /// The GPU's compiler refused a kernel.
    #[error("kernel {kernel} of library {library} does not compile")]
    #[non_exhaustive]
    Kernel {
        /// The kernel.
        kernel: &'static str,
        /// Its library.
        library: &'static str,
        /// What the compiler said.
        source: Box<dyn std::error::Error + Send + Sync>,
    },
    /// Slots would not leave the GPU room for what it needs.
    #[error(
        "{bytes} bytes of slot memory beside {used} that are allocated are more than the {limit} \
         that the GPU recommends; ask for fewer slots or less memory"
    )]
    #[non_exhaustive]
    WorkingSet {
        /// Bytes asked for.
        bytes: u64,
        /// Bytes allocated on the GPU.
        used: u64,
        /// Bytes that it recommends at most.
        limit: u64,
    },
    /// The expert provider failed.
    #[error("the experts could not be provided")]
    #[non_exhaustive]
    Provider {
        /// What the caller can do about it.
        kind: ErrorKind,
        /// The provider's own error.
        source: Box<dyn std::error::Error + Send + Sync>,
    },
}

impl Error {
    /// Wraps candle's error with the name of the op.
    #[must_use]
    pub const fn candle(op: &'static str, source: candle_core::Error) -> Self {
        Self::Candle { op, source }
    }

    /// Wraps a provider's error.
    #[must_use]
    pub fn provider(
        kind: ErrorKind,
        source: impl Into<Box<dyn std::error::Error + Send + Sync>>,
    ) -> Self {
        Self::Provider { kind, source: source.into() }
    }

    /// What the caller can do about it.
    #[must_use]
    pub const fn kind(&self) -> ErrorKind {
        match self {
            Self::SlotMemory { .. } | Self::NoMetal { .. } | Self::WorkingSet { .. } => {
                ErrorKind::User
            }
            Self::Provider { kind, .. } => *kind,
            _ => ErrorKind::Bug,
        }
    }
}

/// Gives candle's errors the name of the op they happened in.
pub trait CandleContext<T> {
    /// Names the op.
    ///
    /// # Errors
    /// [`Error::Candle`] for any error.
    fn within(self, op: &'static str) -> Result<T, Error>;
}

impl<T> CandleContext<T> for candle_core::Result<T> {
    fn within(self, op: &'static str) -> Result<T, Error> {
        self.map_err(|source| Error::candle(op, source))
    }
}
