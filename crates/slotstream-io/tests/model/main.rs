//! Model checks: every interleaving of small scenarios, up to a bound on preemptions.
//!
//! `loom` runs a scenario again and again, each time with another order of the threads' steps,
//! until it has seen all that differ. A wake-up that is lost is a deadlock, which it reports.
//! See docs/reproducing.md for the command.
//!
//! Two things are checked. The lane queue and the scratch pool are this crate's, compiled with
//! the checker's locks and threads. The way of a record into its slot (claims, leases, landings,
//! the provider that waits for them) lies in crates that need candle, which takes minutes to
//! build and has nothing to do with it: those files are compiled here as they are, with
//! [`sync`] for their locks and [`stand_ins`] for tensors and ops. When one of them begins to
//! use something else of its crate, this no longer compiles; add it there.

#[cfg(not(loom))]
compile_error!(
    "the model checks need the checker: RUSTFLAGS=\"--cfg loom\" cargo test -p slotstream-io \
     --test model --target-dir target/model"
);

#[cfg(loom)]
mod ahead;
#[cfg(loom)]
mod claims;
#[cfg(loom)]
mod explore;
#[cfg(loom)]
mod lanes;
#[cfg(loom)]
mod orders;
#[cfg(loom)]
mod pool;
#[cfg(loom)]
mod rig;
#[cfg(loom)]
mod scratch;
#[cfg(loom)]
#[allow(unreachable_pub, reason = "what they stand in for is public")]
mod stand_ins;
#[cfg(loom)]
mod sync;

// The files under test say `slotstream_candle::SlotLease` and `candle_core::Tensor`.
#[cfg(loom)]
extern crate self as candle_core;
#[cfg(loom)]
extern crate self as slotstream_candle;

/// Files of other crates, as they are.
macro_rules! under_test {
    ($($module:ident = $path:literal;)+) => {$(
        #[cfg(loom)]
        #[allow(dead_code, missing_docs, unreachable_pub, reason = "these are public elsewhere")]
        #[path = $path]
        mod $module;
    )+};
}

under_test! {
    arena = "../../../slotstream-candle/src/arena.rs";
    backoff = "../../../slotstream-experts/src/backoff.rs";
    builder = "../../../slotstream-experts/src/builder.rs";
    call = "../../../slotstream-experts/src/call.rs";
    contract = "../../../slotstream-candle/src/provider.rs";
    device = "../../../slotstream-candle/src/device.rs";
    error = "../../../slotstream-experts/src/error.rs";
    index = "../../../slotstream-experts/src/index.rs";
    landing = "../../../slotstream-experts/src/landing.rs";
    lease = "../../../slotstream-candle/src/lease.rs";
    lookahead = "../../../slotstream-experts/src/lookahead.rs";
    metrics = "../../../slotstream-experts/src/metrics.rs";
    prompt = "../../../slotstream-experts/src/prompt.rs";
    provider = "../../../slotstream-experts/src/provider.rs";
    route = "../../../slotstream-experts/src/route.rs";
    runs = "../../../slotstream-experts/src/runs.rs";
    sinks = "../../../slotstream-experts/src/sinks.rs";
    speculation = "../../../slotstream-experts/src/speculation.rs";
    slab = "../../../slotstream-candle/src/slab.rs";
    sweep = "../../../slotstream-experts/src/sweep.rs";
    tickets = "../../../slotstream-experts/src/tickets.rs";
}

#[cfg(loom)]
pub(crate) use self::{
    arena::SlotArena,
    contract::ExpertProvider,
    device::SlotDevice,
    error::ExpertsError,
    index::RecordIndex,
    lease::{PieceLease, Reading, RunLease, SlotLease},
    lookahead::{LayerLookahead, LookaheadMetrics},
    metrics::ExpertMetrics,
    stand_ins::{Error, Ops, SlotRows, Tensor},
};
