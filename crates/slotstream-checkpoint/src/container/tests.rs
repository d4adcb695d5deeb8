//! Writes that fail or stop, one after another.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::io;
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::rc::Rc;

use slotstream_core::{ErrorKind, Rng};

use super::disk::{Disk, PartFile, RealDisk};
use super::{Container, ContainerError, ContainerKind, Progress, Repack};
use crate::Checkpoint;

/// What happens to a write, a change of length, a sync or a renaming.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Fault {
    /// It fails and does nothing.
    Fails,
    /// A write writes this share of its bytes and fails; the rest does nothing.
    Torn(f64),
    /// As a torn one, and nothing after it happens: the machine is off.
    Dead(f64),
}

type Files = Rc<RefCell<BTreeMap<PathBuf, Vec<u8>>>>;

/// A disk in memory: one operation fails, as numbered.
#[derive(Clone, Debug)]
struct Faulty {
    files: Files,
    operations: Rc<Cell<u64>>,
    fault: Option<(u64, Fault)>,
    free: u64,
}

impl Faulty {
    fn new(files: &Files, fault: Option<(u64, Fault)>) -> Self {
        Self { files: Rc::clone(files), operations: Rc::default(), fault, free: u64::MAX }
    }

    /// Counts an operation: how much of it happens.
    fn share(&self) -> f64 {
        let number = self.operations.get();
        self.operations.set(number + 1);
        match self.fault {
            Some((at, Fault::Fails)) if number == at => 0.0,
            Some((at, Fault::Torn(share) | Fault::Dead(share))) if number == at => share,
            Some((at, Fault::Dead(_))) if number > at => 0.0,
            _ => 1.0,
        }
    }

    fn operate(&self) -> io::Result<()> {
        if self.share() < 1.0 { Err(full()) } else { Ok(()) }
    }
}

fn full() -> io::Error {
    io::ErrorKind::StorageFull.into()
}

#[derive(Debug)]
struct FaultyFile {
    disk: Faulty,
    path: PathBuf,
}

impl FaultyFile {
    fn with<T>(&self, change: impl FnOnce(&mut Vec<u8>) -> T) -> T {
        change(self.disk.files.borrow_mut().entry(self.path.clone()).or_default())
    }
}

impl PartFile for FaultyFile {
    fn len(&self) -> io::Result<u64> {
        Ok(self.with(|bytes| bytes.len() as u64))
    }

    fn read_at(&mut self, bytes: &mut [u8], offset: u64) -> io::Result<()> {
        let at = offset as usize;
        self.with(|file| bytes.copy_from_slice(&file[at..at + bytes.len()]));
        Ok(())
    }

    fn write_at(&mut self, bytes: &[u8], offset: u64) -> io::Result<()> {
        let share = self.disk.share();
        let (at, len) = (offset as usize, (bytes.len() as f64 * share) as usize);
        self.with(|file| {
            if len > 0 {
                file.resize(file.len().max(at + len), 0);
                file[at..at + len].copy_from_slice(&bytes[..len]);
            }
        });
        if share < 1.0 { Err(full()) } else { Ok(()) }
    }

    fn set_len(&mut self, len: u64) -> io::Result<()> {
        self.disk.operate()?;
        self.with(|file| file.resize(len as usize, 0));
        Ok(())
    }

    fn sync(&mut self) -> io::Result<()> {
        self.disk.operate()
    }
}

impl Disk for Faulty {
    fn open(&self, part: &Path) -> io::Result<Box<dyn PartFile>> {
        self.operate()?;
        let file = FaultyFile { disk: self.clone(), path: part.into() };
        file.with(|_| ());
        Ok(Box::new(file))
    }

    fn publish(&self, part: &Path, name: &Path) -> io::Result<()> {
        self.operate()?;
        let mut files = self.files.borrow_mut();
        let bytes = files.remove(part).ok_or(io::ErrorKind::NotFound)?;
        files.insert(name.into(), bytes);
        Ok(())
    }

    fn free(&self, _: &Path) -> io::Result<u64> {
        Ok(self.free)
    }
}

fn fixture() -> Checkpoint {
    let path = Path::new(env!("CARGO_MANIFEST_DIR"));
    let path = path.join("../slotstream-qwen/tests/fixtures/random/checkpoint");
    Checkpoint::open(&path).expect("legal")
}

fn go_on(_: Progress) -> ControlFlow<()> {
    ControlFlow::Continue(())
}

/// Several blocks a step, and many steps.
const STEP: usize = 150_000;

struct Bench {
    checkpoint: Checkpoint,
    folder: tempfile::TempDir,
}

impl Bench {
    fn new() -> Self {
        Self { checkpoint: fixture(), folder: tempfile::tempdir().expect("a folder") }
    }

    fn run(&self, disk: &Faulty) -> Result<(), ContainerError> {
        let repack = Repack::new(&self.checkpoint, self.folder.path());
        repack.resume(true).step_bytes(STEP).disk(disk).run(&mut go_on).map(drop)
    }

    /// The files of an undisturbed run and how many operations it takes.
    fn undisturbed(&self) -> (BTreeMap<PathBuf, Vec<u8>>, u64) {
        let disk = Faulty::new(&Files::default(), None);
        self.run(&disk).expect("written");
        let (files, operations) = (disk.files.borrow().clone(), disk.operations.get());
        (files, operations)
    }

    fn assert_nothing_published(&self, files: &Files, whole: &BTreeMap<PathBuf, Vec<u8>>) {
        for kind in ContainerKind::ALL {
            let path = self.folder.path().join(kind.file_name());
            if let Some(bytes) = files.borrow().get(&path) {
                assert!(*bytes == whole[&path], "{} is not whole", path.display());
            }
        }
    }
}

#[test]
fn the_disk_in_memory_is_as_good_as_the_real_one() {
    let bench = Bench::new();
    let (files, operations) = bench.undisturbed();
    assert!(operations > 40, "{operations} operations");
    let repack = Repack::new(&bench.checkpoint, bench.folder.path()).disk(&RealDisk);
    repack.run(&mut go_on).expect("written");
    for (path, bytes) in files {
        assert!(std::fs::read(&path).expect("a file") == bytes, "{}", path.display());
    }
    Container::open(bench.folder.path(), &bench.checkpoint).expect("legal");
}

#[test]
fn every_operation_may_fail() {
    let bench = Bench::new();
    let (whole, operations) = bench.undisturbed();
    for at in 0..operations {
        for fault in [Fault::Fails, Fault::Torn(0.5), Fault::Dead(0.99)] {
            let files = Files::default();
            let error = bench.run(&Faulty::new(&files, Some((at, fault)))).expect_err("a fault");
            assert!(matches!(error, ContainerError::Io { .. }), "{error}");
            assert_eq!(error.kind(), ErrorKind::Transient);
            bench.assert_nothing_published(&files, &whole);
            bench.run(&Faulty::new(&files, None)).expect("resumed");
            assert!(*files.borrow() == whole, "operation {at}, {fault:?}");
        }
    }
}

#[test]
fn off_at_twenty_random_points_again_and_again() {
    let bench = Bench::new();
    let (whole, operations) = bench.undisturbed();
    let mut random = Rng::new(20);
    let files = Files::default();
    let mut round = 0;
    while round < 20 {
        let at = random.next_u64() % operations;
        let share = (random.next_u64() % 1000) as f64 / 1000.0;
        let disk = Faulty::new(&files, Some((at, Fault::Dead(share))));
        let ended = bench.run(&disk);
        bench.assert_nothing_published(&files, &whole);
        if ended.is_ok() {
            // It was finished before that operation: once more from the beginning.
            files.borrow_mut().clear();
            continue;
        }
        round += 1;
        // What was written but never synced may be gone after that: bytes turn to zeros.
        for bytes in files.borrow_mut().values_mut().filter(|_| round % 3 == 0) {
            let len = bytes.len();
            if len > 0 && !whole.values().any(|whole| whole == bytes) {
                let from = random.next_u64() as usize % len;
                let to = (from + 40_000).min(len);
                bytes[from..to].fill(0);
            }
        }
    }
    bench.run(&Faulty::new(&files, None)).expect("resumed");
    assert!(*files.borrow() == whole);
}

#[test]
fn any_rest_is_taken_for_what_it_is() {
    let bench = Bench::new();
    let (whole, _) = bench.undisturbed();
    let name = bench.folder.path().join("experts.slots");
    let part = bench.folder.path().join("experts.slots.part");
    let good = &whole[&name];
    let rests = [
        Vec::new(),
        vec![0xff; 10],
        vec![0x5a; good.len() + 12_345],
        good.clone(),
        good[..good.len() / 2].to_vec(),
        [&good[..], &[1, 2, 3]].concat(),
        whole[&bench.folder.path().join("ngram.rows")].clone(),
    ];
    for (number, rest) in rests.into_iter().enumerate() {
        let files = Files::default();
        files.borrow_mut().insert(part.clone(), rest);
        bench.run(&Faulty::new(&files, None)).expect("resumed");
        assert!(*files.borrow() == whole, "rest {number}");
    }
    // A record that went bad on the disk is written anew.
    for at in [good.len() - 1, good.len() / 2, 40_000] {
        let mut rest = good.clone();
        rest[at] ^= 1;
        let files = Files::default();
        files.borrow_mut().insert(part.clone(), rest);
        bench.run(&Faulty::new(&files, None)).expect("resumed");
        assert!(*files.borrow() == whole, "byte {at}");
    }
}

#[test]
fn a_full_disk_is_seen_before_anything_is_written() {
    let bench = Bench::new();
    let files = Files::default();
    let mut disk = Faulty::new(&files, None);
    let plan = Repack::new(&bench.checkpoint, bench.folder.path()).plan().expect("room");
    let bytes: u64 = plan.iter().map(|file| file.bytes).sum();
    disk.free = bytes;
    let error = bench.run(&disk).expect_err("full");
    let space = matches!(&error, ContainerError::Space { needed, free, .. }
        if *free == bytes && *needed > bytes);
    assert!(space && files.borrow().is_empty(), "{error}");
    disk.free = bytes + (1 << 20);
    bench.run(&disk).expect("room");
}

#[test]
fn one_at_a_time() {
    let bench = Bench::new();
    let path = bench.folder.path().join("experts.slots.part");
    let held = RealDisk.open(&path).expect("free");
    let repack = Repack::new(&bench.checkpoint, bench.folder.path()).resume(true);
    let error = repack.run(&mut go_on).expect_err("busy");
    assert!(matches!(error, ContainerError::Busy { .. }), "{error}");
    drop(held);
    repack.run(&mut go_on).expect("free");
}

#[test]
fn a_source_that_changes_meanwhile_is_not_published() {
    let bench = Bench::new();
    let copy = tempfile::tempdir().expect("a folder");
    for entry in std::fs::read_dir(bench.checkpoint.folder()).expect("a folder") {
        let path = entry.expect("an entry").path();
        std::fs::copy(&path, copy.path().join(path.file_name().expect("a name"))).expect("copied");
    }
    let checkpoint = Checkpoint::open(copy.path()).expect("legal");
    let config = copy.path().join("config.json");
    let repack = Repack::new(&checkpoint, bench.folder.path());
    let error = repack
        .run(&mut |_| {
            let text = std::fs::read_to_string(&config).expect("a file");
            std::fs::write(&config, text + "\n").expect("written");
            ControlFlow::Continue(())
        })
        .expect_err("changed");
    assert!(matches!(error, ContainerError::SourceChanged { .. }), "{error}");
    assert!(!Container::is_in(bench.folder.path()));
}
