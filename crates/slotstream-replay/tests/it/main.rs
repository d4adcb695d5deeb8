//! Integration tests of replay: small cases against brute force, properties over random ones.
#![expect(clippy::unwrap_used, reason = "a test that fails should stop")]

mod curve;
mod opt;
mod report;
mod simulate;
mod stats;
mod support;
