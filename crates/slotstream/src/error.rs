//! The facade's error: whatever a part answered, or the engine's own refusals.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use slotstream_core::ErrorKind;

use crate::MemoryPlan;

/// Anything that can go wrong between a model folder and a token.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The checkpoint is not valid.
    #[error(transparent)]
    Checkpoint(Box<slotstream_checkpoint::CheckpointError>),
    /// The container is stale, unfinished or damaged.
    #[error(transparent)]
    Container(Box<slotstream_checkpoint::container::ContainerError>),
    /// The shards could not be opened, or the lanes not started.
    #[error(transparent)]
    Io(slotstream_io::IoError),
    /// The pool or its policy refused.
    #[error(transparent)]
    Cache(slotstream_cache::CacheError),
    /// The policy's name is not known.
    #[error(transparent)]
    Policy(slotstream_cache::PolicyNameError),
    /// The forecaster's name is not known, or its file cannot be used.
    #[error(transparent)]
    Lookahead(slotstream_lookahead::LookaheadError),
    /// The experts could not be provided.
    #[error(transparent)]
    Experts(slotstream_experts::ExpertsError),
    /// The n-gram store refused.
    #[error(transparent)]
    Ngram(slotstream_ngram::NgramError),
    /// The graph could not be loaded or run.
    #[error(transparent)]
    Model(Box<slotstream_qwen::QwenError>),
    /// The kernels refused.
    #[error(transparent)]
    Kernels(slotstream_kernels::CpuError),
    /// The logits or the sampling parameters are unusable.
    #[error(transparent)]
    Sampling(crate::sampling::SamplingError),
    /// Tokenizer, template or stop string.
    #[cfg(feature = "text")]
    #[error(transparent)]
    Text(Box<crate::text::TextError>),
    /// A reader of somebody else could not be opened.
    #[error("the given reader could not be opened")]
    #[non_exhaustive]
    Reader {
        /// Its own error.
        source: Box<dyn std::error::Error + Send + Sync>,
    },
    /// The plan does not fit the budget.
    #[error(
        "{budget} bytes are not enough{}: {fixed} bytes are needed besides the pool, and the \
         smallest pool of {floor_slots} slots x {stride} bytes adds {floor_bytes}; give at least \
         {} bytes, a shorter context or a smaller chunk",
        plan.budget.as_ref().map_or_else(String::new, |budget| format!(" ({})", budget.why)),
        fixed + floor_bytes
    )]
    #[non_exhaustive]
    Budget {
        /// Bytes that may be used.
        budget: u64,
        /// Bytes of everything but the pool.
        fixed: u64,
        /// Slots of the smallest pool.
        floor_slots: usize,
        /// Bytes of one slot.
        stride: u64,
        /// Bytes of the smallest pool.
        floor_bytes: u64,
        /// The plan with the smallest pool.
        plan: Box<MemoryPlan>,
    },
    /// Sessions would hold more state than was planned.
    #[error(
        "{needed} bytes of state more do not fit: sessions hold {held} of the {limit} bytes that are \
         planned for them; end one, or plan for more of them, for a shorter context or for more memory"
    )]
    #[non_exhaustive]
    State {
        /// Bytes that were wanted.
        needed: u64,
        /// Bytes that sessions hold.
        held: u64,
        /// Bytes that they may hold together.
        limit: u64,
    },
    /// A pool may not grow beyond what was planned within a budget.
    #[error(
        "{slots} slots are more than the {most} that were planned within {budget} bytes; build an \
         engine with more memory"
    )]
    #[non_exhaustive]
    Resize {
        /// Slots that were asked for.
        slots: usize,
        /// Most slots that the pool may have.
        most: usize,
        /// Bytes that may be used.
        budget: u64,
    },
    /// The system says nothing of its memory.
    #[error(
        "this system says nothing of its memory that a pool could follow: give a source, or none"
    )]
    #[non_exhaustive]
    NoPressureSource {},
    /// The system started no thread.
    #[error("no thread could be started to {purpose}")]
    #[non_exhaustive]
    Thread {
        /// What for.
        purpose: &'static str,
        /// Why.
        source: std::io::Error,
    },
    /// A file of a warm start cannot be used.
    #[error(transparent)]
    WarmStart(Box<crate::warm::WarmError>),
    /// Another process runs the model.
    #[error(
        "{} has this model loaded, and two engines together may take more memory than there is: end it, \
         share its engine, or give both a size and waive the lock{}",
        holder.as_ref().map_or("another process".to_owned(), |pid| format!("process {pid}")),
        if path.as_os_str().is_empty() { String::new() } else { format!(" ({})", path.display()) }
    )]
    #[non_exhaustive]
    Locked {
        /// The process that holds the lock, as it says itself.
        holder: Option<u32>,
        /// The lock file.
        path: PathBuf,
    },
    /// A mirror without any of the files.
    #[error(
        "{} has no copy of a file of the model or its container: expected {}",
        folder.display(), expected.join(", ")
    )]
    #[non_exhaustive]
    EmptyMirror {
        /// The folder.
        folder: PathBuf,
        /// Names of the files, of which one at least is to be there.
        expected: Vec<String>,
    },
    /// A copy that is no copy: a link to another one, or that one itself.
    #[error(
        "{} is the same file as {}, and no second copy of it: give a mirror whose files were copied to \
         another disk, or run without it",
        copy.display(), file.display()
    )]
    #[non_exhaustive]
    SameFile {
        /// The file in the mirror.
        copy: PathBuf,
        /// The file of the model, its container or an earlier mirror.
        file: PathBuf,
    },
    /// An option is out of range.
    #[error("{option} = {value}: expected {expected}")]
    #[non_exhaustive]
    Option {
        /// The option.
        option: &'static str,
        /// Its value.
        value: String,
        /// What would be legal.
        expected: &'static str,
    },
    /// A device that this build cannot use.
    #[error("device {device}: {why}")]
    #[non_exhaustive]
    Device {
        /// The device asked for.
        device: &'static str,
        /// Why it cannot be used.
        why: &'static str,
    },
    /// A token was asked for before a prompt was given.
    #[error("there is no prompt: call prefill with at least one token first")]
    #[non_exhaustive]
    NoPrompt {},
    /// A snapshot of another engine or session.
    #[error("the snapshot was taken by {found}, this is {expected}")]
    #[non_exhaustive]
    ForeignSnapshot {
        /// This engine's model folder.
        expected: String,
        /// The snapshot's.
        found: String,
    },
    /// A session's file is damaged or of something else, or could not be written.
    #[error(transparent)]
    SessionFile(Box<crate::session_file::SessionFileError>),
    /// Text was asked for and the model has no tokenizer.
    #[cfg(feature = "text")]
    #[error("{} is missing; use token ids, or put the tokenizer beside the model", path.display())]
    #[non_exhaustive]
    NoTokenizer {
        /// Where it was looked for.
        path: PathBuf,
    },
    /// A file of the model is no longer the one that was opened.
    #[error(
        "a file of {} changed while the engine used it; what was computed from it is dropped: \
         build a new engine",
        folder.display()
    )]
    #[non_exhaustive]
    Changed {
        /// The model folder.
        folder: PathBuf,
        /// Which file, and what changed.
        source: Arc<slotstream_core::ReadError>,
    },
    /// Copies of a mirror do not hold the same bytes.
    #[error(
        "the copies of {} differ; what was computed from them is dropped: copy the damaged one \
         again, or repack it, or run without that mirror",
        folder.display()
    )]
    #[non_exhaustive]
    CopiesDiffer {
        /// The model folder.
        folder: PathBuf,
        /// Which files, and what differs.
        source: Arc<slotstream_core::ReadError>,
    },
    /// The work was cancelled before a pass began.
    #[error("cancelled {during}")]
    #[non_exhaustive]
    Cancelled {
        /// When.
        during: &'static str,
    },
    /// The session's deadline passed. Its tokens stay, as with a cancellation.
    #[error("the deadline has passed")]
    #[non_exhaustive]
    Deadline {
        /// What was given up.
        source: Box<Self>,
    },
    /// A policy or forecaster panicked earlier and the engine could not be set right.
    #[error("the engine is unusable since a panic in an earlier pass; build a new one")]
    #[non_exhaustive]
    Poisoned {
        /// The model folder.
        folder: PathBuf,
    },
}

impl Error {
    pub(crate) fn changed(folder: &Path, source: &Arc<slotstream_core::ReadError>) -> Self {
        let (folder, source) = (folder.into(), Arc::clone(source));
        match *source {
            slotstream_core::ReadError::CopiesDiffer { .. } => {
                Self::CopiesDiffer { folder, source }
            }
            _ => Self::Changed { folder, source },
        }
    }

    /// What the caller can do about it.
    #[must_use]
    pub fn kind(&self) -> ErrorKind {
        match self {
            Self::Checkpoint(e) => e.kind(),
            Self::Container(e) => e.kind(),
            Self::Io(e) => e.kind(),
            Self::Cache(e) => e.kind(),
            Self::Experts(e) => e.kind(),
            Self::Ngram(e) => e.kind(),
            Self::Model(e) => e.kind(),
            Self::Lookahead(e) => e.kind(),
            Self::Sampling(e) => e.kind(),
            Self::SessionFile(e) => e.kind(),
            #[cfg(feature = "text")]
            Self::Text(e) => e.kind(),
            #[cfg(feature = "text")]
            Self::NoTokenizer { .. } => ErrorKind::User,
            Self::Policy(_)
            | Self::Kernels(_)
            | Self::Budget { .. }
            | Self::State { .. }
            | Self::Resize { .. }
            | Self::NoPressureSource {}
            | Self::Locked { .. }
            | Self::EmptyMirror { .. }
            | Self::SameFile { .. }
            | Self::Option { .. }
            | Self::Device { .. }
            | Self::NoPrompt {}
            | Self::ForeignSnapshot { .. } => ErrorKind::User,
            Self::Changed { source, .. } | Self::CopiesDiffer { source, .. } => source.kind(),
            Self::WarmStart(e) => e.kind(),
            Self::Cancelled { .. } | Self::Deadline { .. } => ErrorKind::Cancelled,
            Self::Reader { .. } | Self::Thread { .. } => ErrorKind::Transient,
            Self::Poisoned { .. } => ErrorKind::Bug,
        }
    }
}

macro_rules! from {
    ($($variant:ident($source:ty)),+ $(,)?) => {$(
        impl From<$source> for Error {
            fn from(source: $source) -> Self {
                Self::$variant(source.into())
            }
        }
    )+};
}

from!(
    Checkpoint(slotstream_checkpoint::CheckpointError),
    Container(slotstream_checkpoint::container::ContainerError),
    Io(slotstream_io::IoError),
    Cache(slotstream_cache::CacheError),
    Policy(slotstream_cache::PolicyNameError),
    Lookahead(slotstream_lookahead::LookaheadError),
    Experts(slotstream_experts::ExpertsError),
    Ngram(slotstream_ngram::NgramError),
    Model(slotstream_qwen::QwenError),
    WarmStart(crate::warm::WarmError),
    Kernels(slotstream_kernels::CpuError),
    Sampling(crate::sampling::SamplingError),
    SessionFile(crate::session_file::SessionFileError),
);

#[cfg(feature = "text")]
from!(Text(crate::text::TextError));
