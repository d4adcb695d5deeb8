//! Readers over real files, and the lane queue over its threads.

mod alone;
mod faults;
mod landings;
mod lanes;
mod memory;
mod positional;
mod shutdown;
mod tracing;
