//! Little-endian numbers out of bytes whose length was compared before.

use std::fmt::Display;
use std::path::Path;

use super::SessionFileError;

/// Reads fields one after another. Past the end they are zero: lengths are compared before.
pub(super) struct Fields<'a> {
    path: &'a Path,
    rest: &'a [u8],
}

impl<'a> Fields<'a> {
    pub(super) const fn new(path: &'a Path, bytes: &'a [u8]) -> Self {
        Self { path, rest: bytes }
    }

    pub(super) const fn path(&self) -> &'a Path {
        self.path
    }

    pub(super) fn array<const N: usize>(&mut self) -> [u8; N] {
        let (head, rest) = self.rest.split_at(N.min(self.rest.len()));
        let mut array = [0; N];
        array[..head.len()].copy_from_slice(head);
        self.rest = rest;
        array
    }

    pub(super) fn u16(&mut self) -> u16 {
        u16::from_le_bytes(self.array())
    }

    pub(super) fn u32(&mut self) -> u32 {
        u32::from_le_bytes(self.array())
    }

    pub(super) fn u64(&mut self) -> u64 {
        u64::from_le_bytes(self.array())
    }

    /// A number of things, of 32 bits at most.
    pub(super) fn count(&mut self, field: &'static str) -> Result<usize, SessionFileError> {
        let number = self.u64();
        self.expect(field, u32::try_from(number).is_ok(), "at most 2^32 - 1", number)?;
        Ok(number as usize)
    }

    /// The rest as printable text.
    pub(super) fn text(&mut self, field: &'static str) -> Result<String, SessionFileError> {
        let bytes = std::mem::take(&mut self.rest);
        let text = std::str::from_utf8(bytes).ok().filter(|text| !text.contains(char::is_control));
        let found = || String::from_utf8_lossy(bytes).escape_debug().to_string();
        let text = text.ok_or_else(|| self.wrong(field, "printable text", found()))?;
        Ok(text.to_owned())
    }

    /// An error unless `lawful`.
    pub(super) fn expect(
        &self,
        field: &'static str,
        lawful: bool,
        expected: impl Display,
        found: impl Display,
    ) -> Result<(), SessionFileError> {
        if lawful { Ok(()) } else { Err(self.wrong(field, expected, found)) }
    }

    fn wrong(
        &self,
        field: &'static str,
        expected: impl Display,
        found: impl Display,
    ) -> SessionFileError {
        let (expected, found) = (expected.to_string(), found.to_string());
        SessionFileError::Field { path: self.path.into(), field, expected, found }
    }
}
