//! What an outside author runs to prove a policy, a reader or a forecaster lawful.
//!
//! - [`policy`] plays requests to an eviction policy and checks every answer.
//! - [`reader`] drives a record reader through its contract, and holds decorators that fail on
//!   purpose.
//! - [`forecaster`] plays passes to a forecaster and checks every answer.
//! - [`checkpoint`] writes, rewrites and damages checkpoints of any shape, so that tests need no
//!   large files.
//! - [`mutate`] changes bytes at random, for property tests and fuzzers of readers of files.
//!
//! It measures nothing: a lawful policy may still be a bad one. No shipped crate depends on it.
//!
//! # Example: a policy that is right, and one that is not
//! ```
//! use slotstream_core::*;
//! use slotstream_testkit::policy;
//!
//! /// Gives up the evictable slot with the lowest number, or always slot 0.
//! #[derive(Debug)]
//! struct Lowest {
//!     looks: bool,
//! }
//!
//! impl EvictionPolicy for Lowest {
//!     fn on_insert(&mut self, _slot: SlotId, _key: ExpertKey, _origin: Origin) {}
//!     fn on_hit(&mut self, _slot: SlotId, _key: ExpertKey) {}
//!     fn choose_victim(&mut self, _incoming: &Incoming, view: &SlotView<'_>) -> Option<SlotId> {
//!         let mut slots = (0..view.len() as u32).map(SlotId::new);
//!         slots.find(|slot| !self.looks || view.is_evictable(*slot))
//!     }
//!     fn reset(&mut self) {}
//! }
//!
//! assert!(policy::check(|| Box::new(Lowest { looks: true })).is_ok());
//! let violations = policy::check(|| Box::new(Lowest { looks: false })).unwrap_err();
//! println!("{}", violations[0]); // names the scenario, the step and the rule
//! ```
#![forbid(unsafe_code)]

pub mod checkpoint;
mod dice;
pub mod forecaster;
pub mod mutate;
pub mod policy;
pub mod reader;
mod watch;
