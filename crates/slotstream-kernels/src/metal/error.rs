use slotstream_core::AffineFormat;

/// Why an operation cannot be launched.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum PlanError {
    /// A buffer is too short for the shapes.
    #[error("{argument} holds {got} bytes, expected {wanted}")]
    #[non_exhaustive]
    Length {
        /// The argument.
        argument: &'static str,
        /// Bytes wanted.
        wanted: usize,
        /// Bytes given.
        got: usize,
    },
    /// A buffer starts where its elements cannot be read.
    #[error("{argument} starts at byte {offset}, which is not a multiple of {wanted}")]
    #[non_exhaustive]
    Alignment {
        /// The argument.
        argument: &'static str,
        /// Byte at which it starts.
        offset: usize,
        /// What the offset must be a multiple of.
        wanted: usize,
    },
    /// The launch is beyond what a device takes.
    #[error("{got} {what}, from {least} to {most} are possible")]
    #[non_exhaustive]
    Limit {
        /// What there is too much or too little of.
        what: &'static str,
        /// How much.
        got: usize,
        /// The least possible.
        least: usize,
        /// The most possible.
        most: usize,
    },
    /// A threadgroup does not consist of whole simdgroups.
    #[error("{threads} threads do not consist of whole simdgroups")]
    #[non_exhaustive]
    Simdgroups {
        /// Threads of the threadgroup.
        threads: u32,
    },
    /// There is no kernel for the quantization.
    #[error("no kernel for {} bits in groups of {}", .format.bits(), .format.group_size())]
    #[non_exhaustive]
    Format {
        /// The quantization.
        format: AffineFormat,
    },
    /// A number does not divide another one.
    #[error("{of} {what} do not consist of whole parts of {part}")]
    #[non_exhaustive]
    Parts {
        /// What is divided.
        what: &'static str,
        /// How many there are.
        of: usize,
        /// What should divide them.
        part: usize,
    },
}

impl PlanError {
    /// What the caller can do about it.
    #[must_use]
    pub const fn kind(&self) -> slotstream_core::ErrorKind {
        slotstream_core::ErrorKind::Bug
    }
}
