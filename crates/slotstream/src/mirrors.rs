//! How an engine opens its files: by which reader, once or as several copies.

use std::collections::HashMap;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use slotstream_core::{FileId, ReaderMode, RecordReader};
use slotstream_io::{
    Checked, ChecksumTable, CopyShare, MirrorReader, ReaderChoice, ReaderKind, open_reader,
};

use crate::Error;

/// What one copy of a mirrored model has read. The first is that of the container's folder, or of
/// the model's own where there is no container.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct MirrorShare {
    /// The folder of the copy.
    pub folder: PathBuf,
    /// What came from it, and why it is read no more, if it is not.
    pub share: CopyShare,
}

/// The copies of a mirrored model.
#[derive(Debug)]
pub(crate) struct Mirror {
    folders: Vec<PathBuf>,
    reader: Arc<MirrorReader>,
}

impl Mirror {
    /// What each copy has read so far.
    pub(crate) fn shares(&self) -> Vec<MirrorShare> {
        let share = |(folder, share): (&PathBuf, _)| MirrorShare { folder: folder.clone(), share };
        self.folders.iter().zip(self.reader.shares()).map(share).collect()
    }
}

/// The files as a reader, how they are read, and the mirror, if there is one.
pub(crate) struct Opened {
    pub(crate) reader: Arc<dyn RecordReader>,
    pub(crate) mode: ReaderMode,
    pub(crate) mirror: Option<Mirror>,
}

/// Opens `files` of the model in `folder` by a reader of this kind, and their copies in `mirrors`.
/// Each copy's reads are compared with the checksums, so that another copy stands in for a damaged
/// one. `why` is empty unless `auto` chose.
pub(crate) fn open(
    ReaderChoice { kind, why, .. }: &ReaderChoice,
    files: &[PathBuf],
    checksums: Option<ChecksumTable>,
    folder: &Path,
    mirrors: &[PathBuf],
) -> Result<Opened, Error> {
    let kind = *kind;
    let own = Checked::when(open_reader(kind, files)?, checksums.as_ref());
    let (reader, mirror) = if mirrors.is_empty() {
        (own, None)
    } else {
        let mut copies = vec![(own, Vec::new())];
        let mut known = Known::of(files);
        for mirror in mirrors {
            let (reader, lacks) = copy(kind, files, mirror, &mut known)?;
            copies.push((Checked::when(reader, checksums.as_ref()), lacks));
        }
        let reader = Arc::new(MirrorReader::partial(copies)?);
        let folders = std::iter::once(folder.to_owned()).chain(mirrors.iter().cloned()).collect();
        let mirror = Mirror { folders, reader: Arc::clone(&reader) };
        (reader as Arc<dyn RecordReader>, Some(mirror))
    };
    let mut mode = reader.effective();
    if !why.is_empty() {
        let how = mode.why.replace("as requested", "as chosen");
        mode.why = format!("auto chose {kind}: {why}; {how}");
    }
    Ok(Opened { reader, mode, mirror })
}

/// Files by device and inode: one that is read as two copies is read twice from one disk.
struct Known(HashMap<(u64, u64), PathBuf>);

impl Known {
    fn of(files: &[PathBuf]) -> Self {
        Self(files.iter().filter_map(|file| Some((identity(file)?, file.clone()))).collect())
    }

    /// Refuses a copy that is there already, under whatever name. What cannot be looked at is left to
    /// whoever opens it.
    fn add(&mut self, copy: &Path) -> Result<(), Error> {
        let before = identity(copy).and_then(|own| self.0.insert(own, copy.to_owned()));
        before.map_or(Ok(()), |file| Err(Error::SameFile { copy: copy.to_owned(), file }))
    }
}

fn identity(path: &Path) -> Option<(u64, u64)> {
    fs::metadata(path).ok().map(|found| (found.dev(), found.ino()))
}

/// The files that are in `mirror`, by their names, and the numbers of those that are not.
fn copy(
    kind: ReaderKind,
    files: &[PathBuf],
    mirror: &Path,
    known: &mut Known,
) -> Result<(Arc<dyn RecordReader>, Vec<FileId>), Error> {
    let mut lacks = Vec::new();
    let mut paths = Vec::with_capacity(files.len());
    for (file, number) in files.iter().zip(0..=u16::MAX) {
        let there = file.file_name().map(|name| mirror.join(name)).filter(|path| path.exists());
        match &there {
            Some(path) => known.add(path)?,
            None => lacks.push(FileId::new(number)),
        }
        // In its place the own file: it keeps the numbers right and is never read here.
        paths.push(there.unwrap_or_else(|| file.clone()));
    }
    if lacks.len() == files.len() {
        let names = files.iter().filter_map(|file| file.file_name());
        let expected = names.map(|name| name.to_string_lossy().into_owned()).collect();
        return Err(Error::EmptyMirror { folder: mirror.to_owned(), expected });
    }
    Ok((open_reader(kind, &paths)?, lacks))
}
