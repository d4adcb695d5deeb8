//! The files of the repository.

use std::path::{Path, PathBuf};
use std::process::Command;

/// The folder that holds everything.
pub(crate) fn root() -> PathBuf {
    let package = Path::new(env!("CARGO_MANIFEST_DIR"));
    package.parent().expect("the package is a member of a workspace").to_path_buf()
}

/// All files relative to the root, sorted: those that git tracks or would track, or, where there
/// is no git, all but build output.
pub(crate) fn tracked() -> Vec<PathBuf> {
    let mut files = git_files().unwrap_or_else(|| {
        let mut found = Vec::new();
        walk(&root(), Path::new(""), &mut found);
        found
    });
    files.sort();
    assert!(files.len() > 100, "only {} files were found below {}", files.len(), root().display());
    files
}

fn git_files() -> Option<Vec<PathBuf>> {
    let arguments = ["ls-files", "-z", "--cached", "--others", "--exclude-standard"];
    let output = Command::new("git").args(arguments).current_dir(root()).output().ok()?;
    if !output.status.success() {
        return None;
    }
    let names = String::from_utf8(output.stdout).expect("file names are UTF-8");
    let names = names.split('\0').filter(|name| !name.is_empty()).map(PathBuf::from);
    // A file that was just deleted is still in the index.
    Some(names.filter(|name| root().join(name).exists()).collect())
}

fn walk(folder: &Path, below: &Path, found: &mut Vec<PathBuf>) {
    for entry in std::fs::read_dir(folder).expect("readable").map(|entry| entry.expect("readable"))
    {
        let name = below.join(entry.file_name());
        if entry.file_type().expect("readable").is_file() {
            found.push(name);
        } else if entry.path().is_dir() && !matches!(name.to_str(), Some("target" | ".git")) {
            walk(&entry.path(), &name, found);
        }
    }
}

/// The text of a file; `None` when it is not text.
pub(crate) fn text(name: &Path) -> Option<String> {
    let bytes = std::fs::read(root().join(name)).expect("a tracked file can be read");
    String::from_utf8(bytes).ok().filter(|text| !text.contains('\0'))
}

/// The text of a file that is text.
#[track_caller]
pub(crate) fn read(name: &str) -> String {
    text(Path::new(name)).unwrap_or_else(|| panic!("{name} is not text"))
}
