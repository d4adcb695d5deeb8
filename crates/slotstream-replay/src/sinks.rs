//! A sink that its giver gets back.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use slotstream_core::{Attached, EventSink, Geometry, Outcome, Prediction, Routing, Step, Tap};

/// A sink with two owners: an engine that tells it, and whoever wants it back. Cloning shares it.
///
/// ```
/// use slotstream_core::{EventSink, Geometry};
/// use slotstream_replay::{Requests, Shared};
///
/// let requests = Shared::new(Requests::new(Geometry::new(2, 8, 2)?));
/// let for_an_engine: Box<dyn EventSink> = Box::new(requests.clone());
/// // ... the engine runs ...
/// assert_eq!(requests.with(|requests| requests.lookups()), 0);
/// drop(for_an_engine);
/// assert!(requests.into_inner().is_ok());
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug, Default)]
pub struct Shared<S>(Arc<Mutex<S>>);

impl<S> Clone for Shared<S> {
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0))
    }
}

impl<S> Shared<S> {
    /// Shares `sink`.
    #[must_use]
    pub fn new(sink: S) -> Self {
        Self(Arc::new(Mutex::new(sink)))
    }

    /// Looks at the sink, or changes it, between two events.
    pub fn with<T>(&self, look: impl FnOnce(&mut S) -> T) -> T {
        look(&mut self.lock())
    }

    /// The sink.
    ///
    /// # Errors
    /// The handle, while there is another one: the engine still has it.
    pub fn into_inner(self) -> Result<S, Self> {
        match Arc::try_unwrap(self.0) {
            Ok(sink) => Ok(sink.into_inner().unwrap_or_else(PoisonError::into_inner)),
            Err(shared) => Err(Self(shared)),
        }
    }

    /// A sink that panicked once is as usable as it was before: what it does is its own.
    fn lock(&self) -> MutexGuard<'_, S> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<S: EventSink> EventSink for Shared<S> {
    fn on_attach(&mut self, pool: &Attached<'_>) {
        self.lock().on_attach(pool);
    }
    fn on_step(&mut self, step: &Step<'_>) {
        self.lock().on_step(step);
    }
    fn on_routing(&mut self, routing: &Routing<'_>) {
        self.lock().on_routing(routing);
    }
    fn on_forecast(&mut self, at: Tap, predictions: &[Prediction]) {
        self.lock().on_forecast(at, predictions);
    }
    fn on_outcome(&mut self, outcome: &Outcome) {
        self.lock().on_outcome(outcome);
    }
    fn planned_bytes(&self, geometry: &Geometry, tokens: usize) -> u64 {
        self.lock().planned_bytes(geometry, tokens)
    }
}
