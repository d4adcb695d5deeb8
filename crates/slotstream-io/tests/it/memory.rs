//! Files in memory.

use std::fs::OpenOptions;
use std::ops::ControlFlow;
use std::path::PathBuf;

use slotstream_core::{ErrorKind, FileId, ReadError, RecordReader};
use slotstream_io::{IoError, LoadProgress, MemReader, ReaderKind, open_reader};
use slotstream_testkit::reader::Conformance;

fn go_on(_: LoadProgress) -> ControlFlow<()> {
    ControlFlow::Continue(())
}

/// Two files of more than one step of the progress together.
fn files(folder: &tempfile::TempDir) -> Vec<PathBuf> {
    let paths = ["a", "b"].map(|name| folder.path().join(name));
    std::fs::write(&paths[0], vec![1; 20 << 20]).unwrap();
    std::fs::write(&paths[1], vec![2; 1001]).unwrap();
    paths.into()
}

#[test]
fn conforms() {
    let suite = Conformance::new().without_large_file();
    suite.assert(|paths| Box::new(MemReader::from_files(paths, &mut go_on).unwrap()));
    suite.assert(|paths| Box::new(open_reader(ReaderKind::Memory, paths).unwrap()));
}

#[test]
fn progress_goes_up_to_the_total() {
    let folder = tempfile::tempdir().unwrap();
    let paths = files(&folder);
    let mut seen = Vec::new();
    let reader = MemReader::from_files(&paths, &mut |progress| {
        seen.push((progress.file, progress.loaded));
        assert_eq!(progress.total, (20 << 20) + 1001);
        ControlFlow::Continue(())
    })
    .unwrap();
    let (a, b) = (FileId::new(0), FileId::new(1));
    let mib = |n: u64| n << 20;
    let steps =
        [(a, 0), (a, mib(8)), (a, mib(16)), (a, mib(20)), (b, mib(20)), (b, mib(20) + 1001)];
    assert_eq!(seen, steps);
    assert_eq!(reader.bytes(), mib(20) + 1001);
    assert_eq!(reader.path(b), Some(paths[1].as_path()));
    assert_eq!(reader.effective().name, "memory");
}

#[test]
fn loading_can_be_cancelled() {
    let folder = tempfile::tempdir().unwrap();
    let error = MemReader::from_files(&files(&folder), &mut |progress| {
        if progress.loaded > 0 { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    })
    .unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Cancelled);
    let expected = (8 << 20, (20 << 20) + 1001);
    match error {
        IoError::LoadCancelled { loaded, total, .. } => assert_eq!((loaded, total), expected),
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_file_truncated_while_it_is_loaded_is_an_error() {
    let folder = tempfile::tempdir().unwrap();
    let paths = files(&folder);
    let error = MemReader::from_files(&paths, &mut |progress| {
        if progress.loaded == 8 << 20 {
            OpenOptions::new().write(true).open(&paths[0]).unwrap().set_len(9 << 20).unwrap();
        }
        ControlFlow::Continue(())
    })
    .unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Corrupt);
    match error {
        IoError::Load { path, source: ReadError::Changed { what, .. }, .. } => {
            assert_eq!(path, paths[0]);
            assert!(what.contains("20971520") && what.contains("9437184"), "{what}");
        }
        other => panic!("{other:?}"),
    }
}

#[test]
fn too_many_files() {
    let made = MemReader::from_bytes(vec![Vec::new(); 65_536]).unwrap();
    assert!(made.path(FileId::new(u16::MAX)).is_some());
    let error = MemReader::from_bytes(vec![Vec::new(); 65_537]).unwrap_err();
    assert!(matches!(error, IoError::TooManyFiles { found: 65_537, limit: 65_536, .. }));
}
