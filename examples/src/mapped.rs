//! The reader of the examples that this crate's users answer for.

#![expect(unsafe_code, reason = "who maps files promises that nobody changes them")]

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use slotstream::EngineBuilder;
use slotstream::core::RecordReader;
use slotstream::io::{IoError, MmapReader, ReaderKind};

/// What `--reader` names: a built-in reader, or `mmap`, which is there to be compared with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ReaderArgument {
    /// A built-in reader.
    Kind(ReaderKind),
    /// Maps of the files.
    Mmap,
}

impl ReaderArgument {
    /// Lets an engine read so.
    pub(crate) fn set(self, builder: EngineBuilder) -> EngineBuilder {
        match self {
            Self::Kind(kind) => builder.reader(kind),
            Self::Mmap => builder.open_reader(Box::new(|paths| {
                // SAFETY: nothing in this process writes to a file of a model or a container
                // that it reads from. That no other process does is the promise of whoever
                // writes `--reader mmap` on a command line; the flag's help asks for it.
                let reader = unsafe { MmapReader::open(paths) }?;
                Ok(Arc::new(reader) as Arc<dyn RecordReader>)
            })),
        }
    }
}

impl fmt::Display for ReaderArgument {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Kind(kind) => kind.fmt(f),
            Self::Mmap => f.pad("mmap"),
        }
    }
}

impl FromStr for ReaderArgument {
    type Err = UnknownReader;

    fn from_str(name: &str) -> Result<Self, UnknownReader> {
        match name {
            "mmap" => Ok(Self::Mmap),
            name => name.parse().map(Self::Kind).map_err(UnknownReader),
        }
    }
}

/// A name of no reader.
#[derive(Debug, thiserror::Error)]
#[error("{0}, mmap")]
pub struct UnknownReader(IoError);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names() {
        for name in ReaderKind::NAMES.iter().copied().chain(["mmap"]) {
            assert_eq!(name.parse::<ReaderArgument>().unwrap().to_string(), name);
        }
        assert_eq!("mmap".parse::<ReaderArgument>().unwrap(), ReaderArgument::Mmap);
        let error = "Mmap".parse::<ReaderArgument>().unwrap_err().to_string();
        assert!(error.ends_with("direct, uring, mmap"), "{error}");
    }
}
