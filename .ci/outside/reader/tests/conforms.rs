use std::path::PathBuf;

use outside_reader::{Files, Retrying};
use slotstream_core::{ErrorKind, Extent, FileId, RecordReader};
use slotstream_testkit::reader::{Fault, FaultyReader, Schedule, assert_lawful};

const EIO: Fault = Fault::Errno(5);

fn files(paths: &[PathBuf]) -> Files {
    Files::open(paths).expect("the suite wrote these files")
}

fn manifest() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("Cargo.toml")
}

#[test]
fn files_conform() {
    assert_lawful(|paths| Box::new(files(paths)));
}

#[test]
fn retrying_conforms_on_a_sound_disk_and_on_one_that_fails_every_third_read() {
    assert_lawful(|paths| Box::new(Retrying::new(files(paths), 2)));
    assert_lawful(|paths| {
        // Many attempts: the suite reads from eight threads, and they share the schedule.
        let disk = FaultyReader::new(files(paths), Schedule::Every(3), EIO);
        Box::new(Retrying::new(disk, 64))
    });
}

#[test]
fn only_failures_that_may_pass_are_tried_again() {
    let disk = FaultyReader::new(files(&[manifest()]), Schedule::Always, EIO);
    let reader = Retrying::new(disk, 4);
    let extent = Extent::new(FileId::new(0), 0, 9).unwrap();
    let error = reader.read_exact_at(&extent, &mut [0; 9]).unwrap_err();
    assert_eq!((error.kind(), reader.retries()), (ErrorKind::Transient, 3));

    let reader = Retrying::new(files(&[manifest()]), 4);
    let beyond = Extent::new(FileId::new(0), 1 << 40, 9).unwrap();
    let error = reader.read_exact_at(&beyond, &mut [0; 9]).unwrap_err();
    assert_eq!((error.kind(), reader.retries()), (ErrorKind::Corrupt, 0));
}
