//! Writes a container.

use std::fs::{self, File};
use std::io::{ErrorKind, Read as _};
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};

use slotstream_core::RecordReader;

use super::content::Content;
use super::disk::{Disk, RealDisk};
use super::files::{PlainReader, file_at, own_file_at};
use super::header::{ContainerHeader, FRONT};
use super::image::{Image, STEP_BYTES};
use super::part::Part;
use super::source::{ContainerKind, SourceIdentity};
use super::{Container, ContainerError};
use crate::Checkpoint;

/// Room that is left free beyond the files themselves.
const SPARE: u64 = 1 << 20;

/// How far a repack or a verification is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Progress {
    /// Which file.
    pub kind: ContainerKind,
    /// What is done with it.
    pub stage: Stage,
    /// Bytes of all files that are done.
    pub done: u64,
    /// Bytes of all files.
    pub total: u64,
}

/// What is done with a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Stage {
    /// What an earlier run wrote is read and compared with its checksums.
    Checking,
    /// Blocks are copied.
    Writing,
    /// The file is compared with the checkpoint.
    Verifying,
}

/// A file that is, or would be, written.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct RepackedFile {
    /// Which.
    pub kind: ContainerKind,
    /// Where.
    pub path: PathBuf,
    /// Its size in bytes.
    pub bytes: u64,
    /// Bytes that earlier runs had written and that were kept; all of them when the file was
    /// finished.
    pub kept: u64,
}

/// Writes a container: what to write, and where.
///
/// A file is written as `NAME.part` and gets its name when it is complete and on the disk. Its
/// checksum table is the journal: after whatever ended a run, [`Repack::resume`] keeps the blocks
/// that agree with their checksums and goes on behind them, and the result has the same bytes as
/// if nothing had happened. Each byte of the source is read once, in runs as long as a step takes;
/// about 15 MiB of memory are used, or those of two records. The source is never written to.
#[derive(Clone, Debug)]
pub struct Repack<'a> {
    checkpoint: &'a Checkpoint,
    folder: PathBuf,
    reader: Option<&'a dyn RecordReader>,
    kinds: Vec<ContainerKind>,
    pad_rows: bool,
    resume: bool,
    replace: bool,
    step_bytes: usize,
    disk: &'a dyn Disk,
}

impl<'a> Repack<'a> {
    /// A container of this checkpoint in `folder`, which is made if it is not there; it may be the
    /// checkpoint's own. Experts, and the n-gram table where the model has one.
    #[must_use]
    pub fn new(checkpoint: &'a Checkpoint, folder: &Path) -> Self {
        let mut kinds = vec![ContainerKind::Experts];
        kinds.extend(checkpoint.ngram().map(|_| ContainerKind::Ngram));
        Self {
            checkpoint,
            folder: folder.into(),
            reader: None,
            kinds,
            pad_rows: false,
            resume: false,
            replace: false,
            step_bytes: STEP_BYTES,
            disk: &RealDisk,
        }
    }

    /// Writes these files only.
    #[must_use]
    pub fn only(mut self, kinds: &[ContainerKind]) -> Self {
        self.kinds = ContainerKind::ALL.into_iter().filter(|kind| kinds.contains(kind)).collect();
        self
    }

    /// Reads the checkpoint through this reader of [`Checkpoint::files`]; without one, by position
    /// through the page cache.
    #[must_use]
    pub fn reader(mut self, reader: &'a dyn RecordReader) -> Self {
        self.reader = Some(reader);
        self
    }

    /// Puts rows of the n-gram table at multiples of 128 bytes.
    #[must_use]
    pub const fn pad_rows(mut self, pad: bool) -> Self {
        self.pad_rows = pad;
        self
    }

    /// Goes on where an earlier run was cut off. Without this, what such a run left is an error
    /// unless [`Repack::replace`] is set. A rest of other options is written anew.
    #[must_use]
    pub const fn resume(mut self, resume: bool) -> Self {
        self.resume = resume;
        self
    }

    /// Writes anew what is there: a finished file, whose bytes may be damaged although nothing else
    /// of it shows that, one of another model, and what an earlier run left. With
    /// [`Repack::resume`] that run is gone on with, and a finished file that
    /// fits and has no unfinished one beside it is what an earlier run wrote, and stays.
    #[must_use]
    pub const fn replace(mut self, replace: bool) -> Self {
        self.replace = replace;
        self
    }

    /// Puts so many bytes together before they are written, one record or block at least
    /// [default: 8 MiB]. Memory is about twice that, and the checksum table.
    #[must_use]
    pub const fn step_bytes(mut self, bytes: usize) -> Self {
        self.step_bytes = bytes;
        self
    }

    #[cfg(test)]
    pub(super) const fn disk(mut self, disk: &'a dyn Disk) -> Self {
        self.disk = disk;
        self
    }

    /// What would be written, and whether there is room; writes nothing.
    ///
    /// # Errors
    /// [`ContainerError::NoNgram`], [`ContainerError::PartExists`],
    /// [`ContainerError::NotAFile`], [`ContainerError::OtherModel`], [`ContainerError::Foreign`], [`ContainerError::Space`], and
    /// those of reading the checkpoint's config and headers.
    pub fn plan(&self) -> Result<Vec<RepackedFile>, ContainerError> {
        let jobs = self.jobs()?;
        self.check_space(&jobs)?;
        Ok(jobs.into_iter().map(|job| job.file).collect())
    }

    /// Writes the files. `progress` is told after each step and may end the run, which can then be
    /// resumed.
    ///
    /// A finished file of the same source and options is left as it is. One that is of no use to
    /// any model is replaced when the new one is complete: of the same weights under another
    /// config or layout, not finished, or damaged. One of other weights, or one that this build
    /// cannot read, is an error unless [`Repack::replace`] is set.
    ///
    /// # Errors
    /// Whatever ends it early, no unfinished file has the name of a finished one. See
    /// [`ContainerError`].
    pub fn run(
        &self,
        progress: &mut dyn FnMut(Progress) -> ControlFlow<()>,
    ) -> Result<Vec<RepackedFile>, ContainerError> {
        let jobs = self.jobs()?;
        self.make_folder()?;
        self.check_space(&jobs)?;
        let plain;
        let reader = match self.reader {
            Some(reader) => reader,
            None => {
                plain = PlainReader::open(self.checkpoint.files())?;
                &plain
            }
        };
        let total = jobs.iter().map(|job| job.file.bytes).sum();
        let (mut before, mut files) = (0, Vec::new());
        for mut job in jobs {
            if !job.finished {
                let (kind, path) = (job.file.kind, part_path(&job.file.path));
                let mut report = |stage, done: u64| {
                    let done = before + done;
                    match progress(Progress { kind, stage, done, total }) {
                        ControlFlow::Continue(()) => Ok(()),
                        ControlFlow::Break(()) => {
                            Err(ContainerError::Cancelled { path: path.clone(), done, total })
                        }
                    }
                };
                job.file.kept = self.write(&job, reader, &mut report)?;
            }
            before += job.file.bytes;
            files.push(job.file);
        }
        Ok(files)
    }

    /// Writes one file; gives the bytes that were kept.
    fn write(
        &self,
        job: &Job,
        reader: &dyn RecordReader,
        report: &mut dyn FnMut(Stage, u64) -> Result<(), ContainerError>,
    ) -> Result<u64, ContainerError> {
        let path = part_path(&job.file.path);
        let content = &job.header.content;
        let image =
            Image { checkpoint: self.checkpoint, content, reader, step_bytes: self.step_bytes };
        let mut part = Part::open(self.disk, &path, job.header.clone())?;
        let kept = part.keep(self.resume, report)?;
        part.write(&image, kept, report)?;
        // Nothing may be published of a source that is no longer the one that the header names.
        let now = SourceIdentity::of(self.checkpoint, job.file.kind)?;
        if let Some(difference) = now.difference(&job.header.source) {
            let (folder, what) = (self.checkpoint.folder().into(), difference.what);
            return Err(ContainerError::SourceChanged { folder, what });
        }
        part.finish()?;
        let name = &job.file.path;
        let publish = |e| ContainerError::io(name, "rename the finished file to", 0, e);
        self.disk.publish(&path, name).map_err(publish)?;
        let len = kept.checked_sub(1).map(|last| content.block(last));
        Ok(len.map_or(0, |block| job.header.data_offset() + block.start + block.len as u64))
    }

    fn jobs(&self) -> Result<Vec<Job>, ContainerError> {
        self.kinds.iter().map(|kind| self.job(*kind)).collect()
    }

    fn job(&self, kind: ContainerKind) -> Result<Job, ContainerError> {
        let folder = || self.checkpoint.folder().to_path_buf();
        let content = Content::of(self.checkpoint, kind, self.pad_rows)
            .ok_or_else(|| ContainerError::NoNgram { folder: folder() })?;
        let source = SourceIdentity::of(self.checkpoint, kind)?;
        let header = ContainerHeader::new(content, source).ok_or_else(|| {
            let (folder, free) = (self.folder.clone(), i64::MAX as u64);
            ContainerError::Space { folder, needed: u64::MAX, free }
        })?;
        let path = self.folder.join(kind.file_name());
        // Rows that are padded serve as well where nobody asked for either.
        let padded = Content::of(self.checkpoint, kind, true);
        let serves = |content: &Content| {
            *content == header.content || (!self.pad_rows && Some(content) == padded.as_ref())
        };
        let part = part_path(&path);
        file_at(&path)?;
        let part_exists = own_file_at(&part)?;
        let there = match Container::open_file(&path, kind, self.checkpoint, &self.folder) {
            _ if self.replace && (!self.resume || part_exists) => None,
            Ok(Some(file)) => Some(file.header).filter(|header| serves(&header.content)),
            // Whatever is wrong with it, a new one replaces it.
            Ok(None) | Err(_) => None,
        };
        let finished = there.is_some();
        let header = there.unwrap_or(header);
        if !finished && !self.replace {
            spare_others(&path, kind, &header.source)?;
            if self.resume {
                spare_other_part(&part, &header)?;
            }
        }
        if !finished && !self.resume && !self.replace && part_exists {
            return Err(ContainerError::PartExists { path: part });
        }
        let bytes = header.file_len();
        let kept = if finished { bytes } else { 0 };
        Ok(Job { header, finished, file: RepackedFile { kind, path, bytes, kept } })
    }

    /// Makes the folder, for good, unless it is there.
    fn make_folder(&self) -> Result<(), ContainerError> {
        match fs::create_dir(&self.folder) {
            Err(e) if e.kind() == ErrorKind::AlreadyExists && self.folder.is_dir() => return Ok(()),
            made => made.map_err(|e| ContainerError::io(&self.folder, "make", 0, e))?,
        }
        let parent = self.folder.parent().filter(|parent| *parent != Path::new(""));
        let parent = parent.unwrap_or(Path::new("."));
        let synced = File::open(parent).and_then(|folder| folder.sync_all());
        synced.map_err(|e| ContainerError::io(parent, "sync", 0, e))
    }

    /// Room for what is not there yet.
    fn check_space(&self, jobs: &[Job]) -> Result<(), ContainerError> {
        let missing = |job: &Job| {
            let there = fs::metadata(part_path(&job.file.path)).map_or(0, |part| part.len());
            if job.finished { 0 } else { job.file.bytes.saturating_sub(there) }
        };
        let bytes: u64 = jobs.iter().map(missing).sum();
        if bytes == 0 {
            return Ok(());
        }
        // The folder may still have to be made: its parent lies on the same disk.
        let folder = [Some(self.folder.as_path()), self.folder.parent()];
        let there = folder.into_iter().flatten().find(|folder| folder.is_dir());
        let there = there.unwrap_or(Path::new("."));
        let free = self
            .disk
            .free(there)
            .map_err(|e| ContainerError::io(there, "ask for the free space of", 0, e))?;
        let needed = bytes.saturating_add(SPARE);
        if needed > free {
            return Err(ContainerError::Space { folder: there.into(), needed, free });
        }
        Ok(())
    }
}

/// An error if a file may be of use to somebody: it is complete and of other weights, or nobody
/// can tell.
fn spare_others(
    path: &Path,
    kind: ContainerKind,
    own: &SourceIdentity,
) -> Result<(), ContainerError> {
    match header_of(path, kind) {
        Some(Ok(header)) if header.complete => compare(path, own, &header.source),
        Some(Err(error)) => spare_unknown(path, error),
        // What is not finished is of no use.
        _ => Ok(()),
    }
}

/// An error if an unfinished file is of other weights, or nobody can tell: somebody may want to go
/// on with it.
fn spare_other_part(path: &Path, own: &ContainerHeader) -> Result<(), ContainerError> {
    match header_of(path, own.content.kind()) {
        Some(Ok(header)) => compare(path, &own.source, &header.source),
        Some(Err(error)) if !is_begun(path, own)? => spare_unknown(path, error),
        _ => Ok(()),
    }
}

/// Whether a file begins as one whose very first write was cut off: with some of the bytes of its
/// header, perhaps none, and then zeros.
fn is_begun(path: &Path, own: &ContainerHeader) -> Result<bool, ContainerError> {
    let mut found = Vec::new();
    let front = File::open(path).and_then(|file| file.take(FRONT as u64).read_to_end(&mut found));
    front.map_err(|e| ContainerError::io(path, "read the header of", 0, e))?;
    let written = found.iter().zip(own.encode()).take_while(|(a, b)| **a == *b).count();
    Ok(found[written..].iter().all(|byte| *byte == 0))
}

/// An error if whose a file is cannot be read; one that is damaged is of no use to anybody.
fn spare_unknown(path: &Path, source: ContainerError) -> Result<(), ContainerError> {
    match source {
        ContainerError::Magic { .. } | ContainerError::Version { .. } => {
            Err(ContainerError::Foreign { path: path.into(), source: Box::new(source) })
        }
        ContainerError::Io { .. } | ContainerError::NotAFile { .. } => Err(source),
        _ => Ok(()),
    }
}

fn compare(
    path: &Path,
    own: &SourceIdentity,
    source: &SourceIdentity,
) -> Result<(), ContainerError> {
    let Some(difference) = own.difference(source).filter(|_| !own.same_weights(source)) else {
        return Ok(());
    };
    Err(ContainerError::OtherModel {
        path: path.into(),
        difference: Box::new(difference),
        expected: Box::new(own.clone()),
        found: Box::new(source.clone()),
    })
}

/// The header of a file of a container; `None` where there is no file.
fn header_of(path: &Path, kind: ContainerKind) -> Option<Result<ContainerHeader, ContainerError>> {
    match file_at(path) {
        Ok(false) => None,
        Ok(true) => Some(
            File::open(path)
                .map_err(|e| ContainerError::io(path, "open", 0, e))
                .and_then(|file| Container::read_header(path, &file, kind)),
        ),
        Err(error) => Some(Err(error)),
    }
}

/// A file to write.
struct Job {
    header: ContainerHeader,
    /// It is there already.
    finished: bool,
    file: RepackedFile,
}

/// Where a file lies while it is not finished.
pub(super) fn part_path(path: &Path) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(".part");
    name.into()
}
