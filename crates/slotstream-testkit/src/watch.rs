//! Plays to foreign code on a thread of its own, so that a panic and a call that never returns
//! are found like any other fault.

use std::any::Any;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::thread;
use std::time::Duration;

/// How a play ended early.
#[derive(Debug)]
pub(crate) enum Stopped<B> {
    /// It found a broken rule.
    Broken(B),
    /// A call panicked with this text.
    Panicked(String),
    /// No step ended for as long as the watcher's patience. The thread is left behind.
    Hangs,
}

/// Runs `play`, which counts its steps, and gives the count when it ends early.
pub(crate) fn watch<B: Send + 'static>(
    patience: Duration,
    play: impl FnOnce(&AtomicUsize) -> Result<(), B> + Send + 'static,
) -> Result<(), (usize, Stopped<B>)> {
    let step = Arc::new(AtomicUsize::new(0));
    let (done, result) = channel();
    let worker = thread::spawn({
        let step = Arc::clone(&step);
        move || {
            // The receiver is gone only after it gave up on this thread.
            let _ = done.send(play(&step));
        }
    });
    let stopped = |how| (step.load(Ordering::Relaxed), how);
    loop {
        let before = step.load(Ordering::Relaxed);
        match result.recv_timeout(patience) {
            Ok(outcome) => return outcome.map_err(|what| stopped(Stopped::Broken(what))),
            Err(RecvTimeoutError::Timeout) if step.load(Ordering::Relaxed) != before => {}
            Err(RecvTimeoutError::Timeout) => return Err(stopped(Stopped::Hangs)),
            Err(RecvTimeoutError::Disconnected) => {
                let text = worker.join().err().map_or_else(String::new, panic_text);
                return Err(stopped(Stopped::Panicked(text)));
            }
        }
    }
}

/// What a panic said.
pub(crate) fn panic_text(payload: Box<dyn Any + Send>) -> String {
    let text = payload.downcast::<String>().map(|text| *text);
    text.or_else(|payload| payload.downcast::<&str>().map(|text| (*text).to_owned()))
        .unwrap_or_else(|_| "(no text)".into())
}
