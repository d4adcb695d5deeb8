//! The `qwen4_exp` text graph on candle tensors: token ids in, logits out.
//!
//! The graph loads its dense weights packed through any `RecordReader`, computes with the op set
//! it is handed ([`slotstream_candle::Ops`]), asks an [`slotstream_candle::ExpertProvider`] for
//! the routed experts and a [`slotstream_ngram::NgramStore`] for the n-gram rows. [`State`] is
//! what a sequence carries from token to token.
//!
//! It knows no text, no pool, no policy and no sampling, and keeps no thread.
//!
//! # Example
//! ```no_run
//! use std::sync::Arc;
//! use slotstream_candle::{ExpertProvider, HostOps};
//! use slotstream_core::{Phase, SessionId, PassId, Step};
//! use slotstream_kernels::Reference;
//! use slotstream_qwen::{Logits, Pass, QwenModel};
//! # fn run(
//! #     checkpoint: &slotstream_checkpoint::Checkpoint,
//! #     reader: &dyn slotstream_core::RecordReader,
//! #     experts: &mut dyn ExpertProvider,
//! #     ngram: Option<&mut slotstream_ngram::NgramStore>,
//! # ) -> Result<(), Box<dyn std::error::Error>> {
//! let model = QwenModel::builder(checkpoint, reader).load(Arc::new(HostOps::new(Arc::new(Reference))))?;
//! let mut state = model.new_state(4096, 0)?;
//! let step = Step {
//!     pass: PassId::new(0),
//!     phase: Phase::Prefill,
//!     session: SessionId::new(0),
//!     position: 0,
//!     tokens: &[1, 2, 3],
//! };
//! let output = model.forward(&mut state, &Pass::new(step).with_logits(Logits::Last), experts, ngram)?;
//! let logits = output.logits.expect("asked for");
//! # Ok(())
//! # }
//! ```
#![forbid(unsafe_code)]

mod attention;
mod delta;
mod error;
mod load;
mod logits;
mod model;
mod pass;
#[cfg(test)]
mod pieces;
mod ple;
mod state;
mod window;
mod workspace;

pub use error::QwenError;
pub use load::LoadProgress;
pub use logits::{check_logits, to_host};
pub use model::{ModelBuilder, QwenModel};
pub use pass::{Logits, Observer, Pass, PassOutput};
pub use state::{Checkpoint, MAX_ROLLBACK, PartKind, PlannedState, State, StatePart};
