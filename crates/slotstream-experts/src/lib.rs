//! Streaming for any mixture-of-experts graph: pool, reader, slot memory and forecaster joined.
//!
//! [`StreamingExperts`] is an [`slotstream_candle::ExpertProvider`]: it is told what the router
//! chose, pins what is resident, claims slots for the rest, reads them all as one batch, computes
//! the resident experts first and each missing one as it lands, and sums in rank order, so that
//! neither timing nor the size of the pool ever changes a bit of the output.
//!
//! A layer whose distinct experts do not fit in the pool runs in waves: ascending by id, as many
//! as fit, each expert read once a pass.
//!
//! Prefill passes of many rows are swept instead ([`PrefillSweep`]): each expert that is not
//! resident is read once, with its neighbours, into memory outside of the pool. When a prompt ends,
//! its most used experts are copied into slots ([`PassHints`]).
//!
//! What a forecaster expects is read ahead ([`Speculation`]): a slot is reserved and its reads are
//! queued behind every demand. When the layer asks, what is there is adopted without a copy, what
//! is under way is joined, and what nobody asked for is given up; a speculative read that fails is
//! read again on demand. [`LookaheadMetrics`] says what it was good for.
//!
//! It knows no model and no text: [`RecordIndex`] says where a record's pieces lie.
//!
//! # Example
//! ```no_run
//! use std::sync::Arc;
//! use slotstream_candle::Ops;
//! use slotstream_core::{Geometry, ReadQueue, RecordLayout};
//! use slotstream_experts::{RecordIndex, StreamingExperts};
//!
//! # fn wire(
//! #     layout: RecordLayout, index: Arc<dyn RecordIndex>, lanes: Arc<dyn ReadQueue>, ops: Arc<dyn Ops>,
//! # ) -> Result<(), Box<dyn std::error::Error>> {
//! let geometry = Geometry::new(48, 512, 10)?;
//! let experts = StreamingExperts::builder(geometry, layout, 7_509).build(index, lanes, ops)?;
//! assert_eq!(experts.pool().slots(), 7_509);
//! # Ok(())
//! # }
//! ```
#![forbid(unsafe_code)]

mod backoff;
mod builder;
mod call;
mod error;
mod index;
mod landing;
mod lookahead;
mod metrics;
mod prompt;
mod provider;
mod route;
mod runs;
mod sinks;
mod speculation;
mod sweep;
mod sync;
mod tickets;
mod warm;

pub use builder::StreamingBuilder;
pub use error::ExpertsError;
pub use index::RecordIndex;
pub use lookahead::{LayerLookahead, LookaheadMetrics};
pub use metrics::ExpertMetrics;
pub use prompt::{PassHints, PromptPass};
pub use provider::StreamingExperts;
pub use sweep::{PrefillSweep, SweepOptionError};
pub use tickets::Speculation;
pub use warm::WarmStart;
