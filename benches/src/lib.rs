//! What the benches share; they are in `benches/`.

use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};

/// What this process has used of the processors. Unlike the clock it stands still while other
/// processes run, so it can be measured on a machine that is not idle.
#[must_use]
pub fn processor_time() -> Duration {
    // It starts at 0 and grows, so it is no negative time.
    clock_gettime(ClockId::ProcessCPUTime).try_into().unwrap_or_default()
}
