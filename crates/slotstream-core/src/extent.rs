//! A stretch of bytes in a file.

use crate::{CoreError, FileId};

/// `len` bytes of `file` starting at `offset`. The end never overflows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Extent {
    file: FileId,
    offset: u64,
    len: u64,
}

impl Extent {
    /// Checked construction.
    ///
    /// # Errors
    /// [`CoreError::ExtentOverflow`] when `offset + len` exceeds `i64::MAX`, the largest file
    /// position that the operating system's calls can name.
    pub fn new(file: FileId, offset: u64, len: u64) -> Result<Self, CoreError> {
        match offset.checked_add(len) {
            Some(end) if i64::try_from(end).is_ok() => Ok(Self { file, offset, len }),
            _ => Err(CoreError::ExtentOverflow { file, offset, len }),
        }
    }

    /// The file.
    #[must_use]
    pub const fn file(&self) -> FileId {
        self.file
    }

    /// First byte.
    #[must_use]
    pub const fn offset(&self) -> u64 {
        self.offset
    }

    /// Length in bytes.
    #[must_use]
    pub const fn len(&self) -> u64 {
        self.len
    }

    /// Whether the extent has no bytes.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// One past the last byte.
    #[must_use]
    pub const fn end(&self) -> u64 {
        self.offset + self.len
    }

    /// The `len` bytes that start `skip` bytes into this extent.
    ///
    /// # Errors
    /// [`CoreError::ExtentOverflow`] when they do not lie inside this extent.
    pub fn slice(&self, skip: u64, len: u64) -> Result<Self, CoreError> {
        match skip.checked_add(len) {
            Some(end) if end <= self.len => Self::new(self.file, self.offset + skip, len),
            _ => Err(CoreError::ExtentOverflow { file: self.file, offset: skip, len }),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn checked_ends() {
        let f = FileId::new(0);
        assert!(Extent::new(f, u64::MAX, 1).is_err());
        assert!(Extent::new(f, i64::MAX as u64, 1).is_err());
        let e = Extent::new(f, 10, 20).expect("legal");
        assert_eq!((e.slice(5, 15).expect("inside").offset(), e.end()), (15, 30));
        assert!(e.slice(5, 16).is_err());
        assert!(e.slice(u64::MAX, 2).is_err());
    }
}
