//! Integration tests of traces and replay: from outside, against brute force, over random cases.
#![expect(clippy::unwrap_used, reason = "a test that fails should stop")]

mod bundled;
mod curve;
mod engine;
mod exact;
mod formats;
mod malformed;
mod opt;
mod places;
mod report;
mod shadow;
mod simulate;
mod stats;
mod support;
