//! Where test data lies.

use std::path::{Path, PathBuf};

/// A bundled text trace.
pub(crate) fn bundled(name: &str) -> PathBuf {
    let models = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples/models");
    models.join(format!("tiny-moe/traces/{name}.txt.gz"))
}
