//! What direct reads and rings say about themselves.

use std::path::PathBuf;

use slotstream_core::{Alignment, Extent, FileId, RecordReader};
use slotstream_io::{
    AlignedBuf, DirectOptions, DirectReader, ReaderKind, UringOptions, UringReader, open_reader,
};

use crate::every::on_disk;

fn file(folder: &tempfile::TempDir, len: usize) -> PathBuf {
    let path = folder.path().join("shard.bin");
    std::fs::write(&path, vec![7; len]).unwrap();
    path
}

fn extent(offset: u64, len: u64) -> Extent {
    Extent::new(FileId::new(0), offset, len).unwrap()
}

/// The file system below the build may be one that refuses.
fn direct(path: &PathBuf) -> Option<DirectReader> {
    let reader = DirectReader::open(std::slice::from_ref(path), DirectOptions::new()).unwrap();
    (reader.effective().name == "direct").then_some(reader)
}

#[test]
fn a_direct_reader_tells_the_truth() {
    let folder = on_disk();
    let path = file(&folder, 10_001);
    let Some(reader) = direct(&path) else { return };
    let mode = reader.effective();
    assert!(mode.why.starts_with("as requested: "), "{mode:?}");
    let Alignment { memory, offset: block, length } = reader.alignment();
    assert!(memory.is_power_of_two() && block.is_power_of_two() && block == length);
    for (offset, len) in [(0, 1), (1, 1), (block - 1, 2), (block, block), (5000, 2000), (10_000, 1)]
    {
        let end = (offset + len).next_multiple_of(block).min(10_001);
        let issued = end - offset / block * block;
        assert_eq!(reader.issued_len(&extent(offset, len)), issued, "{offset} {len}");
    }
    assert_eq!(reader.issued_len(&extent(77, 0)), 0);
    assert_eq!(reader.held_bytes(), 32 * ((1 << 20) + 16_383));
    // A request that lies as it should takes no bounce page, so that none has to exist.
    let mut memory = AlignedBuf::zeroed(8192).unwrap();
    reader.read_exact_at(&extent(0, 8192), &mut memory).unwrap();
    assert!(memory.iter().all(|byte| *byte == 7));
}

#[cfg(target_os = "linux")]
#[test]
fn files_in_memory_are_read_through_the_cache_and_that_is_said() {
    let folder = tempfile::tempdir_in("/dev/shm").unwrap();
    let path = file(&folder, 5000);
    for (kind, name) in [(ReaderKind::Direct, "buffered"), (ReaderKind::Uring, "uring")] {
        let reader = open_reader(kind, std::slice::from_ref(&path)).unwrap();
        let mode = reader.effective();
        let said = format!("{} the file lies in memory (tmpfs)", path.display());
        assert!(mode.why.contains(&said), "{mode:?}");
        // A sandbox may refuse rings as well.
        assert!(mode.name == name || mode.name == "buffered", "{mode:?}");
        assert_eq!(reader.alignment(), Alignment::NONE);
        assert_eq!(reader.issued_len(&extent(3, 10)), 10);
        assert_eq!(reader.held_bytes(), 0);
        let mut buffer = [0; 4999];
        reader.read_exact_at(&extent(1, 4999), &mut buffer).unwrap();
        assert_eq!(buffer, [7; 4999]);
    }
}

#[test]
fn a_reader_of_no_files_is_no_error() {
    let reader = UringReader::open(&[], UringOptions::new()).unwrap();
    let result = reader.read_exact_at(&extent(0, 1), &mut [0]);
    assert!(result.unwrap_err().to_string().contains("0 files"));
    assert!(reader.check_unchanged().is_ok());
}

/// The only ring is taken while its batch lands.
#[test]
fn threads_that_find_no_ring_read_without() {
    let folder = on_disk();
    let path = file(&folder, 100_000);
    let options = UringOptions::new().with_rings(1);
    let reader = UringReader::open(&[path], options).unwrap();
    let (mut outer, mut inner) = (vec![0; 1000], vec![0; 1000]);
    let mut requests =
        [slotstream_core::ReadRequest { extent: extent(5, 1000), buffer: &mut outer }];
    reader.read_batch(&mut requests, &mut |_, result| {
        result.unwrap();
        reader.read_exact_at(&extent(7, 1000), &mut inner).unwrap();
    });
    assert_eq!((outer, inner), (vec![7; 1000], vec![7; 1000]));
}
