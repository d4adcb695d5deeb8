//! What lanes and provider meet at. The model checks compile `landing.rs` and `provider.rs` with
//! a checker's own in its place: see `crates/slotstream-io/tests/model`.

pub(crate) use parking_lot::Mutex;
pub(crate) use std::sync::atomic::{AtomicUsize, Ordering};
pub(crate) use std::sync::mpsc::{Receiver, Sender, TryRecvError, channel};

use std::sync::mpsc::{RecvError, RecvTimeoutError};
use std::time::Duration;

/// How often somebody who waits looks whether he was told to stop.
const POLL: Duration = Duration::from_millis(10);

/// Waits for a message; `None` once `stop` says so.
pub(crate) fn recv_unless<T>(
    receiver: &Receiver<T>,
    stop: impl Fn() -> bool,
) -> Result<Option<T>, RecvError> {
    loop {
        match receiver.recv_timeout(POLL) {
            Ok(message) => return Ok(Some(message)),
            Err(RecvTimeoutError::Disconnected) => return Err(RecvError),
            Err(RecvTimeoutError::Timeout) if stop() => return Ok(None),
            Err(RecvTimeoutError::Timeout) => {}
        }
    }
}
