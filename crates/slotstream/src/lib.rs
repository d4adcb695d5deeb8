//! Runs a mixture-of-experts model larger than memory by streaming its experts from the SSD.
//!
//! An [`Engine`] loads the dense weights of a `qwen4_exp` checkpoint (MLX affine 4-bit), reserves
//! a fixed pool of cache slots, and reads every routed expert from disk when a layer asks for it.
//! The pool's size, the eviction policy, the reader and the number of threads change the speed
//! and never a token.
//!
//! Everything is a part that can be replaced: implement
//! [`EvictionPolicy`](core::EvictionPolicy), [`RecordReader`](core::RecordReader) or
//! [`Forecaster`](core::Forecaster) in a crate of your own and hand it to the
//! [`EngineBuilder`]; or wire the parts by hand, they are all re-exported here.
//!
//! It runs `qwen4_exp` checkpoints and no other architecture, downloads nothing, serves nothing
//! over a network and does not train.
//!
//! The API blocks. In an async program run a session on a thread of its own, or inside
//! `spawn_blocking`.
//!
//! # Example
//! ```
//! # #[cfg(feature = "text")] {
//! use slotstream::{Engine, SessionOptions, Sizing, TextOptions};
//!
//! # let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../../examples/models/tiny-moe");
//! let engine = Engine::builder(folder).sizing(Sizing::Share(0.3)).build()?;
//! let mut session = engine.session(SessionOptions::new())?;
//! session.prefill_text("CHAPTER II\n\nMr. Darcy ")?;
//! let mut text = String::new();
//! for piece in session.generate(&TextOptions::new(8))? {
//!     text.push_str(&piece?.text);
//! }
//! assert!(!text.is_empty());
//! println!("{text} (hit rate {:?})", session.metrics().decode.hit_rate());
//! # }
//! # Ok::<(), slotstream::Error>(())
//! ```
#![forbid(unsafe_code)]

#[cfg(windows)]
compile_error!(
    "slotstream reads files positionally through POSIX calls and does not support Windows"
);

mod atomic;
mod builder;
mod container;
mod device;
pub mod elastic;
mod engine;
mod error;
mod identity;
mod index;
mod lock;
pub mod machine;
mod metrics;
mod mirrors;
mod plan;
mod resize;
mod retained;
pub mod sampling;
mod session;
pub mod session_file;
mod sidecar;
#[cfg(feature = "text")]
pub mod text;
#[cfg(feature = "text")]
mod text_parts;
mod turns;
pub mod warm;

pub use candle_core as candle;
pub use slotstream_cache as cache;
pub use slotstream_candle as ops;
pub use slotstream_checkpoint as checkpoint;
pub use slotstream_core as core;
pub use slotstream_experts as experts;
pub use slotstream_io as io;
pub use slotstream_kernels as kernels;
pub use slotstream_lookahead as lookahead;
pub use slotstream_ngram as ngram;
pub use slotstream_qwen as qwen;

pub use builder::{EngineBuilder, OpenReader};
pub use container::ContainerChoice;
pub use device::{DeviceKind, open_metal};
pub use engine::Engine;
pub use error::Error;
pub use index::CheckpointIndex;
pub use lock::{ModelLock, ModelLockState};
pub use metrics::{Metrics, PhaseMetrics};
pub use mirrors::MirrorShare;
pub use plan::{MemoryPlan, PlanRequest, PlanRow, Sizing};
pub use session::{FinishReason, Session, SessionOptions, Snapshot, TokenIter};
pub use sidecar::router_identity;
pub use slotstream_experts::{PrefillSweep, Speculation};
pub use slotstream_kernels::Arithmetic;
#[cfg(feature = "text")]
pub use text_parts::{TextIter, TextOptions, TextParts, TextPiece};
