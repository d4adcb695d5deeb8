//! Names, contracts and pure arithmetic of expert streaming.
//!
//! This crate names things ([`LayerIdx`], [`ExpertKey`], [`SlotId`], [`Extent`],
//! [`RecordLayout`], [`Geometry`]), states the contracts that the other crates meet at
//! ([`EvictionPolicy`], [`RecordReader`], [`Forecaster`], [`ReadQueue`], [`EventSink`]) and holds
//! the affine quantization rule of MLX as pure arithmetic ([`AffineFormat`]).
//!
//! It does no I/O, starts no thread, takes no lock and knows no tensor: an eviction policy, a
//! reader or a forecaster of your own needs this crate alone.
//!
//! # Example: a policy in ten lines
//! ```
//! use slotstream_core::*;
//!
//! /// Gives up the evictable slot with the highest number.
//! #[derive(Debug)]
//! struct Highest;
//!
//! impl EvictionPolicy for Highest {
//!     fn on_insert(&mut self, _slot: SlotId, _key: ExpertKey, _origin: Origin) {}
//!     fn on_hit(&mut self, _slot: SlotId, _key: ExpertKey) {}
//!     fn choose_victim(&mut self, _incoming: &Incoming, view: &SlotView<'_>) -> Option<SlotId> {
//!         (0..view.len() as u32).rev().map(SlotId::new).find(|slot| view.is_evictable(*slot))
//!     }
//!     fn reset(&mut self) {}
//! }
//! assert_eq!(Highest.name(), "highest");
//! ```
#![forbid(unsafe_code)]

mod affine;
mod cancel;
mod error;
mod events;
mod extent;
mod forecast;
mod geometry;
mod ids;
mod layout;
mod policy;
mod queue;
mod reader;
mod rng;
mod routing;

pub use affine::{
    AffineFormat, bf16_at, bf16_to_f32, dequantize_row, f32_to_bf16, nibble_at, quant_at,
};
pub use cancel::CancelToken;
pub use error::{CoreError, ErrorKind};
pub use events::{Attached, EventSink, Outcome};
pub use extent::Extent;
pub use forecast::{Forecaster, NoForecast, Probe, ProbeResult, ProbeResults, Tap};
pub use geometry::Geometry;
pub use ids::{ExpertIdx, ExpertKey, FileId, LayerIdx, PassId, SessionId, SlotId, Tick};
pub use layout::{
    ExpertShape, Matrix, PIECE_ALIGNMENT, PIECE_ORDER, Part, Piece, RecordLayout, SLOT_ALIGNMENT,
};
pub use policy::{BindError, EvictionPolicy, Incoming, Origin, RemoveCause, SlotView};
pub use queue::{Job, Landing, ReadClass, ReadCounters, ReadQueue};
pub use reader::{Advice, Alignment, ReadError, ReadRequest, ReaderMode, RecordReader};
pub use rng::Rng;
pub use routing::{Deadline, Phase, Prediction, Routing, Step};
