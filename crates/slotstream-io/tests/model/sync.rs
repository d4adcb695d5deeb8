//! The checker's primitives under the names by which the files under test call theirs.

use std::collections::VecDeque;
use std::fmt;
use std::sync::Arc;
pub(crate) use std::sync::mpsc::{RecvError, SendError, TryRecvError};

pub(crate) use loom::sync::atomic::{AtomicUsize, Ordering};
use loom::sync::{Condvar, Mutex as Lock};

const SOUND: &str = "nobody panics while holding a lock";

/// As `parking_lot::Mutex`.
#[derive(Debug)]
pub(crate) struct Mutex<T>(Lock<T>);

impl<T> Mutex<T> {
    pub(crate) fn new(value: T) -> Self {
        Self(Lock::new(value))
    }

    pub(crate) fn lock(&self) -> loom::sync::MutexGuard<'_, T> {
        self.0.lock().expect(SOUND)
    }
}

/// As `parking_lot::RwLock`.
#[derive(Debug, Default)]
pub(crate) struct RwLock<T>(loom::sync::RwLock<T>);

impl<T> RwLock<T> {
    pub(crate) fn read(&self) -> loom::sync::RwLockReadGuard<'_, T> {
        self.0.read().expect(SOUND)
    }

    pub(crate) fn write(&self) -> loom::sync::RwLockWriteGuard<'_, T> {
        self.0.write().expect(SOUND)
    }
}

/// As `std::sync::atomic::AtomicU32`, with the one method that the checker's lacks.
///
/// Its `load` is no step of the checker: it serves assertions about a state that the thread
/// itself holds. As a step it would hide others: the checker compares a step with the last one
/// before it on the same atomic, and that would always be the thread's own assertion.
#[derive(Debug)]
pub(crate) struct AtomicU32 {
    checked: loom::sync::atomic::AtomicU32,
    /// The same value. Kept after each step of `checked`, before which the checker may switch.
    now: std::sync::atomic::AtomicU32,
}

impl AtomicU32 {
    pub(crate) fn new(value: u32) -> Self {
        Self { checked: loom::sync::atomic::AtomicU32::new(value), now: value.into() }
    }

    pub(crate) fn load(&self, order: Ordering) -> u32 {
        self.now.load(order)
    }

    pub(crate) fn store(&self, value: u32, order: Ordering) {
        self.checked.store(value, order);
        self.now.store(value, order);
    }

    pub(crate) fn fetch_sub(&self, value: u32, order: Ordering) -> u32 {
        let old = self.checked.fetch_sub(value, order);
        self.now.store(old.wrapping_sub(value), Ordering::SeqCst);
        old
    }

    pub(crate) fn compare_exchange(
        &self,
        old: u32,
        new: u32,
        success: Ordering,
        failure: Ordering,
    ) -> Result<u32, u32> {
        let result = self.checked.compare_exchange(old, new, success, failure);
        if result.is_ok() {
            self.now.store(new, Ordering::SeqCst);
        }
        result
    }

    pub(crate) fn try_update(
        &self,
        success: Ordering,
        failure: Ordering,
        mut f: impl FnMut(u32) -> Option<u32>,
    ) -> Result<u32, u32> {
        let mut new = None;
        let result = self.checked.fetch_update(success, failure, |old| {
            new = f(old);
            new
        });
        if let (Ok(_), Some(new)) = (result, new) {
            self.now.store(new, Ordering::SeqCst);
        }
        result
    }
}

/// As `std::sync::mpsc`, whose own waiting the checker could not see (and whose stand-in of the
/// checker's writes to the terminal). The provider keeps a sender, so it never disconnects.
pub(crate) fn channel<T>() -> (Sender<T>, Receiver<T>) {
    let channel = Arc::new(Channel { queue: Lock::new(VecDeque::new()), more: Condvar::new() });
    (Sender(Arc::clone(&channel)), Receiver(channel))
}

struct Channel<T> {
    queue: Lock<VecDeque<T>>,
    more: Condvar,
}

pub(crate) struct Sender<T>(Arc<Channel<T>>);

pub(crate) struct Receiver<T>(Arc<Channel<T>>);

impl<T> Sender<T> {
    pub(crate) fn send(&self, value: T) -> Result<(), SendError<T>> {
        self.0.queue.lock().expect(SOUND).push_back(value);
        self.0.more.notify_one();
        Ok(())
    }
}

impl<T> Clone for Sender<T> {
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0))
    }
}

impl<T> Receiver<T> {
    pub(crate) fn recv(&self) -> Result<T, RecvError> {
        let mut queue = self.0.queue.lock().expect(SOUND);
        loop {
            match queue.pop_front() {
                Some(value) => return Ok(value),
                None => queue = self.0.more.wait(queue).expect(SOUND),
            }
        }
    }

    pub(crate) fn try_recv(&self) -> Result<T, TryRecvError> {
        self.0.queue.lock().expect(SOUND).pop_front().ok_or(TryRecvError::Empty)
    }
}

/// As the provider's own; here nobody cancels, so there is nothing to look at meanwhile.
pub(crate) fn recv_unless<T>(
    receiver: &Receiver<T>,
    _stop: impl Fn() -> bool,
) -> Result<Option<T>, RecvError> {
    receiver.recv().map(Some)
}

impl<T> fmt::Debug for Sender<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Sender")
    }
}

impl<T> fmt::Debug for Receiver<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Receiver")
    }
}
