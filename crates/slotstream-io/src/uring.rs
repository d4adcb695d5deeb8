//! Reads through io_uring: many at once from one thread.

#[cfg(target_os = "linux")]
mod batch;
mod owned;
#[cfg(target_os = "linux")]
mod ring;
#[cfg(target_os = "linux")]
mod rings;
#[cfg(not(target_os = "linux"))]
mod rings {
    use slotstream_core::{ReadError, ReadRequest};

    use crate::DirectReader;

    /// Reads of one ring at once.
    pub(super) const DEPTH: usize = 1;

    /// There are none.
    #[derive(Debug)]
    pub(super) enum Rings {}

    impl Rings {
        pub(super) fn open(_: &DirectReader, _: usize) -> Result<Self, String> {
            Err(format!("there is no io_uring on {}", std::env::consts::OS))
        }

        pub(super) fn read_batch(
            &self,
            _: &DirectReader,
            _: &mut [ReadRequest<'_>],
            _: &mut dyn FnMut(usize, Result<(), ReadError>),
        ) -> bool {
            match *self {}
        }
    }
}

use std::path::{Path, PathBuf};

use slotstream_core::{
    Advice, Alignment, Extent, FileId, Job, ReadError, ReadRequest, ReaderMode, RecordReader,
};

use self::rings::{DEPTH, Rings};
use crate::{DirectOptions, DirectReader, IoError};

/// How to open a [`UringReader`].
///
/// ```
/// use slotstream_io::{DirectOptions, UringOptions};
/// let options = UringOptions::new().with_direct(DirectOptions::new().with_bounce(1 << 20, 64));
/// assert_ne!(options, UringOptions::new());
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UringOptions {
    direct: DirectOptions,
    rings: usize,
}

impl UringOptions {
    /// [`DirectOptions::new`] and at most 64 rings.
    #[must_use]
    pub const fn new() -> Self {
        Self { direct: DirectOptions::new(), rings: 64 }
    }

    /// The files and the bounce pages.
    #[must_use]
    pub const fn with_direct(mut self, direct: DirectOptions) -> Self {
        self.direct = direct;
        self
    }

    /// The largest number of rings, one at least. Each thread that reads holds one while it
    /// does; those that find none left read without.
    #[must_use]
    pub const fn with_rings(mut self, rings: usize) -> Self {
        self.rings = if rings == 0 { 1 } else { rings };
        self
    }
}

impl Default for UringOptions {
    fn default() -> Self {
        Self::new()
    }
}

/// Reads through io_uring (Linux), around the page cache where the files allow it.
///
/// What goes straight into a buffer, what bounces, and how it gives way is as with a
/// [`DirectReader`]; where direct reads are refused at the opening the rings read through the
/// page cache. [`read_batch`] hands up to 64 requests at once to the system, and calls `landed`
/// in the order in which they complete; [`read_jobs`] does the same with owned jobs, so that one
/// lane of a [`LaneQueue`](crate::LaneQueue) keeps as many reads in flight as 64 lanes over a
/// [`DirectReader`]. A single read is a batch of one: it gains nothing over a [`DirectReader`]. `landed` must not read through the same reader: the bounce pages may all be
/// in flight.
///
/// A ring is made when a thread finds none free, and kept. Files are registered with it. Buffers
/// are not: that was measured, and gains nothing.
///
/// Where the system refuses a ring (an old kernel, a sandbox, an administrator), all reads are
/// the [`DirectReader`]'s, and [`effective`] says so. No completion writes to a buffer after the
/// call that brought it has returned, not even when `landed` panics: the call then waits for
/// those in flight first.
///
/// [`read_batch`]: RecordReader::read_batch
/// [`read_jobs`]: RecordReader::read_jobs
/// [`effective`]: RecordReader::effective
#[derive(Debug)]
pub struct UringReader {
    // First: its rings are closed before the files that are registered with them.
    rings: Result<Rings, String>,
    direct: DirectReader,
}

impl UringReader {
    /// Opens every file twice, and a first ring. `FileId` n is `paths[n]`.
    ///
    /// # Errors
    /// As [`DirectReader::open`]. A refusal of io_uring is no error: see
    /// [`effective`](RecordReader::effective).
    pub fn open(paths: &[PathBuf], options: UringOptions) -> Result<Self, IoError> {
        let direct = DirectReader::open(paths, options.direct)?;
        let rings = Rings::open(&direct, options.rings);
        if let Err(why) = &rings {
            tracing::warn!(why, "io_uring was refused, reading without");
        }
        Ok(Self { rings, direct })
    }
}

impl RecordReader for UringReader {
    fn read_exact_at(&self, extent: &Extent, buffer: &mut [u8]) -> Result<(), ReadError> {
        let mut outcome = None;
        let mut one = [ReadRequest { extent: *extent, buffer }];
        self.read_batch(&mut one, &mut |_, result| outcome = Some(result));
        outcome.unwrap_or_else(|| Err(ReadError::other(extent, "a batch of one landed nothing")))
    }

    fn read_batch(
        &self,
        requests: &mut [ReadRequest<'_>],
        landed: &mut dyn FnMut(usize, Result<(), ReadError>),
    ) {
        if let Ok(rings) = &self.rings
            && rings.read_batch(&self.direct, requests, landed)
        {
            return;
        }
        self.direct.read_batch(requests, landed);
    }

    /// 64, where there are rings.
    fn batch_depth(&self) -> usize {
        if self.rings.is_ok() && !self.direct.has_lapsed() { DEPTH } else { 1 }
    }

    fn read_jobs(&self, jobs: Vec<Job>) {
        owned::read_jobs(self, jobs);
    }

    fn alignment(&self) -> Alignment {
        self.direct.alignment()
    }

    fn effective(&self) -> ReaderMode {
        match (&self.rings, self.direct.how()) {
            (Ok(_), Ok(how)) => ReaderMode::new("uring", format!("as requested, with {how}")),
            // What is registered with the rings is trusted no longer.
            (Ok(_), Err(why)) if self.direct.has_lapsed() => ReaderMode::new("buffered", why),
            (Ok(_), Err(why)) => {
                ReaderMode::new("uring", format!("as requested, through the page cache: {why}"))
            }
            (Err(why), Ok(how)) => {
                ReaderMode::new("direct", format!("uring was wanted, but {why}; {how}"))
            }
            (Err(why), Err(also)) => {
                ReaderMode::new("buffered", format!("uring was wanted, but {why}; {also}"))
            }
        }
    }

    fn issued_len(&self, extent: &Extent) -> u64 {
        self.direct.issued_len(extent)
    }

    fn advise(&self, extent: &Extent, advice: Advice) {
        self.direct.advise(extent, advice);
    }

    fn check_unchanged(&self) -> Result<(), ReadError> {
        self.direct.check_unchanged()
    }

    fn file_len(&self, file: FileId) -> Option<u64> {
        self.direct.file_len(file)
    }

    fn held_bytes(&self) -> u64 {
        self.direct.held_bytes()
    }

    fn path(&self, file: FileId) -> Option<&Path> {
        self.direct.path(file)
    }
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use std::fs::File;

    use super::*;
    use crate::direct::tests::{crooked, file, folder};

    #[test]
    fn rings_over_files_that_are_no_longer_trusted_are_not_used() {
        let folder = folder();
        let right = [file(&folder, "a", &[3; 100_000]), file(&folder, "b", &[3; 100_000])];
        let wrong = file(&folder, "wrong", &[4; 100_000]);
        let direct =
            crooked(&right, vec![File::open(&wrong).unwrap(), File::open(&wrong).unwrap()]);
        let rings = Rings::open(&direct, 4);
        let reader = UringReader { rings, direct };
        if reader.effective().name != "uring" {
            return;
        }
        for number in [0, 1, 0] {
            let mut buffers = [[0; 70_001], [0; 70_001]];
            let mut requests: Vec<ReadRequest<'_>> = buffers
                .iter_mut()
                .zip([1, 20_000])
                .map(|(buffer, offset)| {
                    let extent = Extent::new(FileId::new(number), offset, 70_001).unwrap();
                    ReadRequest { extent, buffer }
                })
                .collect();
            reader.read_batch(&mut requests, &mut |_, result| result.unwrap());
            assert_eq!(buffers, [[3; 70_001]; 2]);
            let mode = reader.effective();
            assert_eq!(mode.name, "buffered");
            assert!(mode.why.contains("a direct read differs from a buffered one"), "{mode:?}");
        }
    }
}
