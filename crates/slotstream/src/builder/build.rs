//! From the options to the engine.

use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicU64;
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use parking_lot::{FairMutex, Mutex};
use slotstream_candle::{HostOps, Ops, PlannedOps};
use slotstream_checkpoint::Checkpoint;
use slotstream_checkpoint::container::Container;
use slotstream_core::ReadQueue;
use slotstream_experts::StreamingExperts;
use slotstream_io::{Checked, ChecksumTable, LaneQueue, ReaderChoice};
use slotstream_kernels::{Arithmetic, Cpu};
use slotstream_ngram::{NgramHasher, NgramStore, NgramTable};
use slotstream_qwen::QwenModel;

use super::{EngineBuilder, Source, Wish};
use crate::container::packed_table;
use crate::elastic::{Control, Watch, system_pressure};
use crate::engine::{Inner, Runtime, next_number};
use crate::identity::model_identity;
use crate::lock;
use crate::mirrors::{self, Opened};
use crate::resize::Elastic;
use crate::retained::Retained;
#[cfg(feature = "text")]
use crate::text_parts::TextParts;
use crate::turns::Turns;
use crate::{CheckpointIndex, DeviceKind, Engine, Error, MemoryPlan, open_metal};

impl EngineBuilder {
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
        // Where records come from.
        let folder = container.as_deref().map_or(&*self.folder, Container::folder);
        let from = (folder, &*self.mirrors);
        let Opened { reader, mode, mirror } = open(self.reader, &choice, &files, checksums, from)?;
        let ops = match self.ops {
            Some(ops) => ops,
            None => default_ops(self.device, self.threads, self.arithmetic)?,
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
        let ngram = ngram(&checkpoint, container.as_deref(), self.ngram_cache_rows, &queue)?;
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

/// Opens `files`: by the reader that was chosen with the copies in mirrors of a folder, or by one's
/// own.
fn open(
    source: Source,
    choice: &ReaderChoice,
    files: &[PathBuf],
    checksums: Option<ChecksumTable>,
    (folder, mirrors): (&Path, &[PathBuf]),
) -> Result<Opened, Error> {
    match source {
        Source::Kind(_) => mirrors::open(choice, files, checksums, folder, mirrors),
        Source::Own(open) => {
            let reader = open(files).map_err(|source| Error::Reader { source })?;
            let reader = Checked::when(reader, checksums.as_ref());
            Ok(Opened { mode: reader.effective(), reader, mirror: None })
        }
    }
}

fn default_ops(
    device: DeviceKind,
    threads: usize,
    arithmetic: Arithmetic,
) -> Result<Arc<dyn Ops>, Error> {
    Ok(match device {
        DeviceKind::Metal => Arc::new(PlannedOps::new(open_metal()?)),
        DeviceKind::Cpu => {
            let cpu = Cpu::new(threads)?.with_arithmetic(arithmetic);
            Arc::new(HostOps::new(Arc::new(cpu)))
        }
    })
}

/// The n-gram table of a model that has one, packed where the container holds it.
fn ngram(
    checkpoint: &Checkpoint,
    container: Option<&Container>,
    cache_rows: usize,
    queue: &Arc<dyn ReadQueue>,
) -> Result<Option<NgramStore>, Error> {
    let Some(plan) = checkpoint.ngram() else { return Ok(None) };
    let packed = container.map(packed_table).transpose()?.flatten();
    let table = packed.map_or_else(|| NgramTable::new(plan), Ok)?;
    let hasher = NgramHasher::new(plan)?;
    Ok(Some(NgramStore::from_parts(hasher, table, cache_rows, Arc::clone(queue))?))
}

/// How often an elastic pool looks, and its books.
fn elastic(wish: Wish, plan: &MemoryPlan) -> Result<(Option<Duration>, Option<Control>), Error> {
    let Some((options, source)) = wish else { return Ok((None, None)) };
    let source = source.or_else(system_pressure).ok_or(Error::NoPressureSource {})?;
    let pool = (plan.slots, plan.floor_slots);
    Ok((options.interval, Some(Control::new(options, source, pool, plan.slot_bytes))))
}
