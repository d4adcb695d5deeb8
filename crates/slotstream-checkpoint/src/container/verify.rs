//! Compares a container with the checkpoint, byte by byte.

use std::fs::File;
use std::ops::ControlFlow;
use std::os::unix::fs::FileExt;

use slotstream_core::{Extent, PIECE_ORDER, RecordReader};

use super::content::Content;
use super::files::PlainReader;
use super::image::{Image, STEP_BYTES, Step, checksums};
use super::{Container, ContainerError, ContainerFile, Progress, Stage};
use crate::Checkpoint;

impl Container {
    /// Reads the whole container and all that it was made from again and compares them: every byte
    /// of every record and row, the padding, and the checksums. `reader` reads
    /// [`Checkpoint::files`]; without one, they are read by position. The container is read by
    /// position.
    ///
    /// # Errors
    /// [`ContainerError::Differs`] or [`ContainerError::TableEntry`] for the first difference;
    /// [`ContainerError::Cancelled`] when `progress` ends it; [`ContainerError::Read`],
    /// [`ContainerError::Io`].
    pub fn verify(
        &self,
        checkpoint: &Checkpoint,
        reader: Option<&dyn RecordReader>,
        progress: &mut dyn FnMut(Progress) -> ControlFlow<()>,
    ) -> Result<(), ContainerError> {
        let plain;
        let reader = match reader {
            Some(reader) => reader,
            None => {
                plain = PlainReader::open(checkpoint.files())?;
                &plain
            }
        };
        let files = || [&self.experts, &self.ngram].into_iter().flatten();
        let total = files().map(|file| file.header.file_len()).sum();
        let mut before = 0;
        for file in files() {
            let content = &file.header.content;
            let image = Image { checkpoint, content, reader, step_bytes: STEP_BYTES };
            let kind = content.kind();
            file.verify(&image, &mut |done| {
                let done = before + done;
                match progress(Progress { kind, stage: Stage::Verifying, done, total }) {
                    ControlFlow::Continue(()) => Ok(()),
                    ControlFlow::Break(()) => {
                        let path = file.path.clone();
                        Err(ContainerError::Cancelled { path, done, total })
                    }
                }
            })?;
            before += file.header.file_len();
        }
        Ok(())
    }
}

impl ContainerFile {
    fn verify(
        &self,
        image: &Image<'_>,
        report: &mut dyn FnMut(u64) -> Result<(), ContainerError>,
    ) -> Result<(), ContainerError> {
        let file =
            File::open(&self.path).map_err(|e| ContainerError::io(&self.path, "open", 0, e))?;
        forget_pages(&file);
        let (mut next, mut step, mut found) = (0, Step::default(), Vec::new());
        let data = self.header.data_offset();
        while next < image.content.blocks() {
            let count = image.step(next);
            image.fill(next, count, &mut step)?;
            let at = data + image.content.block(next).start;
            found.resize(step.bytes.len(), 0);
            self.read(&file, &mut found, at)?;
            self.compare(image, next, &step.bytes, &found)?;
            self.compare_table(image, next, &step.bytes)?;
            next += count;
            report(at + step.bytes.len() as u64)?;
        }
        self.check_end(&file, image.content)?;
        report(self.header.file_len())
    }

    fn read(&self, file: &File, bytes: &mut [u8], at: u64) -> Result<(), ContainerError> {
        file.read_exact_at(bytes, at).map_err(|e| ContainerError::io(&self.path, "read", at, e))
    }

    /// The padding behind the last block is zero.
    fn check_end(&self, file: &File, content: &Content) -> Result<(), ContainerError> {
        let last = content.block(content.blocks().saturating_sub(1));
        let at = self.header.data_offset() + last.start + last.len as u64;
        let mut bytes = vec![0; usize::try_from(self.header.file_len() - at).unwrap_or(0)];
        self.read(file, &mut bytes, at)?;
        match bytes.iter().position(|byte| *byte != 0) {
            None => Ok(()),
            Some(skip) => Err(ContainerError::Differs {
                path: self.path.clone(),
                what: "the padding at the end".into(),
                offset: at + skip as u64,
                expected: 0,
                found: bytes[skip],
                origin: "any container".into(),
            }),
        }
    }

    fn compare(
        &self,
        image: &Image<'_>,
        first: u64,
        expected: &[u8],
        found: &[u8],
    ) -> Result<(), ContainerError> {
        if expected == found {
            return Ok(());
        }
        let skip = expected.iter().zip(found).position(|(a, b)| a != b).unwrap_or(0);
        let stride = image.content.block_stride();
        let block = first + (skip / stride) as u64;
        let (what, origin) = describe(image, block, skip % stride);
        Err(ContainerError::Differs {
            path: self.path.clone(),
            what,
            offset: self.header.data_offset() + image.content.block(first).start + skip as u64,
            expected: expected[skip],
            found: found[skip],
            origin,
        })
    }

    fn compare_table(
        &self,
        image: &Image<'_>,
        first: u64,
        bytes: &[u8],
    ) -> Result<(), ContainerError> {
        let sums = checksums(image.content, first, bytes);
        let table = self.table.iter().skip(usize::try_from(first).unwrap_or(usize::MAX));
        for ((block, expected), found) in (first..).zip(sums).zip(table) {
            if expected != *found {
                return Err(ContainerError::TableEntry {
                    path: self.path.clone(),
                    what: image.name(block),
                    offset: self.header.table_offset() + 4 + 4 * block,
                    expected,
                    found: *found,
                });
            }
        }
        Ok(())
    }
}

/// Asks the system to read from the disk again what it may still have in memory from the writing.
/// Where it does not, the same bytes are compared.
fn forget_pages(file: &File) {
    #[cfg(target_os = "linux")]
    if let Err(error) = rustix::fs::fadvise(file, 0, None, rustix::fs::Advice::DontNeed) {
        tracing::debug!(%error, "the page cache keeps the container");
    }
    #[cfg(not(target_os = "linux"))]
    let _ = file;
}

/// What byte `skip` of a block is, and where its original stands.
fn describe(image: &Image<'_>, block: u64, skip: usize) -> (String, String) {
    let padding = (format!("padding of {}", image.name(block)), "any container".to_owned());
    let (what, extent, within) = match image.content {
        Content::Experts { geometry, layout } => {
            let key = usize::try_from(block).ok().and_then(|block| geometry.key(block));
            let pieces = key.and_then(|key| image.checkpoint.expert_pieces(key));
            let inside = |p: &slotstream_core::Piece| (p.offset..p.offset + p.len).contains(&skip);
            let Some((pieces, at)) = pieces.zip(layout.pieces().iter().position(inside)) else {
                return padding;
            };
            let (matrix, part) = PIECE_ORDER[at];
            let what = format!("{}, {matrix:?} {part:?}", image.name(block));
            (what, Some(pieces[at]), skip - layout.pieces()[at].offset)
        }
        Content::Ngram { layout, .. } => {
            let row = block * layout.rows_per_block() as u64 + (skip / layout.stride()) as u64;
            let within = skip % layout.stride();
            let parts = layout.parts();
            let inside = |p: &super::RowPart| (p.offset..p.offset + p.len).contains(&within);
            let Some(at) = parts.iter().position(inside) else { return padding };
            let extent = source_of_row(image.checkpoint, row, at, parts[at].len as u64);
            (format!("the n-gram row {row}"), extent, within - parts[at].offset)
        }
    };
    let origin = extent.map_or_else(String::new, |extent| {
        let path = image.checkpoint.files().get(extent.file().index());
        let path = path.map_or_else(String::new, |path| path.display().to_string());
        format!("byte {} of {path}", extent.offset() + within as u64)
    });
    (what, origin)
}

/// Where a part of a row lies in the checkpoint.
fn source_of_row(checkpoint: &Checkpoint, row: u64, part: usize, len: u64) -> Option<Extent> {
    let plan = checkpoint.ngram()?;
    let shard = plan.shards.get(usize::try_from(row / plan.rows_per_shard).ok()?)?;
    let extent = [shard.weight, shard.scales, shard.biases].get(part).copied()?;
    extent.slice((row % plan.rows_per_shard) * len, len).ok()
}
