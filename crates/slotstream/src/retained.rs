//! What sessions hold of state, within what was planned.

use std::sync::Arc;

use parking_lot::Mutex;
use slotstream_qwen::{PlannedState, State};

use crate::engine::Inner;
use crate::{Error, MemoryPlan};

/// Bytes that all sessions of an engine hold, and may hold.
#[derive(Debug)]
pub(crate) struct Retained {
    /// States and snapshots: the plan's row, and what its budget leaves over; without a budget
    /// there is no limit.
    states: Account,
    /// Checkpoints, which are taken only where there is room.
    checkpoints: Account,
}

impl Retained {
    pub(crate) fn of(plan: &MemoryPlan) -> Self {
        let row = plan.row_bytes("retained state");
        let limit = plan
            .budget
            .as_ref()
            .map(|budget| row.saturating_add(budget.bytes.saturating_sub(plan.total_bytes())));
        let checkpoints = Some(plan.row_bytes("checkpoints"));
        Self { states: Account::new(limit), checkpoints: Account::new(checkpoints) }
    }
}

#[derive(Debug)]
struct Account {
    limit: Option<u64>,
    held: Mutex<u64>,
}

impl Account {
    const fn new(limit: Option<u64>) -> Self {
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

/// What one session or snapshot holds; given back when it is dropped.
#[derive(Debug)]
pub(crate) struct Held {
    engine: Arc<Inner>,
    bytes: u64,
}

impl Held {
    /// That of a state of `tokens` tokens.
    pub(crate) fn of(engine: &Arc<Inner>, tokens: usize) -> Result<Self, Error> {
        let mut held = Self { engine: Arc::clone(engine), bytes: 0 };
        held.reach(tokens)?;
        Ok(held)
    }

    /// Makes sure that a state of `tokens` tokens may be held, before any of it is taken. Pages
    /// that states share are counted for each: any of them may be the last to hold them.
    pub(crate) fn reach(&mut self, tokens: usize) -> Result<(), Error> {
        let Inner { checkpoint, rollback_rows, retained, .. } = &*self.engine;
        let state = State::planned_bytes(checkpoint.config(), tokens, *rollback_rows);
        let PlannedState { context, fixed, ring, .. } = state;
        let wanted = context + fixed + ring;
        if wanted > self.bytes {
            retained.states.take(wanted - self.bytes)?;
            self.bytes = wanted;
        }
        Ok(())
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        *self.engine.retained.states.held.lock() -= self.bytes;
    }
}

/// What one checkpoint holds; given back when it is dropped.
#[derive(Debug)]
pub(crate) struct Kept {
    engine: Arc<Inner>,
    bytes: u64,
}

impl Kept {
    /// Room for one more checkpoint; `None` where there is none.
    pub(crate) fn one(engine: &Arc<Inner>) -> Option<Self> {
        let config = engine.checkpoint.config();
        let bytes = checkpoint_bytes(config, engine.rollback_rows);
        engine.retained.checkpoints.take(bytes).ok()?;
        Some(Self { engine: Arc::clone(engine), bytes })
    }
}

impl Drop for Kept {
    fn drop(&mut self) {
        *self.engine.retained.checkpoints.held.lock() -= self.bytes;
    }
}

/// Bytes of a checkpoint with the logits after it. Its whole pages of keys and values are those of
/// its session, which keeps room for them.
pub(crate) fn checkpoint_bytes(
    config: &slotstream_checkpoint::TextConfig,
    rollback_rows: usize,
) -> u64 {
    State::checkpoint_bytes(config, rollback_rows) + 4 * config.vocab_size as u64
}
