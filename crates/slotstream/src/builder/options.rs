//! What can be chosen.

use std::path::PathBuf;
use std::sync::Arc;

use slotstream_candle::Ops;
use slotstream_checkpoint::NormForm;
use slotstream_core::{CancelToken, EventSink, EvictionPolicy, Forecaster};
use slotstream_experts::{PrefillSweep, Speculation};
use slotstream_io::ReaderKind;
use slotstream_kernels::Arithmetic;
use slotstream_lookahead::ForecastFiles;
use slotstream_qwen::LoadProgress;

use super::{EngineBuilder, OpenReader, Source};
use crate::elastic::{ElasticOptions, PressureSource};
use crate::lock::ModelLock;
use crate::machine::Machine;
use crate::{ContainerChoice, DeviceKind, Sizing};

impl EngineBuilder {
    /// Sizes the pool; the default is [`Sizing::Auto`].
    #[must_use]
    pub const fn sizing(mut self, sizing: Sizing) -> Self {
        self.sizing = sizing;
        self
    }

    /// Replaces the eviction policy; the default is
    /// [`DEFAULT_POLICY`](crate::cache::DEFAULT_POLICY).
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
    /// What is not there is read from the model alone; links to files that are read already are
    /// refused. May be called again. Only with a built-in reader.
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

    /// Replaces the op set; the default is [`HostOps`](crate::ops::HostOps) over the fastest CPU
    /// kernels.
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

    /// Most tokens of a prefill pass; the default is 512, or less where memory is short. Changes
    /// time and memory, never a token.
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
    /// ([`MemoryPlan::new`](crate::MemoryPlan::new)).
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
    /// [`MAX_ROLLBACK`](crate::qwen::MAX_ROLLBACK); the default is 0. Each costs one recurrent state
    /// of memory and one copy of it a token.
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

    /// Most rows of a pass of [`Session::score`](crate::Session::score), whose logits are all kept;
    /// the default is 1, which is slow. Each costs one row of logits of memory.
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

    /// Lets the pool follow the memory of the machine, as the system tells it: it shrinks when
    /// memory is short and grows back to its plan when there is plenty. Changes time, never a token.
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
}
