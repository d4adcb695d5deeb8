//! The engine: a loaded model and the one runtime that all its sessions share.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use parking_lot::{FairMutex, FairMutexGuard, Mutex};
use slotstream_checkpoint::Checkpoint;
use slotstream_checkpoint::container::Container;
use slotstream_core::{
    CancelToken, PassId, ReadCounters, ReadError, ReadQueue, ReaderMode, RecordReader, SessionId,
};
use slotstream_experts::{PrefillSweep, StreamingExperts};
use slotstream_ngram::NgramStore;
use slotstream_qwen::QwenModel;

use crate::builder::EngineBuilder;
use crate::lock::{Guard, ModelLockState};
use crate::metrics::Reading;
use crate::mirrors::Mirror;
use crate::resize::Elastic;
use crate::retained::Retained;
use crate::session_file::SessionIdentity;
use crate::turns::{Turn, Turns};
use crate::{Error, MemoryPlan, MirrorShare, Session, SessionOptions};

/// A loaded model. Cheap to clone; clones share everything. Any number of sessions may be alive;
/// their passes take turns in the order in which they asked.
#[derive(Clone, Debug)]
pub struct Engine(pub(crate) Arc<Inner>);

#[derive(Debug)]
pub(crate) struct Inner {
    /// Which engine of this process it is: two on one folder may differ in all but the folder.
    pub(crate) number: u64,
    pub(crate) folder: PathBuf,
    pub(crate) checkpoint: Arc<Checkpoint>,
    pub(crate) container: Option<Arc<Container>>,
    pub(crate) model: QwenModel,
    pub(crate) plan: MemoryPlan,
    pub(crate) retained: Retained,
    pub(crate) elastic: Elastic,
    pub(crate) lock: Guard,
    pub(crate) policy: String,
    pub(crate) mode: ReaderMode,
    pub(crate) mirror: Option<Mirror>,
    pub(crate) context: usize,
    pub(crate) chunk: usize,
    pub(crate) sweep: PrefillSweep,
    pub(crate) rollback_rows: usize,
    pub(crate) checkpoint_every: usize,
    pub(crate) logit_rows: usize,
    pub(crate) lanes: usize,
    pub(crate) threads: usize,
    pub(crate) load_time: Duration,
    pub(crate) sessions: AtomicU64,
    #[cfg(feature = "text")]
    pub(crate) text: crate::text_parts::TextParts,
    pub(crate) reader: Arc<dyn RecordReader>,
    /// What session files are bound to, once it was asked for.
    pub(crate) identity: OnceLock<SessionIdentity>,
    /// Set once a file of the model is found changed; no pass runs after that.
    pub(crate) changed: OnceLock<Arc<ReadError>>,
    /// Sessions whose past the forecaster is to forget before the next pass.
    pub(crate) forget: Mutex<Vec<SessionId>>,
    /// Who may run a pass.
    pub(crate) turns: Turns,
    pub(crate) runtime: FairMutex<Runtime>,
}

/// What only one pass at a time may use.
#[derive(Debug)]
pub(crate) struct Runtime {
    pub(crate) experts: StreamingExperts,
    pub(crate) ngram: Option<NgramStore>,
    queue: Arc<dyn ReadQueue>,
    /// What was read until the end of the last pass: rows that are requested between two passes
    /// are counted with the later one.
    counted: ReadCounters,
    passes: u64,
    /// Set while a pass runs: found set, an earlier pass ended by a panic.
    busy: bool,
}

/// Engines that this process has built.
static ENGINES: AtomicU64 = AtomicU64::new(0);

/// The number of the next engine.
pub(crate) fn next_number() -> u64 {
    ENGINES.fetch_add(1, Ordering::Relaxed)
}

impl Runtime {
    pub(crate) fn new(
        experts: StreamingExperts,
        ngram: Option<NgramStore>,
        queue: Arc<dyn ReadQueue>,
    ) -> Self {
        Self { experts, ngram, counted: queue.counters(), queue, passes: 0, busy: false }
    }

    pub(crate) fn next_pass(&mut self) -> PassId {
        self.passes += 1;
        PassId::new(self.passes)
    }

    pub(crate) const fn set_busy(&mut self, busy: bool) {
        self.busy = busy;
    }

    fn read_counters(&self, queue: ReadCounters) -> Reading {
        Reading {
            pool: *self.experts.pool().counters(),
            experts: *self.experts.metrics(),
            ahead: self.experts.lookahead().total(),
            ngram: self.ngram.as_ref().map(|store| *store.metrics()),
            queue,
        }
    }

    /// The counters at the beginning of a pass.
    pub(crate) fn before_pass(&self) -> Reading {
        self.read_counters(self.counted)
    }

    /// The counters at its end.
    pub(crate) fn after_pass(&mut self) -> Reading {
        self.counted = self.queue.counters();
        self.read_counters(self.counted)
    }
}

impl Engine {
    /// Starts building an engine for the model in `folder`.
    #[must_use]
    pub fn builder(folder: impl AsRef<Path>) -> EngineBuilder {
        EngineBuilder::new(folder.as_ref())
    }

    /// Starts an empty sequence.
    ///
    /// # Errors
    /// [`Error::Sampling`] for illegal sampling parameters, [`Error::State`] when the sessions that
    /// are alive have taken what was planned for their state.
    pub fn session(&self, options: SessionOptions) -> Result<Session, Error> {
        Session::new(self.clone(), options)
    }

    /// The number of the next session.
    pub(crate) fn next_session(&self) -> SessionId {
        SessionId::new(self.0.sessions.fetch_add(1, Ordering::Relaxed))
    }

    /// The repacked container that records and n-gram rows are read from; `None`: the shards.
    #[must_use]
    pub fn container(&self) -> Option<&Container> {
        self.0.container.as_deref()
    }

    /// The validated checkpoint.
    #[must_use]
    pub fn checkpoint(&self) -> &Checkpoint {
        &self.0.checkpoint
    }

    /// What became of the lock that says that this process runs the model.
    #[must_use]
    pub fn lock_state(&self) -> &ModelLockState {
        &self.0.lock.state
    }

    /// The memory plan, as it was when the engine was built; see
    /// [`current_plan`](Self::current_plan).
    #[must_use]
    pub fn plan(&self) -> &MemoryPlan {
        &self.0.plan
    }

    /// The graph.
    #[must_use]
    pub fn model(&self) -> &QwenModel {
        &self.0.model
    }

    /// The policy's name.
    #[must_use]
    pub fn policy_name(&self) -> &str {
        &self.0.policy
    }

    /// What the reader really does, and why: as it was found at the opening.
    #[must_use]
    pub fn reader_mode(&self) -> &ReaderMode {
        &self.0.mode
    }

    /// What each copy of a mirrored model has read so far, loading included: the model's own
    /// folder first, then the mirrors in the order in which they were given. Empty without one.
    #[must_use]
    pub fn mirror_shares(&self) -> Vec<MirrorShare> {
        self.0.mirror.as_ref().map_or_else(Vec::new, Mirror::shares)
    }

    /// The arithmetic: `exact` or `fast`.
    #[must_use]
    pub fn arithmetic(&self) -> &'static str {
        self.0.model.ops().arithmetic()
    }

    /// The kernels' name: instruction set and threads.
    #[must_use]
    pub fn kernels(&self) -> String {
        self.0.model.ops().name()
    }

    /// Threads that read.
    #[must_use]
    pub fn lanes(&self) -> usize {
        self.0.lanes
    }

    /// Threads that compute, as asked for; an op set of one's own may use others.
    #[must_use]
    pub fn threads(&self) -> usize {
        self.0.threads
    }

    /// Most tokens of a prefill pass.
    #[must_use]
    pub fn chunk(&self) -> usize {
        self.0.chunk
    }

    /// When a prefill pass is swept.
    #[must_use]
    pub fn prefill_sweep(&self) -> PrefillSweep {
        self.0.sweep
    }

    /// Rows of the next pass where `left` tokens wait: as many as fit. Passes that could be swept
    /// are alike, so that no small one is left for the pool.
    pub(crate) fn pass_rows(&self, left: usize) -> usize {
        let chunk = self.0.chunk.max(1);
        match self.0.sweep.rows() {
            Some(rows) if rows <= chunk => left.div_ceil(left.div_ceil(chunk).max(1)),
            _ => left.min(chunk),
        }
    }

    /// Time that [`EngineBuilder::build`] took.
    #[must_use]
    pub fn load_time(&self) -> Duration {
        self.0.load_time
    }

    /// Longest context of a session.
    #[must_use]
    pub fn context(&self) -> usize {
        self.0.context
    }

    /// Tokens that end a generation: all of `generation_config.json`, or the text config's.
    #[must_use]
    pub fn eos_tokens(&self) -> &[u32] {
        let generation = &self.0.checkpoint.generation().eos_token_ids;
        if generation.is_empty() { &self.0.checkpoint.config().eos_token_ids } else { generation }
    }

    /// Looks at the provider between two passes: counters, pool content, validation.
    pub fn inspect<T>(&self, look: impl FnOnce(&StreamingExperts) -> T) -> T {
        look(&self.0.runtime.lock().experts)
    }

    /// Whether the files are still those that were opened. Once they are not, they never are
    /// again: what was read before may not fit to what would be read after.
    pub(crate) fn check_unchanged(&self) -> Result<(), Error> {
        let inner = &*self.0;
        if inner.changed.get().is_none()
            && let Err(error) = inner.reader.check_unchanged()
        {
            // The first finding stays.
            let _ = inner.changed.set(Arc::new(error));
        }
        inner.changed.get().map_or(Ok(()), |source| Err(Error::changed(&inner.folder, source)))
    }

    /// Requests the n-gram rows of `token`, which follows `context`, before its pass begins. Not
    /// while another session has its turn: nobody waits for this. A failure will show again when
    /// the pass asks.
    pub(crate) fn request_ahead(&self, context: &[u32], token: u32) {
        if let Some(mut runtime) = self.0.runtime.try_lock()
            && !runtime.busy
            && let Some(store) = &mut runtime.ngram
            && let Err(error) = store.request_ahead(context, &[token])
        {
            tracing::debug!(%error, "n-gram rows that could not be requested ahead");
        }
    }

    /// Waits for the turn of a pass, unless `cancel` is set first.
    pub(crate) fn turn(&self, cancel: &CancelToken) -> Result<Turn<'_>, Error> {
        self.0.turns.take(cancel).ok_or(Error::Cancelled { during: "while others had their turns" })
    }

    /// What a pass runs with; whoever has the turn takes it. After a pass that ended by a panic the pool is emptied first, so
    /// that nothing half-done is ever used.
    pub(crate) fn runtime(&self) -> Result<FairMutexGuard<'_, Runtime>, Error> {
        let mut runtime = self.0.runtime.lock();
        if runtime.busy {
            runtime.experts.clear();
            if runtime.experts.pool().validate().is_err() {
                return Err(Error::Poisoned { folder: self.0.folder.clone() });
            }
            runtime.busy = false;
        }
        for session in std::mem::take(&mut *self.0.forget.lock()) {
            runtime.experts.forget(session);
        }
        Ok(runtime)
    }
}
