//! A file of a container while it is written.

use std::io;
use std::path::Path;

use super::ContainerError;
use super::disk::{Disk, PartFile};
use super::header::ContainerHeader;
use super::image::{Image, Step, checksums};
use super::repack::Stage;

/// What hears of each step: how many bytes of the file are done.
pub(super) type Report<'a> = dyn FnMut(Stage, u64) -> Result<(), ContainerError> + 'a;

/// An unfinished file. Its header says that it is not complete, and its checksum table grows with
/// its blocks: an entry is written after its block.
#[derive(Debug)]
pub(super) struct Part<'a> {
    path: &'a Path,
    file: Box<dyn PartFile>,
    header: ContainerHeader,
    /// The checksum table.
    table: Vec<u32>,
}

impl<'a> Part<'a> {
    /// Opens or makes the file.
    pub(super) fn open(
        disk: &dyn Disk,
        path: &'a Path,
        header: ContainerHeader,
    ) -> Result<Self, ContainerError> {
        let file = disk.open(path).map_err(|e| match e.kind() {
            io::ErrorKind::WouldBlock => ContainerError::Busy { path: path.into() },
            _ => ContainerError::io(path, "open", 0, e),
        })?;
        let blocks = usize::try_from(header.content.blocks()).unwrap_or(usize::MAX);
        Ok(Self { path, file, header, table: vec![0; blocks] })
    }

    /// Keeps, to resume, the blocks that an earlier run wrote for this very header, up to the first
    /// that does not agree with its checksum, and empties the file without any. Gives their number.
    pub(super) fn keep(
        &mut self,
        resume: bool,
        report: &mut Report<'_>,
    ) -> Result<u64, ContainerError> {
        let keeps = resume && self.is_of_this_header()?;
        let kept = if keeps { self.whole_blocks(report)? } else { 0 };
        if kept == 0 {
            let emptied = self.file.set_len(0);
            emptied.map_err(|e| ContainerError::io(self.path, "empty", 0, e))?;
        }
        let blocks = usize::try_from(kept).unwrap_or(usize::MAX);
        self.table[blocks..].fill(0);
        let end = self.header.data_offset() + self.end_of(kept);
        self.file.set_len(end).map_err(|e| ContainerError::io(self.path, "cut", end, e))?;
        // It may have been complete once.
        self.write_at(&self.header.encode(), 0)?;
        Ok(kept)
    }

    /// Bytes of the data area up to this block.
    fn end_of(&self, blocks: u64) -> u64 {
        blocks.checked_sub(1).map_or(0, |last| {
            let block = self.header.content.block(last);
            block.start + block.len as u64
        })
    }

    /// Whether the file begins with this header, complete or not, and has the room for a table.
    fn is_of_this_header(&mut self) -> Result<bool, ContainerError> {
        let fail = |e| ContainerError::io(self.path, "read", 0, e);
        if self.file.len().map_err(fail)? < self.header.data_offset() {
            return Ok(false);
        }
        let wanted = self.header.encode();
        let mut found = vec![0; wanted.len()];
        self.file.read_at(&mut found, 0).map_err(fail)?;
        Ok(found == wanted || found == self.header.clone().completed().encode())
    }

    /// How many blocks from the first one on are whole; their checksums are then in the table.
    fn whole_blocks(&mut self, report: &mut Report<'_>) -> Result<u64, ContainerError> {
        let data = self.header.data_offset();
        let file_len = self.file.len().map_err(|e| ContainerError::io(self.path, "read", 0, e))?;
        self.read_table()?;
        let mut bytes = Vec::new();
        for (number, sum) in (0..).zip(&self.table) {
            let block = self.header.content.block(number);
            let at = data + block.start;
            if at + block.len as u64 > file_len {
                return Ok(number);
            }
            bytes.resize(block.len, 0);
            let read = self.file.read_at(&mut bytes, at);
            read.map_err(|e| ContainerError::io(self.path, "read", at, e))?;
            let (checked, padding) = bytes.split_at(block.checked);
            if crc32fast::hash(checked) != *sum || padding.iter().any(|byte| *byte != 0) {
                return Ok(number);
            }
            report(Stage::Checking, at + block.len as u64)?;
        }
        Ok(self.table.len() as u64)
    }

    fn read_table(&mut self) -> Result<(), ContainerError> {
        let at = self.header.table_offset() + 4;
        let mut bytes = vec![0; 4 * self.table.len()];
        let read = self.file.read_at(&mut bytes, at);
        read.map_err(|e| ContainerError::io(self.path, "read the table of", at, e))?;
        for (entry, bytes) in self.table.iter_mut().zip(bytes.as_chunks().0) {
            *entry = u32::from_le_bytes(*bytes);
        }
        Ok(())
    }

    /// Copies all blocks from `first` on.
    pub(super) fn write(
        &mut self,
        image: &Image<'_>,
        first: u64,
        report: &mut Report<'_>,
    ) -> Result<(), ContainerError> {
        let (mut next, mut step) = (first, Step::default());
        let (data, blocks) = (self.header.data_offset(), self.header.content.blocks());
        while next < blocks {
            let count = image.step(next);
            image.fill(next, count, &mut step)?;
            let at = data + self.header.content.block(next).start;
            self.write_at(&step.bytes, at)?;
            let sums = checksums(image.content, next, &step.bytes);
            let entries: Vec<u8> = sums.iter().flat_map(|sum| sum.to_le_bytes()).collect();
            self.write_at(&entries, self.header.table_offset() + 4 + 4 * next)?;
            for (entry, sum) in self.table.iter_mut().skip(next as usize).zip(sums) {
                *entry = sum;
            }
            next += count;
            report(Stage::Writing, at + step.bytes.len() as u64)?;
        }
        Ok(())
    }

    /// Writes what makes the file complete, each thing after the one before it is on the disk.
    pub(super) fn finish(mut self) -> Result<(), ContainerError> {
        let (table_offset, file_len) = (self.header.table_offset(), self.header.file_len());
        let length = self.file.set_len(file_len);
        length.map_err(|e| ContainerError::io(self.path, "lengthen", file_len, e))?;
        // The whole table, zeros behind it included: an interrupted run may have left entries of
        // blocks that were then written anew.
        let len = usize::try_from(self.header.data_offset() - table_offset).unwrap_or(0);
        let mut region = vec![0; len];
        for (bytes, sum) in region[4..].as_chunks_mut::<4>().0.iter_mut().zip(&self.table) {
            *bytes = sum.to_le_bytes();
        }
        let checksum = crc32fast::hash(&region[4..]);
        region[..4].copy_from_slice(&checksum.to_le_bytes());
        self.write_at(&region, table_offset)?;
        self.sync()?;
        self.write_at(&self.header.clone().completed().encode(), 0)?;
        self.sync()
    }

    fn write_at(&mut self, bytes: &[u8], at: u64) -> Result<(), ContainerError> {
        let written = self.file.write_at(bytes, at);
        written.map_err(|e| ContainerError::io(self.path, "write", at, e))
    }

    fn sync(&mut self) -> Result<(), ContainerError> {
        self.file.sync().map_err(|e| ContainerError::io(self.path, "sync", 0, e))
    }
}
