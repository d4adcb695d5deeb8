//! The slot pool as a plain state machine, and the built-in eviction policies.
//!
//! A [`SlotPool`] decides which expert record holds which slot: it finds what a layer needs,
//! [claims](Claim) slots for what is missing, asks an
//! [`EvictionPolicy`](slotstream_core::EvictionPolicy) which records to give up and verifies the
//! answer. The policies here are listed by [`policies`] and made from their names by
//! [`parse_policy`]; one's own needs `slotstream-core` alone.
//!
//! It never touches a byte of a record, does no I/O, starts no thread and has no lock: every
//! method takes `&mut self` and does its work at once. The one table of records is dense, so a
//! call hashes nothing, and allocates nothing after construction.
//!
//! # Example: a token at one layer
//! ```
//! use slotstream_cache::{Clock, Ensured, SlotPool};
//! use slotstream_core::{ExpertIdx, Geometry, LayerIdx, Phase};
//!
//! let geometry = Geometry::new(4, 16, 2)?;
//! let mut pool = SlotPool::new(geometry, geometry.floor_slots(), Clock::new())?;
//! let mut found = Ensured::new();
//!
//! let route = [ExpertIdx::new(9), ExpertIdx::new(3)];
//! pool.ensure(LayerIdx::new(0), &route, Phase::Decode, &mut found)?;
//! for claim in found.take_claims() {
//!     // Read the record of `claim.key()` into the memory of `claim.slot()`, then:
//!     pool.publish(claim)?;
//! }
//! // Compute with `found.entries()`: the slots are pinned until the call is released.
//! pool.release();
//!
//! pool.ensure(LayerIdx::new(0), &route, Phase::Decode, &mut found)?;
//! assert!(found.entries().iter().all(|entry| entry.is_hit()));
//! pool.release();
//! assert_eq!(pool.counters().hit_rate(), Some(0.5));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
#![forbid(unsafe_code)]

mod claim;
mod counters;
mod demand;
mod error;
mod policy;
mod pool;

pub use claim::{Abort, Claim, Ensured, Entry, Found};
pub use counters::{OriginCounters, PhaseCounters, PoolCounters};
pub use demand::Demand;
pub use error::{CacheError, Unlawful};
pub use policy::{
    Analogue, Arc, Clock, Cyclic, DEFAULT_POLICY, Fifo, ForecastAware, HotPin, LayerLocal,
    LeastStale, Lfu, Lirs, Lru, PerLayer, PerLayerCounts, PolicyInfo, PolicyNameError,
    PolicyOption, Random, S3Fifo, Sieve, Slru, TwoQ, WTinyLfu, default_policy, parse_policy,
    policies, policy_names,
};
pub use pool::{MAX_RECORDS, SlotPool, SlotState};
