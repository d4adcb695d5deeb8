//! Traces and their replay, from outside.

mod bundled;
mod engine;
mod exact;
mod formats;
mod malformed;
mod places;
