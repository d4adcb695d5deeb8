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
    /// What suits the files, the memory and the system, where they are known: an engine asks
    /// [`ReaderKind::suited`]. [`open_reader`] knows the system alone: see [`ReadMode::Auto`].
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

/// What [`ReaderKind::suited`] chose, and why.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct ReaderChoice {
    /// The kind, never `Auto`.
    pub kind: ReaderKind,
    /// Why, for people; empty when nobody had to choose.
    pub why: String,
}

impl From<ReaderKind> for ReaderChoice {
    /// What was asked for.
    fn from(kind: ReaderKind) -> Self {
        Self { kind, why: String::new() }
    }
}

impl ReaderKind {
    /// The reader that suits files of `files` bytes where the system can cache `cache` bytes of
    /// them (`None`: not known), on `system` (as in [`std::env::consts::OS`]): what `auto` means
    /// to an engine, which knows these facts.
    ///
    /// - macOS: `Uncached`: the page cache competes with the slots for unified memory.
    /// - Elsewhere `Buffered`, unless the cache could hold less than three quarters of the files:
    ///   then `Direct`, on Linux. Pages that go before they are used again cost copies and memory;
    ///   `docs/performance.md` has the measurement.
    ///
    /// ```
    /// use slotstream_io::ReaderKind;
    /// let choice = ReaderKind::suited(104 << 30, Some(16 << 30), "linux");
    /// assert_eq!(choice.kind, ReaderKind::Direct);
    /// ```
    #[must_use]
    pub fn suited(files: u64, cache: Option<u64>, system: &str) -> ReaderChoice {
        let gib = |bytes: u64| bytes as f64 / f64::from(1 << 30);
        let (kind, why) = match (system, cache) {
            ("macos", _) => {
                (Self::Uncached, "on macOS the page cache competes with the slots".to_owned())
            }
            ("linux", Some(cache)) if cache < files - files / 4 => (
                Self::Direct,
                format!(
                    "{:.2} GiB of files, and the page cache could hold {:.2} GiB of them",
                    gib(files),
                    gib(cache)
                ),
            ),
            (_, Some(cache)) => (
                Self::Buffered,
                format!(
                    "the page cache could hold {:.2} GiB and the files have {:.2} GiB",
                    gib(cache),
                    gib(files)
                ),
            ),
            (_, None) => (Self::Buffered, "what the page cache could hold is not known".to_owned()),
        };
        ReaderChoice { kind, why }
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
    fn auto_follows_the_files_the_memory_and_the_system() {
        const GIB: u64 = 1 << 30;
        let suited = |files, cache, system| ReaderKind::suited(files, cache, system).kind;
        for (files, cache, kind) in [
            (104 * GIB, Some(77 * GIB), ReaderKind::Direct),
            (104 * GIB, Some(0), ReaderKind::Direct),
            (104 * GIB, Some(78 * GIB), ReaderKind::Buffered),
            (104 * GIB, Some(200 * GIB), ReaderKind::Buffered),
            (104 * GIB, None, ReaderKind::Buffered),
            (26 << 20, Some(20 * GIB), ReaderKind::Buffered),
            (0, Some(0), ReaderKind::Buffered),
            (u64::MAX, Some(u64::MAX), ReaderKind::Buffered),
            (u64::MAX, Some(1), ReaderKind::Direct),
        ] {
            assert_eq!(suited(files, cache, "linux"), kind, "{files} {cache:?}");
            assert_eq!(suited(files, cache, "macos"), ReaderKind::Uncached);
            assert_eq!(suited(files, cache, "freebsd"), ReaderKind::Buffered);
        }
        let why = ReaderKind::suited(104 * GIB, Some(16 * GIB), "linux").why;
        assert!(why.contains("104.00 GiB") && why.contains("16.00 GiB"), "{why}");
    }

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
