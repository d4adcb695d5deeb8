//! The thread that looks at memory between the passes.

use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Weak};
use std::time::Duration;

use crate::engine::Inner;
use crate::{Engine, Error};

/// Ends its thread when it is dropped.
#[derive(Debug)]
pub(crate) struct Watch {
    _until: Sender<()>,
}

impl Watch {
    /// Lets a thread adapt the engine every `interval`. The thread does not keep the engine alive.
    pub(crate) fn start(engine: &Arc<Inner>, interval: Duration) -> Result<Self, Error> {
        let (until, ended) = channel();
        let engine = Arc::downgrade(engine);
        let watch = move || {
            while ended.recv_timeout(interval) == Err(RecvTimeoutError::Timeout) && adapt(&engine) {
            }
        };
        std::thread::Builder::new()
            .name("slotstream-watch".to_owned())
            .spawn(watch)
            .map_err(|source| Error::Thread { purpose: "watch the memory", source })?;
        Ok(Self { _until: until })
    }
}

/// Whether there still is an engine.
fn adapt(engine: &Weak<Inner>) -> bool {
    let Some(inner) = engine.upgrade() else { return false };
    if let Err(error) = Engine(inner).adapt() {
        tracing::warn!(%error, "the pool could not follow the memory");
    }
    true
}
