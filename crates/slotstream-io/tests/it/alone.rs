//! Tests that need a process of their own: they measure it, or change its limits.

use std::path::PathBuf;
use std::process::Command;
use std::sync::Arc;
use std::sync::mpsc::channel;

use rustix::process::{Resource, Rlimit, setrlimit};
use slotstream_core::{Extent, FileId, Job, ReadClass, ReadQueue, ReadRequest, RecordReader};
use slotstream_io::{
    AlignedBuf, IoError, LaneQueue, PositionalOptions, PositionalReader, ReadMode, ScratchPool,
};

use crate::every::{READERS, on_disk};

const CHILD: &str = "SLOTSTREAM_IO_TEST_ALONE";

/// Runs `body` in a process that runs nothing else. `test` is the path of the calling test.
#[expect(clippy::print_stdout, reason = "the parent reads it")]
pub(crate) fn alone(test: &str, body: impl FnOnce()) {
    let done = format!("{test} is done");
    if std::env::var(CHILD).is_ok_and(|name| name == test) {
        body();
        println!("{done}");
        return;
    }
    let output = Command::new(std::env::current_exe().unwrap())
        .args([test, "--exact", "--include-ignored", "--nocapture", "--test-threads=1"])
        .env(CHILD, test)
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && text.contains(&done), "{text}\n{errors}");
}

fn resident_kib() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find(|line| line.starts_with("VmRSS:")).unwrap();
    line.split_whitespace().nth(1).unwrap().parse().unwrap()
}

fn descriptors() -> usize {
    std::fs::read_dir("/proc/self/fd").unwrap().count()
}

#[test]
fn memory_stays_flat_over_20_000_reads() {
    alone("alone::memory_stays_flat_over_20_000_reads", || {
        const LEN: usize = 20_000;
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("shard.bin");
        std::fs::write(&path, vec![7; 1 << 20]).unwrap();
        let options = PositionalOptions::new().with_mode(ReadMode::Uncached);
        let reader = PositionalReader::open(&[path], options).unwrap();
        let queue = LaneQueue::new(Arc::new(reader), 4).unwrap();
        let pool = ScratchPool::new(LEN, 16).unwrap();
        let (sender, receiver) = channel();
        let reads = |count: u64| {
            for i in 0..count {
                let sender = sender.clone();
                let landing = pool.take().unwrap().into_landing(LEN, move |page, result| {
                    drop(page);
                    sender.send(result.is_ok()).unwrap();
                });
                let extent = Extent::new(FileId::new(0), i * 4099 % 1_000_000, LEN as u64);
                queue.submit(ReadClass::Demand, vec![Job::new(extent.unwrap(), landing)]);
            }
            assert!((0..count).all(|_| receiver.recv().unwrap()));
        };
        reads(2000);
        let before = resident_kib();
        reads(20_000);
        let after = resident_kib();
        assert!(after <= before + 512, "{before} KiB before, {after} KiB after");
        assert_eq!(queue.counters().reads, 22_000);
    });
}

/// Through lanes, from 4 to 64 KiB, at crooked places. To leak the smallest block of the allocator
/// (32 bytes in glibc) at each of the last 90,000 reads takes 2,812 KiB: the bound is below.
#[test]
fn memory_stays_flat_over_100_000_reads_through_lanes() {
    alone("alone::memory_stays_flat_over_100_000_reads_through_lanes", || {
        for name in ["buffered", "direct", "uring", "mirror"] {
            let folder = on_disk();
            let path = folder.path().join("shard.bin");
            std::fs::write(&path, vec![7; 4 << 20]).unwrap();
            let open = READERS.iter().find(|(reader, _)| *reader == name).unwrap().1;
            let reader: Arc<dyn RecordReader> = open(&[path]).into();
            let queue = LaneQueue::new(reader, 8).unwrap();
            let pool = ScratchPool::new(64 << 10, 64).unwrap();
            let (sender, receiver) = channel();
            let reads = |reads: std::ops::Range<u64>| {
                for batch in reads.step_by(50) {
                    let job = |i: u64| {
                        let len = (4 << 10) + i * 4099 % (60 << 10);
                        let sender = sender.clone();
                        let page = pool.take().unwrap();
                        let landing = page.into_landing(len as usize, move |page, result| {
                            drop(page);
                            sender.send(result.is_ok()).unwrap();
                        });
                        let offset = i * 1_000_003 % (4 << 20) / 2;
                        Job::new(Extent::new(FileId::new(0), offset, len).unwrap(), landing)
                    };
                    queue.submit(ReadClass::Demand, (batch..batch + 50).map(job).collect());
                    assert!((0..50).all(|_| receiver.recv().unwrap()));
                }
            };
            reads(0..10_000);
            let before = resident_kib();
            reads(10_000..100_000);
            let after = resident_kib();
            assert!(after <= before + 2048, "{name}: {before} KiB, then {after} KiB");
            assert_eq!(queue.counters().reads, 100_000);
        }
    });
}

/// The same without lanes: reads of crooked places and lengths, singly and in batches of nine.
#[test]
fn memory_stays_flat_over_5_000_reads_of_every_reader() {
    const LEN: usize = 4001;
    alone("alone::memory_stays_flat_over_5_000_reads_of_every_reader", || {
        let folder = on_disk();
        let path = folder.path().join("shard.bin");
        std::fs::write(&path, vec![7; 1 << 20]).unwrap();
        for (name, open) in READERS {
            let reader = open(std::slice::from_ref(&path));
            let mut buffers = vec![vec![0; LEN]; 9];
            let mut reads = |count: u64| {
                for i in (0..count).step_by(10) {
                    let at = |n: u64| {
                        let offset = (i + n) * 4099 % 1_000_000;
                        Extent::new(FileId::new(0), offset, LEN as u64).unwrap()
                    };
                    reader.read_exact_at(&at(9), &mut buffers[0]).unwrap();
                    let mut requests: Vec<ReadRequest<'_>> = buffers
                        .iter_mut()
                        .zip(0..)
                        .map(|(buffer, n)| ReadRequest { extent: at(n), buffer })
                        .collect();
                    reader.read_batch(&mut requests, &mut |_, result| result.unwrap());
                }
            };
            reads(500);
            let before = resident_kib();
            reads(5000);
            let after = resident_kib();
            // A map's pages are the system's, and count as resident: the whole file at most.
            let own = if *name == "mmap" { 1024 } else { 0 };
            assert!(after <= before + 512 + own, "{name}: {before} KiB, then {after} KiB");
        }
    });
}

/// What a read of a warm reader allocates: nothing, whether it goes straight or bounces.
#[test]
fn reads_allocate_nothing() {
    let folder = on_disk();
    let path = folder.path().join("shard.bin");
    std::fs::write(&path, vec![7; 1 << 20]).unwrap();
    for (name, open) in READERS {
        let reader = open(std::slice::from_ref(&path));
        let mut buffer = AlignedBuf::zeroed(65_536).unwrap();
        let mut read = |offset: u64, len: usize| {
            let extent = Extent::new(FileId::new(0), offset, len as u64).unwrap();
            let mut one = [ReadRequest { extent, buffer: &mut buffer[..len] }];
            let mut landings = 0;
            let mut result = Ok(());
            let all = allocation_counter::measure(|| {
                result = reader.read_exact_at(&one[0].extent, one[0].buffer);
                if !matches!(*name, "counted" | "throttled") {
                    reader.read_batch(&mut one, &mut |_, result| {
                        landings += usize::from(result.is_ok());
                    });
                }
            });
            result.unwrap();
            all.count_total
        };
        for round in 0..10 {
            for (offset, len) in [(0, 65_536), (4096, 8192), (1, 60_000), (777, 3)] {
                let count = read(offset, len);
                assert!(round < 5 || count == 0, "{name}: {count} allocations");
            }
        }
    }
}

#[test]
fn running_out_of_descriptors_is_said_and_leaks_none() {
    alone("alone::running_out_of_descriptors_is_said_and_leaks_none", || {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("shard.bin");
        std::fs::write(&path, b"x").unwrap();
        let limit = Rlimit { current: Some(40), maximum: Some(40) };
        setrlimit(Resource::Nofile, limit).unwrap();
        let before = descriptors();
        let paths: Vec<PathBuf> = vec![path; 100];
        match PositionalReader::open(&paths, PositionalOptions::new()) {
            Err(IoError::Descriptors { opened, .. }) => {
                assert!((20..40).contains(&opened), "{opened}");
            }
            other => panic!("{other:?}"),
        }
        assert_eq!(descriptors(), before);
        let some = PositionalReader::open(&paths[..10], PositionalOptions::new()).unwrap();
        assert_eq!(descriptors(), before + 10, "one descriptor a file");
        drop(some);
        assert_eq!(descriptors(), before);
    });
}
