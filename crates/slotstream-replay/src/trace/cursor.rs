//! Little-endian numbers out of bytes that nobody has checked, and into bytes.

use std::path::Path;

use super::TraceError;

/// A field that cannot be: where, and what is wrong with it.
#[derive(Debug)]
pub(crate) struct Bad {
    pub(crate) at: usize,
    pub(crate) field: &'static str,
    pub(crate) expected: String,
    pub(crate) found: String,
}

impl Bad {
    /// The error of a file, whose bytes here begin at `base`.
    pub(crate) fn within(self, path: &Path, base: u64, block: Option<u64>) -> TraceError {
        TraceError::Field {
            path: path.into(),
            offset: base + self.at as u64,
            block,
            field: self.field,
            expected: self.expected,
            found: self.found,
        }
    }
}

/// Reads fields one after another.
#[derive(Debug)]
pub(crate) struct Cursor<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl<'a> Cursor<'a> {
    pub(crate) const fn new(bytes: &'a [u8], at: usize) -> Self {
        Self { bytes, at }
    }

    pub(crate) const fn at(&self) -> usize {
        self.at
    }

    pub(crate) const fn left(&self) -> usize {
        self.bytes.len() - self.at
    }

    /// The error of a field that begins at `at`.
    pub(crate) fn bad<T>(
        at: usize,
        field: &'static str,
        expected: impl Into<String>,
        found: impl Into<String>,
    ) -> Result<T, Bad> {
        Err(Bad { at, field, expected: expected.into(), found: found.into() })
    }

    pub(crate) fn bytes(&mut self, field: &'static str, len: usize) -> Result<&'a [u8], Bad> {
        let left = self.left();
        if len > left {
            let (expected, found) = (format!("{len} bytes"), format!("{left} bytes"));
            return Self::bad(self.at, field, expected, found);
        }
        let bytes = &self.bytes[self.at..self.at + len];
        self.at += len;
        Ok(bytes)
    }

    fn array<const N: usize>(&mut self, field: &'static str) -> Result<[u8; N], Bad> {
        let mut array = [0; N];
        array.copy_from_slice(self.bytes(field, N)?);
        Ok(array)
    }

    pub(crate) fn u8(&mut self, field: &'static str) -> Result<u8, Bad> {
        Ok(self.array::<1>(field)?[0])
    }

    pub(crate) fn u16(&mut self, field: &'static str) -> Result<u16, Bad> {
        Ok(u16::from_le_bytes(self.array(field)?))
    }

    pub(crate) fn u32(&mut self, field: &'static str) -> Result<u32, Bad> {
        Ok(u32::from_le_bytes(self.array(field)?))
    }

    pub(crate) fn u64(&mut self, field: &'static str) -> Result<u64, Bad> {
        Ok(u64::from_le_bytes(self.array(field)?))
    }

    /// A number below `bound`.
    pub(crate) fn index(&mut self, field: &'static str, bound: usize) -> Result<u16, Bad> {
        let at = self.at;
        let index = self.u16(field)?;
        if usize::from(index) >= bound {
            return Self::bad(at, field, format!("less than {bound}"), index.to_string());
        }
        Ok(index)
    }

    /// `count` things of `size` bytes each: one array for each.
    pub(crate) fn items<const N: usize>(
        &mut self,
        field: &'static str,
        count: usize,
    ) -> Result<impl Iterator<Item = [u8; N]> + use<'a, N>, Bad> {
        let bytes = self.bytes(field, count.saturating_mul(N))?;
        Ok(bytes.as_chunks::<N>().0.iter().copied())
    }

    /// A text: its length as u16, then UTF-8.
    pub(crate) fn text(&mut self, field: &'static str) -> Result<String, Bad> {
        let len = usize::from(self.u16(field)?);
        let at = self.at;
        let bytes = self.bytes(field, len)?;
        match std::str::from_utf8(bytes) {
            Ok(text) => Ok(text.to_owned()),
            Err(error) => Self::bad(at, field, "UTF-8", error.to_string()),
        }
    }
}

/// Appends fields to a buffer.
pub(crate) trait Put {
    fn put(&mut self, bytes: &[u8]);

    fn put_u8(&mut self, value: u8) {
        self.put(&[value]);
    }
    fn put_u16(&mut self, value: u16) {
        self.put(&value.to_le_bytes());
    }
    fn put_u32(&mut self, value: u32) {
        self.put(&value.to_le_bytes());
    }
    fn put_u64(&mut self, value: u64) {
        self.put(&value.to_le_bytes());
    }
    fn put_f32(&mut self, value: f32) {
        self.put(&value.to_le_bytes());
    }
    /// A text, cut at the last whole character that fits.
    fn put_text(&mut self, text: &str) {
        let mut len = text.len().min(usize::from(u16::MAX));
        while !text.is_char_boundary(len) {
            len -= 1;
        }
        self.put_u16(u16::try_from(len).unwrap_or(u16::MAX));
        self.put(&text.as_bytes()[..len]);
    }
}

impl Put for Vec<u8> {
    fn put(&mut self, bytes: &[u8]) {
        self.extend_from_slice(bytes);
    }
}
