//! Traces and their replay, from outside.

mod bundled;
mod places;
