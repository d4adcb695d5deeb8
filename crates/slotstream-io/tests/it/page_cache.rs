//! What uncached and direct reads leave in the page cache of Linux.

use std::fs::File;
use std::io::Write;
use std::path::PathBuf;

use slotstream_core::{Advice, Extent, FileId, RecordReader};
use slotstream_io::{PositionalOptions, PositionalReader, ReadMode, ReaderKind, open_reader};

use crate::every::on_disk;

/// Pages of `file` in the page cache. Asking with `RWF_NOWAIT` reads would be simpler, but such
/// a read brings pages in, and a later one then finds them.
#[expect(unsafe_code, reason = "mincore is the one question that changes nothing")]
fn cached_pages(file: &File) -> usize {
    // SAFETY: the file belongs to this test, which neither writes nor cuts it while it is mapped,
    // and nothing reads through the mapping.
    let map = unsafe { memmap2::Mmap::map(file) }.unwrap();
    let mut pages = vec![0_u8; map.len().div_ceil(4096)];
    // SAFETY: `map` is mapped from a page boundary on for `map.len()` bytes, and `pages` has a
    // byte for each of its pages: no Linux has smaller ones than 4 KiB. The system writes to
    // nothing else.
    let code = unsafe {
        libc::mincore(map.as_ptr().cast_mut().cast(), map.len(), pages.as_mut_ptr().cast())
    };
    assert_eq!(code, 0, "{}", std::io::Error::last_os_error());
    pages.iter().filter(|page| **page & 1 == 1).count()
}

const STEP: u64 = 65_536;
const LEN: u64 = 64 * STEP;

/// A file of nines, of which no page is in the cache.
fn cold_file(folder: &tempfile::TempDir) -> PathBuf {
    let path = folder.path().join("shard.bin");
    let mut file = File::create_new(&path).unwrap();
    file.write_all(&vec![9; LEN as usize]).unwrap();
    // Pages that are not yet written to the disk cannot be dropped.
    file.sync_all().unwrap();
    rustix::fs::fadvise(&file, 0, None, rustix::fs::Advice::DontNeed).unwrap();
    path
}

fn read_all(reader: &dyn RecordReader) {
    let mut buffer = vec![0; STEP as usize - 1];
    for start in (0..LEN).step_by(STEP as usize) {
        // Neither end lies on a page.
        let extent = Extent::new(FileId::new(0), start + 1, STEP - 1).unwrap();
        reader.read_exact_at(&extent, &mut buffer).unwrap();
        assert!(buffer.iter().all(|byte| *byte == 9));
    }
}

/// The comparison of the first read brings pages in, and drops them again.
#[test]
fn direct_reads_and_rings_leave_no_page_behind() {
    let folder = on_disk();
    let path = cold_file(&folder);
    let file = File::open(&path).unwrap();
    for kind in [ReaderKind::Direct, ReaderKind::Uring] {
        let reader = open_reader(kind, std::slice::from_ref(&path)).unwrap();
        read_all(&*reader);
        let mode = reader.effective();
        if matches!(mode.name.as_str(), "direct" | "uring") && !mode.why.contains("cache") {
            assert_eq!(cached_pages(&file), 0, "{mode:?}");
        }
    }
}

#[test]
fn uncached_reads_leave_no_page_behind() {
    let folder = on_disk();
    let path = cold_file(&folder);
    let file = File::open(&path).unwrap();
    // Half of the pages, were they as large as 64 KiB.
    let many = (LEN / STEP / 2) as usize;

    let read = |mode| {
        let options = PositionalOptions::new().with_mode(mode);
        let reader = PositionalReader::open(std::slice::from_ref(&path), options).unwrap();
        read_all(&reader);
        reader
    };
    let buffered = read(ReadMode::Buffered);
    assert!(cached_pages(&file) > many, "buffered reads fill the cache");
    buffered.advise(&Extent::new(FileId::new(0), 0, LEN).unwrap(), Advice::DontNeed);
    assert_eq!(cached_pages(&file), 0, "the advice is passed on");
    let mode = read(ReadMode::Uncached).effective();
    // Holds on every file system with a disk; where the build lies in memory, the reader says so.
    if mode.why.contains("the file lies in memory") {
        assert_eq!(mode.name, "buffered");
    } else {
        assert_eq!((mode.name.as_str(), cached_pages(&file)), ("uncached", 0), "{mode:?}");
    }
}
