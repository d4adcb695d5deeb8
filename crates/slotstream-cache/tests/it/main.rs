//! Integration tests of the pool and the built-in policies.
#![expect(clippy::unwrap_used, reason = "a test that fails should stop")]

mod allocations;
mod arrived;
mod events;
mod faults;
mod goldens;
mod lawful;
mod model;
mod oracles;
mod oracles_domain;
mod pool;
mod random;
mod speculation;
mod support;
mod telling;
mod theirs;
