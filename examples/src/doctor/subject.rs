//! The model that is looked at: a folder, or the shape of one.

use std::fs::File;
use std::path::{Path, PathBuf};

use slotstream_testkit::checkpoint::CheckpointSpec;
use tempfile::TempDir;

use super::{Arguments, ShapeName};
use crate::leftover::{hold, sweep};
use crate::synthesize::shape::{Cut, Shape};
use crate::{Console, Failure, ModelFolder};

/// The model that is looked at.
#[derive(Debug)]
pub(super) struct Subject {
    /// Where its headers are.
    pub(super) folder: ModelFolder,
    /// What people call it.
    pub(super) name: String,
    /// A folder of headers with holes for payload, where the model itself is not here.
    shape: Option<Sparse>,
    config: Option<PathBuf>,
}

impl Subject {
    /// Finds the folder, or writes the headers of a shape.
    pub(super) fn find(arguments: &Arguments, console: &Console<'_>) -> Result<Self, Failure> {
        if arguments.shape.is_none() && arguments.config.is_none() {
            let folder = arguments.engine.find_model()?;
            let (name, config) =
                (folder.path.display().to_string(), folder.path.join("config.json"));
            return Ok(Self { folder, name, shape: None, config: Some(config) });
        }
        let config = arguments.config.clone();
        // Only the reading waits: what is written goes however the program ends.
        let cut = Cut { config: config.as_deref(), ..Cut::default() };
        let sparse = sparse(console.waiting(|| Shape::of(cut))?)?;
        let name = match (arguments.shape, &config) {
            (Some(ShapeName::Qwen38FlashNext), _) => "the shape of qwen3.8-flash-next".to_owned(),
            (None, config) => {
                let path = config.as_deref().unwrap_or(Path::new("config.json"));
                format!("the shape of {}", path.display())
            }
        };
        let folder = ModelFolder { path: sparse.path().to_owned(), bundled: false };
        Ok(Self { folder, name, shape: Some(sparse), config })
    }

    /// Whether there are files to read.
    pub(super) const fn is_here(&self) -> bool {
        self.shape.is_none()
    }

    /// A checkpoint of a few of its layers that holds zeros.
    pub(super) fn few_layers(&self, layers: usize, vocab: usize) -> Result<Sparse, Failure> {
        let config = self.config.as_deref();
        let (layers, vocab) = (Some(layers), Some(vocab));
        sparse(Shape::of(Cut { config, layers, vocab, no_ngram: true })?)
    }
}

/// What its folders are called: those of runs that were killed are removed by the next one.
const PREFIX: &str = "slotstream-shape-";

/// A folder with the headers of a shape, and holes for payload; goes when it is dropped.
#[derive(Debug)]
pub(super) struct Sparse {
    folder: TempDir,
    _held: Option<File>,
}

impl Sparse {
    pub(super) fn path(&self) -> &Path {
        self.folder.path()
    }
}

fn sparse(shape: Shape) -> Result<Sparse, Failure> {
    let failed = |source| Failure::File { path: std::env::temp_dir(), source };
    sweep(&std::env::temp_dir(), PREFIX, "");
    let folder = tempfile::Builder::new().prefix(PREFIX).tempdir().map_err(failed)?;
    let held = hold(folder.path()).ok();
    CheckpointSpec::new(shape.config).write_sparse(folder.path())?;
    Ok(Sparse { folder, _held: held })
}
