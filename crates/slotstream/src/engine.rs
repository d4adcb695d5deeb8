//! The engine: a loaded model and the one runtime that all its sessions share.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use parking_lot::{FairMutex, FairMutexGuard};
use slotstream_candle::{HostOps, Ops};
use slotstream_checkpoint::{Checkpoint, NormForm};
use slotstream_core::{
    CancelToken, EventSink, EvictionPolicy, Forecaster, NoForecast, PassId, ReadQueue, ReaderMode,
    RecordReader, SessionId,
};
use slotstream_experts::StreamingExperts;
use slotstream_io::{LaneQueue, ReaderKind, open_reader};
use slotstream_kernels::Cpu;
use slotstream_ngram::NgramStore;
use slotstream_qwen::{LoadProgress, MAX_ROLLBACK, QwenModel};

use crate::metrics::Reading;
use crate::plan::PlanRequest;
use crate::{CheckpointIndex, Error, MemoryPlan, Session, SessionOptions, Sizing, machine};

/// Opens the shards of a checkpoint: paths in, reader out.
pub type OpenReader = Box<
    dyn FnOnce(
        &[PathBuf],
    ) -> Result<Arc<dyn RecordReader>, Box<dyn std::error::Error + Send + Sync>>,
>;

/// Where the arithmetic runs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum DeviceKind {
    /// The CPU.
    #[default]
    Cpu,
    /// Apple's Metal. Not yet available; asking for it is an error.
    Metal,
}

/// Builds an [`Engine`]. Every part has a default; replace the ones you care about.
pub struct EngineBuilder {
    folder: PathBuf,
    sizing: Sizing,
    policy: Box<dyn EvictionPolicy>,
    forecaster: Box<dyn Forecaster>,
    sink: Option<Box<dyn EventSink>>,
    reader: Source,
    ops: Option<Arc<dyn Ops>>,
    device: DeviceKind,
    lanes: usize,
    threads: usize,
    chunk: usize,
    context: Option<usize>,
    rollback_rows: usize,
    logit_rows: usize,
    ngram_cache_rows: usize,
    norms: Option<NormForm>,
    cancel: CancelToken,
    progress: Box<dyn FnMut(LoadProgress)>,
}

enum Source {
    Kind(ReaderKind),
    Own(OpenReader),
}

impl std::fmt::Debug for EngineBuilder {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("EngineBuilder").field("folder", &self.folder).finish_non_exhaustive()
    }
}

/// Longest context when none is asked for.
const DEFAULT_CONTEXT: usize = 4096;
/// Most rows of a prefill pass when nothing else is asked for.
const DEFAULT_CHUNK: usize = 64;
/// Most lanes and threads: beyond this a number is a mistake.
const MOST: usize = 1024;

impl EngineBuilder {
    fn new(folder: &Path) -> Self {
        let cores = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
        Self {
            folder: folder.into(),
            sizing: Sizing::Auto,
            policy: Box::new(slotstream_cache::Clock::new()),
            forecaster: Box::new(NoForecast),
            sink: None,
            reader: Source::Kind(ReaderKind::Auto),
            ops: None,
            device: DeviceKind::Cpu,
            lanes: 8,
            threads: cores,
            chunk: DEFAULT_CHUNK,
            context: None,
            rollback_rows: 0,
            logit_rows: 1,
            ngram_cache_rows: 16_384,
            norms: None,
            cancel: CancelToken::new(),
            progress: Box::new(|_| {}),
        }
    }

    /// Sizes the pool; the default is [`Sizing::Auto`].
    #[must_use]
    pub const fn sizing(mut self, sizing: Sizing) -> Self {
        self.sizing = sizing;
        self
    }

    /// Replaces the eviction policy; the default is `clock`.
    #[must_use]
    pub fn policy(mut self, policy: Box<dyn EvictionPolicy>) -> Self {
        self.policy = policy;
        self
    }

    /// Replaces the forecaster; the default expects nothing. Its predictions are counted; no
    /// read starts from them yet.
    #[must_use]
    pub fn forecaster(mut self, forecaster: Box<dyn Forecaster>) -> Self {
        self.forecaster = forecaster;
        self
    }

    /// Tells every request and outcome to `sink`.
    #[must_use]
    pub fn sink(mut self, sink: Box<dyn EventSink>) -> Self {
        self.sink = Some(sink);
        self
    }

    /// Chooses a built-in reader; the default is [`ReaderKind::Auto`].
    #[must_use]
    pub fn reader(mut self, kind: ReaderKind) -> Self {
        self.reader = Source::Kind(kind);
        self
    }

    /// Reads through a reader of your own, opened from the shard paths.
    #[must_use]
    pub fn open_reader(mut self, open: OpenReader) -> Self {
        self.reader = Source::Own(open);
        self
    }

    /// Replaces the op set; the default is [`HostOps`] over the fastest CPU kernels.
    #[must_use]
    pub fn ops(mut self, ops: Arc<dyn Ops>) -> Self {
        self.ops = Some(ops);
        self
    }

    /// Chooses the device.
    #[must_use]
    pub const fn device(mut self, device: DeviceKind) -> Self {
        self.device = device;
        self
    }

    /// Threads that read; the default is 8.
    #[must_use]
    pub const fn lanes(mut self, lanes: usize) -> Self {
        self.lanes = lanes;
        self
    }

    /// Threads that compute; the default is one a core.
    #[must_use]
    pub const fn threads(mut self, threads: usize) -> Self {
        self.threads = threads;
        self
    }

    /// Most tokens of a prefill pass; the default is 64. Changes time and memory, never a token.
    #[must_use]
    pub const fn chunk(mut self, chunk: usize) -> Self {
        self.chunk = chunk;
        self
    }

    /// Longest context of a session; the default is 4096 tokens or what the model allows.
    #[must_use]
    pub const fn context(mut self, tokens: usize) -> Self {
        self.context = Some(tokens);
        self
    }

    /// Rows that a session can undo without running tokens again, at most
    /// [`MAX_ROLLBACK`]; the default is 0. Each costs one recurrent state of memory and one copy
    /// of it a token.
    #[must_use]
    pub const fn rollback_rows(mut self, rows: usize) -> Self {
        self.rollback_rows = rows;
        self
    }

    /// Most rows of a pass of [`Session::score`], whose logits are all kept; the default is 1,
    /// which is slow. Each costs one row of logits of memory.
    #[must_use]
    pub const fn logit_rows(mut self, rows: usize) -> Self {
        self.logit_rows = rows;
        self
    }

    /// Rows of the n-gram table to keep in memory; the default is 16,384.
    #[must_use]
    pub const fn ngram_cache_rows(mut self, rows: usize) -> Self {
        self.ngram_cache_rows = rows;
        self
    }

    /// Overrides the norm form that is otherwise decided from the weights.
    #[must_use]
    pub const fn norms(mut self, norms: NormForm) -> Self {
        self.norms = Some(norms);
        self
    }

    /// Lets loading end with an error of kind `Cancelled` when `token` is set.
    #[must_use]
    pub fn cancel(mut self, token: CancelToken) -> Self {
        self.cancel = token;
        self
    }

    /// Is told how far loading the dense weights has come.
    #[must_use]
    pub fn progress(mut self, progress: impl FnMut(LoadProgress) + 'static) -> Self {
        self.progress = Box::new(progress);
        self
    }

    fn check(&self) -> Result<(), Error> {
        let range = |option, value: usize, low: usize, high: usize, expected| {
            if (low..=high).contains(&value) {
                return Ok(());
            }
            Err(Error::Option { option, value: value.to_string(), expected })
        };
        range("lanes", self.lanes, 1, MOST, "1 to 1024")?;
        range("threads", self.threads, 1, MOST, "1 to 1024")?;
        range("chunk", self.chunk, 1, 1 << 16, "1 to 65536")?;
        range("logit rows", self.logit_rows, 1, 1 << 16, "1 to 65536")?;
        range("rollback rows", self.rollback_rows, 0, MAX_ROLLBACK, "0 to 8")?;
        range("n-gram cache rows", self.ngram_cache_rows, 0, 1 << 28, "0 to 2^28")?;
        if self.device == DeviceKind::Metal {
            let why = "this version computes on the CPU only; ask for `cpu`";
            return Err(Error::Device { device: "metal", why });
        }
        Ok(())
    }

    fn context_for(&self, checkpoint: &Checkpoint) -> Result<usize, Error> {
        let longest = checkpoint.config().max_position_embeddings;
        match self.context {
            None => Ok(DEFAULT_CONTEXT.min(longest)),
            Some(tokens) if (1..=longest).contains(&tokens) => Ok(tokens),
            Some(tokens) => Err(Error::Option {
                option: "context",
                value: tokens.to_string(),
                expected: "1 to the model's max_position_embeddings",
            }),
        }
    }

    /// The plan of this engine, without loading anything.
    ///
    /// # Errors
    /// As [`build`](Self::build), as far as headers tell.
    pub fn plan(&self) -> Result<MemoryPlan, Error> {
        self.check()?;
        let checkpoint = Checkpoint::open(&self.folder)?;
        let context = self.context_for(&checkpoint)?;
        MemoryPlan::new(&checkpoint, &self.request(&checkpoint, context))
    }

    fn request(&self, checkpoint: &Checkpoint, context: usize) -> PlanRequest {
        let in_memory = matches!(self.reader, Source::Kind(ReaderKind::Memory));
        let files: u64 = checkpoint.file_sizes().iter().sum();
        PlanRequest {
            sizing: self.sizing,
            context,
            sessions: 1,
            chunk: self.chunk,
            rollback_rows: self.rollback_rows,
            logit_rows: self.logit_rows,
            ngram_cache_rows: self.ngram_cache_rows,
            process_bytes: machine::resident_bytes().unwrap_or(0),
            available_bytes: machine::available_bytes(),
            reader_bytes: if in_memory { files } else { 0 },
        }
    }

    /// Opens the checkpoint, plans memory, loads the dense weights and reserves the pool.
    ///
    /// # Errors
    /// [`Error::Checkpoint`] for a damaged folder, [`Error::Budget`] with the arithmetic when the
    /// plan does not fit, [`Error::Option`] for a number out of range, and whatever opening,
    /// loading and reserving can answer.
    pub fn build(mut self) -> Result<Engine, Error> {
        let _span = tracing::info_span!("load", folder = %self.folder.display()).entered();
        let begun = Instant::now();
        self.check()?;
        let checkpoint = Arc::new(Checkpoint::open(&self.folder)?);
        let context = self.context_for(&checkpoint)?;
        let plan = MemoryPlan::new(&checkpoint, &self.request(&checkpoint, context))?;
        let reader = match self.reader {
            Source::Kind(kind) => open_reader(kind, checkpoint.files())?,
            Source::Own(open) => {
                open(checkpoint.files()).map_err(|source| Error::Reader { source })?
            }
        };
        let mode = reader.effective();
        let ops = match self.ops {
            Some(ops) => ops,
            None => Arc::new(HostOps::new(Arc::new(Cpu::new(self.threads)?))) as Arc<dyn Ops>,
        };
        let mut model = QwenModel::builder(&checkpoint, &*reader)
            .with_cancel(self.cancel)
            .with_progress(&mut *self.progress);
        if let Some(norms) = self.norms {
            model = model.with_norms(norms);
        }
        let model = model.load(Arc::clone(&ops))?;
        let queue: Arc<dyn ReadQueue> = Arc::new(LaneQueue::new(reader, self.lanes)?);
        let policy = self.policy.name();
        let layout = checkpoint.record_layout().clone();
        let mut experts = StreamingExperts::builder(checkpoint.geometry(), layout, plan.slots)
            .with_policy(self.policy)
            .with_forecaster(self.forecaster);
        if let Some(sink) = self.sink {
            experts = experts.with_sink(sink);
        }
        let index = Arc::new(CheckpointIndex::new(Arc::clone(&checkpoint)));
        let experts = experts.build(index, Arc::clone(&queue), ops)?;
        let ngram = checkpoint
            .ngram()
            .map(|plan| NgramStore::new(plan, self.ngram_cache_rows, Arc::clone(&queue)))
            .transpose()?;
        #[cfg(feature = "text")]
        let text =
            crate::text_parts::TextParts::load(&self.folder, checkpoint.config().vocab_size)?;
        let runtime = Runtime { experts, ngram, queue, passes: 0, busy: false };
        Ok(Engine(Arc::new(Inner {
            folder: self.folder,
            checkpoint,
            model,
            plan,
            policy,
            mode,
            context,
            chunk: self.chunk,
            rollback_rows: self.rollback_rows,
            logit_rows: self.logit_rows,
            lanes: self.lanes,
            threads: self.threads,
            load_time: begun.elapsed(),
            sessions: AtomicU64::new(0),
            #[cfg(feature = "text")]
            text,
            runtime: FairMutex::new(runtime),
        })))
    }
}

/// A loaded model. Cheap to clone; clones share everything. Any number of sessions may be alive;
/// their passes take turns in the order in which they asked.
#[derive(Clone, Debug)]
pub struct Engine(pub(crate) Arc<Inner>);

#[derive(Debug)]
pub(crate) struct Inner {
    pub(crate) folder: PathBuf,
    pub(crate) checkpoint: Arc<Checkpoint>,
    pub(crate) model: QwenModel,
    plan: MemoryPlan,
    policy: String,
    mode: ReaderMode,
    pub(crate) context: usize,
    pub(crate) chunk: usize,
    pub(crate) rollback_rows: usize,
    pub(crate) logit_rows: usize,
    lanes: usize,
    threads: usize,
    load_time: Duration,
    sessions: AtomicU64,
    #[cfg(feature = "text")]
    pub(crate) text: crate::text_parts::TextParts,
    runtime: FairMutex<Runtime>,
}

/// What only one pass at a time may use.
#[derive(Debug)]
pub(crate) struct Runtime {
    pub(crate) experts: StreamingExperts,
    pub(crate) ngram: Option<NgramStore>,
    queue: Arc<dyn ReadQueue>,
    passes: u64,
    /// Set while a pass runs: found set, an earlier pass ended by a panic.
    busy: bool,
}

impl Runtime {
    pub(crate) fn next_pass(&mut self) -> PassId {
        self.passes += 1;
        PassId::new(self.passes)
    }

    pub(crate) const fn set_busy(&mut self, busy: bool) {
        self.busy = busy;
    }

    pub(crate) fn read_counters(&self) -> Reading {
        Reading {
            pool: *self.experts.pool().counters(),
            experts: *self.experts.metrics(),
            ngram: self.ngram.as_ref().map(|store| *store.metrics()),
            queue: self.queue.counters(),
        }
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
    /// [`Error::Sampling`] for illegal sampling parameters.
    pub fn session(&self, options: SessionOptions) -> Result<Session, Error> {
        let number = self.0.sessions.fetch_add(1, Ordering::Relaxed);
        Session::new(self.clone(), SessionId::new(number), options)
    }

    /// The validated checkpoint.
    #[must_use]
    pub fn checkpoint(&self) -> &Checkpoint {
        &self.0.checkpoint
    }

    /// The memory plan.
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

    /// What the reader really does, and why.
    #[must_use]
    pub fn reader_mode(&self) -> &ReaderMode {
        &self.0.mode
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

    /// Takes the turn of a pass. After a pass that ended by a panic the pool is emptied first, so
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
        Ok(runtime)
    }
}
