//! What every reader must do, whatever it is made of.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use slotstream_core::{Advice, ErrorKind, Extent, FileId, ReadError, ReadRequest, RecordReader};
use slotstream_io::{
    Counted, DirectOptions, DirectReader, MirrorReader, MmapReader, PositionalOptions,
    PositionalReader, ReadMode, Throttle, Throttled, UringOptions, UringReader,
};
use slotstream_testkit::reader::{
    Fault, FaultyReader, Schedule, ShortReader, SlowReader, TornReader, check,
};

pub(crate) type Open = fn(&[PathBuf]) -> Box<dyn RecordReader>;

/// Every reader of files, by its name.
pub(crate) const READERS: &[(&str, Open)] = &[
    ("buffered", |paths| positional(paths, ReadMode::Buffered)),
    ("uncached", |paths| positional(paths, ReadMode::Uncached)),
    ("direct", |paths| Box::new(DirectReader::open(paths, small()).unwrap())),
    ("direct, large pages", |paths| {
        Box::new(DirectReader::open(paths, DirectOptions::new()).unwrap())
    }),
    ("uring", |paths| {
        let options = UringOptions::new().with_direct(small());
        Box::new(UringReader::open(paths, options).unwrap())
    }),
    ("uring, one ring", |paths| {
        let options = UringOptions::new().with_rings(1);
        Box::new(UringReader::open(paths, options).unwrap())
    }),
    ("mmap", |paths| Box::new(mapped(paths))),
    ("mirror", |paths| {
        let copies = [READERS[2].1(paths), READERS[0].1(paths)];
        Box::new(MirrorReader::new(copies.map(Arc::from).into()).unwrap())
    }),
    ("counted", |paths| Box::new(Counted::new(READERS[4].1(paths)))),
    ("throttled", |paths| {
        let quick = Throttle::new(Duration::from_micros(1), 50e9).with_queue_gain(2.0);
        Box::new(Throttled::new(READERS[4].1(paths), quick))
    }),
];

#[expect(unsafe_code, reason = "the files belong to the test")]
fn mapped(paths: &[PathBuf]) -> MmapReader {
    // SAFETY: no test cuts a file while it reads it through a map, or writes to it.
    unsafe { MmapReader::open(paths) }.unwrap()
}

fn positional(paths: &[PathBuf], mode: ReadMode) -> Box<dyn RecordReader> {
    let options = PositionalOptions::new().with_mode(mode);
    Box::new(PositionalReader::open(paths, options).unwrap())
}

/// Few pages, which most requests of these tests do not fit.
fn small() -> DirectOptions {
    DirectOptions::new().with_bounce(0, 3)
}

/// Beside the test program: the temporary directory may lie in memory.
pub(crate) fn on_disk() -> tempfile::TempDir {
    let beside = std::env::current_exe().unwrap();
    tempfile::tempdir_in(beside.parent().unwrap()).unwrap()
}

/// No two near places look alike, and no length is a multiple of anything.
const LEN: usize = 300_007;

fn byte(at: u64) -> u8 {
    (at.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 56) as u8
}

fn shard(folder: &tempfile::TempDir) -> PathBuf {
    let path = folder.path().join("shard.bin");
    std::fs::write(&path, (0..LEN as u64).map(byte).collect::<Vec<u8>>()).unwrap();
    path
}

fn extent(offset: u64, len: u64) -> Extent {
    Extent::new(FileId::new(0), offset, len).unwrap()
}

fn right(bytes: &[u8], offset: u64) -> bool {
    bytes.iter().zip(offset..).all(|(found, at)| *found == byte(at))
}

#[test]
fn every_reader_conforms() {
    for (name, open) in READERS {
        let found = check(open);
        assert!(found.is_empty(), "{name}: {found:#?}");
    }
}

/// Against the standard library, around every border of a block and at the end.
#[test]
fn every_crooked_request_brings_what_a_plain_read_does() {
    let folder = on_disk();
    let path = shard(&folder);
    let plain = File::open(&path).unwrap();
    let ends = [0, 511, 512, 4095, 4096, 16_384, 32_768, 65_536, 299_520, LEN as u64 - 1];
    for (name, open) in READERS {
        let reader = open(std::slice::from_ref(&path));
        let mut memory = vec![0; LEN + 64];
        for border in ends {
            for offset in border.saturating_sub(2)..=border + 1 {
                for len in [0, 1, 2, 511, 512, 513, 4096, 16_385, 65_537, 100_000] {
                    for skew in [0, 1] {
                        let buffer = &mut memory[skew..skew + len];
                        buffer.fill(0xEE);
                        let result = reader.read_exact_at(&extent(offset, len as u64), buffer);
                        let mut expected = vec![0; len];
                        let there = offset + len as u64 <= LEN as u64 || len == 0;
                        assert_eq!(result.is_ok(), there, "{name} {offset} {len}: {result:?}");
                        if there {
                            plain.read_exact_at(&mut expected, offset).unwrap();
                            assert!(*buffer == expected, "{name} {offset} {len}");
                        } else if let Err(ReadError::EndOfFile {
                            path: named,
                            offset: at,
                            wanted,
                            got,
                            ..
                        }) = result
                        {
                            let left = (LEN as u64).saturating_sub(offset);
                            assert_eq!((named, at), (path.clone(), offset), "{name}");
                            assert_eq!((wanted, got), (len as u64, left), "{name}");
                        } else {
                            panic!("{name} {offset} {len}: {result:?}");
                        }
                    }
                }
            }
        }
    }
}

/// A batch of nine pieces and of two hundred rows, mixed with requests that cannot be.
#[test]
fn batches_land_once_each_with_the_right_bytes() {
    let folder = on_disk();
    let path = shard(&folder);
    for (name, open) in READERS {
        let reader = open(std::slice::from_ref(&path));
        let places: Vec<(u64, u64)> = (0..9)
            .map(|i| (i * 30_001, 20_000 + i))
            .chain((0..200).map(|i| (i * 1499, 100)))
            .chain([(4096, 8192), (0, LEN as u64), (LEN as u64 - 3, 4), (77, 0)])
            .collect();
        let mut buffers: Vec<Vec<u8>> =
            places.iter().map(|(_, len)| vec![0xEE; *len as usize]).collect();
        let mut requests: Vec<ReadRequest<'_>> = places
            .iter()
            .zip(&mut buffers)
            .map(|((offset, len), buffer)| ReadRequest { extent: extent(*offset, *len), buffer })
            .collect();
        let mut times = vec![0; places.len()];
        reader.read_batch(&mut requests, &mut |i, result| {
            times[i] += 1;
            let (offset, len) = places[i];
            assert_eq!(result.is_ok(), offset + len <= LEN as u64, "{name} {i}: {result:?}");
        });
        assert!(times.iter().all(|times| *times == 1), "{name}: {times:?}");
        for ((offset, len), buffer) in places.iter().zip(&buffers) {
            assert!(offset + len > LEN as u64 || right(buffer, *offset), "{name} {offset}");
        }
    }
}

#[test]
fn a_landed_that_panics_leaves_buffers_alone_and_the_reader_whole() {
    let folder = on_disk();
    let path = shard(&folder);
    for (name, open) in READERS {
        let reader = open(std::slice::from_ref(&path));
        for round in 0..20 {
            let mut buffers = vec![vec![0; 20_001]; 70];
            let mut requests: Vec<ReadRequest<'_>> = buffers
                .iter_mut()
                .zip(0..)
                .map(|(buffer, i)| ReadRequest { extent: extent(i * 4001, 20_001), buffer })
                .collect();
            let mut landings = 0;
            let run = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
                reader.read_batch(&mut requests, &mut |_, result| {
                    result.unwrap();
                    landings += 1;
                    assert!(landings <= round, "on purpose");
                });
            }));
            assert!(run.is_err(), "{name}");
            assert_eq!(landings, round + 1, "{name}");
            // Whatever was in flight has ended: nobody writes here any more.
            buffers.iter_mut().for_each(|buffer| buffer.fill(0x11));
            let mut buffer = vec![0; 10_000];
            reader.read_exact_at(&extent(7, 10_000), &mut buffer).unwrap();
            assert!(right(&buffer, 7), "{name}");
            assert!(buffers.iter().flatten().all(|byte| *byte == 0x11), "{name}");
        }
    }
}

#[test]
fn eight_threads_read_singly_and_in_batches() {
    let folder = on_disk();
    let path = shard(&folder);
    for (name, open) in READERS {
        let reader = open(std::slice::from_ref(&path));
        std::thread::scope(|scope| {
            for id in 0..8_u64 {
                let reader = &*reader;
                scope.spawn(move || {
                    let mut buffers = [vec![0; 9001], vec![0; 40_000], vec![0; 512]];
                    for round in 0..60 {
                        let offset = (id * 7919 + round * 4241) % 250_000;
                        let mut requests: Vec<ReadRequest<'_>> = buffers
                            .iter_mut()
                            .map(|buffer| ReadRequest {
                                extent: extent(offset, buffer.len() as u64),
                                buffer,
                            })
                            .collect();
                        reader.read_batch(&mut requests, &mut |_, result| result.unwrap());
                        assert!(buffers.iter().all(|buffer| right(buffer, offset)), "{name}");
                        reader.read_exact_at(&extent(offset, 512), &mut buffers[2]).unwrap();
                        assert!(right(&buffers[2], offset), "{name}");
                    }
                });
            }
        });
    }
}

/// Read `hit` of 30 fails in one of four ways, each in turn; its neighbours do not notice.
#[test]
fn the_fault_matrix() {
    const READS: u64 = 30;
    let folder = on_disk();
    let path = shard(&folder);
    for (name, open) in READERS {
        let open = || open(std::slice::from_ref(&path));
        let every = if *name == "buffered" { 1 } else { 7 };
        for hit in (0..READS).step_by(every) {
            let once = Schedule::Nth(hit);
            let faulty: [(Box<dyn RecordReader>, Option<ErrorKind>); 4] = [
                (
                    Box::new(FaultyReader::new(open(), once, Fault::Errno(5))),
                    Some(ErrorKind::Transient),
                ),
                (Box::new(ShortReader::new(open(), once)), Some(ErrorKind::Corrupt)),
                (Box::new(TornReader::new(open(), once)), Some(ErrorKind::Transient)),
                (Box::new(SlowReader::new(open(), Duration::from_micros(50))), None),
            ];
            for (reader, kind) in faulty {
                for read in 0..READS {
                    let mut buffer = vec![0; 5001];
                    let at = extent(read * 9001 + 3, 5001);
                    match reader.read_exact_at(&at, &mut buffer) {
                        Ok(()) => assert!(right(&buffer, at.offset()), "{name} {read}"),
                        Err(error) => {
                            assert_eq!((read, Some(error.kind())), (hit, kind), "{name} {error}");
                        }
                    }
                    let failed = kind.is_some() && read == hit;
                    assert!(failed || right(&buffer, at.offset()), "{name} {read} of {hit}");
                }
            }
        }
    }
}

#[test]
fn files_that_change_while_open_are_noticed() {
    // A map of a file that was cut ends the process.
    for (name, open) in READERS.iter().filter(|(name, _)| *name != "mmap") {
        let changed = |change: fn(&Path)| {
            let folder = on_disk();
            let path = shard(&folder);
            let reader = open(std::slice::from_ref(&path));
            let mut buffer = vec![0; 5000];
            reader.read_exact_at(&extent(1, 5000), &mut buffer).unwrap();
            reader.check_unchanged().unwrap();
            change(&path);
            match reader.check_unchanged() {
                Err(ReadError::Changed { path: named, .. }) => assert_eq!(named, path, "{name}"),
                other => panic!("{name}: {other:?}"),
            }
            reader.read_exact_at(&extent(LEN as u64 - 5000, 5000), &mut buffer)
        };
        let cut =
            changed(|path| File::options().write(true).open(path).unwrap().set_len(1000).unwrap());
        assert!(matches!(cut, Err(ReadError::Changed { .. })), "{name}: {cut:?}");
        let replaced = changed(|path| {
            let new = path.with_extension("new");
            std::fs::write(&new, vec![0; LEN]).unwrap();
            std::fs::rename(&new, path).unwrap();
        });
        assert!(replaced.is_ok(), "{name}: the open file is the old one");
    }
}

#[test]
fn advice_does_no_harm_and_lengths_are_known() {
    let folder = on_disk();
    let path = shard(&folder);
    for (name, open) in READERS {
        let reader = open(std::slice::from_ref(&path));
        assert_eq!(reader.file_len(FileId::new(0)), Some(LEN as u64), "{name}");
        assert_eq!(reader.file_len(FileId::new(1)), None, "{name}");
        for advice in [Advice::WillNeed, Advice::DontNeed, Advice::Random, Advice::Sequential] {
            for at in [extent(0, 100), extent(1 << 40, 100), extent(5, 0)] {
                reader.advise(&at, advice);
            }
            reader.advise(&Extent::new(FileId::new(9), 0, 1).unwrap(), advice);
        }
        let mut buffer = vec![0; 100];
        reader.read_exact_at(&extent(0, 100), &mut buffer).unwrap();
        assert!(right(&buffer, 0), "{name}");
    }
}

/// Through the lane queue, as the engine reads.
#[test]
fn the_lane_queue_takes_every_reader() {
    use slotstream_core::{Job, ReadClass, ReadQueue};
    use slotstream_io::{LaneQueue, ScratchPool};
    let folder = on_disk();
    let path = shard(&folder);
    for (name, open) in READERS {
        let reader: Arc<dyn RecordReader> = Arc::from(open(std::slice::from_ref(&path)));
        let queue = LaneQueue::new(Arc::clone(&reader), 4).unwrap();
        let pool = ScratchPool::new(20_000, 8).unwrap();
        let rights = Arc::new(AtomicUsize::new(0));
        for i in 0..100_u64 {
            let (rights, at) = (Arc::clone(&rights), extent(i * 2500, 20_000));
            let landing = pool.take().unwrap().into_landing(20_000, move |page, result| {
                let good = result.is_ok() && right(&page, at.offset());
                rights.fetch_add(usize::from(good), Ordering::Relaxed);
            });
            queue.submit(ReadClass::Demand, vec![Job::new(at, landing)]);
        }
        let counters = || queue.counters();
        drop(pool.take());
        while counters().reads + counters().failures < 100 {
            std::thread::yield_now();
        }
        let issued: u64 = (0..100).map(|i| reader.issued_len(&extent(i * 2500, 20_000))).sum();
        assert_eq!(counters().bytes_issued, issued, "{name}");
        drop(queue);
        assert_eq!(rights.load(Ordering::Relaxed), 100, "{name}");
    }
}
