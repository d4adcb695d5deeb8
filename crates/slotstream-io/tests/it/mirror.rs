//! Mirrors: what they survive, and what they refuse.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use slotstream_core::{ErrorKind, Extent, FileId, ReadError, RecordReader};
use slotstream_io::{
    Checked, ChecksumTable, Counted, IoError, MemReader, MirrorReader, ReaderKind, Throttle,
    Throttled, open_reader,
};
use slotstream_testkit::reader::{
    Fault, FaultyReader, FlippingReader, Schedule, ShortReader, SlowReader, TornReader,
};

use crate::every::{READERS, on_disk};

const LEN: usize = 100_003;

fn content() -> Vec<u8> {
    (0..LEN as u64).map(|at| (at.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 56) as u8).collect()
}

fn memory(bytes: &[u8]) -> MemReader {
    MemReader::from_bytes(vec![bytes.to_vec()]).unwrap()
}

fn extent(offset: u64, len: usize) -> Extent {
    Extent::new(FileId::new(0), offset, len as u64).unwrap()
}

fn read(mirror: &MirrorReader, offset: u64, len: usize) -> Result<Vec<u8>, ReadError> {
    let mut buffer = vec![0; len];
    mirror.read_exact_at(&extent(offset, len), &mut buffer).map(|()| buffer)
}

fn mirror(copies: impl IntoIterator<Item = Arc<dyn RecordReader>>) -> MirrorReader {
    MirrorReader::new(copies.into_iter().collect()).unwrap()
}

/// One copy fails in each way, at each of its first reads, over each reader: nobody notices, and
/// it is named.
#[test]
fn a_copy_that_fails_is_survived_and_named() {
    let (folder, bytes) = (on_disk(), content());
    let path: PathBuf = folder.path().join("shard.bin");
    std::fs::write(&path, &bytes).unwrap();
    for (name, open) in READERS {
        let open = || open(std::slice::from_ref(&path));
        let every = if *name == "buffered" { 1 } else { 7 };
        for hit in (0..22).step_by(every) {
            // Armed after the samples of the opening.
            let faulty = Arc::new(FaultyReader::new(open(), Schedule::Never, Fault::Errno(5)));
            let short = Arc::new(ShortReader::new(open(), Schedule::Never));
            let torn = Arc::new(TornReader::new(open(), Schedule::Never));
            let slow = Arc::new(SlowReader::new(open(), Duration::from_micros(20)));
            let copies: [Arc<dyn RecordReader>; 4] =
                [faulty.clone(), short.clone(), torn.clone(), slow];
            for (which, copy) in copies.into_iter().enumerate() {
                // What the copy before left armed must not meet the samples of the opening.
                faulty.arm(Schedule::Never);
                short.arm(Schedule::Never);
                torn.arm(Schedule::Never);
                // The other one is slow, so that this one is chosen.
                let other = SlowReader::new(open(), Duration::from_micros(500));
                let mirror = mirror([copy, Arc::new(other)]);
                let once = Schedule::Nth(hit);
                faulty.arm(once);
                short.arm(once);
                torn.arm(once);
                for i in 0..30 {
                    let offset = i * 3001;
                    let found = read(&mirror, offset, 2003).unwrap();
                    assert!(found == bytes[offset as usize..][..2003], "{name} {i} of {hit}");
                }
                let struck = [faulty.faults(), short.faults(), torn.faults(), 0][which];
                let mode = mirror.effective();
                assert_eq!(mode.why.contains("copy 0 left out"), struck > 0, "{name}: {mode:?}");
                assert!(!mode.why.contains("copy 1 left out"), "{mode:?}");
                // The file itself is as long as it was: what was read before counts.
                assert!(mirror.check_unchanged().is_ok(), "{name}");
            }
        }
    }
}

/// Earlier reads may have come from what is no longer there.
#[test]
fn a_copy_that_was_cut_is_reported_once() {
    let (bytes, folder) = (content(), tempfile::tempdir().unwrap());
    let copies = ["a", "b"].map(|name| {
        let path = folder.path().join(name);
        std::fs::write(&path, &bytes).unwrap();
        path
    });
    let open = |path: &PathBuf| open_reader(ReaderKind::Buffered, std::slice::from_ref(path));
    let other = SlowReader::new(open(&copies[1]).unwrap(), Duration::from_micros(500));
    let mirror = mirror([open(&copies[0]).unwrap(), Arc::new(other)]);
    let end = bytes.len() as u64 - 10;
    assert_eq!(read(&mirror, end, 10).unwrap(), bytes[end as usize..]);
    std::fs::File::options().write(true).open(&copies[0]).unwrap().set_len(end).unwrap();
    for _ in 0..10 {
        assert_eq!(read(&mirror, end, 10).unwrap(), bytes[end as usize..]);
    }
    let error = mirror.check_unchanged().unwrap_err();
    assert!(matches!(&error, ReadError::Changed { path, .. } if *path == copies[0]), "{error}");
    assert!(mirror.check_unchanged().is_ok());
}

/// A bit that is wrong on one copy is found by its checksum and brought by the other copy.
#[test]
fn a_copy_whose_checksum_is_wrong_is_left_out() {
    let bytes = content();
    let sums = bytes.chunks_exact(1000).map(crc32fast::hash).collect();
    let table = ChecksumTable::new(FileId::new(0), 0, 1000, 1000, sums).unwrap();
    let flipping = Arc::new(FlippingReader::new(memory(&bytes), Schedule::Never));
    let other = SlowReader::new(memory(&bytes), Duration::from_micros(500));
    let first: Arc<dyn RecordReader> = Arc::new(Checked::new(Arc::clone(&flipping), table.clone()));
    let mirror = mirror([first, Arc::new(Checked::new(other, table))]);
    flipping.arm(Schedule::Nth(6));
    for i in 0..30 {
        let at = i * 2000;
        assert_eq!(read(&mirror, at, 1000).unwrap(), bytes[at as usize..][..1000], "{i}");
    }
    assert_eq!(flipping.faults(), 1);
    let why = mirror.effective().why;
    assert!(why.contains("copy 0 left out") && why.contains("checksum"), "{why}");
    assert!(mirror.check_unchanged().is_ok());
}

#[test]
fn when_all_copies_fail_the_first_error_comes_back_and_nobody_is_left_out() {
    let bytes = content();
    let copies = [0, 1]
        .map(|_| Arc::new(FaultyReader::new(memory(&bytes), Schedule::Never, Fault::Errno(5))));
    let mirror = mirror(copies.clone().map(|copy| copy as _));
    copies.iter().for_each(|copy| copy.arm(Schedule::Always));
    let error = read(&mirror, 7, 100).unwrap_err();
    assert!(matches!(error, ReadError::Io { offset: 7, wanted: 100, got: 0, .. }), "{error:?}");
    copies.iter().for_each(|copy| copy.arm(Schedule::Never));
    assert_eq!(read(&mirror, 7, 100).unwrap(), bytes[7..107]);
    assert!(!mirror.effective().why.contains("left out"));
    // The request's own fault is not the copies'.
    assert!(matches!(read(&mirror, 100_000, 4), Err(ReadError::EndOfFile { got: 3, .. })));
    assert!(!mirror.effective().why.contains("left out"));
}

#[test]
fn copies_that_differ_are_refused_at_once() {
    let bytes = content();
    let refuse = |other: MemReader| {
        let copies: Vec<Arc<dyn RecordReader>> = vec![Arc::new(memory(&bytes)), Arc::new(other)];
        let error = MirrorReader::new(copies).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Corrupt);
        match error {
            IoError::CopiesDiffer { what, .. } => what,
            other => panic!("{other:?}"),
        }
    };
    assert_eq!(refuse(memory(&bytes[1..])), "it has 100002 bytes and not 100003");
    let two = MemReader::from_bytes(vec![bytes.clone(), Vec::new()]).unwrap();
    assert_eq!(refuse(two), "it has 2 files and not 1");
    for at in [0, 4095, 50_001, 54_096, LEN - 4096, LEN - 1] {
        let mut other = bytes.clone();
        other[at] ^= 1;
        let what = refuse(memory(&other));
        assert!(what.starts_with(&format!("its byte at offset {at} is ")), "{what}");
    }
    let none = MirrorReader::new(vec![]).unwrap_err();
    assert!(matches!(none, IoError::Copies { found: 0, .. }));
    assert_eq!(none.kind(), ErrorKind::User);
    let many = (0..65).map(|_| Arc::new(memory(&[])) as _).collect();
    assert!(matches!(MirrorReader::new(many), Err(IoError::Copies { found: 65, limit: 64, .. })));
}

#[test]
fn a_copy_that_cannot_be_read_at_once_is_refused() {
    let bytes = content();
    let broken = FaultyReader::new(memory(&bytes), Schedule::Always, Fault::Errno(5));
    let error = MirrorReader::new(vec![Arc::new(memory(&bytes)), Arc::new(broken)]).unwrap_err();
    assert!(matches!(&error, IoError::CopyUnread { source: ReadError::Io { .. }, .. }), "{error}");
    assert_eq!(error.kind(), ErrorKind::Transient);
}

#[test]
fn a_mirror_hands_on_what_suits_all_its_copies() {
    let (folder, bytes) = (on_disk(), content());
    let path = folder.path().join("shard.bin");
    std::fs::write(&path, &bytes).unwrap();
    let direct: Arc<dyn RecordReader> = Arc::from(READERS[2].1(&[path]));
    let of_direct = (direct.alignment(), direct.issued_len(&extent(1, 600)));
    let held = direct.held_bytes() + LEN as u64;
    let mirror = mirror([Arc::new(memory(&bytes)) as _, direct]);
    assert_eq!((mirror.alignment(), mirror.issued_len(&extent(1, 600))), of_direct);
    assert_eq!((mirror.held_bytes(), mirror.file_len(FileId::new(0))), (held, Some(LEN as u64)));
    assert_eq!(mirror.path(FileId::new(0)), Some(std::path::Path::new("memory:0")));
}

#[test]
fn copies_that_differ_elsewhere_are_refused_at_the_first_read_that_meets_it() {
    let bytes = content();
    let mut other = bytes.clone();
    other[20_000] ^= 1;
    let mirror = mirror([Arc::new(memory(&bytes)) as _, Arc::new(memory(&other)) as _]);
    assert_eq!(read(&mirror, 10_000, 10_000).unwrap(), bytes[10_000..20_000]);
    for _ in 0..2 {
        match read(&mirror, 10_001, 10_000) {
            Err(error @ ReadError::CopiesDiffer { .. }) => {
                let what = error.to_string();
                assert_eq!(error.kind(), ErrorKind::Corrupt);
                assert!(what.contains("is no copy of") && !what.contains("changed"), "{what}");
                assert!(what.contains("its byte at offset 20000 is"), "{what}");
            }
            other => panic!("{other:?}"),
        }
        // From now on nothing of it is trusted.
        assert!(read(&mirror, 0, 1).is_err() && mirror.check_unchanged().is_err());
    }
    assert!(mirror.effective().why.starts_with("refused: "));
}

/// A copy that changed may have been read from before: that is said once, then it is left out.
#[test]
fn a_copy_that_changes_is_told_once_and_left_out() {
    let (folder, bytes) = (on_disk(), content());
    let paths = ["a", "b"].map(|name| folder.path().join(name));
    paths.iter().for_each(|path| std::fs::write(path, &bytes).unwrap());
    let open = |path: &PathBuf| Arc::from(READERS[2].1(std::slice::from_ref(path)));
    let mirror = mirror([open(&paths[0]), open(&paths[1])]);
    assert!(mirror.check_unchanged().is_ok());
    std::fs::remove_file(&paths[0]).unwrap();
    let error = mirror.check_unchanged().unwrap_err();
    assert!(matches!(&error, ReadError::Changed { path, .. } if *path == paths[0]), "{error}");
    assert!(mirror.check_unchanged().is_ok());
    assert_eq!(read(&mirror, 5, 5000).unwrap(), bytes[5..5005]);
    let why = mirror.effective().why;
    assert!(why.contains("copy 0 left out: ") && why.contains("ENOENT"), "{why}");
    std::fs::remove_file(&paths[1]).unwrap();
    // The last copy stays in use, changed or not.
    assert!(mirror.check_unchanged().is_err() && mirror.check_unchanged().is_err());
}

#[test]
fn reads_spread_over_the_disks() {
    let bytes = content();
    let disk = |micros| {
        let throttle = Throttle::new(Duration::from_micros(10), 20_000.0 / (micros * 1e-6));
        Arc::new(Counted::new(Throttled::new(memory(&bytes), throttle)))
    };
    let disks = [disk(200.0), disk(600.0)];
    let mirror = mirror(disks.clone().map(|disk| disk as _));
    std::thread::scope(|scope| {
        for id in 0..6 {
            let mirror = &mirror;
            scope.spawn(move || {
                for i in 0..60 {
                    read(mirror, (id * 1009 + i * 997) % 80_000, 20_000).unwrap();
                }
            });
        }
    });
    let reads = disks.map(|disk| disk.counts().reads);
    assert!(reads[0] > reads[1] && reads[1] > 20, "{reads:?}");
}

/// While one thread leaves a copy out, others are choosing one.
#[test]
fn a_copy_is_left_out_while_others_choose() {
    let bytes = content();
    for after in 0..1000 {
        let fast = FaultyReader::new(memory(&bytes), Schedule::Never, Fault::Errno(5));
        let fast = Arc::new(fast);
        let slow = SlowReader::new(memory(&bytes), Duration::from_micros(100));
        let mirror = mirror([fast.clone() as _, Arc::new(slow) as Arc<dyn RecordReader>]);
        fast.arm(Schedule::From(after % 50));
        std::thread::scope(|scope| {
            for id in 0..8 {
                let (mirror, bytes) = (&mirror, &bytes);
                scope.spawn(move || {
                    for i in 0..30 {
                        let offset = id * 1009 + i * 97;
                        let found = read(mirror, offset, 2).expect("the slow one is there");
                        assert_eq!(found, bytes[offset as usize..][..2]);
                    }
                });
            }
        });
        assert_eq!(mirror.shares()[1].left_out, None);
    }
}

/// A copy that lacks files is neither compared nor read for them, and a file that only one copy has
/// is read even from a copy that was left out for another one.
#[test]
fn a_copy_may_lack_files() {
    let (bytes, other) = (content(), vec![7; LEN]);
    let first = MemReader::from_bytes(vec![bytes.clone(), other.clone()]).unwrap();
    let first = Arc::new(FaultyReader::new(first, Schedule::Never, Fault::Errno(5)));
    // In place of the second file is something else, which would be refused.
    let second = MemReader::from_bytes(vec![bytes.clone(), vec![1]]).unwrap();
    // Slow, so that the first is chosen where it may.
    let second = Arc::new(Counted::new(SlowReader::new(second, Duration::from_micros(500))));
    let partial = |lacks: Vec<FileId>| {
        MirrorReader::partial(vec![(first.clone() as _, Vec::new()), (second.clone() as _, lacks)])
    };
    assert!(matches!(partial(Vec::new()), Err(IoError::CopiesDiffer { .. })));
    let mirror = partial(vec![FileId::new(1)]).unwrap();
    let read = |file, offset| {
        let mut buffer = [0; 10];
        let extent = Extent::new(FileId::new(file), offset, 10).unwrap();
        mirror.read_exact_at(&extent, &mut buffer).map(|()| buffer)
    };
    for i in 0..20 {
        assert_eq!(read(1, i).unwrap(), [7; 10]);
        assert_eq!(read(0, i).unwrap(), bytes[i as usize..][..10]);
    }
    let shares = mirror.shares();
    assert!(shares[0].reads >= 20 && shares[1].reads > 0, "{shares:?}");
    assert_eq!(shares.iter().map(|share| share.bytes).sum::<u64>(), 400);
    first.arm(Schedule::Always);
    for i in 0..20 {
        assert_eq!(read(0, i).unwrap(), bytes[i as usize..][..10]);
    }
    assert!(read(1, 0).is_err(), "nobody else has it");
    first.arm(Schedule::Never);
    assert!(mirror.shares()[0].left_out.is_some(), "{:?}", mirror.shares());
    assert_eq!(read(1, 5).unwrap(), [7; 10]);
    let before = second.counts().reads;
    assert_eq!(read(0, 5).unwrap(), bytes[5..15]);
    assert_eq!(second.counts().reads, before + 1, "left out for what others have");
}
