//! What lanes and provider meet at. The model checks compile `landing.rs` and `provider.rs` with
//! a checker's own in its place: see `crates/slotstream-io/tests/model`.

pub(crate) use parking_lot::Mutex;
pub(crate) use std::sync::atomic::{AtomicUsize, Ordering};
pub(crate) use std::sync::mpsc::{Receiver, Sender, TryRecvError, channel};

use std::sync::LazyLock;
use std::sync::mpsc::RecvError;
use std::time::{Duration, Instant};

/// How long a receiver looks again and again before it lets its thread sleep: to be woken takes
/// about as long, and many records are there by then.
const PATIENCE: Duration = Duration::from_micros(40);

/// Whether somebody else can run meanwhile.
static SEVERAL: LazyLock<bool> =
    LazyLock::new(|| std::thread::available_parallelism().is_ok_and(|cores| cores.get() > 1));

/// Waits for the next value.
pub(crate) fn receive<T>(from: &Receiver<T>) -> Result<T, RecvError> {
    let begun = Instant::now();
    while *SEVERAL && begun.elapsed() < PATIENCE {
        match from.try_recv() {
            Ok(value) => return Ok(value),
            Err(TryRecvError::Disconnected) => return Err(RecvError),
            Err(TryRecvError::Empty) => std::hint::spin_loop(),
        }
    }
    from.recv()
}
