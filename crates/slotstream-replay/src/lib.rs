//! Routing traces and their replay through the slot pool.
//!
//! The requests of a run ([`Requests`]) are collected by anything that is told them as an
//! [`EventSink`](slotstream_core::EventSink) is: a live engine, a trace file, an importer.
//!
//! It never reads a byte of a model and knows no tensor; it builds without candle.
//!
//! # Example: two tokens of a one-layer model
//! ```
//! use slotstream_core::{EventSink, ExpertIdx, Geometry, LayerIdx, PassId, Phase, Routing, SessionId, Step};
//! use slotstream_replay::Requests;
//!
//! let mut requests = Requests::new(Geometry::new(1, 8, 2)?);
//! for (pass, route) in [[3, 5], [5, 1]].into_iter().enumerate() {
//!     let pass = PassId::new(pass as u64);
//!     let step = Step { pass, phase: Phase::Decode, session: SessionId::new(0), position: 0, tokens: &[0] };
//!     requests.on_step(&step);
//!     requests.on_routing(&Routing::new(&step, LayerIdx::new(0), 2, &route.map(ExpertIdx::new), &[]));
//! }
//! assert_eq!((requests.passes().len(), requests.lookups()), (2, 4));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
#![forbid(unsafe_code)]

mod exact;
mod export;
mod import;
mod modelled;
mod requests;
mod sinks;
mod trace;

pub use exact::ExactReplay;
pub use export::{Table, TableWriter, write_oracle_general, write_text};
pub use import::{Recording, TraceFormat};
pub use modelled::{ForecastCounts, Modelled, ReplayMode, Replayed};
pub use requests::{Pass, Requests, Visit};
pub use sinks::Shared;
pub use trace::{
    Event, Events, Played, PoolEnd, RoutingEvent, StepEvent, TraceEnd, TraceError, TraceHeader,
    TraceOptions, TraceReader, TraceTotals, TraceWriter,
};
