//! The C++ side, written where the compiler finds it.

use std::fs;
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};

use crate::EmulatorError;

/// File and content.
pub(crate) const ALL: [(&str, &str); 7] = [
    ("msl/msl.h", include_str!("../msl/msl.h")),
    ("msl/fibers.h", include_str!("../msl/fibers.h")),
    ("msl/runtime.cpp", include_str!("../msl/runtime.cpp")),
    ("msl/metal_stdlib", INCLUDE),
    ("msl/metal_simdgroup", INCLUDE),
    ("msl/metal_simdgroup_matrix", INCLUDE),
    ("msl/metal_atomic", INCLUDE),
];

/// Each of MSL's headers declares everything.
const INCLUDE: &str = "#include \"msl.h\"\n";

/// Writes all of them below `folder`, and once more with nothing in them: the preprocessor must
/// leave MSL's words alone when signatures are read.
pub(crate) fn write(folder: &Path) -> Result<(), EmulatorError> {
    for (path, content) in ALL {
        replace(&folder.join(path), content)?;
        if content == INCLUDE {
            replace(&folder.join(path.replace("msl/", "empty/")), "")?;
        }
    }
    Ok(())
}

/// Writes a file so that nobody sees half of it.
pub(crate) fn replace(path: &Path, content: &str) -> Result<(), EmulatorError> {
    if fs::read(path).is_ok_and(|old| old == content.as_bytes()) {
        return Ok(());
    }
    if let Some(folder) = path.parent() {
        fs::create_dir_all(folder).map_err(EmulatorError::io("create", folder))?;
    }
    let part = path.with_extension(format!("{}.part", unique()));
    fs::write(&part, content).map_err(EmulatorError::io("write", &part))?;
    fs::rename(&part, path).map_err(EmulatorError::io("write", path))
}

/// A name that no other thread or process uses now.
pub(crate) fn unique() -> String {
    static COUNT: AtomicUsize = AtomicUsize::new(0);
    format!("{}-{}", std::process::id(), COUNT.fetch_add(1, Ordering::Relaxed))
}
