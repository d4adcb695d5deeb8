//! Flags that all examples have: which model, and how the engine runs it.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use clap::{Args, ValueEnum};
use slotstream::cache::{DEFAULT_POLICY, parse_policy};
use slotstream::checkpoint::NormForm;
use slotstream::core::{CancelToken, RecordReader};
use slotstream::elastic::ElasticOptions;
use slotstream::io::{ReaderKind, Throttle, Throttled, open_reader};
use slotstream::{
    Arithmetic, ContainerChoice, DeviceKind, Engine, EngineBuilder, MemoryPlan, ModelLock,
    PrefillSweep, Sizing, Speculation,
};

use crate::outputs::Input;
use crate::throttle::parse_throttle;
use crate::{
    Failure, MODEL_VARIABLE, ModelFolder, ReaderArgument, Traces, find_model, parse_size, show_size,
};

/// The pool of the bundled model when no size is given: this share of its records.
pub const DEFAULT_SHARE: f64 = 0.3;

/// Which model, and how the engine runs it.
#[derive(Args, Clone, Debug)]
#[non_exhaustive]
pub struct EngineArguments {
    /// Model folder [default: $SLOTSTREAM_MODEL, else the bundled model]
    #[arg(long, value_name = "DIR", help_heading = "Model")]
    pub model: Option<PathBuf>,
    /// How norm weights are stored [default: decided from the weights]
    #[arg(long, value_name = "FORM", help_heading = "Model")]
    pub norms: Option<NormForm>,
    /// Cache slots, each one expert [default: 30% of the bundled model's records; for another
    /// model as many as fit in 70% of the memory that is free]
    #[arg(long, value_name = "N", conflicts_with = "memory", help_heading = "Engine")]
    pub slots: Option<usize>,
    /// Cache slots as a number for each layer, as the original counts them; layers share them all
    #[arg(long, value_name = "N", conflicts_with_all = ["slots", "memory"], help_heading = "Engine")]
    pub experts_per_layer: Option<usize>,
    /// Memory of the whole process, such as 8GiB; as many slots as fit, beside a context that
    /// follows it
    #[arg(long, value_name = "SIZE", value_parser = parse_size, help_heading = "Engine")]
    pub memory: Option<u64>,
    /// Eviction policy; --policies lists them
    #[arg(long, value_name = "NAME", default_value = DEFAULT_POLICY, help_heading = "Engine")]
    pub policy: String,
    /// Forecaster by which experts are read ahead: none, boundary-1, boundary-2, attention-tap,
    /// corrected or corrected:FILE (what train_lookahead writes), previous-token, markov,
    /// co-occurrence, mixture, or oracle:TRACE, packed with gzip or not; options as in
    /// attention-tap:top=8+threshold=0.1
    #[arg(long, value_name = "NAME", default_value = "none", help_heading = "Engine")]
    pub lookahead: String,
    /// Read ahead even while passes are no faster for it
    #[arg(long, help_heading = "Engine")]
    pub lookahead_always: bool,
    /// How experts are read: auto, buffered, uncached, memory, direct, uring; or mmap, to compare
    /// with: no process may change or shorten a file meanwhile, which could end this one or spoil
    /// what it computes
    #[arg(long, value_name = "NAME", default_value = "auto", help_heading = "Engine")]
    pub reader: ReaderArgument,
    /// Simulated: reads take as long as on the model of a disk: apple, or latency=TIME,gbs=N,deep=N
    ///
    /// Files are read through the page cache, and each read then sleeps until the model's end:
    /// a read of n bytes alone takes the latency and n at gbs (GB/s); all together bring deep GB/s
    /// at most. TIME is a number with ns, us or ms, 10000ms at most; N is 0.001 to 1000. apple is
    /// the SSD of an M5 Pro as others measured it. Loading is slowed as well.
    #[arg(
        long,
        value_name = "MODEL",
        value_parser = parse_throttle,
        conflicts_with_all = ["reader", "mirror"],
        help_heading = "Engine"
    )]
    pub throttle: Option<Throttle>,
    /// Folder on another disk with copies of the model's files, its container's, or both: reads
    /// spread over the disks; may be given again; not with --reader mmap
    #[arg(long, value_name = "DIR", help_heading = "Engine")]
    pub mirror: Vec<PathBuf>,
    /// Folder of a repacked container, or "none" to read the shards [default: a container in the
    /// model's folder or beside it under its name and .container, if there is one]
    #[arg(long, value_name = "DIR", help_heading = "Engine")]
    pub container: Option<PathBuf>,
    /// Compare every record of the container with its checksum when it is read
    #[arg(long, help_heading = "Engine")]
    pub verify_reads: bool,
    /// Let the pool follow the memory of the machine: it shrinks when memory is short and grows back to
    /// its plan when there is plenty
    #[arg(long, help_heading = "Engine")]
    pub elastic: bool,
    /// What to do where another process runs this model: refuse, warn or off [default: refuse where the
    /// pool follows the memory of the machine, else warn]
    #[arg(long, value_enum, value_name = "WAY", help_heading = "Engine")]
    pub lock: Option<LockName>,
    /// Threads that read [default: 8]
    #[arg(long, value_name = "N", help_heading = "Engine")]
    pub lanes: Option<usize>,
    /// From how many tokens on a prompt pass reads each expert once, outside of the pool: off
    /// or a number
    #[arg(long, value_name = "ROWS", default_value = "off", help_heading = "Engine")]
    pub prefill_sweep: PrefillSweep,
    /// Most tokens of a prompt pass [default: 512, less where memory is short]
    #[arg(long, value_name = "N", help_heading = "Engine")]
    pub chunk: Option<usize>,
    /// Threads that compute [default: one a core]
    #[arg(long, value_name = "N", help_heading = "Engine")]
    pub threads: Option<usize>,
    /// Longest context in tokens [default: 4096, or what the model allows; where the pool follows
    /// the memory, so does this]
    #[arg(long, value_name = "N", help_heading = "Engine")]
    pub context: Option<usize>,
    /// How products are computed: fast rounds activations to bytes, which is a little wrong
    #[arg(long, value_enum, default_value_t = ArithmeticName::Exact, help_heading = "Engine")]
    pub arithmetic: ArithmeticName,
    /// Where the arithmetic runs
    #[arg(long, value_enum, default_value_t = Device::Cpu, help_heading = "Engine")]
    pub device: Device,
}

/// Names of arithmetics.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
#[non_exhaustive]
pub enum ArithmeticName {
    /// Activations in f32.
    Exact,
    /// Activations in bytes.
    Fast,
}

/// Ways to take other processes that run the same model.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
#[non_exhaustive]
pub enum LockName {
    /// End with an error.
    Refuse,
    /// Warn and go on.
    Warn,
    /// Take no notice, and let no other process know.
    Off,
}

/// Names of devices.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
#[non_exhaustive]
pub enum Device {
    /// The CPU.
    Cpu,
    /// Apple's Metal.
    Metal,
}

impl EngineArguments {
    /// The model folder.
    ///
    /// # Errors
    /// [`Failure::NoModel`] lists where it looked.
    pub fn find_model(&self) -> Result<ModelFolder, Failure> {
        find_model(self.model.as_deref(), std::env::var_os(MODEL_VARIABLE))
    }

    /// How the pool is sized.
    #[must_use]
    pub fn sizing(&self, model: &ModelFolder) -> Sizing {
        match (self.slots, self.experts_per_layer, self.memory) {
            (Some(slots), _, _) => Sizing::Slots(slots),
            (None, Some(experts), _) => Sizing::PerLayer(experts),
            (None, None, Some(bytes)) => Sizing::Memory(bytes),
            (None, None, None) if model.bundled => Sizing::Share(DEFAULT_SHARE),
            (None, None, None) => Sizing::Auto,
        }
    }

    /// What the plan made of `--slots`, `--experts-per-layer` or `--memory`, where it is less than
    /// was asked for.
    #[must_use]
    pub fn notes(&self, plan: &MemoryPlan) -> Vec<String> {
        let (slots, records, total) = (plan.slots, plan.records, plan.total_bytes());
        let per_layer = self.experts_per_layer.map(|asked| asked.saturating_mul(plan.layers));
        match (self.slots, per_layer, self.memory) {
            (Some(asked), _, _) if asked > slots => {
                vec![format!("--slots {asked}: the model has {records} records, {slots} are used")]
            }
            (None, Some(asked), _) if asked > slots => {
                let each = records / plan.layers.max(1);
                vec![format!("--experts-per-layer: the model has {each} a layer, all are kept")]
            }
            (None, None, Some(asked)) if slots == records && total < asked => vec![format!(
                "--memory {}: all {records} records fit in {}, the rest stays unused",
                show_size(asked),
                show_size(total)
            )],
            _ => Vec::new(),
        }
    }

    /// Where records and n-gram rows are read from.
    #[must_use]
    pub fn container_choice(&self) -> ContainerChoice {
        match &self.container {
            None => ContainerChoice::Beside,
            Some(folder) if folder.to_str() == Some("none") => ContainerChoice::Shards,
            Some(folder) => ContainerChoice::Folder(folder.clone()),
        }
    }

    /// What an engine of the model in this folder reads.
    pub(crate) fn inputs<'a>(&'a self, model: &'a Path) -> Vec<Input<'a>> {
        let mut inputs = vec![Input::Folder("the model's folder", model.into())];
        if let Some(container) = self.container_choice().folder(model) {
            inputs.push(Input::Folder("the container's folder", container.into()));
        }
        let mirrors = self.mirror.iter().map(|mirror| mirror.as_path().into());
        inputs.extend(mirrors.map(|mirror| Input::Folder("the folder of --mirror", mirror)));
        // A forecaster's name ends with its file; a path may hold colons itself, and options come before
        // it.
        let colons = self.lookahead.match_indices(':');
        let files = colons.map(|(at, _)| Path::new(&self.lookahead[at + 1..]).into());
        inputs.extend(files.map(|file| Input::File("--lookahead", file)));
        inputs
    }

    /// What to do where another process runs the model.
    fn model_lock(&self, model: &ModelFolder) -> ModelLock {
        match self.lock {
            Some(LockName::Refuse) => ModelLock::Refuse,
            Some(LockName::Warn) => ModelLock::Warn,
            Some(LockName::Off) => ModelLock::Off,
            // Both would take the same memory.
            None if self.elastic || self.sizing(model) == Sizing::Auto => ModelLock::Refuse,
            None => ModelLock::Warn,
        }
    }

    /// A builder with all of these flags, and what ends its work early.
    ///
    /// # Errors
    /// [`slotstream::Error::Policy`] for an unknown policy; [`Failure::Option`] for flags that do not go
    /// together, and a context of one token.
    pub fn builder(
        &self,
        model: &ModelFolder,
        cancel: &CancelToken,
    ) -> Result<EngineBuilder, Failure> {
        if let (Some(folder), ReaderArgument::Mmap) = (self.mirror.first(), self.reader) {
            return Err(Failure::Option {
                option: "--mirror",
                value: folder.display().to_string(),
                expected: "no --mirror beside --reader mmap: choose another reader".into(),
            });
        }
        // A prompt takes a token, and what it is for another one.
        if self.context == Some(1) {
            return Err(Failure::Option {
                option: "--context",
                value: "1".to_owned(),
                expected: "at least 2: a token of a prompt, and room for one more".to_owned(),
            });
        }
        let policy = parse_policy(&self.policy).map_err(slotstream::Error::from)?;
        let mut builder = Engine::builder(&model.path)
            .cancel(cancel.clone())
            .sizing(self.sizing(model))
            .policy(policy)
            .lookahead(&self.lookahead)
            .forecast_files(Box::new(Traces))
            .speculation(if self.lookahead_always {
                Speculation::always()
            } else {
                Speculation::default()
            })
            .lock(self.model_lock(model))
            .verify_reads(self.verify_reads)
            .prefill_sweep(self.prefill_sweep)
            .arithmetic(match self.arithmetic {
                ArithmeticName::Exact => Arithmetic::Exact,
                ArithmeticName::Fast => Arithmetic::Fast,
            })
            .device(match self.device {
                Device::Cpu => DeviceKind::Cpu,
                Device::Metal => DeviceKind::Metal,
            });
        builder = match self.throttle {
            None => self.reader.set(builder),
            Some(throttle) => {
                let cancel = cancel.clone();
                builder.open_reader(Box::new(move |paths| {
                    let reader = open_reader(ReaderKind::Buffered, paths)?;
                    let reader = Throttled::new(reader, throttle).woken_by(cancel);
                    Ok(Arc::new(reader) as Arc<dyn RecordReader>)
                }))
            }
        };
        for folder in &self.mirror {
            builder = builder.mirror(folder);
        }
        // One prompt, read once: there is nothing to come back to. `chat` asks for some.
        builder = builder.container(self.container_choice()).checkpoints(0);
        if let Some(lanes) = self.lanes {
            builder = builder.lanes(lanes);
        }
        if let Some(threads) = self.threads {
            builder = builder.threads(threads);
        }
        if let Some(chunk) = self.chunk {
            builder = builder.chunk(chunk);
        }
        if let Some(context) = self.context {
            builder = builder.context(context);
        }
        if self.elastic {
            builder = builder.elastic(ElasticOptions::new());
        }
        if let Some(norms) = self.norms {
            builder = builder.norms(norms);
        }
        Ok(builder)
    }
}
