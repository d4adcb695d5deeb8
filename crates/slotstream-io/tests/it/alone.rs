//! Tests that need a process of their own: they measure it, or change its limits.

use std::path::PathBuf;
use std::process::Command;
use std::sync::Arc;
use std::sync::mpsc::channel;

use rustix::process::{Resource, Rlimit, setrlimit};
use slotstream_core::{Extent, FileId, Job, ReadClass, ReadQueue};
use slotstream_io::{
    IoError, LaneQueue, PositionalOptions, PositionalReader, ReadMode, ScratchPool,
};

const CHILD: &str = "SLOTSTREAM_IO_TEST_ALONE";

/// Runs `body` in a process that runs nothing else. `test` is the path of the calling test.
#[expect(clippy::print_stdout, reason = "the parent reads it")]
fn alone(test: &str, body: impl FnOnce()) {
    let done = format!("{test} is done");
    if std::env::var(CHILD).is_ok_and(|name| name == test) {
        body();
        println!("{done}");
        return;
    }
    let output = Command::new(std::env::current_exe().unwrap())
        .args([test, "--exact", "--nocapture", "--test-threads=1"])
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
