//! Going back, and what is known of a prompt already.

use std::time::Instant;

use super::Session;
use super::marks::Mark;
use crate::Error;
use crate::retained::Kept;

impl Session {
    /// Makes `tokens` the whole sequence and runs those of them that are new: what follows the longest
    /// beginning that they share with the tokens held, and what lies between that and the nearest
    /// place to come back to. Those places are where the session is, the rows that
    /// [`rollback_rows`](crate::EngineBuilder::rollback_rows) keeps, and its
    /// [`checkpoints`](crate::EngineBuilder::checkpoints): ends of earlier prompts, and some in
    /// between. Gives how many tokens did not run again; the result is that of a new session, bit
    /// for bit.
    ///
    /// ```
    /// use slotstream::{Engine, SessionOptions, Sizing};
    ///
    /// # let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../../examples/models/tiny-moe");
    /// let engine = Engine::builder(folder).sizing(Sizing::Share(0.3)).build()?;
    /// let mut session = engine.session(SessionOptions::new())?;
    /// assert_eq!(session.prompt(&[39, 798, 78])?, 0);
    /// let answer = session.next()?;
    /// // The answer has not run yet: its logits are computed when the next token is asked for.
    /// assert_eq!(session.prompt(&[39, 798, 78, answer, 11, 1453])?, 3);
    /// assert_eq!(session.metrics().reused, 3);
    /// # Ok::<(), slotstream::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::NoPrompt`] for no tokens, [`Error::Model`] for a token that the model does not know
    /// or more tokens than the context (the session is then as it was), or when a pass fails (the
    /// tokens are then those given; the next call runs what is missing).
    pub fn prompt(&mut self, tokens: &[u32]) -> Result<usize, Error> {
        self.prompt_with(tokens, |_, _| {})
    }

    /// [`prompt`](Self::prompt), telling after each chunk how many tokens have run, and of how many.
    ///
    /// # Errors
    /// As [`prompt`](Self::prompt).
    pub fn prompt_with(
        &mut self,
        tokens: &[u32],
        mut progress: impl FnMut(usize, usize),
    ) -> Result<usize, Error> {
        if tokens.is_empty() {
            return Err(Error::NoPrompt {});
        }
        self.check(0, tokens)?;
        self.first_prefill.get_or_insert_with(Instant::now);
        let common = self.common(tokens);
        self.truncate(common)?;
        self.tokens.extend_from_slice(&tokens[common..]);
        self.prompt_end = self.tokens.len();
        let reused = self.seen()?;
        self.metrics.reused += reused as u64;
        self.catch_up(&mut progress)?;
        // Where nothing had to run this may not be a place to come back to yet.
        self.mark();
        Ok(reused)
    }

    /// Tokens that these and the session's begin with.
    pub(super) fn common(&self, tokens: &[u32]) -> usize {
        self.tokens.iter().zip(tokens).take_while(|(own, other)| own == other).count()
    }

    /// Keeps the first `len` tokens, all of them when there are no more. Goes back by the state's
    /// ring where it reaches, else to the nearest checkpoint; tokens after that run again with the
    /// next call.
    ///
    /// # Errors
    /// [`Error::Model`] when the device refuses; the session is then as it was.
    pub fn truncate(&mut self, len: usize) -> Result<(), Error> {
        if len >= self.tokens.len() {
            return Ok(());
        }
        self.forget();
        if self.state.is_dirty() || self.state.position() > len as u64 {
            self.fall_back(len)?;
        }
        self.tokens.truncate(len);
        self.prompt_end = self.prompt_end.min(len);
        self.marks.truncate(len);
        Ok(())
    }

    /// Goes back as far as it must before what is missing can run, and says how many tokens the
    /// state has seen then.
    pub(super) fn seen(&mut self) -> Result<usize, Error> {
        let total = self.tokens.len();
        if self.state.is_dirty() {
            self.fall_back(total)?;
        }
        if self.state.position() as usize == total && self.logits_at != total && total > 0 {
            // The state is past the last token but its logits are gone.
            self.fall_back(total - 1)?;
        }
        Ok(self.state.position() as usize)
    }

    /// Replaces the state by one that has seen at most `len` tokens of this sequence: rolled
    /// back, or that of the nearest checkpoint, or empty. All parts go together.
    fn fall_back(&mut self, len: usize) -> Result<(), Error> {
        let nearest = self.marks.nearest(len);
        let at = nearest.map_or(0, Mark::position);
        let near = self.state.position().saturating_sub(len as u64);
        if !self.state.is_dirty() && near <= self.state.undoable() as u64 && at < len {
            self.state.truncate(len as u64)?;
            self.logits_at = 0;
            return Ok(());
        }
        let inner = &self.engine.0;
        let logits = nearest.map_or(&[][..], Mark::logits);
        self.state = match nearest {
            Some(mark) => mark.state().resume()?,
            None => inner.model.new_state(inner.context, inner.rollback_rows)?,
        };
        self.logits_at = if logits.is_empty() { 0 } else { at };
        self.logits = logits.to_vec();
        Ok(())
    }

    /// Takes a checkpoint where a prompt ends, and now and then in between, where there is room.
    /// None is ever missed: without it more tokens run again.
    pub(super) fn mark(&mut self) {
        let position = self.state.position() as usize;
        let turn = position == self.prompt_end;
        let every = self.engine.0.checkpoint_every;
        if !turn && position / every <= self.marks.last() / every {
            return;
        }
        let known = self.logits_at == position;
        if self.marks.has(position, turn, known) || !self.marks.make_room(turn, position) {
            return;
        }
        let Some(kept) = Kept::one(&self.engine.0) else { return };
        match self.state.checkpoint() {
            Ok(state) => {
                let logits = if known { self.logits.clone() } else { Vec::new() };
                self.marks.push(Mark::new(state, logits, turn, kept));
            }
            Err(error) => tracing::debug!(%error, "a checkpoint that could not be taken"),
        }
    }

    /// Checkpoints that it holds now.
    #[must_use]
    pub fn checkpoints(&self) -> usize {
        self.marks.len()
    }
}
