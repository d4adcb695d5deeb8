//! Byte buffers that begin at a page of any machine we run on.

use std::fmt;
use std::ops::{Deref, DerefMut};

use slotstream_core::SLOT_ALIGNMENT;

use crate::IoError;

/// Owned bytes whose first one lies at a multiple of [`SLOT_ALIGNMENT`] (16 KiB): a page of
/// Apple silicon, and a multiple of what direct reads want anywhere.
///
/// Its room grows in steps of 16 KiB, to what was asked for and no further, and never shrinks.
/// All bytes are always initialised: new room is zeroed when it is made.
///
/// ```
/// use slotstream_io::AlignedBuf;
/// let mut buffer = AlignedBuf::zeroed(100)?;
/// assert!(buffer.as_ptr().addr().is_multiple_of(16 * 1024));
/// assert_eq!((buffer.len(), buffer.capacity()), (100, 16 * 1024));
/// buffer[99] = 1;
/// buffer.set_len(20_000)?;
/// assert_eq!(buffer.capacity(), 32 * 1024);
/// # Ok::<(), slotstream_io::IoError>(())
/// ```
#[derive(Default)]
pub struct AlignedBuf {
    /// A `Vec` aligns to one byte, so it is longer by up to one alignment.
    storage: Vec<u8>,
    start: usize,
    len: usize,
    capacity: usize,
}

impl AlignedBuf {
    /// No bytes and no memory.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// `len` zeros.
    ///
    /// # Errors
    /// [`IoError::Memory`] when the system has no room.
    pub fn zeroed(len: usize) -> Result<Self, IoError> {
        let mut buffer = Self::new();
        buffer.set_len(len)?;
        Ok(buffer)
    }

    /// Makes the buffer `len` bytes long. Within the room that there is, the bytes stay what they
    /// were; a buffer that grows beyond it is all zeros: scratch is not copied.
    ///
    /// # Errors
    /// [`IoError::Memory`] when the system has no room; the buffer is then empty.
    pub fn set_len(&mut self, len: usize) -> Result<(), IoError> {
        if len > self.capacity {
            self.replace(len)?;
        }
        self.len = len;
        Ok(())
    }

    /// Bytes that it can hold without new memory, a multiple of [`SLOT_ALIGNMENT`].
    #[must_use]
    pub const fn capacity(&self) -> usize {
        self.capacity
    }

    /// Gives the old memory back first, so that both never exist at once.
    fn replace(&mut self, len: usize) -> Result<(), IoError> {
        *self = Self::new();
        let refuse = || IoError::Memory { bytes: len as u64 };
        let capacity = len.checked_next_multiple_of(SLOT_ALIGNMENT).ok_or_else(refuse)?;
        let total = capacity.checked_add(SLOT_ALIGNMENT - 1).ok_or_else(refuse)?;
        let mut storage = Vec::new();
        storage.try_reserve_exact(total).map_err(|_| refuse())?;
        storage.resize(total, 0);
        let address = storage.as_ptr().addr();
        // No overflow: the allocation has `total` more bytes, and one alignment less one fits.
        self.start = address.next_multiple_of(SLOT_ALIGNMENT) - address;
        self.storage = storage;
        self.capacity = capacity;
        Ok(())
    }
}

impl Deref for AlignedBuf {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.storage[self.start..self.start + self.len]
    }
}

impl DerefMut for AlignedBuf {
    fn deref_mut(&mut self) -> &mut [u8] {
        &mut self.storage[self.start..self.start + self.len]
    }
}

impl fmt::Debug for AlignedBuf {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AlignedBuf")
            .field("len", &self.len)
            .field("capacity", &self.capacity)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use slotstream_core::ErrorKind;

    use super::*;

    #[test]
    fn impossible_sizes_are_errors_and_leave_an_empty_buffer() {
        for len in [usize::MAX, isize::MAX as usize, usize::MAX - SLOT_ALIGNMENT] {
            let mut buffer = AlignedBuf::zeroed(10).unwrap();
            let error = buffer.set_len(len).unwrap_err();
            assert!(matches!(error, IoError::Memory { bytes } if bytes == len as u64));
            assert_eq!(error.kind(), ErrorKind::Transient);
            assert_eq!((buffer.len(), buffer.capacity()), (0, 0));
            buffer.set_len(5).unwrap();
            assert_eq!(&buffer[..], [0; 5]);
        }
    }

    proptest! {
        /// Against a plain `Vec`: any row of lengths and writes, moved about in between.
        #[test]
        fn behaves_as_a_vec_that_forgets_when_it_grows(
            steps in prop::collection::vec((0usize..100_000, any::<u8>()), 1..20),
        ) {
            let mut buffer = AlignedBuf::new();
            // All bytes of the room, those beyond the length too.
            let mut model: Vec<u8> = Vec::new();
            for (len, value) in steps {
                buffer.set_len(len).unwrap();
                let mut buffer_here = std::mem::take(&mut buffer);
                if len > model.len() {
                    model = vec![0; len.next_multiple_of(SLOT_ALIGNMENT)];
                }
                prop_assert_eq!(buffer_here.len(), len);
                prop_assert_eq!(buffer_here.capacity(), model.len());
                prop_assert!(buffer_here.is_empty()
                    || buffer_here.as_ptr().addr().is_multiple_of(SLOT_ALIGNMENT));
                prop_assert!(buffer_here[..] == model[..len]);
                let half = len / 2;
                buffer_here[half..].fill(value);
                model[half..len].fill(value);
                buffer = buffer_here;
            }
        }
    }
}
