//! Readers by name.

use std::fmt;
use std::ops::ControlFlow;
use std::path::PathBuf;
use std::str::FromStr;
use std::sync::Arc;

use slotstream_core::RecordReader;

use crate::{
    DirectOptions, DirectReader, IoError, MemReader, PositionalOptions, PositionalReader, ReadMode,
    UringOptions, UringReader,
};

/// The readers of this crate that [`open_reader`] opens. A name, not a border: every
/// [`RecordReader`] is as good.
///
/// A [`MmapReader`](crate::MmapReader) has no kind: whoever opens one has to answer for the files,
/// in an `unsafe` block of their own.
///
/// ```
/// use slotstream_io::ReaderKind;
/// let kind: ReaderKind = "uncached".parse()?;
/// assert_eq!(kind, ReaderKind::Uncached);
/// assert_eq!(kind.to_string(), "uncached");
/// assert!("fast".parse::<ReaderKind>().is_err());
/// # Ok::<(), slotstream_io::IoError>(())
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ReaderKind {
    /// What suits the system: see [`ReadMode::Auto`].
    #[default]
    Auto,
    /// A [`PositionalReader`] through the page cache.
    Buffered,
    /// A [`PositionalReader`] around the page cache.
    Uncached,
    /// A [`MemReader`]: all files wholly in memory.
    Memory,
    /// A [`DirectReader`], with the bounce pages of [`DirectOptions::new`].
    Direct,
    /// A [`UringReader`], with the bounce pages and the rings of [`UringOptions::new`].
    Uring,
}

impl ReaderKind {
    /// Every kind, in the order of [`Self::NAMES`].
    pub const ALL: &'static [Self] =
        &[Self::Auto, Self::Buffered, Self::Uncached, Self::Memory, Self::Direct, Self::Uring];

    /// Every name.
    pub const NAMES: &'static [&'static str] =
        &["auto", "buffered", "uncached", "memory", "direct", "uring"];

    /// The name, as on command lines.
    #[must_use]
    pub const fn name(self) -> &'static str {
        Self::NAMES[self as usize]
    }
}

impl fmt::Display for ReaderKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

impl FromStr for ReaderKind {
    type Err = IoError;

    /// # Errors
    /// [`IoError::ReaderName`], which lists the names.
    fn from_str(name: &str) -> Result<Self, IoError> {
        Self::ALL
            .iter()
            .copied()
            .find(|kind| kind.name() == name)
            .ok_or_else(|| IoError::ReaderName { found: name.to_owned() })
    }
}

/// Opens `paths` with the reader of that kind; `FileId` n is `paths[n]`.
///
/// # Errors
/// Those of [`PositionalReader::open`], [`DirectReader::open`], [`UringReader::open`] and
/// [`MemReader::from_files`].
pub fn open_reader(kind: ReaderKind, paths: &[PathBuf]) -> Result<Arc<dyn RecordReader>, IoError> {
    let mode = match kind {
        ReaderKind::Auto => ReadMode::Auto,
        ReaderKind::Buffered => ReadMode::Buffered,
        ReaderKind::Uncached => ReadMode::Uncached,
        ReaderKind::Memory => {
            let reader = MemReader::from_files(paths, &mut |_| ControlFlow::Continue(()))?;
            return Ok(Arc::new(reader));
        }
        ReaderKind::Direct => {
            return Ok(Arc::new(DirectReader::open(paths, DirectOptions::new())?));
        }
        ReaderKind::Uring => {
            return Ok(Arc::new(UringReader::open(paths, UringOptions::new())?));
        }
    };
    Ok(Arc::new(PositionalReader::open(paths, PositionalOptions::new().with_mode(mode))?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_round_trip_and_the_error_lists_them() {
        for &kind in ReaderKind::ALL {
            assert_eq!(kind.to_string().parse::<ReaderKind>().unwrap(), kind);
        }
        let error = "Auto ".parse::<ReaderKind>().unwrap_err();
        assert!(matches!(&error, IoError::ReaderName { found } if found == "Auto "));
        assert!(
            error.to_string().contains("auto, buffered, uncached, memory, direct, uring"),
            "{error}"
        );
    }
}
