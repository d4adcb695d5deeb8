//! Sections of 32-bit words, each with a checksum behind it.

use std::fmt;
use std::io::{Read, Write};
use std::path::Path;

use slotstream_qwen::StatePart;

use super::header::SessionHeader;
use super::{BUFFER, SessionFileError};

/// A section.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Section {
    Tokens,
    Logits,
    Note,
    Part(StatePart),
}

impl fmt::Display for Section {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Tokens => f.write_str("tokens"),
            Self::Logits => f.write_str("logits"),
            Self::Note => f.write_str("bytes of the note"),
            Self::Part(part) => write!(f, "values of the {part}"),
        }
    }
}

/// A value of four bytes, little-endian.
pub(crate) trait Word: Copy {
    fn to_bytes(self) -> [u8; 4];
    fn of_bytes(bytes: [u8; 4]) -> Self;
}

impl Word for u32 {
    fn to_bytes(self) -> [u8; 4] {
        self.to_le_bytes()
    }

    fn of_bytes(bytes: [u8; 4]) -> Self {
        Self::from_le_bytes(bytes)
    }
}

impl Word for f32 {
    fn to_bytes(self) -> [u8; 4] {
        self.to_le_bytes()
    }

    fn of_bytes(bytes: [u8; 4]) -> Self {
        Self::from_le_bytes(bytes)
    }
}

/// Goes through the sections of a file, read or written, in their order.
pub(crate) struct Sections<'a, F> {
    path: &'a Path,
    file: F,
    /// Sections that have begun.
    number: u32,
    /// The part that is under way, with the values that are left of it.
    open: Option<(StatePart, usize)>,
    checksum: crc32fast::Hasher,
    buffer: Vec<u8>,
    done: u64,
}

impl<'a, F> Sections<'a, F> {
    pub(super) fn new(path: &'a Path, file: F) -> Self {
        let checksum = crc32fast::Hasher::new();
        Self { path, file, number: 0, open: None, checksum, buffer: Vec::new(), done: 0 }
    }

    pub(super) const fn path(&self) -> &'a Path {
        self.path
    }

    /// A section begins. Its number is in its checksum, so that sections of one length cannot stand
    /// for each other.
    fn begin(&mut self) {
        self.number += 1;
        self.checksum = crc32fast::Hasher::new();
        self.checksum.update(&self.number.to_le_bytes());
    }

    /// Whether a block of a part begins it, and then whether it ends it.
    fn step(&mut self, part: &StatePart, values: usize) -> bool {
        let left = match self.open.take() {
            Some((open, left)) if open == *part => left,
            _ => {
                self.begin();
                part.values()
            }
        };
        let left = left.saturating_sub(values);
        if left > 0 {
            self.open = Some((*part, left));
        }
        left == 0
    }
}

impl<F: Read> Sections<'_, F> {
    /// Reads bytes that belong to no section.
    pub(super) fn raw(&mut self, bytes: &mut [u8]) -> Result<(), SessionFileError> {
        let read = self.file.read_exact(bytes);
        read.map_err(|e| SessionFileError::io(self.path, "read", e))
    }

    /// Reads a section as a whole.
    pub(super) fn whole<W: Word>(
        &mut self,
        section: Section,
        words: &mut [W],
    ) -> Result<(), SessionFileError> {
        self.begin();
        self.fill(words)?;
        self.compare(section)
    }

    /// Reads a block of a part; at the end of the part its checksum is compared.
    pub(super) fn block(
        &mut self,
        part: &StatePart,
        values: &mut [f32],
    ) -> Result<(), SessionFileError> {
        let ends = self.step(part, values.len());
        self.fill(values)?;
        if ends { self.compare(Section::Part(*part)) } else { Ok(()) }
    }

    fn fill<W: Word>(&mut self, words: &mut [W]) -> Result<(), SessionFileError> {
        for words in words.chunks_mut(BUFFER / 4) {
            self.buffer.resize(4 * words.len(), 0);
            let read = self.file.read_exact(&mut self.buffer);
            read.map_err(|e| SessionFileError::io(self.path, "read", e))?;
            self.checksum.update(&self.buffer);
            for (word, bytes) in words.iter_mut().zip(self.buffer.as_chunks().0) {
                *word = W::of_bytes(*bytes);
            }
        }
        Ok(())
    }

    fn compare(&mut self, section: Section) -> Result<(), SessionFileError> {
        let mut bytes = [0; 4];
        self.raw(&mut bytes)?;
        let (expected, found) = (u32::from_le_bytes(bytes), self.checksum.clone().finalize());
        if expected == found {
            return Ok(());
        }
        let (path, section) = (self.path.into(), section.to_string());
        Err(SessionFileError::Checksum { path, section, expected, found })
    }
}

impl<F: Write> Sections<'_, F> {
    fn put(&mut self, bytes: &[u8]) -> Result<(), SessionFileError> {
        self.done += bytes.len() as u64;
        self.file.write_all(bytes).map_err(|e| SessionFileError::io(self.path, "write", e))
    }

    /// Writes a header.
    pub(super) fn header(&mut self, header: &SessionHeader) -> Result<(), SessionFileError> {
        self.put(&header.encode())
    }

    /// Writes a section as a whole.
    pub(crate) fn write_whole<W: Word>(&mut self, words: &[W]) -> Result<(), SessionFileError> {
        self.begin();
        self.write_words(words)?;
        self.end()
    }

    /// Writes a block of a part, and its checksum behind the last one.
    pub(crate) fn write_block(
        &mut self,
        part: &StatePart,
        values: &[f32],
    ) -> Result<(), SessionFileError> {
        let ends = self.step(part, values.len());
        self.write_words(values)?;
        if ends { self.end() } else { Ok(()) }
    }

    fn write_words<W: Word>(&mut self, words: &[W]) -> Result<(), SessionFileError> {
        for words in words.chunks(BUFFER / 4) {
            let mut buffer = std::mem::take(&mut self.buffer);
            buffer.clear();
            buffer.extend(words.iter().flat_map(|word| word.to_bytes()));
            self.checksum.update(&buffer);
            let written = self.put(&buffer);
            self.buffer = buffer;
            written?;
        }
        Ok(())
    }

    fn end(&mut self) -> Result<(), SessionFileError> {
        let checksum = self.checksum.clone().finalize();
        self.put(&checksum.to_le_bytes())
    }

    /// Everything has been given to the file: how many bytes, and the file.
    pub(super) fn finish(self) -> (u64, F) {
        (self.done, self.file)
    }
}
