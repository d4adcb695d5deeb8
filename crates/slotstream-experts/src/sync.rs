//! What lanes and provider meet at. The model checks compile `landing.rs`, `call.rs` and
//! `provider.rs` with a checker's own in its place: see `crates/slotstream-io/tests/model`.

pub(crate) use parking_lot::Mutex;
pub(crate) use std::sync::atomic::{AtomicUsize, Ordering};
pub(crate) use std::sync::mpsc::{Receiver, Sender, TryRecvError, channel};

use std::sync::LazyLock;
use std::sync::mpsc::{RecvError, RecvTimeoutError};
use std::time::{Duration, Instant};

/// How long a receiver looks again and again before it lets its thread sleep: to be woken takes
/// about as long, and many records are there by then.
const PATIENCE: Duration = Duration::from_micros(40);

/// How often somebody who waits looks whether he was told to stop.
const POLL: Duration = Duration::from_millis(10);

/// Whether somebody else can run meanwhile.
static SEVERAL: LazyLock<bool> =
    LazyLock::new(|| std::thread::available_parallelism().is_ok_and(|cores| cores.get() > 1));

/// Waits for the next message; `None` once `stop` says so.
pub(crate) fn recv_unless<T>(
    receiver: &Receiver<T>,
    stop: impl Fn() -> bool,
) -> Result<Option<T>, RecvError> {
    let begun = Instant::now();
    while *SEVERAL && begun.elapsed() < PATIENCE {
        match receiver.try_recv() {
            Ok(message) => return Ok(Some(message)),
            Err(TryRecvError::Disconnected) => return Err(RecvError),
            Err(TryRecvError::Empty) => std::hint::spin_loop(),
        }
    }
    loop {
        match receiver.recv_timeout(POLL) {
            Ok(message) => return Ok(Some(message)),
            Err(RecvTimeoutError::Disconnected) => return Err(RecvError),
            Err(RecvTimeoutError::Timeout) if stop() => return Ok(None),
            Err(RecvTimeoutError::Timeout) => {}
        }
    }
}
