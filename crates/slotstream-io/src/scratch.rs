//! A bounded supply of aligned pages for reads that cannot go straight to their place.

use std::fmt;
use std::ops::{Deref, DerefMut};
use std::sync::Arc;

use slotstream_core::{Landing, ReadError};

use crate::IoError;
use crate::slab::{Page, map_pages};
use crate::sync::{Condvar, Mutex};

/// Hands out pages of one size and takes them back; never more than a fixed number of them.
/// Pages are made when they are first needed and then kept, many in one mapping, which lies in
/// huge pages where the system has them. Clones share the pages.
///
/// ```
/// let pool = slotstream_io::ScratchPool::new(100_000, 2)?;
/// let (first, _second) = (pool.take()?, pool.take()?);
/// assert_eq!(first.len(), 100_000);
/// assert!(pool.try_take()?.is_none());
/// drop(first);
/// assert!(pool.try_take()?.is_some());
/// # Ok::<(), slotstream_io::IoError>(())
/// ```
#[derive(Clone)]
pub struct ScratchPool(Arc<Shared>);

struct Shared {
    page_len: usize,
    pages: usize,
    state: Mutex<State>,
    returned: Condvar,
}

struct State {
    free: Vec<Page>,
    /// Pages that exist: free ones and those handed out.
    made: usize,
}

impl ScratchPool {
    /// A pool of at most `pages` pages of `page_len` bytes.
    ///
    /// # Errors
    /// [`IoError::EmptyPool`] when either is 0.
    pub fn new(page_len: usize, pages: usize) -> Result<Self, IoError> {
        if page_len == 0 || pages == 0 {
            return Err(IoError::EmptyPool { pages, page_len });
        }
        let state = Mutex::new(State { free: Vec::new(), made: 0 });
        Ok(Self(Arc::new(Shared { page_len, pages, state, returned: Condvar::new() })))
    }

    /// Bytes of a page.
    #[must_use]
    pub fn page_len(&self) -> usize {
        self.0.page_len
    }

    /// The largest number of pages.
    #[must_use]
    pub fn pages(&self) -> usize {
        self.0.pages
    }

    /// Memory that the pool holds when all its pages exist, alignment included: the number for
    /// a memory plan.
    #[must_use]
    pub fn max_bytes(&self) -> u64 {
        let page = (self.0.page_len as u64)
            .checked_next_multiple_of(slotstream_core::SLOT_ALIGNMENT as u64)
            .unwrap_or(u64::MAX)
            .saturating_add(slotstream_core::SLOT_ALIGNMENT as u64 - 1);
        page.saturating_mul(self.0.pages as u64)
    }

    /// Pages that are not handed out, those not yet made included.
    #[must_use]
    pub fn available(&self) -> usize {
        let state = self.0.state.lock();
        self.0.pages - state.made + state.free.len()
    }

    /// A page, waiting until one is given back if all are handed out. Its content is whatever
    /// the last holder left, zeros at first.
    ///
    /// Must not wait where its wait stops others from giving pages back, such as in a landing.
    ///
    /// # Errors
    /// [`IoError::Memory`] when a new page is needed and the system has no room.
    pub fn take(&self) -> Result<ScratchPage, IoError> {
        let mut state = self.0.state.lock();
        loop {
            if let Some(page) = self.pop(&mut state)? {
                return Ok(page);
            }
            self.0.returned.wait(&mut state);
        }
    }

    /// A page, or `None` at once if all are handed out.
    ///
    /// # Errors
    /// [`IoError::Memory`] when a new page is needed and the system has no room.
    pub fn try_take(&self) -> Result<Option<ScratchPage>, IoError> {
        self.pop(&mut self.0.state.lock())
    }

    /// A free page, or a new one.
    fn pop(&self, state: &mut State) -> Result<Option<ScratchPage>, IoError> {
        let left = self.0.pages - state.made;
        if state.free.is_empty() && left > 0 {
            // Quick enough for the lock: memory comes when it is written to.
            state.free = map_pages(self.0.page_len, left)?;
            state.made += state.free.len();
            // As much room as all that are made need: giving back allocates nothing.
            state.free.reserve_exact(state.made);
        }
        let page = state.free.pop();
        Ok(page.map(|bytes| ScratchPage { bytes, home: Arc::clone(&self.0) }))
    }
}

impl fmt::Debug for ScratchPool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ScratchPool")
            .field("page_len", &self.0.page_len)
            .field("pages", &self.0.pages)
            .field("available", &self.available())
            .finish()
    }
}

/// A page of a [`ScratchPool`], which gets it back when it is dropped.
pub struct ScratchPage {
    bytes: Page,
    home: Arc<Shared>,
}

impl ScratchPage {
    /// The first `len` bytes of the page as the destination of a job. `done` gets the page and
    /// the result on the lane's thread.
    ///
    /// A `len` beyond the page is cut to it; the queue then ends the job with
    /// [`ReadError::BufferLength`].
    pub fn into_landing<F>(self, len: usize, done: F) -> Box<dyn Landing>
    where
        F: FnOnce(Self, Result<(), ReadError>) + Send + 'static,
    {
        Box::new(PageLanding { len: len.min(self.len()), page: self, done })
    }
}

impl Deref for ScratchPage {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.bytes
    }
}

impl DerefMut for ScratchPage {
    fn deref_mut(&mut self) -> &mut [u8] {
        &mut self.bytes
    }
}

impl Drop for ScratchPage {
    fn drop(&mut self) {
        self.home.state.lock().free.push(std::mem::take(&mut self.bytes));
        self.home.returned.notify_one();
    }
}

impl fmt::Debug for ScratchPage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ScratchPage").field("len", &self.bytes.len()).finish_non_exhaustive()
    }
}

struct PageLanding<F> {
    page: ScratchPage,
    len: usize,
    done: F,
}

impl<F: FnOnce(ScratchPage, Result<(), ReadError>) + Send> Landing for PageLanding<F> {
    fn buffer(&mut self) -> &mut [u8] {
        &mut self.page[..self.len]
    }

    fn landed(self: Box<Self>, result: Result<(), ReadError>) {
        let Self { page, done, .. } = *self;
        done(page, result);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::thread;

    use super::*;

    #[test]
    fn many_threads_never_hold_more_than_the_bound() {
        let pool = ScratchPool::new(1000, 3).unwrap();
        let (held, most) = (AtomicUsize::new(0), AtomicUsize::new(0));
        thread::scope(|scope| {
            for id in 0..8u8 {
                let (pool, held, most) = (&pool, &held, &most);
                scope.spawn(move || {
                    for _ in 0..200 {
                        let mut page = pool.take().unwrap();
                        most.fetch_max(held.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
                        page.fill(id);
                        thread::yield_now();
                        assert!(page.iter().all(|byte| *byte == id));
                        held.fetch_sub(1, Ordering::SeqCst);
                    }
                });
            }
        });
        assert!((1..=3).contains(&most.into_inner()));
        assert_eq!(pool.available(), 3);
        let state = pool.0.state.lock();
        assert_eq!(state.free.len(), state.made);
    }

    #[test]
    fn a_page_without_memory_frees_its_place() {
        let pool = ScratchPool::new(isize::MAX as usize, 1).unwrap();
        for _ in 0..3 {
            assert!(matches!(pool.take(), Err(IoError::Memory { .. })));
            assert_eq!(pool.available(), 1);
        }
        assert!(matches!(ScratchPool::new(0, 1), Err(IoError::EmptyPool { .. })));
        assert!(matches!(ScratchPool::new(1, 0), Err(IoError::EmptyPool { .. })));
        assert_eq!(pool.max_bytes(), (1 << 63) + 16_383);
    }
}
