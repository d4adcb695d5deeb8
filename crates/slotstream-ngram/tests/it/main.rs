//! Tests of the store over the fixture checkpoint, small made-up tables and faulty readers.

#![allow(clippy::unwrap_used, reason = "a test may end by a panic")]

mod faults;
mod fixture;
mod golden;
mod hash;
mod loaded;
mod plan;
mod queues;
mod store;
mod synthetic;
