//! The repacked container: records and n-gram rows laid out for one read each.
//!
//! A folder with `experts.slots` (every record the exact image of a slot, at whole strides) and
//! `ngram.rows` (weight, scales and biases of a row side by side), either of which may be missing.
//! [`Repack`] makes it from a checkpoint, [`Container::open`] refuses it unless it was made, and
//! finished, from this very checkpoint. `docs/formats.md` has the format byte by byte.

mod content;
mod disk;
mod error;
mod files;
mod header;
mod image;
mod part;
mod repack;
mod rows;
mod source;
#[cfg(test)]
mod tests;
mod verify;
mod wire;

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use slotstream_core::{ExpertKey, Extent, FileId, RecordLayout};

use crate::Checkpoint;

pub use content::Content;
pub use error::{ContainerError, Difference, RepackCommand};
pub use header::{CONTAINER_VERSION, ContainerHeader};
pub use repack::{Progress, Repack, RepackedFile, Stage};
pub use rows::{RowLayout, RowPart};
pub use source::{ContainerKind, Digest, SourceIdentity, SourceShard};

use files::file_at;
use header::FRONT;
use repack::part_path;

/// One file of a container, checked but for its blocks.
#[derive(Clone, Debug)]
pub(super) struct ContainerFile {
    path: PathBuf,
    header: ContainerHeader,
    /// The checksums of its blocks.
    table: Vec<u32>,
}

/// A validated container of a checkpoint: where each record and each row lies.
///
/// Opening reads headers, checksum tables, and what [`SourceIdentity::of`] reads of the
/// checkpoint; no record and no row.
#[derive(Clone, Debug)]
pub struct Container {
    folder: PathBuf,
    paths: Vec<PathBuf>,
    experts: Option<ContainerFile>,
    ngram: Option<ContainerFile>,
    first_file: u16,
}

/// What lies at a byte of a container.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Held {
    /// A byte of a record, or of the padding behind it.
    Record(ExpertKey),
    /// A byte of a row of the n-gram table, or of the padding behind it.
    Row(u64),
}

impl Container {
    /// Opens and validates the container in a folder, against the checkpoint as it lies on the
    /// disk now.
    ///
    /// # Errors
    /// Names the file, the byte or the property, what was expected and what was found, and how to
    /// make the container again; see [`ContainerError`].
    pub fn open(folder: &Path, checkpoint: &Checkpoint) -> Result<Self, ContainerError> {
        let open = |kind: ContainerKind| {
            let path = folder.join(kind.file_name());
            Self::open_file(&path, kind, checkpoint, folder)
        };
        let (experts, ngram) = (open(ContainerKind::Experts)?, open(ContainerKind::Ngram)?);
        let files = [&experts, &ngram].into_iter().flatten();
        let paths: Vec<_> = files.map(|file| file.path.clone()).collect();
        if paths.is_empty() {
            return Err(Self::nothing(folder, checkpoint));
        }
        Ok(Self { folder: folder.into(), paths, experts, ngram, first_file: 0 })
    }

    /// Whether a folder has something of a container's name, be it a link that leads nowhere: then
    /// [`Container::open`] says what is wrong with it.
    #[must_use]
    pub fn is_in(folder: &Path) -> bool {
        let there = |kind: &ContainerKind| folder.join(kind.file_name()).symlink_metadata().is_ok();
        ContainerKind::ALL.iter().any(there)
    }

    fn nothing(folder: &Path, checkpoint: &Checkpoint) -> ContainerError {
        let parts = ContainerKind::ALL.map(|kind| part_path(&folder.join(kind.file_name())));
        match parts.into_iter().find(|part| part.is_file()) {
            Some(path) => Self::unfinished(path, folder, checkpoint),
            None => ContainerError::NoContainer { folder: folder.into() },
        }
    }

    fn unfinished(path: PathBuf, folder: &Path, checkpoint: &Checkpoint) -> ContainerError {
        ContainerError::Unfinished { path, remedy: RepackCommand::new(checkpoint, folder) }
    }

    /// Opens one of the files; `None` when it is not there.
    fn open_file(
        path: &Path,
        kind: ContainerKind,
        checkpoint: &Checkpoint,
        folder: &Path,
    ) -> Result<Option<ContainerFile>, ContainerError> {
        let fail = |e| ContainerError::io(path, "open", 0, e);
        if !file_at(path)? {
            return Ok(None);
        }
        let file = File::open(path).map_err(fail)?;
        let header = Self::read_header(path, &file, kind)?;
        if !header.complete {
            return Err(Self::unfinished(path.into(), folder, checkpoint));
        }
        let now = SourceIdentity::of(checkpoint, kind)?;
        let difference = now.difference(&header.source).or_else(|| {
            // The same config makes the same content, unless another build reads it otherwise.
            let legal = [false, true].map(|padded| Content::of(checkpoint, kind, padded));
            if legal.iter().flatten().any(|content| *content == header.content) {
                return None;
            }
            let what = "its geometry or layout is another one".into();
            let (expected, found) = (format!("{:?}", legal[0]), format!("{:?}", header.content));
            Some(Difference { what, expected, found })
        });
        if let Some(difference) = difference {
            let mut remedy = RepackCommand::new(checkpoint, folder);
            remedy.replace = !now.same_weights(&header.source);
            let difference = Box::new(difference);
            return Err(ContainerError::Stale { path: path.into(), difference, remedy });
        }
        let table = Self::read_table(path, &file, &header)?;
        Ok(Some(ContainerFile { path: path.into(), header, table }))
    }

    fn read_header(
        path: &Path,
        file: &File,
        kind: ContainerKind,
    ) -> Result<ContainerHeader, ContainerError> {
        let fail = |e| ContainerError::io(path, "read the header of", 0, e);
        let file_len = file.metadata().map_err(fail)?.len();
        let mut front = vec![0; file_len.min(FRONT as u64) as usize];
        file.read_exact_at(&mut front, 0).map_err(fail)?;
        let (found, header_len) = ContainerHeader::front(path, &front, file_len)?;
        if found != kind {
            return Err(ContainerError::Field {
                path: path.into(),
                offset: 10,
                field: "kind",
                expected: format!("{} for {}", kind.number(), kind.file_name()),
                found: format!("{} for {}", found.number(), found.file_name()),
            });
        }
        // At most the file and the limit of a header.
        let mut bytes = vec![0; usize::try_from(header_len).unwrap_or(0)];
        file.read_exact_at(&mut bytes, 0).map_err(fail)?;
        ContainerHeader::from_bytes(path, &bytes, file_len)
    }

    fn read_table(
        path: &Path,
        file: &File,
        header: &ContainerHeader,
    ) -> Result<Vec<u32>, ContainerError> {
        let offset = header.table_offset();
        // Lies within the file, whose length was compared.
        let mut region = vec![0; usize::try_from(header.data_offset() - offset).unwrap_or(0)];
        let read = file.read_exact_at(&mut region, offset);
        read.map_err(|e| ContainerError::io(path, "read the table of", offset, e))?;
        let mut entries = region.as_chunks::<4>().0.iter().map(|bytes| u32::from_le_bytes(*bytes));
        let (expected, found) = (entries.next().unwrap_or(0), crc32fast::hash(&region[4..]));
        if expected != found {
            let (path, what) = (path.into(), "checksum table");
            return Err(ContainerError::Checksum { path, what, offset, expected, found });
        }
        let blocks = usize::try_from(header.content.blocks()).unwrap_or(0);
        Ok(entries.take(blocks).collect())
    }

    /// Numbers the files from `first` on instead of from 0: for a reader that has other files
    /// before them.
    #[must_use]
    pub const fn numbered_from(mut self, first: u16) -> Self {
        self.first_file = first;
        self
    }

    /// The folder that was opened.
    #[must_use]
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// The files; a [`FileId`] of an extent is an index into this list, counted from
    /// [`Container::numbered_from`].
    #[must_use]
    pub fn files(&self) -> &[PathBuf] {
        &self.paths
    }

    /// Header of `experts.slots`; `None` without that file.
    #[must_use]
    pub fn experts(&self) -> Option<&ContainerHeader> {
        self.experts.as_ref().map(|file| &file.header)
    }

    /// Header of `ngram.rows`; `None` without that file.
    #[must_use]
    pub fn ngram(&self) -> Option<&ContainerHeader> {
        self.ngram.as_ref().map(|file| &file.header)
    }

    /// How a record lies at its stride; `None` without `experts.slots`.
    #[must_use]
    pub fn record_layout(&self) -> Option<&RecordLayout> {
        match &self.experts.as_ref()?.header.content {
            Content::Experts { layout, .. } => Some(layout),
            Content::Ngram { .. } => None,
        }
    }

    /// How a row lies at its stride; `None` without `ngram.rows`.
    #[must_use]
    pub fn row_layout(&self) -> Option<RowLayout> {
        match &self.ngram.as_ref()?.header.content {
            Content::Ngram { layout, .. } => Some(*layout),
            Content::Experts { .. } => None,
        }
    }

    /// The bytes of a record, from its first piece to the end of the last, padding between pieces
    /// included: they go to the start of a slot as they are. `None` outside the geometry, and
    /// without `experts.slots`.
    #[must_use]
    pub fn extent(&self, key: ExpertKey) -> Option<Extent> {
        let (padded, layout) = self.record(key)?;
        padded.slice(0, layout.record_len() as u64).ok()
    }

    /// The bytes of a record up to its whole stride: offset and length are multiples of 16 KiB, as
    /// direct reads want them. What follows the record is zero.
    #[must_use]
    pub fn padded_extent(&self, key: ExpertKey) -> Option<Extent> {
        self.record(key).map(|(padded, _)| padded)
    }

    /// The nine pieces of a record, in core's `PIECE_ORDER`, as
    /// [`Checkpoint::expert_pieces`] gives those of the shards.
    #[must_use]
    pub fn expert_pieces(&self, key: ExpertKey) -> Option<[Extent; 9]> {
        let (padded, layout) = self.record(key)?;
        let mut pieces = [padded; 9];
        for (extent, piece) in pieces.iter_mut().zip(layout.pieces()) {
            *extent = padded.slice(piece.offset as u64, piece.len as u64).ok()?;
        }
        Some(pieces)
    }

    /// CRC-32 of the bytes of [`Container::extent`].
    #[must_use]
    pub fn record_checksum(&self, key: ExpertKey) -> Option<u32> {
        let file = self.experts.as_ref()?;
        let Content::Experts { geometry, .. } = &file.header.content else { return None };
        file.table.get(geometry.index(key)?).copied()
    }

    fn record(&self, key: ExpertKey) -> Option<(Extent, &RecordLayout)> {
        let header = self.experts()?;
        let Content::Experts { geometry, layout } = &header.content else { return None };
        let (index, stride) = (geometry.index(key)? as u64, layout.stride() as u64);
        let offset = header.data_offset() + index * stride;
        let file = FileId::new(self.first_file);
        Some((Extent::new(file, offset, stride).ok()?, layout))
    }

    /// The bytes of a row of the n-gram table: weight, scales, biases, as [`RowLayout::parts`]
    /// says. `None` past the last row, and without `ngram.rows`.
    #[must_use]
    pub fn ngram_row_extent(&self, row: u64) -> Option<Extent> {
        let header = self.ngram()?;
        let Content::Ngram { rows, layout, .. } = &header.content else { return None };
        if row >= *rows {
            return None;
        }
        let offset = header.data_offset() + row * layout.stride() as u64;
        Extent::new(self.ngram_file()?, offset, layout.row_len() as u64).ok()
    }

    /// The block of rows that a row lies in: its bytes and their CRC-32.
    #[must_use]
    pub fn ngram_block(&self, row: u64) -> Option<(Extent, u32)> {
        let (file, layout) = (self.ngram.as_ref()?, self.row_layout()?);
        self.ngram_row_extent(row)?;
        let number = row / layout.rows_per_block() as u64;
        let block = file.header.content.block(number);
        let offset = file.header.data_offset() + block.start;
        let extent = Extent::new(self.ngram_file()?, offset, block.len as u64).ok()?;
        Some((extent, *file.table.get(usize::try_from(number).ok()?)?))
    }

    /// The number of `ngram.rows`, the last of the files.
    fn ngram_file(&self) -> Option<FileId> {
        let before = u16::from(self.experts.is_some());
        Some(FileId::new(self.first_file.checked_add(before)?))
    }

    /// What lies at byte `offset` of a file: the reverse of the extents. `None` before the data,
    /// past the end, or in no file of this container.
    #[must_use]
    pub fn locate(&self, file: FileId, offset: u64) -> Option<Held> {
        let number = file.index().checked_sub(usize::from(self.first_file))?;
        let path = self.paths.get(number)?;
        let opened = [&self.experts, &self.ngram].into_iter().flatten();
        let header = &opened.into_iter().find(|file| file.path == *path)?.header;
        let within = offset.checked_sub(header.data_offset())?;
        match &header.content {
            Content::Experts { geometry, layout } => {
                let index = usize::try_from(within / layout.stride() as u64).ok()?;
                geometry.key(index).map(Held::Record)
            }
            Content::Ngram { rows, layout, .. } => {
                let row = within / layout.stride() as u64;
                (row < *rows).then_some(Held::Row(row))
            }
        }
    }
}
