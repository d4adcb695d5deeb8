//! The files that the conformance suite reads, and what is in them.

use std::fs::File;
use std::io::{self, Seek, SeekFrom, Write};
use std::path::PathBuf;

use slotstream_core::{Extent, FileId};
use tempfile::TempDir;

use super::Violation;

/// Nothing, one byte, and an odd number of bytes.
const SMALL: [u64; 3] = [0, 1, 100_003];

/// Both sides of the positions where 32-bit arithmetic breaks.
const EDGES: [u64; 2] = [1 << 31, 1 << 32];

/// Bytes on each side of an edge; the rest of the large file is a hole.
const SIDE: u64 = 5000;

/// Ends inside the window around the last edge.
const LARGE: u64 = (1 << 32) + 4001;

/// Files of known content in a directory of their own, which goes with this value.
pub(super) struct Files {
    _folder: TempDir,
    pub(super) paths: Vec<PathBuf>,
    sizes: Vec<u64>,
    /// Content of the small files.
    contents: [Vec<u8>; 3],
}

impl Files {
    pub(super) fn write(large: bool) -> Result<Self, Box<Violation>> {
        let refuse = |path: PathBuf| move |source| Box::new(Violation::Setup { path, source });
        let folder = tempfile::tempdir().map_err(refuse(std::env::temp_dir()))?;
        let mut sizes = SMALL.to_vec();
        if large {
            sizes.push(LARGE);
        }
        let mut paths = Vec::new();
        for (file, size) in (0..).zip(&sizes) {
            let path = folder.path().join(format!("file-{file}.bin"));
            write(file, *size, &path).map_err(refuse(path.clone()))?;
            paths.push(path);
        }
        let mut numbers = 0..;
        let contents =
            SMALL.map(|size| numbers.next().map_or_else(Vec::new, |file| bytes(file, 0, size)));
        Ok(Self { _folder: folder, paths, sizes, contents })
    }

    /// The file with an odd number of bytes, for most cases, and its size.
    pub(super) fn odd(&self) -> (FileId, u64) {
        (FileId::new(2), SMALL[2])
    }

    /// The empty file and the one of a single byte.
    pub(super) fn tiny(&self) -> [FileId; 2] {
        [FileId::new(0), FileId::new(1)]
    }

    /// The large file with its edges and its size, if it was asked for.
    pub(super) fn large(&self) -> Option<(FileId, [u64; 2], u64)> {
        self.sizes.get(3).map(|size| (FileId::new(3), EDGES, *size))
    }

    pub(super) fn size(&self, file: FileId) -> u64 {
        self.sizes.get(file.index()).copied().unwrap_or(0)
    }

    /// What a read of `extent` should bring.
    pub(super) fn content(&self, extent: &Extent) -> Vec<u8> {
        if let Some(whole) = self.contents.get(extent.file().index()) {
            return whole[extent.offset() as usize..extent.end() as usize].to_vec();
        }
        let hole = |at: u64| !EDGES.iter().any(|edge| (edge - SIDE..edge + SIDE).contains(&at));
        (extent.offset()..extent.end())
            .map(|at| if hole(at) { 0 } else { byte(extent.file().get(), at) })
            .collect()
    }
}

fn write(file: u16, size: u64, path: &PathBuf) -> io::Result<()> {
    let mut out = File::create_new(path)?;
    out.set_len(size)?;
    let whole = [(0, size)];
    let windows = EDGES.map(|edge| (edge - SIDE, (edge + SIDE).min(size)));
    for &(start, end) in if size > SMALL[2] { &windows[..] } else { &whole[..] } {
        out.seek(SeekFrom::Start(start))?;
        out.write_all(&bytes(file, start, end))?;
    }
    Ok(())
}

fn bytes(file: u16, start: u64, end: u64) -> Vec<u8> {
    (start..end).map(|at| byte(file, at)).collect()
}

/// Differs from its neighbours, from the same position of other files, and from positions that
/// are a power of two away.
fn byte(file: u16, at: u64) -> u8 {
    let mut mixed = at.wrapping_add(u64::from(file) << 56).wrapping_mul(0x9E37_79B9_7F4A_7C15);
    mixed ^= mixed >> 29;
    (mixed.wrapping_mul(0xBF58_476D_1CE4_E5B9) >> 56) as u8
}
