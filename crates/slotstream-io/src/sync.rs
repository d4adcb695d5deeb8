//! What the lane queue and the scratch pool are made of: locks, condition variables and threads.
//!
//! A model check compiles this crate with `--cfg loom` and puts the checker's own in their place,
//! so that what it explores is this crate's code and not a copy. See `tests/model`.

#[cfg(not(loom))]
pub(crate) use parking_lot::{Condvar, Mutex};
#[cfg(not(loom))]
pub(crate) use std::{
    sync::atomic::{AtomicU64, Ordering},
    thread::{Builder, JoinHandle, current},
};

#[cfg(loom)]
pub(crate) use loom::{
    sync::atomic::{AtomicU64, Ordering},
    thread::{Builder, JoinHandle, current},
};
#[cfg(loom)]
pub(crate) use modelled::{Condvar, Mutex};

/// The checker's primitives in the shape of `parking_lot`'s.
#[cfg(loom)]
mod modelled {
    use std::ops::{Deref, DerefMut};
    use std::sync::PoisonError;

    pub(crate) struct Mutex<T>(loom::sync::Mutex<T>);

    /// `None` only while its condition variable has it.
    pub(crate) struct MutexGuard<'a, T>(Option<loom::sync::MutexGuard<'a, T>>);

    pub(crate) struct Condvar(loom::sync::Condvar);

    const HELD: &str = "a guard outside of a wait holds its lock";

    impl<T> Mutex<T> {
        pub(crate) fn new(value: T) -> Self {
            Self(loom::sync::Mutex::new(value))
        }

        pub(crate) fn lock(&self) -> MutexGuard<'_, T> {
            MutexGuard(Some(self.0.lock().unwrap_or_else(PoisonError::into_inner)))
        }
    }

    impl<T> Deref for MutexGuard<'_, T> {
        type Target = T;

        fn deref(&self) -> &T {
            self.0.as_ref().expect(HELD)
        }
    }

    impl<T> DerefMut for MutexGuard<'_, T> {
        fn deref_mut(&mut self) -> &mut T {
            self.0.as_mut().expect(HELD)
        }
    }

    impl Condvar {
        pub(crate) fn new() -> Self {
            Self(loom::sync::Condvar::new())
        }

        pub(crate) fn wait<T>(&self, guard: &mut MutexGuard<'_, T>) {
            let held = guard.0.take().expect(HELD);
            guard.0 = Some(self.0.wait(held).unwrap_or_else(PoisonError::into_inner));
        }

        pub(crate) fn notify_one(&self) {
            self.0.notify_one();
        }

        pub(crate) fn notify_all(&self) {
            self.0.notify_all();
        }
    }
}
