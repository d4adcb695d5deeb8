//! A flag that asks running work to stop.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

/// Cloned into everything that should stop together. Once set it stays set. A clone may also have
/// a deadline, after which it counts as set, for itself and its own clones.
#[derive(Clone, Debug, Default)]
pub struct CancelToken {
    asked: Arc<AtomicBool>,
    deadline: Option<Instant>,
}

impl CancelToken {
    /// A token that nobody has cancelled.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// A clone that also counts as set from `deadline` on, or from its earlier one on.
    ///
    /// ```
    /// use std::time::{Duration, Instant};
    /// use slotstream_core::CancelToken;
    ///
    /// let token = CancelToken::new();
    /// let late = token.with_deadline(Instant::now());
    /// assert!(late.is_cancelled() && late.is_past_deadline() && !token.is_cancelled());
    /// let early = token.with_deadline(Instant::now() + Duration::from_secs(3600));
    /// token.cancel();
    /// assert!(early.is_cancelled() && !early.is_past_deadline());
    /// ```
    #[must_use]
    pub fn with_deadline(&self, deadline: Instant) -> Self {
        let deadline = self.deadline.map_or(deadline, |own| own.min(deadline));
        Self { asked: Arc::clone(&self.asked), deadline: Some(deadline) }
    }

    /// When this clone counts as set without being asked.
    #[must_use]
    pub const fn deadline(&self) -> Option<Instant> {
        self.deadline
    }

    /// Asks all holders to stop.
    pub fn cancel(&self) {
        self.asked.store(true, Ordering::Release);
    }

    /// Whether both are clones of one token.
    #[must_use]
    pub fn is_same(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.asked, &other.asked)
    }

    /// Whether somebody asked to stop, or the time is up.
    #[inline]
    #[must_use]
    pub fn is_cancelled(&self) -> bool {
        self.asked.load(Ordering::Acquire) || self.is_late()
    }

    /// Whether the time is up and nobody had asked to stop.
    #[must_use]
    pub fn is_past_deadline(&self) -> bool {
        !self.asked.load(Ordering::Acquire) && self.is_late()
    }

    fn is_late(&self) -> bool {
        self.deadline.is_some_and(|deadline| Instant::now() >= deadline)
    }
}
