//! Integration tests: the real shape, two small checkpoints, damaged ones, and random damage.

mod container;
mod damage;
mod fixtures;
mod norms;
mod payload;
mod properties;
mod real_shape;
mod variants;

use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use slotstream_checkpoint::Checkpoint;
use slotstream_core::{Extent, FileId, ReadError, ReaderMode, RecordReader};

/// The checkpoint with random weights: straddling modules and odd data offsets on purpose.
fn random_fixture() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../slotstream-qwen/tests/fixtures/random/checkpoint")
}

/// The small trained model of the examples.
fn tiny_model() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples/models/tiny-moe")
}

/// Reads files with positional reads.
#[derive(Debug)]
struct Files(Vec<PathBuf>);

impl Files {
    fn of(checkpoint: &Checkpoint) -> Self {
        Self(checkpoint.files().to_vec())
    }
}

impl RecordReader for Files {
    fn read_exact_at(&self, extent: &Extent, buffer: &mut [u8]) -> Result<(), ReadError> {
        let path = &self.0[extent.file().index()];
        std::fs::File::open(path)
            .and_then(|file| file.read_exact_at(buffer, extent.offset()))
            .map_err(|e| ReadError::io(path, extent, 0, e))
    }

    fn effective(&self) -> ReaderMode {
        ReaderMode::new("plain", "for tests")
    }

    fn path(&self, file: FileId) -> Option<&Path> {
        self.0.get(file.index()).map(PathBuf::as_path)
    }
}

/// An error and its causes as one line.
fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut next = error.source();
    while let Some(cause) = next {
        text += &format!(": {cause}");
        next = cause.source();
    }
    text
}
