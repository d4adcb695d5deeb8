//! What sessions hold of state, within what was planned.

use std::sync::Arc;

use parking_lot::Mutex;
use slotstream_qwen::{PlannedState, State};

use crate::engine::Inner;
use crate::{Error, MemoryPlan};

/// Bytes of state that all sessions of an engine hold, and may hold.
#[derive(Debug)]
pub(crate) struct Retained {
    limit: Option<u64>,
    held: Mutex<u64>,
}

impl Retained {
    /// The plan's row, and what its budget leaves over; without a budget there is no limit.
    pub(crate) fn of(plan: &MemoryPlan) -> Self {
        let row = plan.row_bytes("retained state");
        let limit = plan
            .budget
            .as_ref()
            .map(|budget| row.saturating_add(budget.bytes.saturating_sub(plan.total_bytes())));
        Self { limit, held: Mutex::new(0) }
    }

    fn take(&self, bytes: u64) -> Result<(), Error> {
        let mut held = self.held.lock();
        let after = held.saturating_add(bytes);
        match self.limit {
            Some(limit) if after > limit => Err(Error::State { needed: bytes, held: *held, limit }),
            _ => {
                *held = after;
                Ok(())
            }
        }
    }
}

/// What one session holds; given back when it is dropped.
#[derive(Debug)]
pub(crate) struct Held {
    engine: Arc<Inner>,
    bytes: u64,
}

impl Held {
    /// The state of a session without a token.
    pub(crate) fn empty(engine: &Arc<Inner>) -> Result<Self, Error> {
        let mut held = Self { engine: Arc::clone(engine), bytes: 0 };
        held.reach(0)?;
        Ok(held)
    }

    /// Makes sure that a state of `tokens` tokens may be held, before any of it is taken.
    pub(crate) fn reach(&mut self, tokens: usize) -> Result<(), Error> {
        let Inner { checkpoint, rollback_rows, retained, .. } = &*self.engine;
        let state = State::planned_bytes(checkpoint.config(), tokens, *rollback_rows);
        let PlannedState { context, fixed, ring, .. } = state;
        let wanted = context + fixed + ring;
        if wanted > self.bytes {
            retained.take(wanted - self.bytes)?;
            self.bytes = wanted;
        }
        Ok(())
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        *self.engine.retained.held.lock() -= self.bytes;
    }
}
