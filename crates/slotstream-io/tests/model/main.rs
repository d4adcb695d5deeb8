//! Model checks: every interleaving of small scenarios, up to a bound on preemptions.
//!
//! `loom` runs a scenario again and again, each time with another order of the threads' steps,
//! until it has seen all that differ. A wake-up that is lost is a deadlock, which it reports.
//! See docs/reproducing.md for the command.

#[cfg(not(loom))]
compile_error!(
    "the model checks need the checker: RUSTFLAGS=\"--cfg loom\" cargo test -p slotstream-io \
     --test model --target-dir target/model"
);

#[cfg(loom)]
mod explore;
#[cfg(loom)]
mod lanes;
#[cfg(loom)]
mod scratch;
