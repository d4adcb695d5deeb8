//! Builds an engine from its parts.

mod build;
mod check;
mod options;
mod plan;

use std::path::{Path, PathBuf};
use std::sync::Arc;

use slotstream_candle::Ops;
use slotstream_checkpoint::NormForm;
use slotstream_core::{
    CancelToken, EventSink, EvictionPolicy, Forecaster, NoForecast, RecordReader,
};
use slotstream_experts::{PrefillSweep, Speculation};
use slotstream_io::ReaderKind;
use slotstream_kernels::Arithmetic;
use slotstream_lookahead::{ForecastFiles, NoFiles};
use slotstream_qwen::LoadProgress;

use crate::elastic::{ElasticOptions, PressureSource};
use crate::lock::ModelLock;
use crate::machine::Machine;
use crate::{ContainerChoice, DeviceKind, Sizing};

/// Opens the shards of a checkpoint: paths in, reader out.
pub type OpenReader = Box<
    dyn FnOnce(
        &[PathBuf],
    ) -> Result<Arc<dyn RecordReader>, Box<dyn std::error::Error + Send + Sync>>,
>;

/// Builds an [`Engine`](crate::Engine). Every part has a default; replace the ones you care about.
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

/// Options of an elastic pool, and its source where that is not the system's.
type Wish = Option<(ElasticOptions, Option<Box<dyn PressureSource>>)>;

impl std::fmt::Debug for EngineBuilder {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("EngineBuilder").field("folder", &self.folder).finish_non_exhaustive()
    }
}

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
}
