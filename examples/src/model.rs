//! Where the model is.

use std::ffi::OsString;
use std::fmt;
use std::path::{Path, PathBuf};

use crate::Failure;

/// The environment variable that names a model folder.
pub const MODEL_VARIABLE: &str = "SLOTSTREAM_MODEL";

/// The bundled model's folder, seen from the repository's root.
const BUNDLED: &str = "examples/models/tiny-moe";

/// A place where a model was looked for.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Place {
    /// What named it.
    pub from: &'static str,
    /// The folder; `None` when nothing named one.
    pub folder: Option<PathBuf>,
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.folder {
            Some(folder) => write!(f, "{}: {} is no folder", self.from, folder.display()),
            None => write!(f, "{}: not given", self.from),
        }
    }
}

/// The model to use.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct ModelFolder {
    /// Its folder.
    pub path: PathBuf,
    /// Whether it is the one in this repository.
    pub bundled: bool,
}

/// Finds the model: the flag, then the environment variable (`variable` is its value), then the
/// repository that this was built from, then the same below the current folder. The first one
/// that is given counts, even when it is not there.
///
/// # Errors
/// [`Failure::NoModel`] lists where it looked.
pub fn find_model(flag: Option<&Path>, variable: Option<OsString>) -> Result<ModelFolder, Failure> {
    let built = Path::new(env!("CARGO_MANIFEST_DIR")).join("models/tiny-moe");
    let bundled = [built, PathBuf::from(BUNDLED)];
    let given = [
        Place { from: "--model", folder: flag.map(Path::to_owned) },
        Place {
            from: MODEL_VARIABLE,
            folder: variable.filter(|v| !v.is_empty()).map(PathBuf::from),
        },
    ];
    let mut looked = Vec::new();
    for place in given {
        if let Some(path) = &place.folder {
            return if path.is_dir() {
                Ok(ModelFolder { path: path.clone(), bundled: is_bundled(path, &bundled) })
            } else {
                looked.push(place);
                Err(Failure::NoModel { looked })
            };
        }
        looked.push(place);
    }
    for (from, path) in ["the repository", "the current folder"].into_iter().zip(bundled) {
        if path.is_dir() {
            return Ok(ModelFolder { path, bundled: true });
        }
        looked.push(Place { from, folder: Some(path) });
    }
    Err(Failure::NoModel { looked })
}

fn is_bundled(path: &Path, bundled: &[PathBuf]) -> bool {
    let real = path.canonicalize().ok();
    real.is_some() && bundled.iter().any(|own| own.canonicalize().ok() == real)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_flag_wins_then_the_variable_then_the_repository() {
        let (here, there) = (Path::new("src"), Path::new("tests"));
        let found = find_model(Some(here), Some(there.into())).unwrap();
        assert_eq!(found, ModelFolder { path: here.into(), bundled: false });
        let found = find_model(None, Some(there.into())).unwrap();
        assert_eq!(found.path, there);
        for empty in [None, Some(OsString::new())] {
            let found = find_model(None, empty).unwrap();
            assert!(found.bundled && found.path.join("config.json").is_file());
        }
        assert!(find_model(Some(Path::new("models/tiny-moe")), None).unwrap().bundled);
    }

    #[test]
    fn a_missing_folder_is_named_with_its_source() {
        let error = find_model(None, Some("no/such".into())).unwrap_err();
        let text = error.to_string();
        assert!(text.contains("--model: not given"), "{text}");
        assert!(text.contains("SLOTSTREAM_MODEL: no/such is no folder"), "{text}");
        assert_eq!(error.exit_code(), 2);
    }
}
