//! One sequence: tokens, state, sampler.

mod score;

use std::sync::Arc;
use std::time::Instant;

use slotstream_core::{CancelToken, ErrorKind, Phase, SessionId, Step};
use slotstream_experts::{PassHints, PromptPass};
use slotstream_qwen::{Logits, Pass, State};

use crate::retained::Held;
use crate::sampling::{Sampler, SamplingParams};
use crate::{Engine, Error, Metrics};

/// How a session samples and when it stops.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct SessionOptions {
    /// How tokens are chosen; greedy unless said otherwise.
    pub sampling: SamplingParams,
    /// Ends running passes when set; looked at before every layer.
    pub cancel: CancelToken,
}

impl SessionOptions {
    /// Greedy, never cancelled.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Chooses how tokens are sampled.
    #[must_use]
    pub const fn with_sampling(mut self, sampling: SamplingParams) -> Self {
        self.sampling = sampling;
        self
    }

    /// Lets `token` end running passes.
    #[must_use]
    pub fn with_cancel(mut self, token: CancelToken) -> Self {
        self.cancel = token;
        self
    }
}

/// One sequence of a model. [`prefill`](Self::prefill) gives it tokens,
/// [`next`](Self::next) generates one.
///
/// A pass that fails (a read error, a cancellation) never leaves a wrong token behind: the
/// session keeps its tokens, and the next call runs again what the state has lost. A model file
/// that changes while it is in use ends every session with [`Error::Changed`].
#[derive(Debug)]
pub struct Session {
    engine: Engine,
    id: SessionId,
    state: State,
    /// What of the planned state is its own.
    held: Held,
    tokens: Vec<u32>,
    /// Where the last prompt ended: tokens from here on were generated.
    prompt_end: usize,
    /// Logits after the first `logits_at` tokens; of no use when that is 0.
    logits: Vec<f32>,
    logits_at: usize,
    sampler: Sampler,
    cancel: CancelToken,
    marks: Vec<Snapshot>,
    metrics: Metrics,
    first_prefill: Option<Instant>,
    last_token: Option<Instant>,
}

/// A moment of a session to come back to.
#[derive(Clone, Debug)]
pub struct Snapshot(Arc<Moment>);

#[derive(Debug)]
struct Moment {
    /// The number of its engine.
    engine: u64,
    folder: std::path::PathBuf,
    session: SessionId,
    state: State,
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
    pub(crate) fn new(
        engine: Engine,
        id: SessionId,
        options: SessionOptions,
    ) -> Result<Self, Error> {
        let held = Held::empty(&engine.0)?;
        let state = engine.0.model.new_state(engine.0.context, engine.0.rollback_rows)?;
        Ok(Self {
            engine,
            id,
            state,
            held,
            tokens: Vec::new(),
            prompt_end: 0,
            logits: Vec::new(),
            logits_at: 0,
            sampler: Sampler::new(options.sampling)?,
            cancel: options.cancel,
            marks: Vec::new(),
            metrics: Metrics::default(),
            first_prefill: None,
            last_token: None,
        })
    }

    /// What ends this session's work early.
    #[cfg(feature = "text")]
    pub(crate) const fn cancel_token(&self) -> &CancelToken {
        &self.cancel
    }

    /// Appends prompt tokens and runs them in chunks.
    ///
    /// # Errors
    /// [`Error::Model`] for a token that the model does not know or a prompt longer than the
    /// context (nothing is appended), or when a pass fails (the tokens stay; the next call runs
    /// them).
    pub fn prefill(&mut self, tokens: &[u32]) -> Result<(), Error> {
        self.prefill_with(tokens, |_, _| {})
    }

    /// [`prefill`](Self::prefill), telling after each chunk how many tokens have run, and of how
    /// many.
    ///
    /// # Errors
    /// As [`prefill`](Self::prefill).
    pub fn prefill_with(
        &mut self,
        tokens: &[u32],
        mut progress: impl FnMut(usize, usize),
    ) -> Result<(), Error> {
        self.check(tokens)?;
        self.first_prefill.get_or_insert_with(Instant::now);
        self.tokens.extend_from_slice(tokens);
        self.prompt_end = self.tokens.len();
        self.catch_up(&mut progress)
    }

    fn check(&self, tokens: &[u32]) -> Result<(), Error> {
        let (vocab_size, position) = (self.engine.0.model.config().vocab_size, self.tokens.len());
        if position + tokens.len() > self.engine.0.context {
            let (tokens, context) = (tokens.len(), self.engine.0.context);
            return Err(
                slotstream_qwen::QwenError::context(position as u64, tokens, context).into()
            );
        }
        match tokens.iter().position(|t| *t as usize >= vocab_size) {
            Some(i) => {
                Err(slotstream_qwen::QwenError::token(tokens[i], (position + i) as u64, vocab_size)
                    .into())
            }
            None => Ok(()),
        }
    }

    /// Generates one token and appends it. The token itself runs through the graph when the next
    /// one is asked for; what it needs of the n-gram table is requested at once.
    ///
    /// # Errors
    /// [`Error::NoPrompt`] before the first prefill; [`Error::Model`] when the context is full or
    /// a pass fails; [`Error::Sampling`] when the logits are unusable. Calling again is safe.
    #[expect(clippy::should_implement_trait, reason = "it never ends: the iterators do")]
    pub fn next(&mut self) -> Result<u32, Error> {
        let token = self.one_more()?;
        self.look_ahead();
        Ok(token)
    }

    /// Requests the n-gram rows of the token that was just generated: the caller may take its time.
    fn look_ahead(&self) {
        if let Some(token) = self.tokens.last() {
            self.engine.request_ahead(self.state.token_window(), *token);
        }
    }

    fn one_more(&mut self) -> Result<u32, Error> {
        if self.tokens.is_empty() {
            return Err(Error::NoPrompt {});
        }
        // Where there is no room for the token, fail before computing it.
        self.check(&[0])?;
        self.catch_up(&mut |_, _| {})?;
        let token = self.sampler.sample(&self.logits, &self.tokens[self.prompt_end..])?;
        self.tokens.push(token);
        self.count_token();
        Ok(token)
    }

    fn count_token(&mut self) {
        let now = Instant::now();
        self.metrics.generated += 1;
        if self.metrics.time_to_first_token.is_none() {
            self.metrics.time_to_first_token = self.first_prefill.map(|t| now - t);
        } else if let Some(last) = self.last_token {
            self.metrics.decode_time += now - last;
        }
        self.last_token = Some(now);
    }

    /// Runs the tokens that the state has not seen, the last one with logits.
    fn catch_up(&mut self, progress: &mut dyn FnMut(usize, usize)) -> Result<(), Error> {
        if self.state.is_dirty() {
            self.fall_back(self.tokens.len())?;
        }
        let total = self.tokens.len();
        let mut seen = self.state.position() as usize;
        if seen == total && self.logits_at != total && total > 0 {
            // The state is past the last token but its logits are gone.
            self.fall_back(total - 1)?;
            seen = self.state.position() as usize;
        }
        let first = seen;
        while seen < total {
            let end = seen + self.engine.pass_rows(total - seen);
            let last = end == total;
            let wanted = if last { Logits::Last } else { Logits::None };
            let prompt = Some(PromptPass { first: seen == first, last });
            if let Some(logits) = self.run(seen, end, wanted, prompt)? {
                self.logits = logits;
                self.logits_at = total;
            }
            seen = end;
            progress(seen - first, total - first);
        }
        Ok(())
    }

    /// Takes a turn and runs `tokens[start..end]`; finite logits of the rows asked for, on the
    /// host.
    fn run(
        &mut self,
        start: usize,
        end: usize,
        logits: Logits,
        prompt: Option<PromptPass>,
    ) -> Result<Option<Vec<f32>>, Error> {
        self.held.reach(end)?;
        let inner = &self.engine.0;
        let decode = end - start == 1 && start >= self.prompt_end;
        let phase = if decode { Phase::Decode } else { Phase::Prefill };
        let mut runtime = self.engine.runtime()?;
        runtime.set_busy(true);
        let begun = Instant::now();
        let before = runtime.before_pass(&**inner.model.ops());
        let step = Step {
            pass: runtime.next_pass(),
            phase,
            session: self.id,
            position: start as u64,
            tokens: &self.tokens[start..end],
        };
        let _span = tracing::debug_span!("pass", position = start, rows = end - start).entered();
        let pass = Pass::new(step).with_logits(logits).with_cancel(&self.cancel);
        let crate::engine::Runtime { experts, ngram, .. } = &mut *runtime;
        let mut hints = PassHints::new().with_cancel(self.cancel.clone());
        hints.prompt = prompt.filter(|_| !decode);
        experts.hint(hints);
        let output = inner.model.forward(&mut self.state, &pass, experts, ngram.as_mut());
        let after = runtime.after_pass(&**inner.model.ops());
        let metrics = after.since(&before, end - start, begun.elapsed());
        runtime.set_busy(false);
        drop(runtime);
        // After the reads and before anything is given out: also the reason of a failed read.
        self.engine.check_unchanged()?;
        match phase {
            Phase::Decode => self.metrics.decode.add(&metrics),
            _ => self.metrics.prefill.add(&metrics),
        }
        let Some(logits) = output?.logits else { return Ok(None) };
        let values = slotstream_qwen::to_host(&logits)?;
        self.engine.0.model.ops().recycle(logits);
        slotstream_qwen::check_logits(self.engine.0.model.config(), &step, &values)?;
        Ok(Some(values))
    }

    /// Replaces the state by one that has seen at most `len` tokens of this sequence: rolled
    /// back, or copied from the nearest snapshot, or empty.
    fn fall_back(&mut self, len: usize) -> Result<(), Error> {
        let near = self.state.position().saturating_sub(len as u64);
        if !self.state.is_dirty() && near <= self.state.undoable() as u64 {
            self.logits_at = 0;
            return Ok(self.state.truncate(len as u64)?);
        }
        let fits = |mark: &&Snapshot| {
            let seen = mark.0.state.position() as usize;
            seen <= len && self.tokens[..seen] == mark.0.tokens[..seen]
        };
        let nearest = self.marks.iter().filter(fits).max_by_key(|mark| mark.0.state.position());
        let inner = &self.engine.0;
        self.state = match nearest {
            Some(mark) => mark.0.state.snapshot()?,
            None => inner.model.new_state(inner.context, inner.rollback_rows)?,
        };
        self.logits_at = 0;
        Ok(())
    }

    /// Keeps the first `len` tokens, all of them when there are no more. Goes back by the state's ring where it reaches, else to the
    /// nearest snapshot; tokens after that run again with the next call.
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
        self.marks.retain(|mark| mark.0.tokens.len() <= len);
        Ok(())
    }

    /// Remembers this moment. The session keeps a reference too, so that
    /// [`truncate`](Self::truncate) can use it; [`forget_snapshots`](Self::forget_snapshots)
    /// drops those.
    ///
    /// # Errors
    /// [`Error::Model`] when a pass that had to run, or the device, fails.
    pub fn snapshot(&mut self) -> Result<Snapshot, Error> {
        if self.state.is_dirty() {
            self.catch_up(&mut |_, _| {})?;
        }
        let snapshot = Snapshot(Arc::new(Moment {
            engine: self.engine.0.number,
            folder: self.engine.0.folder.clone(),
            session: self.id,
            state: self.state.snapshot()?,
            tokens: self.tokens.clone(),
            prompt_end: self.prompt_end,
            logits: self.logits.clone(),
            logits_at: self.logits_at,
            sampler: self.sampler.clone(),
        }));
        self.marks.push(snapshot.clone());
        Ok(snapshot)
    }

    /// Comes back to an earlier moment, its random numbers included.
    ///
    /// # Errors
    /// [`Error::ForeignSnapshot`] for one of another session or engine, [`Error::Model`] when the device
    /// refuses.
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
        self.state = moment.state.snapshot()?;
        self.forget();
        self.tokens.clone_from(&moment.tokens);
        self.prompt_end = moment.prompt_end;
        self.sampler = moment.sampler.clone();
        self.logits.clone_from(&moment.logits);
        self.logits_at = moment.logits_at;
        Ok(())
    }

    /// Lets `token` end passes from now on, in place of the one before: a token once set stays
    /// set, so this is how a session goes on after a cancellation.
    pub fn set_cancel(&mut self, token: CancelToken) {
        self.cancel = token;
    }

    /// The forecaster's memory of this sequence no longer holds.
    fn forget(&self) {
        if !self.tokens.is_empty() {
            self.engine.0.forget.lock().push(self.id);
        }
    }

    /// Drops the session's own references to its snapshots. Those that you hold can still be
    /// restored.
    pub fn forget_snapshots(&mut self) {
        self.marks.clear();
    }

    /// Under which number policies, forecasters and recordings know the session.
    #[must_use]
    pub const fn id(&self) -> SessionId {
        self.id
    }

    /// All tokens: prompt and generated.
    #[must_use]
    pub fn tokens(&self) -> &[u32] {
        &self.tokens
    }

    /// Tokens generated since the last prefill.
    #[must_use]
    pub fn generated(&self) -> &[u32] {
        &self.tokens[self.prompt_end..]
    }

    /// Logits after the last token that ran, `[vocab_size]`; empty before the first pass.
    #[must_use]
    pub fn logits(&self) -> &[f32] {
        if self.logits_at > 0 && self.logits_at == self.tokens.len() { &self.logits } else { &[] }
    }

    /// What was counted.
    #[must_use]
    pub const fn metrics(&self) -> &Metrics {
        &self.metrics
    }

    /// Counts from zero again.
    pub fn reset_metrics(&mut self) {
        self.metrics = Metrics::default();
        self.first_prefill = None;
        self.last_token = None;
    }

    /// The engine.
    #[must_use]
    pub const fn engine(&self) -> &Engine {
        &self.engine
    }

    /// Generates up to `max_tokens` tokens, one an item, until a token ends the text.
    pub fn generate_ids(&mut self, max_tokens: usize) -> TokenIter<'_> {
        TokenIter { session: self, left: max_tokens, ignore_eos: false, finish: None }
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        self.forget();
    }
}

/// Why a generation ended.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum FinishReason {
    /// A token of [`Engine::eos_tokens`] was generated.
    Eos(u32),
    /// A stop string appeared.
    Stop(String),
    /// As many tokens as asked for were generated.
    Length,
    /// The context is full.
    Context,
    /// The session's cancel token was set.
    Cancelled,
    /// Another error was returned.
    Failed,
}

/// Generates tokens, one an item. Ends after an error.
#[derive(Debug)]
pub struct TokenIter<'s> {
    session: &'s mut Session,
    left: usize,
    ignore_eos: bool,
    finish: Option<FinishReason>,
}

impl TokenIter<'_> {
    /// Goes on after tokens that end the text.
    #[must_use]
    pub const fn ignoring_eos(mut self, ignore: bool) -> Self {
        self.ignore_eos = ignore;
        self
    }

    /// Why it ended; `None` while it has not.
    #[must_use]
    pub const fn finish_reason(&self) -> Option<&FinishReason> {
        self.finish.as_ref()
    }

    /// The session.
    #[must_use]
    pub const fn session(&self) -> &Session {
        self.session
    }

    /// Ends the generation for a reason found outside, such as a stop string.
    #[cfg(feature = "text")]
    pub(crate) fn end(&mut self, reason: FinishReason) {
        self.finish = Some(reason);
    }
}

impl Iterator for TokenIter<'_> {
    type Item = Result<u32, Error>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.finish.is_some() {
            return None;
        }
        if self.left == 0 {
            self.finish = Some(FinishReason::Length);
            return None;
        }
        if self.session.tokens.len() >= self.session.engine.0.context {
            self.finish = Some(FinishReason::Context);
            return None;
        }
        self.left -= 1;
        let token = match self.session.one_more() {
            Ok(token) => token,
            Err(error) => {
                let cancelled = error.kind() == ErrorKind::Cancelled;
                self.finish =
                    Some(if cancelled { FinishReason::Cancelled } else { FinishReason::Failed });
                return Some(Err(error));
            }
        };
        if !self.ignore_eos && self.session.engine.eos_tokens().contains(&token) {
            self.finish = Some(FinishReason::Eos(token));
        } else if self.left > 0 {
            self.session.look_ahead();
        }
        Some(Ok(token))
    }
}
