//! Moments of a session: snapshots in memory, and forks.

use std::sync::Arc;

use slotstream_core::SessionId;
use slotstream_qwen::State;

use super::Session;
use crate::Error;
use crate::retained::Held;
use crate::sampling::Sampler;

/// A moment of a session to come back to. It holds a state, counted among those of all sessions.
#[derive(Clone, Debug)]
pub struct Snapshot(Arc<Moment>);

#[derive(Debug)]
struct Moment {
    /// The number of its engine.
    engine: u64,
    folder: std::path::PathBuf,
    session: SessionId,
    state: State,
    _held: Held,
    tokens: Vec<u32>,
    prompt_end: usize,
    logits: Vec<f32>,
    logits_at: usize,
    sampler: Sampler,
}

impl Snapshot {
    /// Tokens of the sequence at that moment.
    #[must_use]
    pub fn tokens(&self) -> &[u32] {
        &self.0.tokens
    }
}

impl Session {
    /// Remembers this moment. It shares whole pages of keys and values with the session and is
    /// counted as a state of its own, since it may outlive the session.
    ///
    /// # Errors
    /// [`Error::State`] when no more state may be held, [`Error::Model`] when a pass that had to
    /// run, or the device, fails.
    pub fn snapshot(&mut self) -> Result<Snapshot, Error> {
        self.settle()?;
        Ok(Snapshot(Arc::new(Moment {
            engine: self.engine.0.number,
            folder: self.engine.0.folder.clone(),
            session: self.id,
            _held: Held::of(&self.engine.0, self.state.position() as usize)?,
            state: self.state.snapshot()?,
            tokens: self.tokens.clone(),
            prompt_end: self.prompt_end,
            logits: self.logits.clone(),
            logits_at: self.logits_at,
            sampler: self.sampler.clone(),
        })))
    }

    /// Comes back to an earlier moment, its random numbers included.
    ///
    /// # Errors
    /// [`Error::ForeignSnapshot`] for one of another session or engine, [`Error::State`] when no more
    /// state may be held, [`Error::Model`] when the device refuses; the session is then as it was.
    pub fn restore(&mut self, snapshot: &Snapshot) -> Result<(), Error> {
        let moment = &*snapshot.0;
        let inner = &self.engine.0;
        if moment.session != self.id || moment.engine != inner.number {
            let name = |engine, folder: &std::path::Path, id| {
                format!("{id} of engine {engine} on {}", folder.display())
            };
            return Err(Error::ForeignSnapshot {
                expected: name(inner.number, &inner.folder, self.id),
                found: name(moment.engine, &moment.folder, moment.session),
            });
        }
        self.held.reach(moment.state.position() as usize)?;
        self.state = moment.state.snapshot()?;
        self.forget();
        self.marks.truncate(self.common(&moment.tokens));
        self.tokens.clone_from(&moment.tokens);
        self.prompt_end = moment.prompt_end;
        self.sampler = moment.sampler.clone();
        self.logits.clone_from(&moment.logits);
        self.logits_at = moment.logits_at;
        Ok(())
    }

    /// A second session that goes on from here, on its own: tokens, state, checkpoints, sampling and
    /// its place in the stream of draws. Whole pages of keys and values and all checkpoints are
    /// shared, the rest is copied; its state is counted as a whole. It has a new cancel token, no
    /// deadline, and metrics of its own.
    ///
    /// # Errors
    /// As [`snapshot`](Self::snapshot).
    pub fn fork(&mut self) -> Result<Self, Error> {
        self.settle()?;
        let held = Held::of(&self.engine.0, self.state.position() as usize)?;
        let state = self.state.snapshot()?;
        let mut fork = Self::of_parts(self.engine.clone(), (state, held), self.sampler.clone());
        fork.tokens.clone_from(&self.tokens);
        fork.prompt_end = self.prompt_end;
        fork.logits.clone_from(&self.logits);
        fork.logits_at = self.logits_at;
        fork.marks.clone_from(&self.marks);
        fork.note.clone_from(&self.note);
        Ok(fork)
    }

    /// Makes good what a pass that failed has lost, so that the state may be copied.
    pub(crate) fn settle(&mut self) -> Result<(), Error> {
        if self.state.is_dirty() { self.catch_up(&mut |_, _| {}) } else { Ok(()) }
    }
}
