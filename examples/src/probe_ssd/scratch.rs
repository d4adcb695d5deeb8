//! A file of random bytes that is there for the length of a run.

use std::fs::{self, File};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use slotstream_core::Rng;

use crate::leftover::{hold, sweep};
use crate::space::need;
use crate::{Console, Failure};

/// Bytes written at once.
const CHUNK: usize = 4 << 20;

/// A scratch file; goes when it is dropped, and where its process was killed, when the next one is
/// written beside it.
#[derive(Debug)]
pub(crate) struct Scratch {
    path: PathBuf,
    _held: Option<File>,
}

impl Scratch {
    /// Writes a file of `size` random bytes and waits until it is on the disk. `None` after Ctrl-C.
    ///
    /// # Errors
    /// [`Failure::Space`] without room, [`Failure::File`].
    pub(crate) fn write(
        folder: &Path,
        size: u64,
        seed: u64,
        console: &Console<'_>,
    ) -> Result<Option<Self>, Failure> {
        sweep(folder, "probe_ssd-", ".scratch");
        need(folder, size)?;
        let path = folder.join(format!("probe_ssd-{}.scratch", std::process::id()));
        let failed = |source| Failure::File { path: path.clone(), source };
        let file = File::create_new(&path).map_err(failed)?;
        // From here on it goes, whatever happens.
        let scratch = Self { path: path.clone(), _held: hold(&path).ok() };
        let bar = console.bar(size, "scratch file", true);
        let done = fill(&file, size, seed, console, |bytes| bar.inc(bytes)).map_err(failed)?;
        bar.finish_and_clear();
        Ok(done.then_some(scratch))
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        // Nothing can be done about a file that does not go.
        let _ = fs::remove_file(&self.path);
    }
}

/// Whether it was written to its end.
fn fill(
    mut file: &File,
    size: u64,
    seed: u64,
    console: &Console<'_>,
    wrote: impl Fn(u64),
) -> io::Result<bool> {
    let (mut rng, mut chunk, mut left) = (Rng::new(seed), vec![0; CHUNK], size);
    while left > 0 {
        if console.cancel.is_cancelled() {
            return Ok(false);
        }
        for word in chunk.chunks_exact_mut(8) {
            word.copy_from_slice(&rng.next_u64().to_le_bytes());
        }
        let len = left.min(CHUNK as u64) as usize;
        file.write_all(&chunk[..len])?;
        left -= len as u64;
        wrote(len as u64);
    }
    file.sync_all()?;
    Ok(true)
}
