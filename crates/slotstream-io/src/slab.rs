//! Memory for many pages in few mappings, so that the system can put it into huge pages. A read
//! around the cache names every page of memory to the disk: of huge ones there are few.
#![expect(unsafe_code, reason = "pages of one mapping belong to different threads")]

use std::ops::{Deref, DerefMut};
use std::ptr::NonNull;
use std::sync::Arc;

use memmap2::{MmapMut, MmapOptions};
use slotstream_core::SLOT_ALIGNMENT;

use crate::IoError;

/// Bytes of a mapping, about.
const SLAB: usize = 32 << 20;

/// Bytes that belong to whoever has this, at a multiple of [`SLOT_ALIGNMENT`]; none by default.
pub(crate) struct Page {
    /// Where they begin: inside the mapping.
    base: NonNull<u8>,
    len: usize,
    /// Keeps the mapping; reached only through `base`s.
    _map: Option<Arc<MmapMut>>,
}

// SAFETY: a page's bytes are its own: `map_pages` gives every page another part of the mapping,
// and nobody reaches the mapping otherwise. So whoever has the page may read and write them on any
// thread, and whoever has a shared reference may read them.
unsafe impl Send for Page {}
// SAFETY: as above; a shared reference lends the bytes for reading only.
unsafe impl Sync for Page {}

/// Pages of `len` bytes each, zeros: as many as fit one mapping, one at least and `most` at most.
/// No memory is used before it is written to.
///
/// # Errors
/// [`IoError::Memory`] when the system has no room.
pub(crate) fn map_pages(len: usize, most: usize) -> Result<Vec<Page>, IoError> {
    let refuse = || IoError::Memory { bytes: len as u64 };
    let step = len.checked_next_multiple_of(SLOT_ALIGNMENT).ok_or_else(refuse)?;
    let count = (SLAB / step.max(1)).min(most).max(1);
    // A mapping begins at a page of the system, which may be smaller.
    let total = count.checked_mul(step).and_then(|all| all.checked_add(SLOT_ALIGNMENT - 1));
    let total = total.ok_or_else(refuse)?;
    let mut map = MmapOptions::new().len(total).map_anon().map_err(|_| refuse())?;
    #[cfg(target_os = "linux")]
    if let Err(error) = map.advise(memmap2::Advice::HugePage) {
        tracing::debug!(%error, "huge pages refused");
    }
    let start = NonNull::new(map.as_mut_ptr()).ok_or_else(refuse)?;
    let skip = start.addr().get().next_multiple_of(SLOT_ALIGNMENT) - start.addr().get();
    let map = Arc::new(map);
    let page = |number: usize| {
        // SAFETY: `skip` is less than one alignment and `number` less than `count`, so the page
        // ends within the `total` bytes of the mapping.
        let base = unsafe { start.add(skip + number * step) };
        Page { base, len, _map: Some(Arc::clone(&map)) }
    };
    Ok((0..count).map(page).collect())
}

impl Default for Page {
    fn default() -> Self {
        Self { base: NonNull::dangling(), len: 0, _map: None }
    }
}

impl Deref for Page {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        // SAFETY: the bytes lie in the mapping that `_map` keeps (there are none without one), are
        // initialised (an anonymous mapping is zeros), belong to this page alone, and are written
        // only through `deref_mut`, which needs the page mutably.
        unsafe { std::slice::from_raw_parts(self.base.as_ptr(), self.len) }
    }
}

impl DerefMut for Page {
    fn deref_mut(&mut self) -> &mut [u8] {
        // SAFETY: as in `deref`; the page is borrowed mutably, so no other reference to its bytes
        // lives.
        unsafe { std::slice::from_raw_parts_mut(self.base.as_ptr(), self.len) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_are_aligned_apart_and_outlive_each_other() {
        for (len, most, count) in
            [(100, 3, 3), (20_000, 1, 1), (3 << 20, 100, 10), (SLAB + 1, 9, 1)]
        {
            let mut pages = map_pages(len, most).unwrap();
            assert_eq!(pages.len(), count);
            for (page, value) in pages.iter_mut().zip(1..) {
                assert_eq!((page.len(), page[0], page[len - 1]), (len, 0, 0));
                assert!(page.as_ptr().addr().is_multiple_of(SLOT_ALIGNMENT));
                page.fill(value);
            }
            let last = pages.pop().unwrap();
            assert!(pages.iter().zip(1..).all(|(page, value)| page.iter().all(|b| *b == value)));
            drop(pages);
            assert!(last.iter().all(|byte| usize::from(*byte) == count));
        }
        assert!(Page::default().is_empty());
        assert!(matches!(map_pages(usize::MAX, 1), Err(IoError::Memory { .. })));
    }
}
