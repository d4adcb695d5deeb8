//! The positional reader over real files.

use std::fs::OpenOptions;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use slotstream_core::{Advice, ErrorKind, Extent, FileId, ReadError, RecordReader};
use slotstream_io::{
    IoError, PositionalOptions, PositionalReader, ReadMode, ReaderKind, open_reader,
};
use slotstream_testkit::reader::assert_lawful;

const MODES: [ReadMode; 3] = [ReadMode::Auto, ReadMode::Buffered, ReadMode::Uncached];

fn open(paths: &[PathBuf], mode: ReadMode) -> Result<PositionalReader, IoError> {
    PositionalReader::open(paths, PositionalOptions::new().with_mode(mode))
}

fn folder() -> tempfile::TempDir {
    tempfile::tempdir().unwrap()
}

/// A file of 10,000 bytes.
fn shard(folder: &tempfile::TempDir) -> PathBuf {
    let path = folder.path().join("shard.bin");
    std::fs::write(&path, vec![7; 10_000]).unwrap();
    path
}

fn read(reader: &PositionalReader, offset: u64, len: u64) -> Result<Vec<u8>, ReadError> {
    let mut buffer = vec![0; len as usize];
    reader.read_exact_at(&Extent::new(FileId::new(0), offset, len).unwrap(), &mut buffer)?;
    Ok(buffer)
}

#[test]
fn every_mode_conforms() {
    for mode in MODES {
        assert_lawful(|paths| Box::new(open(paths, mode).unwrap()));
    }
    for kind in [ReaderKind::Auto, ReaderKind::Buffered, ReaderKind::Uncached] {
        let folder = folder();
        let reader = open_reader(kind, &[shard(&folder)]).unwrap();
        let mut buffer = [0; 3];
        reader.read_exact_at(&Extent::new(FileId::new(0), 1, 3).unwrap(), &mut buffer).unwrap();
        assert_eq!(buffer, [7; 3]);
    }
}

#[test]
fn no_files_are_no_error() {
    let reader = open(&[], ReadMode::Uncached).unwrap();
    assert!(matches!(read(&reader, 0, 1), Err(ReadError::UnknownFile { files: 0, .. })));
    assert!(reader.check_unchanged().is_ok());
}

#[test]
fn the_effective_mode_gives_its_reason() {
    let folder = folder();
    let mode = |mode| open(&[shard(&folder)], mode).unwrap().effective();
    let buffered = mode(ReadMode::Buffered);
    assert_eq!((buffered.name.as_str(), buffered.why.as_str()), ("buffered", "as requested"));
    let auto = mode(ReadMode::Auto);
    assert!(auto.why.starts_with("auto: on "), "{auto:?}");
    if cfg!(target_os = "linux") {
        assert_eq!(auto.name, "buffered");
    }
    let uncached = mode(ReadMode::Uncached);
    match uncached.name.as_str() {
        "uncached" => assert!(uncached.why.starts_with("as requested: "), "{uncached:?}"),
        "buffered" => {
            assert!(uncached.why.starts_with("uncached was wanted, but "), "{uncached:?}");
        }
        other => panic!("{other}"),
    }
}

#[cfg(target_os = "linux")]
#[test]
fn files_in_memory_cannot_be_uncached_and_that_is_said() {
    // Every Linux has a tmpfs here.
    let folder = tempfile::tempdir_in("/dev/shm").unwrap();
    let reader = open(&[shard(&folder)], ReadMode::Uncached).unwrap();
    let mode = reader.effective();
    assert_eq!(mode.name, "buffered");
    assert!(mode.why.contains("shard.bin the file lies in memory (tmpfs)"), "{mode:?}");
    assert_eq!(read(&reader, 3, 2).unwrap(), [7, 7]);
}

#[test]
fn advice_and_unknown_files_do_no_harm() {
    let folder = folder();
    for mode in MODES {
        let reader = open(&[shard(&folder)], mode).unwrap();
        for advice in [Advice::WillNeed, Advice::DontNeed, Advice::Random, Advice::Sequential] {
            for (file, offset) in [(0, 0), (0, 1 << 40), (7, 5)] {
                reader.advise(&Extent::new(FileId::new(file), offset, 100).unwrap(), advice);
            }
        }
        assert_eq!(read(&reader, 0, 5).unwrap(), [7; 5]);
    }
}

#[test]
fn paths_that_cannot_be_read() {
    let folder = folder();
    let good = shard(&folder);
    let refused = |path: &Path| {
        let paths = [good.clone(), path.to_path_buf()];
        let error = open(&paths, ReadMode::Auto).unwrap_err();
        assert!(error.to_string().contains(&path.display().to_string()), "{error}");
        assert_eq!(error.kind(), ErrorKind::User, "{error}");
        error
    };
    let missing = folder.path().join("missing.bin");
    let error = refused(&missing);
    assert!(matches!(&error, IoError::NotFound { path, .. } if *path == missing));
    let dangling = folder.path().join("dangling.bin");
    std::os::unix::fs::symlink("nowhere", &dangling).unwrap();
    assert!(matches!(refused(&dangling), IoError::NotFound { .. }));
    assert!(matches!(refused(folder.path()), IoError::NotAFile { found: "a directory", .. }));
    let null = IoError::kind(&refused(Path::new("/dev/null")));
    assert_eq!(null, ErrorKind::User);
    let socket = folder.path().join("socket");
    let _listener = std::os::unix::net::UnixListener::bind(&socket).unwrap();
    // The system refuses to open a socket; it has no code that says so.
    assert!(open(&[socket], ReadMode::Auto).is_err());
}

#[cfg(target_os = "linux")]
#[test]
fn a_pipe_without_a_writer_is_refused_and_not_waited_for() {
    use rustix::fs::{CWD, FileType, Mode, mknodat};
    let folder = folder();
    let path = folder.path().join("pipe");
    mknodat(CWD, &path, FileType::Fifo, Mode::RUSR | Mode::WUSR, 0).unwrap();
    let error = open(&[path], ReadMode::Auto).unwrap_err();
    assert!(matches!(error, IoError::NotAFile { found: "a pipe", .. }), "{error}");
}

#[test]
fn the_number_of_files_is_limited() {
    let folder = folder();
    let paths = vec![shard(&folder); 6];
    let open = |limit| {
        PositionalReader::open(&paths, PositionalOptions::new().with_max_files(limit)).map(drop)
    };
    assert!(open(6).is_ok());
    assert!(matches!(open(5), Err(IoError::TooManyFiles { found: 6, limit: 5, .. })));
    let many = vec![PathBuf::from("never opened"); 65_537];
    let options = PositionalOptions::new().with_max_files(usize::MAX);
    let error = PositionalReader::open(&many, options).unwrap_err();
    assert!(matches!(error, IoError::TooManyFiles { limit: 65_536, .. }));
}

/// What `check_unchanged` says after `change`, which must be `Changed` at that path; also through
/// every wrapper.
fn what_changed(change: impl FnOnce(&Path)) -> (Arc<PositionalReader>, String) {
    let folder = folder();
    let (path, other) = (shard(&folder), folder.path().join("other.bin"));
    std::fs::write(&other, [1, 2, 3]).unwrap();
    let reader = Arc::new(open(&[other, path.clone()], ReadMode::Auto).unwrap());
    assert_eq!(reader.file_len(FileId::new(1)), Some(10_000));
    assert_eq!(reader.file_len(FileId::new(2)), None);
    let wrapped = wrapped(&reader);
    for reader in &wrapped {
        assert!(reader.check_unchanged().is_ok(), "{reader:?}");
    }
    change(&path);
    let said = wrapped.iter().map(|reader| {
        let error = reader.check_unchanged().unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Corrupt);
        assert!(error.to_string().contains("load the model again"), "{error}");
        match error {
            ReadError::Changed { path: named, what, .. } if named == path => what,
            other => panic!("{reader:?}: {other:?}"),
        }
    });
    let said: Vec<String> = said.collect();
    assert!(said.iter().all(|what| *what == said[0]), "{said:?}");
    (reader, said[0].clone())
}

/// The reader behind everything that hands calls on.
fn wrapped(reader: &Arc<PositionalReader>) -> Vec<Box<dyn RecordReader>> {
    use slotstream_testkit::reader as kit;
    let new = || Arc::clone(reader);
    vec![
        Box::new(new()),
        Box::new(Arc::new(new()) as Arc<dyn RecordReader>),
        Box::new(Box::new(new()) as Box<dyn RecordReader>),
        Box::new(kit::CountingReader::new(new())),
        Box::new(kit::FaultyReader::new(new(), kit::Schedule::Never, std::io::ErrorKind::Other)),
        Box::new(kit::ShortReader::new(new(), kit::Schedule::Never)),
        Box::new(kit::TornReader::new(new(), kit::Schedule::Never)),
        Box::new(kit::SlowReader::new(new(), Duration::ZERO)),
    ]
}

#[test]
fn changes_are_noticed_and_named() {
    let writing = |path: &Path| OpenOptions::new().append(true).open(path).unwrap();
    let (_, what) = what_changed(|path| writing(path).set_len(4000).unwrap());
    assert!(what.contains("size was 10000 bytes and is 4000"), "{what}");
    let (_, what) = what_changed(|path| writing(path).write_all(b"more").unwrap());
    assert!(what.contains("size was 10000 bytes and is 10004"), "{what}");
    let earlier = SystemTime::now() - Duration::from_secs(10);
    let (_, what) = what_changed(|path| writing(path).set_modified(earlier).unwrap());
    assert!(what.contains("modification time"), "{what}");
    let (_, what) = what_changed(|path| std::fs::remove_file(path).unwrap());
    assert!(what.contains("ENOENT"), "{what}");
}

#[test]
fn a_replaced_file_is_noticed_while_reads_still_see_the_old_one() {
    let (reader, what) = what_changed(|path| {
        let new = path.with_extension("new");
        std::fs::write(&new, vec![8; 10_000]).unwrap();
        std::fs::rename(&new, path).unwrap();
    });
    assert!(what.contains("inode"), "{what}");
    let mut buffer = [0; 2];
    reader.read_exact_at(&Extent::new(FileId::new(1), 5, 2).unwrap(), &mut buffer).unwrap();
    assert_eq!(buffer, [7, 7]);
}

#[test]
fn a_file_truncated_while_open_is_changed_not_short() {
    let folder = folder();
    let path = shard(&folder);
    let reader = open(std::slice::from_ref(&path), ReadMode::Auto).unwrap();
    let beyond = read(&reader, 9990, 20);
    assert!(matches!(beyond, Err(ReadError::EndOfFile { got: 10, .. })), "{beyond:?}");
    OpenOptions::new().write(true).open(&path).unwrap().set_len(5000).unwrap();
    assert_eq!(read(&reader, 0, 5000).unwrap(), [7; 5000]);
    for (offset, len) in [(4000, 2000), (5000, 1), (9999, 1)] {
        match read(&reader, offset, len) {
            Err(ReadError::Changed { path: named, what, .. }) => {
                assert_eq!(named, path);
                assert!(what.contains("10000") && what.contains("5000"), "{what}");
            }
            other => panic!("{other:?}"),
        }
    }
}

/// Growth is no reason to trust the new bytes.
#[test]
fn extents_beyond_the_recorded_size_are_refused_though_the_file_grew() {
    let folder = folder();
    let path = shard(&folder);
    let reader = open(std::slice::from_ref(&path), ReadMode::Auto).unwrap();
    OpenOptions::new().append(true).open(&path).unwrap().write_all(&[1; 100]).unwrap();
    assert!(matches!(read(&reader, 9999, 2), Err(ReadError::EndOfFile { got: 1, .. })));
    assert!(read(&reader, 9999, 1).is_ok());
}
