use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use slotstream_core::{
    Alignment, ErrorKind, Extent, FileId, ReadError, ReadRequest, ReaderMode, RecordReader,
};

use super::*;

/// Plain and lawful, unless told otherwise.
#[derive(Debug)]
struct Plain {
    paths: Vec<PathBuf>,
    flaw: Flaw,
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Flaw {
    None,
    SkipsOneByte,
    WrapsAt32Bits,
    LeavesTheBuffer,
    CountsNothingAtTheEnd,
    ServesZerosBeyondTheEnd,
    AcceptsLongBuffers,
    TakesFileNumbersModulo,
    LandsTwice,
    NeverLandsTheLast,
    Panics,
    NoReason,
    ShiftedPaths,
    AlignmentOfThree,
    IssuesNothing,
    ClaimsChange,
}

impl Plain {
    fn boxed(paths: &[PathBuf], flaw: Flaw) -> Box<dyn RecordReader> {
        Box::new(Self { paths: paths.to_vec(), flaw })
    }

    fn file(&self, file: FileId) -> Result<&Path, ReadError> {
        let files = self.paths.len();
        let index = match self.flaw {
            Flaw::TakesFileNumbersModulo => file.index() % files,
            _ => file.index(),
        };
        self.paths.get(index).map(PathBuf::as_path).ok_or(ReadError::unknown_file(file, files))
    }

    fn read(&self, path: &Path, extent: &Extent, buffer: &mut [u8]) -> Result<(), ReadError> {
        let mut offset = extent.offset();
        match self.flaw {
            Flaw::SkipsOneByte if offset == 4097 => offset += 1,
            Flaw::WrapsAt32Bits => offset &= 0xFFFF_FFFF,
            _ => {}
        }
        let fail = |source| ReadError::io(path, extent, 0, source);
        let mut file = File::open(path).map_err(fail)?;
        let size = file.metadata().map_err(fail)?.len();
        if self.flaw == Flaw::ServesZerosBeyondTheEnd && extent.end() > size {
            buffer.fill(0);
            return Ok(());
        }
        if extent.end() > size {
            let there = match self.flaw {
                Flaw::CountsNothingAtTheEnd => 0,
                _ => size.saturating_sub(extent.offset()),
            };
            return Err(ReadError::end_of_file(path, extent, there));
        }
        file.seek(SeekFrom::Start(offset)).map_err(fail)?;
        file.read_exact(&mut buffer[..extent.len() as usize]).map_err(fail)
    }
}

impl RecordReader for Plain {
    fn read_exact_at(&self, extent: &Extent, buffer: &mut [u8]) -> Result<(), ReadError> {
        let path = self.file(extent.file())?;
        let right = match self.flaw {
            Flaw::AcceptsLongBuffers => buffer.len() as u64 >= extent.len(),
            _ => buffer.len() as u64 == extent.len(),
        };
        if !right {
            return Err(ReadError::buffer_length(extent, buffer.len()));
        }
        match self.flaw {
            Flaw::LeavesTheBuffer => Ok(()),
            Flaw::Panics if extent.is_empty() => panic!("nothing to read"),
            _ if extent.is_empty() => Ok(()),
            _ => self.read(path, extent, buffer),
        }
    }

    fn read_batch(
        &self,
        requests: &mut [ReadRequest<'_>],
        landed: &mut dyn FnMut(usize, Result<(), ReadError>),
    ) {
        let last = requests.len().saturating_sub(1);
        for (i, request) in requests.iter_mut().enumerate() {
            let result = self.read_exact_at(&request.extent, request.buffer);
            match self.flaw {
                Flaw::NeverLandsTheLast if i == last => {}
                Flaw::LandsTwice if i == 0 => {
                    landed(i, Ok(()));
                    landed(i, result);
                }
                _ => landed(i, result),
            }
        }
    }

    fn alignment(&self) -> Alignment {
        match self.flaw {
            Flaw::AlignmentOfThree => Alignment { offset: 3, ..Alignment::NONE },
            _ => Alignment::NONE,
        }
    }

    fn effective(&self) -> ReaderMode {
        ReaderMode::new("plain", if self.flaw == Flaw::NoReason { "" } else { "a test" })
    }

    fn issued_len(&self, extent: &Extent) -> u64 {
        if self.flaw == Flaw::IssuesNothing { 0 } else { extent.len() }
    }

    fn check_unchanged(&self) -> Result<(), ReadError> {
        match self.flaw {
            Flaw::ClaimsChange => Err(ReadError::changed(&self.paths[0], "its colour")),
            _ => Ok(()),
        }
    }

    fn path(&self, file: FileId) -> Option<&Path> {
        let shift = usize::from(self.flaw == Flaw::ShiftedPaths);
        self.paths.get(file.index() + shift).map(PathBuf::as_path)
    }
}

fn small(flaw: Flaw) -> Vec<Violation> {
    Conformance::new().without_large_file().check(|paths| Plain::boxed(paths, flaw))
}

#[test]
fn a_lawful_reader_conforms_and_so_do_quiet_decorators() {
    assert_lawful(|paths| Plain::boxed(paths, Flaw::None));
    Conformance::new().without_large_file().assert(|paths| {
        let plain = Plain::boxed(paths, Flaw::None);
        let quiet = FaultyReader::new(plain, Schedule::Never, Fault::Errno(5));
        let quiet = ShortReader::new(TornReader::new(quiet, Schedule::Every(0)), Schedule::Never);
        Box::new(CountingReader::new(SlowReader::new(quiet, Duration::ZERO)))
    });
}

#[test]
fn every_flaw_is_found_and_named() {
    type Named = fn(&Violation) -> bool;
    let flaws: [(Flaw, Named); 14] = [
        (Flaw::SkipsOneByte, |v| matches!(v, Violation::WrongBytes { .. })),
        (Flaw::LeavesTheBuffer, |v| matches!(v, Violation::WrongBytes { index: 0, .. })),
        (Flaw::CountsNothingAtTheEnd, |v| matches!(v, Violation::WrongError { .. })),
        (Flaw::ServesZerosBeyondTheEnd, |v| matches!(v, Violation::Accepted { .. })),
        (Flaw::AcceptsLongBuffers, |v| matches!(v, Violation::Accepted { .. })),
        (Flaw::TakesFileNumbersModulo, |v| matches!(v, Violation::Accepted { .. })),
        (Flaw::LandsTwice, |v| matches!(v, Violation::BatchCount { index: 0, times: 2, .. })),
        (Flaw::NeverLandsTheLast, |v| matches!(v, Violation::BatchCount { times: 0, .. })),
        (Flaw::Panics, |v| matches!(v, Violation::Panicked { .. })),
        (Flaw::NoReason, |v| matches!(v, Violation::EmptyMode { .. })),
        (Flaw::ShiftedPaths, |v| matches!(v, Violation::WrongPath { .. })),
        (Flaw::AlignmentOfThree, |v| matches!(v, Violation::OddAlignment { .. })),
        (Flaw::IssuesNothing, |v| matches!(v, Violation::TooFewIssued { .. })),
        (Flaw::ClaimsChange, |v| matches!(v, Violation::ClaimsChange { .. })),
    ];
    for (flaw, named) in flaws {
        let found = small(flaw);
        assert!(found.iter().any(named), "{flaw:?}: {found:?}");
        assert!(found.iter().all(|v| v.kind() == ErrorKind::Bug));
    }
}

#[test]
fn offsets_cut_to_32_bits_are_found_in_the_large_file_only() {
    assert!(small(Flaw::WrapsAt32Bits).is_empty());
    let found = check(|paths| Plain::boxed(paths, Flaw::WrapsAt32Bits));
    assert!(found.iter().any(|v| matches!(v, Violation::WrongBytes { .. })), "{found:?}");
}

#[test]
#[should_panic(expected = "breaks its contract")]
fn the_assert_form_panics_with_the_list() {
    Conformance::new().without_large_file().assert(|paths| Plain::boxed(paths, Flaw::NoReason));
}

/// A file of 1,000 bytes that count up, and reads of 10 of them.
struct Fixture {
    _folder: tempfile::TempDir,
    paths: Vec<PathBuf>,
}

impl Fixture {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("counting.bin");
        std::fs::write(&path, (0..1000).map(|i| i as u8).collect::<Vec<u8>>()).unwrap();
        Self { _folder: folder, paths: vec![path] }
    }

    fn plain(&self) -> Plain {
        Plain { paths: self.paths.clone(), flaw: Flaw::None }
    }
}

fn ten(reader: &dyn RecordReader) -> (Result<(), ReadError>, [u8; 10]) {
    let mut buffer = [0xEE; 10];
    let extent = Extent::new(FileId::new(0), 100, 10).unwrap();
    (reader.read_exact_at(&extent, &mut buffer), buffer)
}

const RIGHT: [u8; 10] = [100, 101, 102, 103, 104, 105, 106, 107, 108, 109];

fn failures(reader: &dyn RecordReader, reads: usize) -> Vec<usize> {
    (0..reads).filter(|_| ten(reader).0.is_err()).collect()
}

#[test]
fn schedules_count_from_arming() {
    let files = Fixture::new();
    let reader = FaultyReader::new(files.plain(), Schedule::Nth(2), Fault::Errno(5));
    assert_eq!(failures(&reader, 6), [2]);
    reader.arm(Schedule::Every(3));
    assert_eq!(failures(&reader, 9), [2, 5, 8]);
    reader.arm(Schedule::Always);
    assert_eq!(failures(&reader, 2), [0, 1]);
    reader.arm(Schedule::Never);
    assert_eq!(failures(&reader, 2), [0; 0]);
    assert_eq!((reader.reads(), reader.faults()), (19, 6));
    reader.arm(Schedule::From(2));
    assert_eq!(failures(&reader, 5), [2, 3, 4]);
}

#[test]
fn copies_count_together() {
    let files = Fixture::new();
    let first = FaultyReader::new(files.plain(), Schedule::Nth(2), Fault::Errno(5));
    let other = FaultyReader::new(files.plain(), Schedule::Always, Fault::Errno(5));
    let other = other.counted_with(&first);
    assert!(ten(&first).0.is_ok() && ten(&other).0.is_ok());
    assert!(ten(&other).0.is_err() && ten(&first).0.is_ok());
    other.arm(Schedule::Nth(0));
    assert!(ten(&first).0.is_err());
    assert_eq!((first.reads(), other.faults()), (5, 2));
}

/// Of a batch, those that are struck go wrong and the others do not.
#[test]
fn schedules_count_the_requests_of_a_batch() {
    let files = Fixture::new();
    let batch = |reader: &dyn RecordReader| {
        let extent = |n: u64| Extent::new(FileId::new(0), 100 + 10 * n, 10).unwrap();
        let mut buffers = [[0xEE; 10]; 5];
        let mut requests: Vec<_> = buffers
            .iter_mut()
            .zip(0..)
            .map(|(buffer, n)| ReadRequest { extent: extent(n), buffer })
            .collect();
        let mut landed = [None; 5];
        reader.read_batch(&mut requests, &mut |i, result| {
            assert_eq!(landed[i].replace(result.is_ok()), None, "{i} landed twice");
        });
        (landed.map(|landed| landed.expect("landed")), buffers)
    };
    let every = Schedule::Every(2);
    let good = [true, false, true, false, true];
    let right = |n: usize| (0..10).map(|i| (100 + 10 * n + i) as u8).collect::<Vec<u8>>();
    let readers: [Box<dyn RecordReader>; 3] = [
        Box::new(FaultyReader::new(files.plain(), every, Fault::Errno(5))),
        Box::new(ShortReader::new(files.plain(), every)),
        Box::new(TornReader::new(files.plain(), every)),
    ];
    for reader in readers {
        let (landed, buffers) = batch(&*reader);
        assert_eq!(landed, good, "{reader:?}");
        assert!([0, 2, 4].iter().all(|n| buffers[*n][..] == right(*n)), "{reader:?}");
    }
    let (landed, buffers) = batch(&FlippingReader::new(files.plain(), every));
    assert_eq!(landed, [true; 5]);
    for (n, bytes) in buffers.iter().enumerate() {
        assert_eq!(bytes[..] == right(n), good[n]);
    }
}

#[test]
fn a_fault_carries_its_error_and_touches_nothing() {
    let files = Fixture::new();
    let reader =
        FaultyReader::new(files.plain(), Schedule::Nth(0), io::ErrorKind::PermissionDenied);
    let (result, buffer) = ten(&reader);
    let error = result.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::User);
    match error {
        ReadError::Io { path, offset: 100, wanted: 10, got: 0, source, .. } => {
            assert_eq!(path, files.paths[0]);
            assert_eq!(source.kind(), io::ErrorKind::PermissionDenied);
        }
        other => panic!("{other:?}"),
    }
    assert_eq!(buffer, [0xEE; 10]);
    let (again, buffer) = ten(&reader);
    assert!(again.is_ok());
    assert_eq!(buffer, RIGHT);
    let numbered = FaultyReader::new(files.plain(), Schedule::Always, Fault::Errno(5));
    match ten(&numbered).0.unwrap_err() {
        ReadError::Io { source, .. } => assert_eq!(source.raw_os_error(), Some(5)),
        other => panic!("{other:?}"),
    }
}

#[test]
fn short_and_torn_reads() {
    let files = Fixture::new();
    let (result, buffer) = ten(&ShortReader::new(files.plain(), Schedule::Always));
    assert!(matches!(result, Err(ReadError::EndOfFile { wanted: 10, got: 5, .. })));
    assert_eq!(buffer, RIGHT);

    let (result, buffer) = ten(&TornReader::new(files.plain(), Schedule::Always));
    assert!(matches!(result, Err(ReadError::Io { wanted: 10, got: 5, .. })));
    assert_eq!(buffer[..5], RIGHT[..5]);
    assert!(buffer[5..].iter().zip(&RIGHT[5..]).all(|(torn, right)| torn != right));
}

#[test]
fn slow_reads_take_at_least_their_time() {
    let files = Fixture::new();
    let delay = Duration::from_millis(20);
    let start = Instant::now();
    assert_eq!(ten(&SlowReader::new(files.plain(), delay)).1, RIGHT);
    assert!(start.elapsed() >= delay);
    let reader = SlowReader::new(files.plain(), delay);
    reader.arm(Schedule::Nth(1));
    let timed = || {
        let start = Instant::now();
        assert_eq!(ten(&reader).1, RIGHT);
        start.elapsed()
    };
    let took = [timed(), timed()];
    assert!(took[1] >= delay && reader.faults() == 1, "{took:?}");

    // Four threads share a line of 400 bytes a second: 40 bytes take a tenth of a second.
    let reader = Arc::new(SlowReader::new(files.plain(), Duration::ZERO).with_bandwidth(400));
    let start = Instant::now();
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| assert_eq!(ten(&*reader).1, RIGHT));
        }
    });
    assert!(start.elapsed() >= Duration::from_millis(95), "{:?}", start.elapsed());
}

#[test]
fn the_books_agree_with_the_reads() {
    let files = Fixture::new();
    let reader = CountingReader::new(files.plain());
    let extent = |offset| Extent::new(FileId::new(0), offset, 10).unwrap();
    ten(&reader).0.unwrap();
    let mut buffers = [[0; 10]; 2];
    let [a, b] = &mut buffers;
    let mut requests = [
        ReadRequest { extent: extent(5), buffer: a },
        ReadRequest { extent: extent(995), buffer: b },
    ];
    let mut landed = Vec::new();
    reader.read_batch(&mut requests, &mut |i, result| landed.push((i, result.is_ok())));
    assert_eq!(landed, [(0, true), (1, false)]);
    assert_eq!((reader.reads(), reader.failures(), reader.bytes()), (3, 1, 20));
    assert_eq!(reader.log(), [extent(100), extent(5), extent(995)]);
    reader.clear();
    assert_eq!((reader.reads(), reader.failures(), reader.bytes()), (0, 0, 0));
}
