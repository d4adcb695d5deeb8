//! Readers over real files, and the lane queue over its threads.
#![expect(clippy::unwrap_used, reason = "a test may panic")]

mod alone;
mod faults;
mod landings;
mod lanes;
mod memory;
mod positional;
mod shutdown;
mod tracing;
