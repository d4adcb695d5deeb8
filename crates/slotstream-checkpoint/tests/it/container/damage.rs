//! Damaged containers: every bit of the front, every length, and numbers that nobody can trust.

use std::fs;
use std::path::Path;

use allocation_counter::measure;
use slotstream_checkpoint::container::{
    CONTAINER_VERSION, Container, ContainerError, ContainerHeader, ContainerKind,
};
use slotstream_core::ErrorKind;

use super::{go_on, open, repacked};
use crate::random_fixture;

/// Where the header's checksum stands.
const CHECKSUM: std::ops::Range<usize> = 20..24;

/// The header with its checksum set right.
fn repaired(mut header: Vec<u8>) -> Vec<u8> {
    let mut hasher = crc32fast::Hasher::new();
    hasher.update(&header[..CHECKSUM.start]);
    hasher.update(&header[CHECKSUM.end..]);
    header[CHECKSUM].copy_from_slice(&hasher.finalize().to_le_bytes());
    header
}

/// Both files of a container: path, header and size.
fn headers() -> (tempfile::TempDir, Vec<(String, Vec<u8>, u64)>) {
    let checkpoint = open(&random_fixture());
    let (out, container) = repacked(&checkpoint, true);
    let both = [container.experts(), container.ngram()].into_iter().flatten();
    let files = both.zip(container.files()).map(|(header, path)| {
        let bytes = fs::read(path).unwrap()[..header.table_offset() as usize].to_vec();
        (path.display().to_string(), bytes, header.file_len())
    });
    let files = files.collect();
    (out, files)
}

#[test]
fn every_flipped_bit_of_a_header_is_an_error() {
    let (_out, files) = headers();
    for (path, bytes, len) in files {
        let path = Path::new(&path);
        assert!(ContainerHeader::from_bytes(path, &bytes, len).expect("legal").complete);
        for bit in 0..8 * bytes.len() {
            let mut broken = bytes.clone();
            broken[bit / 8] ^= 1 << (bit % 8);
            let error = ContainerHeader::from_bytes(path, &broken, len).expect_err("damaged");
            assert!(error.to_string().contains(path.to_str().unwrap()), "{error}");
        }
    }
}

/// With a checksum that is right, a number that is wrong must still be seen, or stand for itself:
/// a hash, a size or a name of the source, which opening compares with the checkpoint.
#[test]
fn every_changed_number_is_an_error_or_another_container() {
    let (_out, files) = headers();
    for (path, bytes, len) in files {
        let path = Path::new(&path);
        let good = ContainerHeader::from_bytes(path, &bytes, len).expect("legal");
        let used = bytes.iter().rposition(|byte| *byte != 0).unwrap() + 8;
        for at in (0..used).filter(|at| !CHECKSUM.contains(at)) {
            for change in [1, 0x80, 0xff] {
                let mut broken = bytes.clone();
                broken[at] ^= change;
                match ContainerHeader::from_bytes(path, &repaired(broken), len) {
                    Ok(other) => assert!(other != good, "byte {at} means nothing"),
                    Err(error) => {
                        let kind = error.kind();
                        assert!(kind == ErrorKind::Corrupt || kind == ErrorKind::User, "{error}");
                    }
                }
            }
        }
    }
}

#[test]
fn every_length_of_a_header_is_an_error() {
    let (_out, files) = headers();
    for (path, bytes, file_len) in files {
        let path = Path::new(&path);
        for len in (0..400).chain([bytes.len() - 1]) {
            for file_len in [len as u64, file_len] {
                ContainerHeader::from_bytes(path, &bytes[..len], file_len).expect_err("cut off");
            }
        }
        for file_len in [file_len - 1, file_len + 1, 0, u64::MAX] {
            let error = ContainerHeader::from_bytes(path, &bytes, file_len).expect_err("length");
            let field = matches!(error, ContainerError::Field { .. });
            assert!(field || matches!(error, ContainerError::Length { .. }), "{error}");
        }
    }
}

#[test]
fn huge_numbers_take_no_memory() {
    let (_out, files) = headers();
    for (path, bytes, len) in files {
        let path = Path::new(&path);
        let numbers = (8..304).filter(|at| at % 2 == 0 && !CHECKSUM.contains(at));
        for (at, width) in numbers.flat_map(|at| [(at, 2), (at, 4), (at, 8)]) {
            let mut broken = bytes.clone();
            for byte in &mut broken[at..at + width] {
                *byte = 0xff;
            }
            let broken = repaired(broken);
            let memory = measure(|| {
                let _ = ContainerHeader::from_bytes(path, &broken, len);
            });
            assert!(memory.bytes_max < 64 << 10, "byte {at}: {} bytes", memory.bytes_max);
        }
    }
}

/// Opens a container of which one file has these bytes.
fn opened(out: &Path, name: &str, bytes: &[u8]) -> Result<Container, ContainerError> {
    fs::write(out.join(name), bytes).unwrap();
    Container::open(out, &open(&random_fixture()))
}

#[test]
fn files_that_are_cut_off_or_damaged_or_of_another_kind() {
    let checkpoint = open(&random_fixture());
    let (out, container) = repacked(&checkpoint, false);
    for (header, kind) in
        [container.experts(), container.ngram()].into_iter().zip(ContainerKind::ALL)
    {
        let (header, name) = (header.unwrap(), kind.file_name());
        let good = fs::read(out.path().join(name)).unwrap();
        let (table, data) = (header.table_offset() as usize, header.data_offset() as usize);
        // Cut off anywhere, or longer.
        let lengths = [0, 1, 7, 8, 23, 24, 100, table - 1, table, table + 3, data, data + 1];
        for len in lengths.into_iter().chain([good.len() / 2, good.len() - 1]) {
            let error = opened(out.path(), name, &good[..len]).expect_err("cut off");
            assert_eq!(error.kind(), ErrorKind::Corrupt, "{len}: {error}");
            assert!(error.to_string().contains(name), "{len}: {error}");
        }
        let longer = [&good[..], &[0]].concat();
        let error = opened(out.path(), name, &longer).expect_err("longer");
        assert!(matches!(error, ContainerError::Length { .. }), "{error}");
        // Every byte of the checksum table and what pads it.
        for at in (table..data).step_by(97).chain([table, table + 4, data - 1]) {
            let mut broken = good.clone();
            broken[at] ^= 0x10;
            let error = opened(out.path(), name, &broken).expect_err("damaged");
            let is_table =
                matches!(error, ContainerError::Checksum { offset, .. } if offset == table as u64);
            assert!(is_table, "{at}: {error}");
        }
        // Another version, not finished, another format.
        let with = |at: usize, byte: u8| {
            let mut changed = good.clone();
            changed[at] = byte;
            let head = repaired(changed[..table].to_vec());
            changed[..table].copy_from_slice(&head);
            changed
        };
        let error = opened(out.path(), name, &with(8, 9)).expect_err("version");
        let version =
            matches!(error, ContainerError::Version { found: 9, known: CONTAINER_VERSION, .. });
        assert!(version, "{error}");
        let error = opened(out.path(), name, &with(12, 0)).expect_err("not finished");
        assert!(matches!(error, ContainerError::Unfinished { .. }), "{error}");
        assert!(error.to_string().contains("--resume"), "{error}");
        let error = opened(out.path(), name, &with(0, b'x')).expect_err("format");
        assert!(matches!(error, ContainerError::Magic { .. }), "{error}");
        let error = opened(out.path(), name, &with(120, 7)).expect_err("layout");
        let layout =
            matches!(&error, ContainerError::Field { offset: 120, found, .. } if found == "7");
        assert!(layout, "{error}");
        // One under the name of the other.
        let other = ContainerKind::ALL.into_iter().find(|other| *other != kind).unwrap();
        let swapped = fs::read(out.path().join(other.file_name())).unwrap();
        let error = opened(out.path(), name, &swapped).expect_err("kind");
        let is_kind = matches!(error, ContainerError::Field { field: "kind", offset: 10, .. });
        assert!(is_kind, "{error}");
        fs::write(out.path().join(name), good).unwrap();
    }
    Container::open(out.path(), &checkpoint).expect("whole again");
}

#[test]
fn folders_without_a_container() {
    let checkpoint = open(&random_fixture());
    let out = tempfile::tempdir().unwrap();
    let error = Container::open(out.path(), &checkpoint).expect_err("nothing");
    assert!(matches!(error, ContainerError::NoContainer { .. }), "{error}");
    fs::write(out.path().join("ngram.rows.part"), []).unwrap();
    let error = Container::open(out.path(), &checkpoint).expect_err("unfinished");
    assert!(error.to_string().contains("ngram.rows.part"), "{error}");
    assert!(matches!(error, ContainerError::Unfinished { .. }), "{error}");
    fs::create_dir(out.path().join("experts.slots")).unwrap();
    let error = Container::open(out.path(), &checkpoint).expect_err("a folder");
    assert!(matches!(error, ContainerError::NotAFile { .. }), "{error}");
    let repack =
        slotstream_checkpoint::container::Repack::new(&checkpoint, &out.path().join("a/b"));
    let error = repack.run(&mut go_on).expect_err("no parent");
    assert!(matches!(error, ContainerError::Io { action: "make", .. }), "{error}");
}
