//! The documents: links lead somewhere, measured figures have receipts, nothing foreign is named.

mod links;
mod markdown;
mod receipts;
mod words;

use std::path::PathBuf;

use crate::files::tracked;

/// The documents for readers: `README.md`, that of every crate, and everything below `docs/`.
fn documents() -> Vec<PathBuf> {
    let is_ours = |file: &PathBuf| {
        let markdown = file.extension().is_some_and(|extension| extension == "md");
        markdown && (file.starts_with("docs") || file.ends_with("README.md"))
    };
    let found: Vec<_> = tracked().into_iter().filter(is_ours).collect();
    assert!(found.len() > 5, "only {} documents were found", found.len());
    found
}
