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

mod arithmetic;
mod calls;
mod chart;
mod curve;
mod detail;
mod error;
mod exact;
mod export;
mod figures;
mod fit;
mod histogram;
mod import;
mod interval;
mod modelled;
mod named;
mod opt;
mod report;
mod requests;
mod shadow;
mod simulate;
mod sinks;
mod size;
mod stats;
mod synthetic;
mod trace;

pub use arithmetic::{bytes_a_token, hit_rate_floor, records_from_two_disks, stalled_share};
pub use chart::{Chart, Measure};
pub use curve::{Point, curve};
pub use detail::{Detail, LayerRow, LookupEvent, Lookups};
pub use error::ReplayError;
pub use exact::ExactReplay;
pub use export::{Table, TableWriter, write_oracle_general, write_text};
pub use figures::{Cell, Figures};
pub use fit::{Fit, Rate, Summary, fit};
pub use histogram::Histogram;
pub use import::{Recording, TraceFormat};
pub use interval::Interval;
pub use modelled::{ForecastCounts, Modelled, ReplayMode, Replayed};
pub use named::{all_policies, named_policy};
pub use opt::Opt;
pub use report::Report;
pub use requests::{Pass, Requests, Visit};
pub use shadow::{ShadowReport, Shadows};
pub use simulate::{Call, Count, Observer, Phases, Run, Simulation};
pub use sinks::Shared;
pub use size::{PoolSize, PoolSizeError};
pub use stats::{LayerStats, Stats, shuffled};
pub use synthetic::Synthetic;
pub use trace::{
    Event, Events, Played, PoolEnd, RoutingEvent, StepEvent, TraceEnd, TraceError, TraceHeader,
    TraceOptions, TraceReader, TraceTotals, TraceWriter,
};
