//! Validated extents, reverse map and byte ledger of a qwen4_exp checkpoint
mod ngram;
pub use ngram::{NgramPlan, NgramShard};
