//! One sequence: tokens, state, sampler.

mod ids;
mod kept;
mod marks;
mod moments;
mod reuse;
mod score;

use std::time::Instant;

use slotstream_core::{CancelToken, ErrorKind, Phase, SessionId, Step};
use slotstream_experts::{PassHints, PromptPass};
use slotstream_qwen::{Logits, Pass, State};

pub use ids::{FinishReason, TokenIter};
pub use moments::Snapshot;

use marks::Marks;

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
/// A pass that fails (a read error, a cancellation, a deadline) never leaves a wrong token behind:
/// the session keeps its tokens, all parts of its state go back together to the nearest checkpoint,
/// and the next call runs again what the state has lost. A model file that changes while it is in
/// use ends every session with [`Error::Changed`].
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
    deadline: Option<Instant>,
    marks: Marks,
    /// Whatever the caller wants to keep with the session.
    note: Vec<u8>,
    metrics: Metrics,
    first_prefill: Option<Instant>,
    last_token: Option<Instant>,
}

impl Session {
    pub(crate) fn new(engine: Engine, options: SessionOptions) -> Result<Self, Error> {
        let sampler = Sampler::new(options.sampling)?;
        let held = Held::of(&engine.0, 0)?;
        let state = engine.0.model.new_state(engine.0.context, engine.0.rollback_rows)?;
        let mut session = Self::of_parts(engine, (state, held), sampler);
        session.cancel = options.cancel;
        Ok(session)
    }

    /// A session without a token, in this state.
    fn of_parts(engine: Engine, (state, held): (State, Held), sampler: Sampler) -> Self {
        Self {
            id: engine.next_session(),
            marks: Marks::new(engine.0.plan.checkpoints),
            note: Vec::new(),
            engine,
            state,
            held,
            tokens: Vec::new(),
            prompt_end: 0,
            logits: Vec::new(),
            logits_at: 0,
            sampler,
            cancel: CancelToken::new(),
            deadline: None,
            metrics: Metrics::default(),
            first_prefill: None,
            last_token: None,
        }
    }

    /// What ends this session's work early: its token and its deadline.
    pub(crate) fn cancel_token(&self) -> CancelToken {
        match self.deadline {
            Some(deadline) => self.cancel.with_deadline(deadline),
            None => self.cancel.clone(),
        }
    }

    /// An error of cancelled work by its reason.
    pub(crate) fn ended(&self, error: impl Into<Error>) -> Error {
        let error = error.into();
        if error.kind() == ErrorKind::Cancelled && self.cancel_token().is_past_deadline() {
            return Error::Deadline { source: Box::new(error) };
        }
        error
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
        self.check(self.tokens.len(), tokens)?;
        self.first_prefill.get_or_insert_with(Instant::now);
        self.tokens.extend_from_slice(tokens);
        self.prompt_end = self.tokens.len();
        self.catch_up(&mut progress)
    }

    /// Whether these tokens may follow the first `position` ones.
    fn check(&self, position: usize, tokens: &[u32]) -> Result<(), Error> {
        let vocab_size = self.engine.0.model.config().vocab_size;
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
        self.check(self.tokens.len(), &[0])?;
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
        let (first, total) = (self.seen()?, self.tokens.len());
        let mut seen = first;
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
            self.mark();
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
        let cancel = self.cancel_token();
        let _turn = self.engine.turn(&cancel).map_err(|error| self.ended(error))?;
        let mut runtime = self.engine.runtime()?;
        runtime.set_busy(true);
        let begun = Instant::now();
        let before = runtime.before_pass();
        let step = Step {
            pass: runtime.next_pass(),
            phase,
            session: self.id,
            position: start as u64,
            tokens: &self.tokens[start..end],
        };
        let _span = tracing::debug_span!("pass", position = start, rows = end - start).entered();
        let pass = Pass::new(step).with_logits(logits).with_cancel(&cancel);
        let crate::engine::Runtime { experts, ngram, .. } = &mut *runtime;
        let mut hints = PassHints::new().with_cancel(cancel.clone());
        hints.prompt = prompt.filter(|_| !decode);
        experts.hint(hints);
        let output = inner.model.forward(&mut self.state, &pass, experts, ngram.as_mut());
        let metrics = runtime.after_pass().since(&before, end - start, begun.elapsed());
        runtime.set_busy(false);
        drop(runtime);
        // After the reads and before anything is given out: also the reason of a failed read.
        self.engine.check_unchanged()?;
        match phase {
            Phase::Decode => self.metrics.decode.add(&metrics),
            _ => self.metrics.prefill.add(&metrics),
        }
        let output = output.map_err(|error| self.ended(error))?;
        let Some(logits) = output.logits else { return Ok(None) };
        let values = slotstream_qwen::to_host(&logits)?;
        self.engine.0.model.ops().recycle(logits);
        slotstream_qwen::check_logits(self.engine.0.model.config(), &step, &values)?;
        Ok(Some(values))
    }

    /// Lets `token` end passes from now on, in place of the one before: a token once set stays
    /// set, so this is how a session goes on after a cancellation.
    pub fn set_cancel(&mut self, token: CancelToken) {
        self.cancel = token;
    }

    /// Lets passes end with [`Error::Deadline`] when this moment has come, until another one or none
    /// is set. Like a cancel token it is looked at before every layer and while reads are waited
    /// for; a read that is under way is waited for to its end.
    pub const fn set_deadline(&mut self, deadline: Option<Instant>) {
        self.deadline = deadline;
    }

    /// Samples by `sampling` from now on, from the beginning of its stream of draws.
    ///
    /// # Errors
    /// [`Error::Sampling`] for illegal parameters; the session is then as it was.
    pub fn set_sampling(&mut self, sampling: SamplingParams) -> Result<(), Error> {
        self.sampler = Sampler::new(sampling)?;
        Ok(())
    }

    /// The forecaster's memory of this sequence no longer holds.
    fn forget(&self) {
        if !self.tokens.is_empty() {
            self.engine.0.forget.lock().push(self.id);
        }
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

    /// What was given to [`set_note`](Self::set_note); empty at first.
    #[must_use]
    pub fn note(&self) -> &[u8] {
        &self.note
    }

    /// Keeps some bytes of yours with the session, such as the messages that its tokens were made of:
    /// they go with it into a file and into forks. Means nothing here.
    ///
    /// # Errors
    /// [`Error::Option`] for more than 16 MiB.
    pub fn set_note(&mut self, note: impl Into<Vec<u8>>) -> Result<(), Error> {
        let note = note.into();
        if note.len() > crate::session_file::MOST_NOTE {
            let (option, value) = ("note", format!("{} bytes", note.len()));
            return Err(Error::Option { option, value, expected: "at most 16 MiB" });
        }
        self.note = note;
        Ok(())
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
        TokenIter::new(self, max_tokens)
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        self.forget();
    }
}
