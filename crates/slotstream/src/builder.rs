//! Builds an engine from its parts.

use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicU64;
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use parking_lot::{FairMutex, Mutex};
use slotstream_candle::{HostOps, Ops, PlannedOps};
use slotstream_checkpoint::container::{Container, ContainerHeader};
use slotstream_checkpoint::{Checkpoint, NormForm};
use slotstream_core::{
    CancelToken, EventSink, EvictionPolicy, Forecaster, NoForecast, ReadQueue, RecordReader,
};
use slotstream_experts::{PrefillSweep, Speculation, StreamingExperts};
use slotstream_io::{Checked, ChecksumTable, DirectOptions, LaneQueue, ReaderChoice, ReaderKind};
use slotstream_kernels::{Arithmetic, Cpu};
use slotstream_lookahead::{ForecastFiles, NoFiles, parse_forecaster_with};
use slotstream_ngram::{NgramHasher, NgramStore, NgramTable};
use slotstream_qwen::{LoadProgress, MAX_ROLLBACK, QwenModel};

use crate::container::{checksums, packed_table};
use crate::elastic::{Control, ElasticOptions, PressureSource, Watch, system_pressure};
use crate::engine::{Inner, Runtime, next_number};
use crate::identity::model_identity;
use crate::lock::{self, ModelLock};
use crate::machine::{Machine, MetalGpu, NoGpu};
use crate::mirrors::{self, Opened};
use crate::plan::PlanRequest;
use crate::resize::Elastic;
use crate::retained::Retained;
use crate::sidecar::BesideModel;
#[cfg(feature = "text")]
use crate::text_parts::TextParts;
use crate::turns::Turns;
use crate::{
    CheckpointIndex, ContainerChoice, DeviceKind, Engine, Error, MemoryPlan, Sizing, open_metal,
};

/// Opens the shards of a checkpoint: paths in, reader out.
pub type OpenReader = Box<
    dyn FnOnce(
        &[PathBuf],
    ) -> Result<Arc<dyn RecordReader>, Box<dyn std::error::Error + Send + Sync>>,
>;

/// Builds an [`Engine`]. Every part has a default; replace the ones you care about.
pub struct EngineBuilder {
    folder: PathBuf,
    sizing: Sizing,
    policy: Box<dyn EvictionPolicy>,
    forecaster: Box<dyn Forecaster>,
    lookahead: Option<String>,
    forecast_files: Box<dyn ForecastFiles>,
    speculation: Speculation,
    sinks: Vec<Box<dyn EventSink>>,
    reader: Source,
    mirrors: Vec<PathBuf>,
    container: ContainerChoice,
    verify_reads: bool,
    ops: Option<Arc<dyn Ops>>,
    device: DeviceKind,
    arithmetic: Arithmetic,
    lanes: usize,
    threads: usize,
    chunk: Option<usize>,
    sweep: PrefillSweep,
    context: Option<usize>,
    machine: Option<Machine>,
    sessions: usize,
    rollback_rows: usize,
    checkpoints: Option<usize>,
    checkpoint_every: usize,
    logit_rows: usize,
    ngram_cache_rows: usize,
    norms: Option<NormForm>,
    elastic: Wish,
    lock: ModelLock,
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

/// What a plan counts beside the checkpoint: container, checksums and forecaster.
type Given<'a> = (Option<&'a Container>, Option<&'a ChecksumTable>, &'a dyn Forecaster);

/// Most lanes and threads: beyond this a number is a mistake.
const MOST: usize = 1024;

impl EngineBuilder {
    pub(crate) fn new(folder: &Path) -> Self {
        let cores = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
        Self {
            folder: folder.into(),
            sizing: Sizing::Auto,
            policy: slotstream_cache::default_policy(),
            forecaster: Box::new(NoForecast),
            lookahead: None,
            forecast_files: Box::new(NoFiles),
            speculation: Speculation::default(),
            sinks: Vec::new(),
            reader: Source::Kind(ReaderKind::Auto),
            mirrors: Vec::new(),
            container: ContainerChoice::Beside,
            verify_reads: false,
            ops: None,
            device: DeviceKind::Cpu,
            arithmetic: Arithmetic::Exact,
            lanes: 8,
            threads: cores,
            chunk: None,
            sweep: PrefillSweep::Off,
            context: None,
            machine: None,
            sessions: 1,
            rollback_rows: 0,
            checkpoints: None,
            checkpoint_every: 512,
            logit_rows: 1,
            ngram_cache_rows: 16_384,
            norms: None,
            elastic: None,
            lock: ModelLock::default(),
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

    /// Replaces the eviction policy; the default is [`DEFAULT_POLICY`](crate::cache::DEFAULT_POLICY).
    #[must_use]
    pub fn policy(mut self, policy: Box<dyn EvictionPolicy>) -> Self {
        self.policy = policy;
        self
    }

    /// Replaces the forecaster; the default expects nothing. What it predicts is read ahead, as
    /// far as [`speculation`](Self::speculation) allows; it is asked in passes that may read
    /// ahead, and where nothing ever does, in all of them. Changes time, never a token.
    #[must_use]
    pub fn forecaster(mut self, forecaster: Box<dyn Forecaster>) -> Self {
        self.forecaster = forecaster;
        self.lookahead = None;
        self
    }

    /// Replaces the forecaster by the one of this name, such as `attention-tap:threshold=0.1`;
    /// [`lookahead::forecasters`](crate::lookahead::forecasters) lists them. The name is read when
    /// the engine is built or planned.
    #[must_use]
    pub fn lookahead(mut self, name: impl Into<String>) -> Self {
        self.lookahead = Some(name.into());
        self
    }

    /// Opens the files that a name given to [`lookahead`](Self::lookahead) refers to. Without it
    /// there are none.
    #[must_use]
    pub fn forecast_files(mut self, files: Box<dyn ForecastFiles>) -> Self {
        self.forecast_files = files;
        self
    }

    /// Bounds what is read before it is demanded. Changes time, never a token.
    #[must_use]
    pub const fn speculation(mut self, speculation: Speculation) -> Self {
        self.speculation = speculation;
        self
    }

    /// Tells every request and outcome to `sink`, too. May be called again: sinks are told in the
    /// order in which they were added.
    #[must_use]
    pub fn sink(mut self, sink: Box<dyn EventSink>) -> Self {
        self.sinks.push(sink);
        self
    }

    /// Chooses a built-in reader; the default is [`ReaderKind::Auto`], which becomes what
    /// [`ReaderKind::suited`] makes of the files, the memory that is left beside the plan, and the
    /// system.
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

    /// Reads also from the copies in `folder`, by a [`MirrorReader`](crate::io::MirrorReader): files
    /// of the same names as those of the model, its container, or both, byte for byte the same.
    /// What is not there is read from the model alone; links to files that are read already are refused.
    /// May be called again. Only with a built-in reader.
    #[must_use]
    pub fn mirror(mut self, folder: impl Into<PathBuf>) -> Self {
        self.mirrors.push(folder.into());
        self
    }

    /// Chooses the repacked container that records and n-gram rows are read from; the default is
    /// one beside the model, if there is one.
    #[must_use]
    pub fn container(mut self, container: ContainerChoice) -> Self {
        self.container = container;
        self
    }

    /// Compares every record that is read from a container with its checksum before it is used: a
    /// damaged one is an error, and never a token. Off by default, because each record is read by
    /// the processor once more. Records of the shards and rows of the n-gram table have no
    /// checksums of their own, so building without a container of records is then an error.
    #[must_use]
    pub const fn verify_reads(mut self, verify: bool) -> Self {
        self.verify_reads = verify;
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

    /// How products are computed; the default is [`Arithmetic::Exact`], and nothing but this call
    /// changes it. [`Arithmetic::Fast`] changes tokens; its error is in `docs/performance.md`.
    /// Without effect on ops of one's own.
    #[must_use]
    pub const fn arithmetic(mut self, arithmetic: Arithmetic) -> Self {
        self.arithmetic = arithmetic;
        self
    }

    /// Threads that compute; the default is one a core.
    #[must_use]
    pub const fn threads(mut self, threads: usize) -> Self {
        self.threads = threads;
        self
    }

    /// Most tokens of a prefill pass; the default is 512, or less where memory is short. Changes time
    /// and memory, never a token.
    #[must_use]
    pub const fn chunk(mut self, chunk: usize) -> Self {
        self.chunk = Some(chunk);
        self
    }

    /// From how many rows on a prefill pass reads its experts outside of the pool, one after
    /// another; the default is [`PrefillSweep::Off`]. Changes time and memory, never a token.
    #[must_use]
    pub const fn prefill_sweep(mut self, sweep: PrefillSweep) -> Self {
        self.sweep = sweep;
        self
    }

    /// Longest context of a session; the default is 4096 tokens or what the model allows, and
    /// where memory was asked for or is detected, what the plan makes of it
    /// ([`MemoryPlan::new`]).
    #[must_use]
    pub const fn context(mut self, tokens: usize) -> Self {
        self.context = Some(tokens);
        self
    }

    /// Plans for this machine instead of the one that it runs on: one with a GPU whose working set
    /// counts, or one that is not here.
    #[must_use]
    pub const fn machine(mut self, machine: Machine) -> Self {
        self.machine = Some(machine);
        self
    }

    /// Sessions at full context that memory is planned for; the default is 1. Where a budget is
    /// known, sessions together hold no more state than was planned: the pass or the session that
    /// would take more is refused. Shorter ones take less, so more of them fit.
    #[must_use]
    pub const fn sessions(mut self, sessions: usize) -> Self {
        self.sessions = sessions;
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

    /// Most checkpoints that a session keeps: places to which
    /// [`Session::prompt`](crate::Session::prompt) and [`Session::truncate`](crate::Session::truncate)
    /// come back without running the tokens before again. The default is 2, and none where memory
    /// is short. Ends of prompts come first. Each costs one recurrent state, the pages of keys and
    /// values in use, and a row of logits, which are in the plan for
    /// [`sessions`](Self::sessions) sessions.
    #[must_use]
    pub const fn checkpoints(mut self, checkpoints: usize) -> Self {
        self.checkpoints = Some(checkpoints);
        self
    }

    /// Tokens between two checkpoints within a prompt or an answer, where there is room for more of
    /// them than for the ends of prompts; the default is 512.
    #[must_use]
    pub const fn checkpoint_every(mut self, tokens: usize) -> Self {
        self.checkpoint_every = tokens;
        self
    }

    /// Most rows of a pass of [`Session::score`](crate::Session::score), whose logits are all kept; the default is 1,
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

    /// Lets the pool follow the memory of the machine, as the system tells it: it shrinks when memory is
    /// short and grows back to its plan when there is plenty. Changes time, never a token.
    #[must_use]
    pub fn elastic(mut self, options: ElasticOptions) -> Self {
        self.elastic = Some((options, None));
        self
    }

    /// [`elastic`](Self::elastic) by a source of your own.
    #[must_use]
    pub fn elastic_by(mut self, options: ElasticOptions, source: Box<dyn PressureSource>) -> Self {
        self.elastic = Some((options, Some(source)));
        self
    }

    /// Says what to do about other processes that run this model; the default is to log a warning.
    #[must_use]
    pub const fn lock(mut self, lock: ModelLock) -> Self {
        self.lock = lock;
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
        if let (Source::Own(_), Some(folder)) = (&self.reader, self.mirrors.first()) {
            return Err(Error::Option {
                option: "mirror",
                value: folder.display().to_string(),
                expected: "no mirror beside mmap or another reader of one's own",
            });
        }
        range("threads", self.threads, 1, MOST, "1 to 1024")?;
        range("chunk", self.chunk.unwrap_or(1), 1, 1 << 16, "1 to 65536")?;
        range("prefill sweep", self.sweep.rows().unwrap_or(1), 1, 1 << 16, "1 to 65536")?;
        range("sessions", self.sessions, 1, 1 << 16, "1 to 65536")?;
        range("logit rows", self.logit_rows, 1, 1 << 16, "1 to 65536")?;
        range("rollback rows", self.rollback_rows, 0, MAX_ROLLBACK, "0 to 8")?;
        range("checkpoints", self.checkpoints.unwrap_or(0), 0, 1 << 16, "0 to 65536")?;
        range("checkpoint every", self.checkpoint_every, 1, 1 << 30, "1 to 2^30")?;
        range("n-gram cache rows", self.ngram_cache_rows, 0, 1 << 28, "0 to 2^28")?;
        if let Some((options, _)) = &self.elastic {
            options.check()?;
        }
        if self.device == DeviceKind::Metal && cfg!(not(target_os = "macos")) {
            open_metal()?;
        }
        Ok(())
    }

    /// Refuses a context that the model does not allow.
    fn check_context(&self, checkpoint: &Checkpoint) -> Result<(), Error> {
        let longest = checkpoint.config().max_position_embeddings;
        match self.context {
            Some(tokens) if !(1..=longest).contains(&tokens) => Err(Error::Option {
                option: "context",
                value: format!("{tokens} tokens (the model allows {longest})"),
                expected: "1 to the model's max_position_embeddings",
            }),
            _ => Ok(()),
        }
    }

    /// The plan of this engine, without loading anything. The plan of a built engine also counts
    /// its tokenizer.
    ///
    /// # Errors
    /// As [`build`](Self::build), as far as headers tell.
    pub fn plan(&self) -> Result<MemoryPlan, Error> {
        self.check()?;
        let checkpoint = Checkpoint::open(&self.folder)?;
        let named = self.named_forecaster(&checkpoint)?;
        let forecaster = named.as_deref().unwrap_or(&*self.forecaster);
        let container = self.container.open(&checkpoint)?;
        let checksums = self.checksums(container.as_ref())?;
        let given = (container.as_ref(), checksums.as_ref(), forecaster);
        Ok(self.planned(&checkpoint, given)?.0)
    }

    /// Makes the forecaster that was named, if one was.
    fn named_forecaster(
        &self,
        checkpoint: &Checkpoint,
    ) -> Result<Option<Box<dyn Forecaster>>, Error> {
        let geometry = checkpoint.geometry();
        let (folder, others) = (&*self.folder, &*self.forecast_files);
        let files = BesideModel { checkpoint, folder, others };
        let made = self.lookahead.as_ref();
        let made = made.map(|name| parse_forecaster_with(name, &geometry, &files));
        Ok(made.transpose()?)
    }

    /// The reader of this engine and why: what [`ReaderKind::Auto`] becomes beside the plan, or the
    /// one that was asked for. Opens the checkpoint's headers and no reader.
    ///
    /// # Errors
    /// As [`plan`](Self::plan).
    pub fn planned_reader(&self) -> Result<ReaderChoice, Error> {
        self.check()?;
        let checkpoint = Checkpoint::open(&self.folder)?;
        let named = self.named_forecaster(&checkpoint)?;
        let forecaster = named.as_deref().unwrap_or(&*self.forecaster);
        let container = self.container.open(&checkpoint)?;
        let checksums = self.checksums(container.as_ref())?;
        let given = (container.as_ref(), checksums.as_ref(), forecaster);
        Ok(self.planned(&checkpoint, given)?.1)
    }

    /// What reads are compared with, if they are to be.
    fn checksums(&self, container: Option<&Container>) -> Result<Option<ChecksumTable>, Error> {
        if !self.verify_reads {
            return Ok(None);
        }
        let Some(table) = container.and_then(checksums) else {
            let (option, value) = ("verify reads", "true, with records of the shards".to_owned());
            let expected = "a container with experts.slots: the shards have no checksums";
            return Err(Error::Option { option, value, expected });
        };
        Ok(Some(table))
    }

    /// The plan, and the reader that `Auto` means within it.
    fn planned(
        &self,
        checkpoint: &Checkpoint,
        (container, checksums, forecaster): Given<'_>,
    ) -> Result<(MemoryPlan, ReaderChoice), Error> {
        self.check_context(checkpoint)?;
        let headers = container.map(|container| [container.experts(), container.ngram()]);
        let headers = headers.into_iter().flatten().flatten();
        let packed: u64 = headers.map(ContainerHeader::file_len).sum();
        let shards: u64 = checkpoint.file_sizes().iter().sum();
        let copies = 1 + self.mirrors.len() as u64;
        let plan = |kind| {
            let of_a_copy = match kind {
                ReaderKind::Memory => shards + packed,
                // A lane has one read in flight, and whoever loads the weights another.
                ReaderKind::Direct => DirectOptions::new().planned_bytes_of(self.lanes + 1),
                ReaderKind::Uring => DirectOptions::new().planned_bytes(),
                _ => 0,
            };
            let table = checksums.map_or(0, ChecksumTable::bytes);
            let reader_bytes = copies.saturating_mul(of_a_copy + table);
            let mut request = self.request(reader_bytes, checkpoint);
            request.forecaster_bytes = forecaster.planned_bytes(&checkpoint.geometry());
            MemoryPlan::new(checkpoint, &request)
        };
        let Source::Kind(kind) = self.reader else {
            return Ok((plan(ReaderKind::Auto)?, ReaderKind::Auto.into()));
        };
        let first = plan(kind)?;
        if kind != ReaderKind::Auto {
            return Ok((first, kind.into()));
        }
        let has_experts = container.is_some_and(|container| container.experts().is_some());
        let files = packed + if has_experts { 0 } else { shards };
        let cache = self.machine_facts().room_beside(first.total_bytes());
        let choice = ReaderKind::suited(files, cache, std::env::consts::OS);
        Ok((if choice.kind == ReaderKind::Direct { plan(choice.kind)? } else { first }, choice))
    }

    fn machine_facts(&self) -> Machine {
        self.machine.unwrap_or_else(|| match self.device {
            DeviceKind::Cpu => Machine::detect(&NoGpu),
            DeviceKind::Metal => Machine::detect(&MetalGpu),
        })
    }

    fn request(&self, reader_bytes: u64, checkpoint: &Checkpoint) -> PlanRequest {
        let geometry = checkpoint.geometry();
        let sinks = |tokens| {
            self.sinks.iter().map(|sink| sink.planned_bytes(&geometry, tokens)).sum::<u64>()
        };
        let sink_bytes = sinks(0);
        PlanRequest {
            sizing: self.sizing,
            context: self.context,
            chunk: self.chunk,
            sessions: self.sessions,
            sweep: self.sweep,
            lanes: self.lanes,
            threads: self.threads,
            rollback_rows: self.rollback_rows,
            checkpoints: self.checkpoints,
            logit_rows: self.logit_rows,
            ngram_cache_rows: self.ngram_cache_rows,
            device: self.device,
            reader_bytes,
            policy_bytes: self.policy.planned_bytes(&geometry),
            sink_bytes,
            sink_bytes_a_token: sinks(1).saturating_sub(sink_bytes),
            ..PlanRequest::new(self.machine_facts())
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
        let lock = lock::take(self.lock, || Ok(model_identity(&checkpoint)?))?;
        if let Some(named) = self.named_forecaster(&checkpoint)? {
            self.forecaster = named;
        }
        // Before the plan, which counts what the process already holds: a vocabulary of 248,320
        // entries is more than a margin.
        #[cfg(feature = "text")]
        let text = TextParts::load(&self.folder, checkpoint.config().vocab_size)?;
        let container = self.container.open(&checkpoint)?.map(Arc::new);
        let checksums = self.checksums(container.as_deref())?;
        let given = (container.as_deref(), checksums.as_ref(), &*self.forecaster);
        let (plan, choice) = self.planned(&checkpoint, given)?;
        let repacked = container.iter().flat_map(|container| container.files());
        let files: Vec<PathBuf> = checkpoint.files().iter().chain(repacked).cloned().collect();
        let Opened { reader, mode, mirror } = match self.reader {
            Source::Kind(_) => {
                // Where records come from.
                let folder = container.as_deref().map_or(&*self.folder, Container::folder);
                mirrors::open(&choice, &files, checksums, folder, &self.mirrors)?
            }
            Source::Own(open) => {
                let reader = open(&files).map_err(|source| Error::Reader { source })?;
                let reader = Checked::when(reader, checksums.as_ref());
                Opened { mode: reader.effective(), reader, mirror: None }
            }
        };
        let ops = match (self.ops, self.device) {
            (Some(ops), _) => ops,
            (None, DeviceKind::Metal) => Arc::new(PlannedOps::new(open_metal()?)) as Arc<dyn Ops>,
            (None, DeviceKind::Cpu) => {
                let cpu = Cpu::new(self.threads)?.with_arithmetic(self.arithmetic);
                Arc::new(HostOps::new(Arc::new(cpu))) as Arc<dyn Ops>
            }
        };
        let mut model = QwenModel::builder(&checkpoint, &*reader)
            .with_cancel(self.cancel)
            .with_progress(&mut *self.progress);
        if let Some(norms) = self.norms {
            model = model.with_norms(norms);
        }
        let model = model.load(Arc::clone(&ops))?;
        let queue: Arc<dyn ReadQueue> = Arc::new(LaneQueue::new(Arc::clone(&reader), self.lanes)?);
        let policy = self.policy.name();
        let layout = checkpoint.record_layout().clone();
        let mut experts = StreamingExperts::builder(checkpoint.geometry(), layout, plan.slots)
            .with_policy(self.policy)
            .with_forecaster(self.forecaster)
            .with_speculation(self.speculation)
            .with_sweep(self.sweep);
        for sink in self.sinks {
            experts = experts.with_sink(sink);
        }
        let mut index = CheckpointIndex::new(Arc::clone(&checkpoint));
        if let Some(container) = &container {
            index = index.with_container(Arc::clone(container), reader.alignment());
        }
        let experts = experts.build(Arc::new(index), Arc::clone(&queue), ops)?;
        let ngram = checkpoint
            .ngram()
            .map(|plan| {
                let packed = container.as_deref().map(packed_table).transpose()?.flatten();
                let table = packed.map_or_else(|| NgramTable::new(plan), Ok)?;
                let hasher = NgramHasher::new(plan)?;
                NgramStore::from_parts(hasher, table, self.ngram_cache_rows, Arc::clone(&queue))
            })
            .transpose()?;
        let runtime = Runtime::new(experts, ngram, queue);
        let (interval, control) = elastic(self.elastic, &plan)?;
        let engine = Engine(Arc::new(Inner {
            number: next_number(),
            folder: self.folder,
            checkpoint,
            container,
            model,
            context: plan.context,
            chunk: plan.chunk,
            retained: Retained::of(&plan),
            elastic: Elastic::new(plan.slots, control),
            lock,
            plan,
            policy,
            mode,
            mirror,
            sweep: self.sweep,
            rollback_rows: self.rollback_rows,
            checkpoint_every: self.checkpoint_every,
            logit_rows: self.logit_rows,
            lanes: self.lanes,
            threads: self.threads,
            load_time: begun.elapsed(),
            sessions: AtomicU64::new(0),
            #[cfg(feature = "text")]
            text,
            reader,
            identity: OnceLock::new(),
            changed: OnceLock::new(),
            forget: Mutex::default(),
            turns: Turns::default(),
            runtime: FairMutex::new(runtime),
        }));
        // The dense weights were read before anybody looked.
        engine.check_unchanged()?;
        if let Some(interval) = interval {
            // The first and only one.
            let _ = engine.0.elastic.watch.set(Watch::start(&engine.0, interval)?);
        }
        Ok(engine)
    }
}

/// Options of an elastic pool, and its source where that is not the system's.
type Wish = Option<(ElasticOptions, Option<Box<dyn PressureSource>>)>;

/// How often an elastic pool looks, and its books.
fn elastic(wish: Wish, plan: &MemoryPlan) -> Result<(Option<Duration>, Option<Control>), Error> {
    let Some((options, source)) = wish else { return Ok((None, None)) };
    let source = source.or_else(system_pressure).ok_or(Error::NoPressureSource {})?;
    let pool = (plan.slots, plan.floor_slots);
    Ok((options.interval, Some(Control::new(options, source, pool, plan.slot_bytes))))
}
