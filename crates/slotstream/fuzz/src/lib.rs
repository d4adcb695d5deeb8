//! Fuzz targets of everything that reads a file of a model.
//!
//! A [`Target`] is a plain function of bytes that may not panic, whatever they are. Three drivers
//! share it: `cargo test` (property tests over [`slotstream_testkit::mutate`], and every file of
//! the corpus), the program `fuzz` of this package, which needs nothing but a stable toolchain,
//! and the `cargo-fuzz` package in `libfuzzer/`, which is led by coverage.
//!
//! A new format adds its target in one line of [`TARGETS`], a function, and a folder of small
//! inputs below `corpus/`; for `cargo-fuzz` also a file of two lines and three lines of
//! `libfuzzer/Cargo.toml`.
//!
//! ```
//! let target = slotstream_fuzz::target("index").unwrap();
//! let outcome = slotstream_fuzz::run_one(target, b"{\"weight_map\": {}}").unwrap();
//! assert!(outcome.contains("weight_map"), "{outcome}");
//! ```
#![forbid(unsafe_code)]

mod container;
pub mod corpus;
mod correction;
pub mod driver;
mod session;
mod targets;
mod trace;
mod warm;
mod watch;

pub use targets::{TARGETS, Target, target};
pub use watch::{Finding, MOST_TIME, expect_clean, quiet_caught_panics, run_one};
