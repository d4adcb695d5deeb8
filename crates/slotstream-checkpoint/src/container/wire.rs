//! Little-endian numbers out of bytes that nobody has checked, and into bytes.

use std::path::Path;

use super::ContainerError;

/// Reads fields of a header one after another.
pub(super) struct Fields<'a> {
    path: &'a Path,
    bytes: &'a [u8],
    at: usize,
}

impl<'a> Fields<'a> {
    pub(super) const fn new(path: &'a Path, bytes: &'a [u8]) -> Self {
        Self { path, bytes, at: 0 }
    }

    pub(super) const fn at(&self) -> usize {
        self.at
    }

    /// The error of a field that begins at `at`.
    pub(super) fn bad(
        &self,
        at: usize,
        field: &'static str,
        expected: impl Into<String>,
        found: impl Into<String>,
    ) -> ContainerError {
        ContainerError::Field {
            path: self.path.into(),
            offset: at as u64,
            field,
            expected: expected.into(),
            found: found.into(),
        }
    }

    pub(super) fn bytes(
        &mut self,
        field: &'static str,
        len: usize,
    ) -> Result<&'a [u8], ContainerError> {
        let rest = &self.bytes[self.at..];
        let Some(bytes) = rest.get(..len) else {
            let found = format!("{} bytes", rest.len());
            return Err(self.bad(self.at, field, format!("{len} bytes"), found));
        };
        self.at += len;
        Ok(bytes)
    }

    pub(super) fn array<const N: usize>(
        &mut self,
        field: &'static str,
    ) -> Result<[u8; N], ContainerError> {
        let mut array = [0; N];
        array.copy_from_slice(self.bytes(field, N)?);
        Ok(array)
    }

    pub(super) fn u16(&mut self, field: &'static str) -> Result<u16, ContainerError> {
        Ok(u16::from_le_bytes(self.array(field)?))
    }

    pub(super) fn u32(&mut self, field: &'static str) -> Result<u32, ContainerError> {
        Ok(u32::from_le_bytes(self.array(field)?))
    }

    pub(super) fn u64(&mut self, field: &'static str) -> Result<u64, ContainerError> {
        Ok(u64::from_le_bytes(self.array(field)?))
    }

    /// A number that follows from others: any other value is an error.
    pub(super) fn exactly(
        &mut self,
        field: &'static str,
        expected: u64,
    ) -> Result<(), ContainerError> {
        let at = self.at;
        let found = self.u64(field)?;
        if found == expected {
            return Ok(());
        }
        Err(self.bad(at, field, expected.to_string(), found.to_string()))
    }

    /// A text: its length as u16, then UTF-8.
    pub(super) fn text(&mut self, field: &'static str) -> Result<String, ContainerError> {
        let len = usize::from(self.u16(field)?);
        let at = self.at;
        let bytes = self.bytes(field, len)?;
        match std::str::from_utf8(bytes) {
            Ok(text) => Ok(text.to_owned()),
            Err(error) => Err(self.bad(at, field, "UTF-8", error.to_string())),
        }
    }

    /// Nothing but zeros may be left.
    pub(super) fn finish(self) -> Result<(), ContainerError> {
        match self.bytes[self.at..].iter().position(|byte| *byte != 0) {
            None => Ok(()),
            Some(skip) => {
                let found = format!("{:#04x}", self.bytes[self.at + skip]);
                Err(self.bad(self.at + skip, "padding", "zeros", found))
            }
        }
    }
}

/// Appends fields to a buffer.
pub(super) trait Put {
    fn put(&mut self, bytes: &[u8]);

    fn put_u16(&mut self, value: u16) {
        self.put(&value.to_le_bytes());
    }
    fn put_u32(&mut self, value: u32) {
        self.put(&value.to_le_bytes());
    }
    fn put_u64(&mut self, value: u64) {
        self.put(&value.to_le_bytes());
    }
    /// A text of less than 64 KiB.
    fn put_text(&mut self, text: &str) {
        self.put_u16(u16::try_from(text.len()).unwrap_or(u16::MAX));
        self.put(text.as_bytes());
    }
}

impl Put for Vec<u8> {
    fn put(&mut self, bytes: &[u8]) {
        self.extend_from_slice(bytes);
    }
}
