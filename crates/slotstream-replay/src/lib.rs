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
mod error;
mod fit;
mod requests;
mod shadow;
mod synthetic;

pub use arithmetic::{bytes_a_token, hit_rate_floor, records_from_two_disks, stalled_share};
pub use error::ReplayError;
pub use fit::{Fit, Rate, Summary, fit};
pub use requests::{Pass, Requests, Visit};
pub use shadow::{ShadowReport, Shadows};
pub use synthetic::Synthetic;

use slotstream_cache::{Ensured, SlotPool, parse_policy};

pub(crate) fn hit_rate(
    requests: &Requests,
    policy: &str,
    slots: usize,
    warm_up: usize,
) -> Result<f64, ReplayError> {
    let fail =
        |pass| move |source| ReplayError::Pool { policy: policy.into(), slots, pass, source };
    let boxed = parse_policy(policy).unwrap_or_else(|e| panic!("{e}"));
    let mut pool = SlotPool::unfloored(*requests.geometry(), slots, boxed).map_err(fail(0))?;
    let mut out = Ensured::new();
    for pass in requests.passes() {
        if pass.index() == warm_up {
            pool.reset_counters();
        }
        let step = pass.step();
        pool.begin_step(&step).map_err(fail(pass.index()))?;
        for visit in pass.visits() {
            pool.routing(&visit.routing(&step)).map_err(fail(pass.index()))?;
            pool.ensure_counted(
                visit.layer(),
                visit.experts(),
                visit.counts(),
                step.phase,
                &mut out,
            )
            .map_err(fail(pass.index()))?;
            pool.publish_all(&mut out).map_err(fail(pass.index()))?;
            pool.release();
        }
    }
    Ok(pool.counters().hit_rate().unwrap_or(0.0))
}
