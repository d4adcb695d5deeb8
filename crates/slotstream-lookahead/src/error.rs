//! Names that say nothing.

use slotstream_core::ErrorKind;

/// Why a file could not be used, as whoever opened it says.
pub type BoxedSource = Box<dyn std::error::Error + Send + Sync>;

/// Why a file cannot be had that a forecaster needs.
#[derive(Debug)]
pub struct FileFault {
    pub(crate) kind: ErrorKind,
    pub(crate) source: BoxedSource,
}

impl FileFault {
    /// Why, and what the caller can do about it.
    #[must_use]
    pub fn new(kind: ErrorKind, source: impl Into<BoxedSource>) -> Self {
        Self { kind, source: source.into() }
    }

    /// What the caller can do about it.
    #[must_use]
    pub const fn kind(&self) -> ErrorKind {
        self.kind
    }
}

/// A text that names no forecaster.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum LookaheadError {
    /// No forecaster has this name.
    #[error("there is no forecaster {name:?}; there are {}", known.join(", "))]
    #[non_exhaustive]
    Unknown {
        /// The name.
        name: String,
        /// The names that there are.
        known: Vec<&'static str>,
    },
    /// What follows the name is not `key=value+key=value`.
    #[error("{text:?} is no option of {forecaster}: options are key=value, joined by +")]
    #[non_exhaustive]
    OptionSyntax {
        /// The forecaster.
        forecaster: &'static str,
        /// The part that is none.
        text: String,
    },
    /// The forecaster has no such option, or it was given before.
    #[error("{forecaster} takes {key:?} {}; its options are {}", if *repeated { "once" } else { "not" }, known.join(", "))]
    #[non_exhaustive]
    OptionKey {
        /// The forecaster.
        forecaster: &'static str,
        /// The key.
        key: String,
        /// It was given before.
        repeated: bool,
        /// The keys that it has.
        known: Vec<&'static str>,
    },
    /// An option has a value that it cannot have.
    #[error("{key} of {forecaster} is {expected}, not {value:?}")]
    #[non_exhaustive]
    OptionValue {
        /// The forecaster.
        forecaster: &'static str,
        /// The key.
        key: &'static str,
        /// The value.
        value: String,
        /// Which values are legal.
        expected: &'static str,
    },
    /// The forecaster needs a file and none is named.
    #[error("{forecaster} needs a file: {forecaster}:PATH")]
    #[non_exhaustive]
    NoFile {
        /// The forecaster.
        forecaster: &'static str,
    },
    /// The file cannot be used.
    #[error("{forecaster} cannot use {path:?}")]
    #[non_exhaustive]
    File {
        /// The forecaster.
        forecaster: &'static str,
        /// The path as it was given.
        path: String,
        /// What the caller can do about it.
        kind: ErrorKind,
        /// Why.
        source: BoxedSource,
    },
}

impl LookaheadError {
    /// What the caller can do about it.
    #[must_use]
    pub const fn kind(&self) -> ErrorKind {
        match self {
            Self::File { kind, .. } => *kind,
            _ => ErrorKind::User,
        }
    }
}
