//! Readers over real files, and the lane queue over its threads.
#![expect(clippy::unwrap_used, reason = "a test may panic")]

#[cfg(target_os = "linux")]
mod alone;
mod batches;
#[cfg(target_os = "linux")]
mod direct;
mod every;
mod faults;
mod landings;
mod lanes;
mod memory;
mod mirror;
#[cfg(target_os = "linux")]
mod page_cache;
mod positional;
#[cfg(target_os = "linux")]
mod refused;
mod shutdown;
mod tracing;
