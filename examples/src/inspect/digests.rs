//! `--sha256 LIST`: whether every file is the one that was published.

use std::collections::BTreeMap;
use std::fs::{self, File, Metadata, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::MetadataExt;
use std::path::{Component, Path, PathBuf};

use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use crate::figures::count;
use crate::text_file::read_text;
use crate::{Console, Failure};

/// The most that is read of a list, and of what an interrupted run left.
const LIMIT: u64 = 16 << 20;
/// Bytes read at once.
const CHUNK: usize = 4 << 20;

/// Digests of files, as `sha256sum` prints them.
#[derive(Debug)]
pub(super) struct Digests {
    list: PathBuf,
    /// By name in the model folder, in the list's order.
    wanted: Vec<(String, String)>,
}

/// A file of the list and what became of it.
#[derive(Clone, Debug, Serialize)]
pub(super) struct DigestFigure {
    pub(super) file: String,
    /// `same`, `different` or `missing`.
    pub(super) state: &'static str,
    /// Its size; null when it is missing.
    pub(super) bytes: Option<u64>,
    pub(super) expected: String,
    /// Null when it is missing.
    pub(super) found: Option<String>,
    /// Whether an interrupted run had found that already.
    pub(super) resumed: bool,
}

/// A file that an interrupted run found to be the right one, while it is untouched.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Known {
    file: String,
    bytes: u64,
    inode: u64,
    seconds: i64,
    nanoseconds: i64,
    sha256: String,
}

/// Refuses what could be waited for for ever, such as a pipe.
fn regular(path: &Path, meta: &Metadata) -> Result<(), Failure> {
    if meta.is_file() {
        return Ok(());
    }
    Err(Failure::Option {
        option: "--sha256",
        value: path.display().to_string(),
        expected: "a regular file".into(),
    })
}

impl Digests {
    /// Reads a list: a line a file, 64 hexadecimal digits and a name, as `sha256sum` prints them;
    /// empty lines and lines after `#` are left out.
    ///
    /// # Errors
    /// [`Failure::DigestList`] names the line.
    pub(super) fn read(list: &Path) -> Result<Self, Failure> {
        if let Ok(meta) = list.metadata() {
            regular(list, &meta)?;
        }
        let text = read_text(list, LIMIT)?;
        let mut wanted: Vec<(String, String)> = Vec::new();
        for (number, line) in (1..).zip(text.lines()) {
            let line = line.trim_end();
            if line.is_empty() || line.starts_with('#') {
                continue;
            }
            let bad = |expected: &'static str| Failure::DigestList {
                path: list.into(),
                line: number,
                text: line.chars().take(100).collect(),
                expected,
            };
            let (digest, name) = line
                .split_once(char::is_whitespace)
                .ok_or_else(|| bad("64 hexadecimal digits, two spaces and a file name"))?;
            if digest.len() != 64 || !digest.bytes().all(|byte| byte.is_ascii_hexdigit()) {
                return Err(bad("64 hexadecimal digits first"));
            }
            // An asterisk says that the file was read as bytes.
            let name = name.trim_start();
            let name = name.strip_prefix('*').unwrap_or(name);
            let name = name.strip_prefix("./").unwrap_or(name);
            let inside = |part| matches!(part, Component::Normal(_));
            if name.is_empty() || !Path::new(name).components().all(inside) {
                return Err(bad("a file within the model folder"));
            }
            if wanted.iter().any(|(known, _)| known == name) {
                return Err(bad("every file once"));
            }
            wanted.push((name.to_owned(), digest.to_ascii_lowercase()));
        }
        if wanted.is_empty() {
            return Err(Failure::DigestList {
                path: list.into(),
                line: 1,
                text: String::new(),
                expected: "at least one line of 64 hexadecimal digits and a file name",
            });
        }
        Ok(Self { list: list.into(), wanted })
    }

    /// Files of the list.
    pub(super) fn len(&self) -> usize {
        self.wanted.len()
    }

    /// Reads every file of the list and compares. What was found to be right is noted beside the
    /// list, so that a run after an interrupted one goes on; the note goes when all is right.
    ///
    /// # Errors
    /// [`Failure::Digests`] names every file that is not as listed, after all were looked at;
    /// [`Failure::ReadFile`], [`Failure::Interrupted`].
    pub(super) fn verify(
        &self,
        folder: &Path,
        figures: &mut Vec<DigestFigure>,
        console: &Console<'_>,
    ) -> Result<(), Failure> {
        let mut notes = Notes::read(&self.list);
        let sizes = self.wanted.iter().map(|(name, _)| folder.join(name).metadata());
        let bar = console.bar(sizes.flatten().map(|meta| meta.len()).sum(), "sha256", true);
        for (name, expected) in &self.wanted {
            let path = folder.join(name);
            let failed = |source| Failure::ReadFile { path: path.clone(), source };
            let figure = |state, bytes, found: Option<String>, resumed| DigestFigure {
                file: name.clone(),
                state,
                bytes,
                expected: expected.clone(),
                found,
                resumed,
            };
            let meta = match path.metadata() {
                Ok(meta) => meta,
                Err(error) if error.kind() == io::ErrorKind::NotFound => {
                    figures.push(figure("missing", None, None, false));
                    continue;
                }
                Err(error) => return Err(failed(error)),
            };
            regular(&path, &meta)?;
            let known = Known::new(name, &meta, expected);
            if notes.holds(&known) {
                bar.inc(meta.len());
                figures.push(figure("same", Some(meta.len()), Some(expected.clone()), true));
                continue;
            }
            let hashed = hash(&path, console, |bytes| bar.inc(bytes)).map_err(failed)?;
            let Some(found) = hashed else {
                return Err(Failure::Interrupted { what: "comparing digests" });
            };
            let same = found == *expected;
            if same {
                notes.add(known);
            }
            let state = if same { "same" } else { "different" };
            figures.push(figure(state, Some(meta.len()), Some(found), false));
        }
        bar.finish_and_clear();
        if figures.iter().all(|figure| figure.state == "same") {
            notes.remove();
        }
        judge(&self.list, figures)
    }
}

/// The digest of a file; `None` when Ctrl-C came first.
fn hash(path: &Path, console: &Console<'_>, read: impl Fn(u64)) -> io::Result<Option<String>> {
    let (mut file, mut hasher) = (File::open(path)?, Sha256::new());
    let mut chunk = vec![0; CHUNK];
    loop {
        if console.cancel.is_cancelled() {
            return Ok(None);
        }
        let len = match file.read(&mut chunk) {
            Ok(0) => break,
            Ok(len) => len,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            Err(error) => return Err(error),
        };
        hasher.update(&chunk[..len]);
        read(len as u64);
    }
    Ok(Some(hasher.finalize().iter().map(|byte| format!("{byte:02x}")).collect()))
}

/// What an interrupted run left, in a file beside the list.
struct Notes {
    path: PathBuf,
    /// The file holds something else: it is left alone.
    foreign: bool,
    known: BTreeMap<String, Known>,
}

impl Notes {
    fn read(list: &Path) -> Self {
        let mut path = list.as_os_str().to_owned();
        path.push(".verified");
        let path = PathBuf::from(path);
        let text = read_text(&path, LIMIT).unwrap_or_default();
        let mut known = BTreeMap::new();
        let mut foreign = false;
        for line in text.split_inclusive('\n') {
            match serde_json::from_str::<Known>(line) {
                Ok(one) => drop(known.insert(one.file.clone(), one)),
                // A kill may have cut the last one.
                Err(_) => foreign |= line.ends_with('\n'),
            }
        }
        foreign |= path.symlink_metadata().is_ok_and(|meta| !meta.is_file());
        Self { path, foreign, known }
    }

    fn holds(&self, known: &Known) -> bool {
        self.known.get(&known.file) == Some(known)
    }

    /// A folder that cannot be written to costs the resuming and nothing else.
    fn add(&mut self, known: Known) {
        if let (false, Ok(line)) = (self.foreign, serde_json::to_string(&known)) {
            let file = OpenOptions::new().append(true).create(true).open(&self.path);
            let _ = file.and_then(|mut file| file.write_all(format!("{line}\n").as_bytes()));
        }
        self.known.insert(known.file.clone(), known);
    }

    fn remove(&self) {
        if self.foreign {
            return;
        }
        // Most often there is none.
        let _ = fs::remove_file(&self.path);
    }
}

impl Known {
    fn new(file: &str, meta: &Metadata, sha256: &str) -> Self {
        Self {
            file: file.to_owned(),
            bytes: meta.len(),
            inode: meta.ino(),
            seconds: meta.mtime(),
            nanoseconds: meta.mtime_nsec(),
            sha256: sha256.to_owned(),
        }
    }
}

/// The files that are not as listed, as an error.
fn judge(list: &Path, figures: &[DigestFigure]) -> Result<(), Failure> {
    let wrong: Vec<String> = figures
        .iter()
        .filter(|figure| figure.state != "same")
        .map(|figure| match (figure.bytes, &figure.found) {
            (Some(bytes), Some(found)) => {
                let (file, expected) = (&figure.file, &figure.expected);
                let bytes = count(bytes, "byte");
                format!("{file} has {bytes} with digest {found}, expected {expected}")
            }
            _ => format!("{} is missing", figure.file),
        })
        .collect();
    if wrong.is_empty() {
        return Ok(());
    }
    Err(Failure::Digests { list: list.into(), files: figures.len(), wrong })
}

/// A line about the files for people, of which so many are `listed`.
pub(super) fn summary(figures: &[DigestFigure], listed: usize) -> String {
    let same = figures.iter().filter(|figure| figure.state == "same").count();
    let resumed = figures.iter().filter(|figure| figure.resumed).count();
    let bytes: u64 = figures.iter().filter_map(|figure| figure.bytes).sum();
    let before = match resumed {
        0 => String::new(),
        some => format!(", {some} of them in a run before"),
    };
    let (files, bytes) = (count(listed as u64, "file"), count(bytes, "byte"));
    let rest = match listed - figures.len().min(listed) {
        0 => String::new(),
        rest => format!("; {rest} not looked at"),
    };
    format!("{same} of {files} have the digest listed, {bytes}{before}{rest}")
}
