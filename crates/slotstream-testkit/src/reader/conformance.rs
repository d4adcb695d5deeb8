//! Drives a reader through the contract.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};
use std::thread;

use slotstream_core::{Extent, FileId, ReadError, ReadRequest, RecordReader};

use super::Violation;
use super::files::Files;
use crate::watch::panic_text;

const OFFSETS: [u64; 13] =
    [0, 1, 3, 511, 512, 513, 4095, 4096, 4097, 16_383, 16_384, 65_535, 99_989];
const LENGTHS: [u64; 11] = [1, 2, 7, 511, 512, 513, 4096, 4097, 16_384, 16_385, 50_001];
/// Distances of a buffer's first byte from the first byte of an allocation.
const SKEWS: [usize; 4] = [0, 1, 7, 64];
const CANARY: u8 = 0xC7;
const THREADS: u64 = 8;
const READS_PER_THREAD: u64 = 200;
/// A broken reader breaks most reads of a case; a few tell enough.
const MOST_PER_CASE: usize = 4;

/// The suite, by its settings.
#[derive(Clone, Copy, Debug)]
pub struct Conformance {
    large: bool,
}

impl Default for Conformance {
    fn default() -> Self {
        Self::new()
    }
}

impl Conformance {
    /// The whole suite.
    #[must_use]
    pub const fn new() -> Self {
        Self { large: true }
    }

    /// Leaves out the file of a little more than 4 GiB (sparse: it needs no space on the disk),
    /// for readers that load their files into memory.
    #[must_use]
    pub const fn without_large_file(mut self) -> Self {
        self.large = false;
        self
    }

    /// Writes files of known content into a temporary directory, makes a reader of them and
    /// lists how it breaks the contract. At most a few violations a case; empty for a lawful
    /// reader.
    ///
    /// What is checked: exact bytes at odd offsets, lengths and buffer addresses, also around
    /// positions 2^31 and 2^32; nothing written beside the buffer; empty extents and files;
    /// errors and their numbers at the end of a file, for unknown files and for buffers of
    /// another length; that a reader works after an error; batches against single reads; eight
    /// threads at once; `effective`, `path`, `alignment`, `issued_len`, and that
    /// `check_unchanged` finds nothing where nothing changed.
    pub fn check(&self, make: impl Fn(&[PathBuf]) -> Box<dyn RecordReader>) -> Vec<Violation> {
        let files = match Files::write(self.large) {
            Ok(files) => files,
            Err(violation) => return vec![*violation],
        };
        let reader = match catch_unwind(AssertUnwindSafe(|| make(&files.paths))) {
            Ok(reader) => reader,
            Err(panic) => return vec![panicked("making the reader", panic)],
        };
        let suite = Suite { files: &files, reader: &*reader };
        let cases: [(&'static str, Case<'_>); 9] = [
            ("exact bytes", Suite::exact),
            ("large offsets", Suite::large),
            ("empty extents", Suite::empty),
            ("end of file", Suite::end),
            ("unknown file", Suite::unknown),
            ("buffer length", Suite::buffer_length),
            ("batch", Suite::batch),
            ("eight threads", Suite::threads),
            ("description", Suite::description),
        ];
        let mut all = Vec::new();
        for (name, case) in cases {
            let mut found = Vec::new();
            let run = catch_unwind(AssertUnwindSafe(|| case(&suite, name, &mut found)));
            found.truncate(MOST_PER_CASE);
            found.extend(run.err().map(|panic| panicked(name, panic)));
            all.extend(found);
        }
        all
    }

    /// [`Self::check`], for tests.
    ///
    /// # Panics
    /// With the list of violations, unless it is empty.
    pub fn assert(&self, make: impl Fn(&[PathBuf]) -> Box<dyn RecordReader>) {
        let found = self.check(make);
        let list: Vec<String> = found.iter().map(|v| format!("\n- {v}")).collect();
        assert!(found.is_empty(), "the reader breaks its contract:{}", list.concat());
    }
}

/// The whole suite: [`Conformance::check`].
pub fn check(make: impl Fn(&[PathBuf]) -> Box<dyn RecordReader>) -> Vec<Violation> {
    Conformance::new().check(make)
}

/// The whole suite: [`Conformance::assert`].
///
/// # Panics
/// With the list of violations, unless it is empty.
pub fn assert_lawful(make: impl Fn(&[PathBuf]) -> Box<dyn RecordReader>) {
    Conformance::new().assert(make);
}

fn panicked(case: &'static str, panic: Box<dyn std::any::Any + Send>) -> Violation {
    Violation::Panicked { case, message: panic_text(panic) }
}

/// Drives one part of the contract and reports under the name it is given.
type Case<'a> = fn(&Suite<'a>, &'static str, &mut Vec<Violation>);

/// A reader and the files that it was made from.
struct Suite<'a> {
    files: &'a Files,
    reader: &'a dyn RecordReader,
}

impl Suite<'_> {
    fn exact(&self, case: &'static str, found: &mut Vec<Violation>) {
        let (file, size) = self.files.odd();
        for offset in OFFSETS {
            for len in LENGTHS.into_iter().chain([size - offset]) {
                let Some(extent) = extent(file, offset, len).filter(|e| e.end() <= size) else {
                    continue;
                };
                for skew in SKEWS {
                    found.extend(self.lawful(case, extent, skew));
                }
            }
        }
        let [_, one] = self.files.tiny();
        found.extend(extent(one, 0, 1).and_then(|e| self.lawful(case, e, 0)));
    }

    fn large(&self, case: &'static str, found: &mut Vec<Violation>) {
        let Some((file, edges, size)) = self.files.large() else { return };
        for edge in edges {
            for (offset, len) in [(edge - 4097, 8000), (edge - 1, 2), (edge, 513), (edge - 7, 7)] {
                found.extend(extent(file, offset, len).and_then(|e| self.lawful(case, e, 1)));
            }
        }
        let hole = extent(file, (1 << 31) + 123_457, 3001);
        found.extend(hole.and_then(|e| self.lawful(case, e, 0)));
        let tail = extent(file, size - 1001, 1001);
        found.extend(tail.and_then(|e| self.lawful(case, e, 0)));
        found.extend(extent(file, size - 1001, 1002).and_then(|e| self.beyond(case, e)));
    }

    fn empty(&self, case: &'static str, found: &mut Vec<Violation>) {
        let (odd, size) = self.files.odd();
        let [none, one] = self.files.tiny();
        for (file, offset) in [(odd, 0), (odd, 4097), (odd, size), (none, 0), (one, 1)] {
            found.extend(extent(file, offset, 0).and_then(|e| self.lawful(case, e, 1)));
        }
    }

    fn end(&self, case: &'static str, found: &mut Vec<Violation>) {
        let (odd, size) = self.files.odd();
        let [none, one] = self.files.tiny();
        let impossible = [
            (odd, size - 1, 2),
            (odd, 4096, size),
            (odd, 0, size + 1),
            (odd, size, 1),
            (odd, size + 1, 1),
            (odd, size + 1_000_000, 4096),
            (odd, i64::MAX as u64 - 5, 5),
            (none, 0, 1),
            (one, 0, 2),
        ];
        for (file, offset, len) in impossible {
            found.extend(extent(file, offset, len).and_then(|e| self.beyond(case, e)));
            // The reader still works.
            found.extend(extent(odd, 77, 1000).and_then(|e| self.lawful(case, e, 0)));
        }
    }

    fn unknown(&self, case: &'static str, found: &mut Vec<Violation>) {
        let files = self.files.paths.len();
        for number in [files as u16, u16::MAX] {
            for len in [0, 1, 600] {
                let file = FileId::new(number);
                let expected = || ReadError::unknown_file(file, files);
                found.extend(extent(file, 0, len).and_then(|extent| {
                    let mut buffer = vec![0; len as usize];
                    let result = self.reader.read_exact_at(&extent, &mut buffer);
                    unlawful(case, extent, expected(), result)
                }));
            }
        }
    }

    fn buffer_length(&self, case: &'static str, found: &mut Vec<Violation>) {
        let (file, _) = self.files.odd();
        for (len, held) in [(512_u64, 511), (512, 513), (512, 0), (0, 1), (1, 4096)] {
            found.extend(extent(file, 33, len).and_then(|extent| {
                let mut buffer = vec![0; held];
                let expected = ReadError::buffer_length(&extent, held);
                let result = self.reader.read_exact_at(&extent, &mut buffer);
                unlawful(case, extent, expected, result)
            }));
        }
    }

    /// Lawful and impossible requests in one batch.
    fn batch(&self, case: &'static str, found: &mut Vec<Violation>) {
        let (file, size) = self.files.odd();
        let places = [(0, 100), (70_001, 4096), (size - 1, 2), (0, 100), (5, 0), (12_288, 16_384)];
        let extents: Vec<Extent> =
            places.into_iter().filter_map(|(offset, len)| extent(file, offset, len)).collect();
        let mut buffers: Vec<Vec<u8>> =
            extents.iter().map(|extent| vec![CANARY; extent.len() as usize]).collect();
        let mut requests: Vec<ReadRequest<'_>> = extents
            .iter()
            .zip(&mut buffers)
            .map(|(&extent, buffer)| ReadRequest { extent, buffer })
            .collect();
        let mut landings: Vec<(usize, Result<(), ReadError>)> = Vec::new();
        self.reader.read_batch(&mut requests, &mut |i, result| landings.push((i, result)));
        self.reader.read_batch(&mut [], &mut |i, result| landings.push((i, result)));
        let requests = extents.len();
        let last = landings.iter().map(|(i, _)| i + 1).max().unwrap_or(0).max(requests);
        for index in 0..last {
            let times = landings.iter().filter(|(i, _)| *i == index).count();
            if times != usize::from(index < requests) {
                found.push(Violation::BatchCount { index, requests, times });
            }
        }
        for (index, result) in landings {
            let (Some(&extent), Some(buffer)) = (extents.get(index), buffers.get(index)) else {
                continue;
            };
            found.extend(if extent.end() > size {
                unlawful(case, extent, self.end_error(&extent), result)
            } else {
                self.judge(case, extent, result, buffer)
            });
        }
    }

    fn threads(&self, case: &'static str, found: &mut Vec<Violation>) {
        let (file, size) = self.files.odd();
        let shared = Mutex::new(Vec::new());
        thread::scope(|scope| {
            for id in 0..THREADS {
                let shared = &shared;
                scope.spawn(move || {
                    let run = catch_unwind(AssertUnwindSafe(|| {
                        let mut state = id + 1;
                        let places = (0..READS_PER_THREAD).filter_map(|_| {
                            let offset = draw(&mut state) % size;
                            extent(file, offset, draw(&mut state) % (size - offset).min(9000))
                        });
                        places.filter_map(|e| self.lawful(case, e, 1)).next()
                    }));
                    let violation = run.unwrap_or_else(|panic| Some(panicked(case, panic)));
                    shared.lock().unwrap_or_else(PoisonError::into_inner).extend(violation);
                });
            }
        });
        found.extend(shared.into_inner().unwrap_or_else(PoisonError::into_inner));
    }

    fn description(&self, _case: &'static str, found: &mut Vec<Violation>) {
        let mode = self.reader.effective();
        if mode.name.is_empty() || mode.why.is_empty() {
            found.push(Violation::EmptyMode { name: mode.name, why: mode.why });
        }
        for file in (0..=self.files.paths.len() as u16).chain([u16::MAX]).map(FileId::new) {
            let expected = self.files.paths.get(file.index()).cloned();
            let path = self.reader.path(file).map(Path::to_path_buf);
            if path != expected {
                found.push(Violation::WrongPath { file, expected, found: path });
            }
        }
        let alignment = self.reader.alignment();
        if !(alignment.memory.is_power_of_two()
            && alignment.offset.is_power_of_two()
            && alignment.length.is_power_of_two())
        {
            found.push(Violation::OddAlignment { alignment });
        }
        if let Err(source) = self.reader.check_unchanged() {
            found.push(Violation::ClaimsChange { source });
        }
        let (file, _) = self.files.odd();
        for extent in [extent(file, 1, 511), extent(file, 4096, 4096)].into_iter().flatten() {
            let issued = self.reader.issued_len(&extent);
            if issued < extent.len() {
                found.push(Violation::TooFewIssued { extent, issued });
            }
        }
    }

    /// Reads bytes that are there, into a buffer `skew` bytes into an allocation.
    fn lawful(&self, case: &'static str, extent: Extent, skew: usize) -> Option<Violation> {
        let len = extent.len() as usize;
        let mut memory = vec![CANARY; skew + len + 64];
        let result = self.reader.read_exact_at(&extent, &mut memory[skew..skew + len]);
        let (before, after) = (&memory[..skew], &memory[skew + len..]);
        if before.iter().chain(after).any(|byte| *byte != CANARY) {
            return Some(Violation::OutOfBounds { case, extent });
        }
        self.judge(case, extent, result, &memory[skew..skew + len])
    }

    /// A read of bytes that are there has ended.
    fn judge(
        &self,
        case: &'static str,
        extent: Extent,
        result: Result<(), ReadError>,
        buffer: &[u8],
    ) -> Option<Violation> {
        if let Err(source) = result {
            return Some(Violation::Refused { case, extent, source });
        }
        let content = self.files.content(&extent);
        let differ = |i: &usize| buffer[*i] != content[*i];
        let index = (0..content.len()).find(differ)?;
        let wrong = (0..content.len()).filter(differ).count();
        let (expected, found) = (content[index], buffer[index]);
        Some(Violation::WrongBytes { case, extent, index, expected, found, wrong })
    }

    /// Reads beyond the end of a file.
    fn beyond(&self, case: &'static str, extent: Extent) -> Option<Violation> {
        // The buffer is as long as the extent; an honest length keeps it small.
        let mut buffer = vec![0; extent.len() as usize];
        let result = self.reader.read_exact_at(&extent, &mut buffer);
        unlawful(case, extent, self.end_error(&extent), result)
    }

    /// The error of a read beyond the end: it counts the bytes that were there.
    fn end_error(&self, extent: &Extent) -> ReadError {
        let there = self.files.size(extent.file()).saturating_sub(extent.offset());
        let path = self.files.paths.get(extent.file().index()).map_or(Path::new(""), |p| p);
        ReadError::end_of_file(path, extent, there)
    }
}

/// A read that cannot succeed has ended. Both errors are compared with all their fields.
fn unlawful(
    case: &'static str,
    extent: Extent,
    expected: ReadError,
    result: Result<(), ReadError>,
) -> Option<Violation> {
    match result {
        Ok(()) => Some(Violation::Accepted { case, extent, expected }),
        Err(found) if format!("{found:?}") == format!("{expected:?}") => None,
        Err(found) => Some(Violation::WrongError { case, extent, expected, found }),
    }
}

/// The suite's own extents are all within range.
fn extent(file: FileId, offset: u64, len: u64) -> Option<Extent> {
    let made = Extent::new(file, offset, len);
    debug_assert!(made.is_ok(), "an extent of the suite is out of range: {made:?}");
    made.ok()
}

/// A linear congruence is random enough to scatter reads.
fn draw(state: &mut u64) -> u64 {
    *state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
    *state >> 33
}
