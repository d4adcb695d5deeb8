//! The correction of forecasts that lies beside a model.

use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use slotstream_checkpoint::{Checkpoint, CheckpointError, SIDECAR_NAME};
use slotstream_core::ErrorKind;
use slotstream_lookahead::{
    BoxedSource, Correction, CorrectionError, FileFault, ForecastFiles, OracleRoutes,
};

/// Where a correction is looked for in the model's folder: ours, then that of the Swift program.
const NAMES: [&str; 2] =
    [SIDECAR_NAME, "lookahead/tap-correction-attention-rank128-v1.safetensors"];

/// Largest sidecar that is read.
const LIMIT: u64 = 1 << 30;

/// Why there is no correction.
#[derive(Debug, thiserror::Error)]
enum SidecarError {
    #[error(
        "there is no sidecar beside the model: neither {}; train one with the example \
         train_lookahead, or name its file: corrected:FILE",
        looked.iter().map(|path| path.display().to_string()).collect::<Vec<_>>().join(" nor ")
    )]
    NotThere { looked: Vec<PathBuf> },
    #[error("it is no regular file")]
    NotAFile,
    #[error("it has {found} bytes, more than the {LIMIT} that are read")]
    TooLarge { found: u64 },
    #[error("{} cannot be used", path.display())]
    Bad { path: PathBuf, source: BoxedSource },
}

/// How the routers of a model are named in what was learnt of them.
///
/// # Errors
/// [`CheckpointError::Io`]: the routers' weights are read.
pub fn router_identity(checkpoint: &Checkpoint) -> Result<String, CheckpointError> {
    Ok(format!("sha256:{}", checkpoint.router_digest()?))
}

/// Corrections from files; everything else from somebody else.
pub(crate) struct BesideModel<'a> {
    pub(crate) checkpoint: &'a Checkpoint,
    pub(crate) folder: &'a Path,
    pub(crate) others: &'a dyn ForecastFiles,
}

impl ForecastFiles for BesideModel<'_> {
    fn routes(&self, path: &str) -> Result<OracleRoutes, FileFault> {
        self.others.routes(path)
    }

    fn correction(&self, path: Option<&str>) -> Result<Arc<Correction>, FileFault> {
        let path = match path {
            Some(path) => PathBuf::from(path),
            None => self.find().map_err(|source| FileFault::new(ErrorKind::User, source))?,
        };
        match self.read(&path) {
            Ok(correction) => Ok(Arc::new(correction)),
            Err(Fault { kind, source }) => {
                Err(FileFault::new(kind, SidecarError::Bad { path, source }))
            }
        }
    }
}

/// Why a file is no correction for the model, and whose fault that is.
struct Fault {
    kind: ErrorKind,
    source: BoxedSource,
}

impl From<std::io::Error> for Fault {
    fn from(source: std::io::Error) -> Self {
        use std::io::ErrorKind::{NotADirectory, NotFound};
        let user = matches!(source.kind(), NotFound | NotADirectory);
        let kind = if user { ErrorKind::User } else { ErrorKind::Transient };
        Self { kind, source: source.into() }
    }
}

impl From<CorrectionError> for Fault {
    fn from(source: CorrectionError) -> Self {
        Self { kind: source.kind(), source: source.into() }
    }
}

impl From<CheckpointError> for Fault {
    fn from(source: CheckpointError) -> Self {
        Self { kind: source.kind(), source: source.into() }
    }
}

impl From<SidecarError> for Fault {
    fn from(source: SidecarError) -> Self {
        Self { kind: ErrorKind::User, source: source.into() }
    }
}

impl BesideModel<'_> {
    fn find(&self) -> Result<PathBuf, SidecarError> {
        let looked = NAMES.map(|name| self.folder.join(name));
        let found = looked.iter().find(|path| path.is_file()).cloned();
        found.ok_or_else(|| SidecarError::NotThere { looked: looked.into() })
    }

    fn read(&self, path: &Path) -> Result<Correction, Fault> {
        let metadata = std::fs::metadata(path)?;
        if !metadata.is_file() {
            return Err(SidecarError::NotAFile.into());
        }
        let mut bytes = Vec::new();
        File::open(path)?.take(LIMIT + 1).read_to_end(&mut bytes)?;
        if bytes.len() as u64 > LIMIT {
            return Err(SidecarError::TooLarge { found: metadata.len() }.into());
        }
        let correction = Correction::from_bytes(&bytes)?;
        let hidden = self.checkpoint.config().hidden_size;
        let identity = router_identity(self.checkpoint)?;
        correction.check(&self.checkpoint.geometry(), hidden, &identity)?;
        Ok(correction)
    }
}
