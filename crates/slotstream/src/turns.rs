//! Whose pass comes next.

use std::collections::VecDeque;
use std::time::Duration;

use parking_lot::{Condvar, Mutex};
use slotstream_core::CancelToken;

/// How often somebody who waits looks whether he was told to stop.
const POLL: Duration = Duration::from_millis(10);

/// Turns, in the order in which they were asked for.
#[derive(Debug, Default)]
pub(crate) struct Turns {
    line: Mutex<Line>,
    moved: Condvar,
}

#[derive(Debug, Default)]
struct Line {
    /// Numbers of those who have a turn or wait for one.
    waiting: VecDeque<u64>,
    given: u64,
}

/// A turn; it ends when this is dropped.
#[derive(Debug)]
pub(crate) struct Turn<'a>(&'a Turns);

impl Turns {
    /// Waits for a turn; `None` once `cancel` is set and another one still has it.
    pub(crate) fn take(&self, cancel: &CancelToken) -> Option<Turn<'_>> {
        let mut line = self.line.lock();
        let number = line.given;
        line.given += 1;
        line.waiting.push_back(number);
        while line.waiting.front() != Some(&number) {
            if cancel.is_cancelled() {
                line.waiting.retain(|waiting| *waiting != number);
                return None;
            }
            self.moved.wait_for(&mut line, POLL);
        }
        Some(Turn(self))
    }
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        self.0.line.lock().waiting.pop_front();
        self.0.moved.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn turns_come_in_order_and_a_cancelled_one_is_passed_over() {
        let (turns, calm) = (Turns::default(), CancelToken::new());
        let first = turns.take(&calm).expect("nobody waits");
        let (order, late) = (Mutex::new(Vec::new()), CancelToken::new());
        std::thread::scope(|scope| {
            let waits = |number: u32, cancel: CancelToken| {
                let (turns, order) = (&turns, &order);
                let before = turns.line.lock().waiting.len();
                scope.spawn(move || {
                    let turn = turns.take(&cancel);
                    order.lock().push((number, turn.is_some()));
                });
                while turns.line.lock().waiting.len() == before {
                    std::thread::yield_now();
                }
            };
            waits(1, calm.clone());
            waits(2, late.clone());
            waits(3, calm.clone());
            late.cancel();
            while order.lock().is_empty() {
                std::thread::yield_now();
            }
            drop(first);
        });
        assert_eq!(*order.lock(), [(2, false), (1, true), (3, true)]);
        assert!(turns.line.lock().waiting.is_empty());
    }
}
