//! Traces and their replay, from outside.

mod bundled;
mod engine;
mod exact;
mod places;
