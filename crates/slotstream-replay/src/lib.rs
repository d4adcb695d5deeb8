//! Routing traces and their replay through the slot pool: what another policy or another pool would
//! have hit.
//!
//! - Requests come from a trace ([`Recording`] reads six formats, [`TraceWriter`] records a live
//!   run), from a recipe ([`Synthetic`]), or from whatever tells them to an
//!   [`EventSink`](slotstream_core::EventSink); in memory they are [`Requests`].
//! - [`Simulation`] drives the engine's own pool through them under any policy, and [`curve`] many
//!   policies at many sizes on all cores. [`Opt`] knows the future: no policy misses less often.
//! - A recorded run is more than its requests: [`ExactReplay`] arrives at every counter of the live
//!   pool, [`Modelled`] takes recorded forecasts to other pools. [`Shadows`] are ghost pools beside
//!   a live engine.
//! - [`Report`], [`Stats`], [`Detail`] and [`Chart`] show the results.
//!
//! It reads no byte of a model, knows no tensor and builds without candle. It counts hits and misses
//! and knows no clock: seconds follow from a disk's rate ([`bytes_a_token`] and its neighbours), not
//! from a replay. It cannot tell what a model would have said: policies never change a token, so
//! the requests are the same for all.
//!
//! # Example: four policies at two sizes
//! ```
//! use slotstream_core::Geometry;
//! use slotstream_replay::{Phases, PoolSize, Simulation, Synthetic, curve};
//!
//! // 300 tokens of a model of 4 layers with 32 experts each, 2 a token.
//! let model = Geometry::new(4, 32, 2)?;
//! let requests = Synthetic::new(0.8, 1.0, 40.0)?.passes(300).requests(model);
//!
//! let policies = ["opt", "clock", "lru", "lfu:half-life=32"].map(str::to_owned);
//! let slots = [PoolSize::Routes(2.0), PoolSize::Fraction(0.3)].map(|size| size.slots(&model));
//! let counting = Simulation::new(0).warm_up(50);
//! let mut rates = Vec::new();
//! for point in curve(&requests, &policies, &slots, &counting, &|_| {})? {
//!     let rate = point.outcome?.count(Phases::Decode).hit_rate();
//!     println!("{:16} {:3} slots: {rate:.3?}", point.policy, point.slots);
//!     rates.push(rate);
//! }
//! // They come by policy, then by size. Nobody beats OPT.
//! assert!(rates.chunks(2).all(|rates_of| rates_of[0] <= rates[0] && rates_of[1] <= rates[1]));
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
    TraceOptions, TraceReader, TraceTotals, TraceWriter, is_trace,
};
