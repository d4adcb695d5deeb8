//! The bytes that a container's file must have, taken from the checkpoint.

use slotstream_core::{ExpertKey, Extent, ReadError, RecordReader};

use super::content::Content;
use super::{ContainerError, RowLayout};
use crate::{Checkpoint, NgramPlan};

/// Bytes that are put together before they are written: large enough for long reads, small beside
/// anything else. One record at least.
pub(super) const STEP_BYTES: usize = 8 << 20;

/// What a file of a container must hold, block by block.
pub(super) struct Image<'a> {
    pub(super) checkpoint: &'a Checkpoint,
    pub(super) content: &'a Content,
    pub(super) reader: &'a dyn RecordReader,
    /// Bytes of a step, where a block is not longer.
    pub(super) step_bytes: usize,
}

/// Memory of a step, reused from step to step.
#[derive(Default)]
pub(super) struct Step {
    /// The blocks, padding included.
    pub(super) bytes: Vec<u8>,
    /// One run of the source.
    run: Vec<u8>,
}

impl Image<'_> {
    /// How many blocks from this one on make a step: of one layer, because its experts lie side by
    /// side in the source.
    pub(super) fn step(&self, first: u64) -> u64 {
        let most = (self.step_bytes / self.content.block_stride()).max(1) as u64;
        let run_end = match self.content {
            Content::Experts { geometry, .. } => {
                (first + 1).next_multiple_of(geometry.experts() as u64)
            }
            Content::Ngram { .. } => self.content.blocks(),
        };
        most.min(run_end.saturating_sub(first))
    }

    /// Puts `count` blocks from `first` on together.
    pub(super) fn fill(
        &self,
        first: u64,
        count: u64,
        step: &mut Step,
    ) -> Result<(), ContainerError> {
        let (from, last) = (self.content.block(first), self.content.block(first + count - 1));
        let len = usize::try_from(last.start - from.start).unwrap_or(usize::MAX) + last.len;
        // Padding is never written to, so it stays zero.
        step.bytes.resize(len, 0);
        match self.content {
            Content::Experts { geometry, .. } => {
                let key = usize::try_from(first).ok().and_then(|first| geometry.key(first));
                let pieces = key.and_then(|key| self.checkpoint.expert_pieces(key).zip(Some(key)));
                // Blocks are records of the checkpoint's own geometry.
                pieces.map_or(Ok(()), |(pieces, key)| self.records(pieces, key, count, step))
            }
            Content::Ngram { layout, .. } => {
                let first = from.start / layout.stride() as u64;
                self.checkpoint.ngram().map_or(Ok(()), |plan| self.rows(plan, layout, first, step))
            }
        }
    }

    /// `count` experts of a layer: of each of the nine pieces one run.
    fn records(
        &self,
        pieces: [Extent; 9],
        key: ExpertKey,
        count: u64,
        step: &mut Step,
    ) -> Result<(), ContainerError> {
        let layout = self.checkpoint.record_layout();
        for (extent, piece) in pieces.iter().zip(layout.pieces()) {
            let what = || format!("records from {key} on");
            self.read(extent, count, &mut step.run, what)?;
            let sources = step.run.chunks_exact(piece.len.max(1));
            for (record, source) in step.bytes.chunks_exact_mut(layout.stride()).zip(sources) {
                record[piece.offset..piece.offset + piece.len].copy_from_slice(source);
            }
        }
        Ok(())
    }

    /// The rows that fill the step: of each part of each shard one run.
    fn rows(
        &self,
        plan: &NgramPlan,
        layout: &RowLayout,
        first: u64,
        step: &mut Step,
    ) -> Result<(), ContainerError> {
        let (mut row, mut bytes) = (first, &mut step.bytes[..]);
        while !bytes.is_empty() {
            let rows = (bytes.len() / layout.stride()) as u64;
            let (shard, within) = (row / plan.rows_per_shard, row % plan.rows_per_shard);
            let count = rows.min(plan.rows_per_shard - within);
            let len = usize::try_from(count).unwrap_or(0) * layout.stride();
            let Some(shard) = usize::try_from(shard).ok().and_then(|i| plan.shards.get(i)) else {
                break;
            };
            let (these, rest) = bytes.split_at_mut(len);
            for (extent, part) in
                [shard.weight, shard.scales, shard.biases].iter().zip(layout.parts())
            {
                let what = || format!("n-gram rows from {row} on");
                let skip = within.saturating_mul(part.len as u64);
                let extent = extent.slice(skip, part.len as u64).map_err(|error| {
                    ContainerError::Read { what: what(), source: ReadError::other(extent, error) }
                })?;
                self.read(&extent, count, &mut step.run, what)?;
                let sources = step.run.chunks_exact(part.len.max(1));
                for (row, source) in these.chunks_exact_mut(layout.stride()).zip(sources) {
                    row[part.offset..part.offset + part.len].copy_from_slice(source);
                }
            }
            (row, bytes) = (row + count, rest);
        }
        Ok(())
    }

    /// Reads `count` things that lie side by side, of which `first` is the first.
    fn read(
        &self,
        first: &Extent,
        count: u64,
        run: &mut Vec<u8>,
        what: impl Fn() -> String,
    ) -> Result<(), ContainerError> {
        let fail = |source| ContainerError::Read { what: what(), source };
        let len = first.len().saturating_mul(count);
        let extent = Extent::new(first.file(), first.offset(), len)
            .map_err(|error| fail(ReadError::other(first, error)))?;
        run.resize(usize::try_from(len).unwrap_or(usize::MAX), 0);
        self.reader.read_exact_at(&extent, run).map_err(fail)
    }

    /// Names a block, for messages.
    pub(super) fn name(&self, block: u64) -> String {
        match self.content {
            Content::Experts { geometry, .. } => usize::try_from(block)
                .ok()
                .and_then(|block| geometry.key(block))
                .map_or_else(|| format!("record {block}"), |key| format!("the record {key}")),
            Content::Ngram { layout, .. } => {
                let first = block.saturating_mul(layout.rows_per_block() as u64);
                format!("the n-gram rows from {first} on")
            }
        }
    }
}

/// The checksum of each block of a step.
pub(super) fn checksums(content: &Content, first: u64, bytes: &[u8]) -> Vec<u32> {
    let blocks = bytes.chunks(content.block_stride());
    (first..)
        .zip(blocks)
        .map(|(block, bytes)| {
            crc32fast::hash(&bytes[..content.block(block).checked.min(bytes.len())])
        })
        .collect()
}
