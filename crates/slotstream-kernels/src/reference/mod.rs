//! The op set in plain Rust: slow, obviously right, and the yardstick for every faster kernel.
//!
//! Each function is the provided body of the [`Kernels`](crate::Kernels) method of the same name
//! and has its contract. Those that consist of other operations ([`expert_mlp`],
//! [`shared_expert`], [`hc_mix`]) take the op set to use for them, so that a set with a faster
//! matrix product gets faster compositions for free.
//!
//! Every function works row by row and sums in one fixed order: the bits of a row do not depend
//! on the number of rows in the call. A NaN in a row's inputs reaches that row's output.

mod affine;
mod attention;
mod bf16;
mod conv;
mod delta;
mod experts;
mod hyper;
mod norm;
mod ple;
mod rope;
mod route;
mod scalar;
mod select;

pub use affine::{affine_matmul, affine_rows};
pub use attention::indexed_attention;
pub use bf16::bf16_matmul;
pub use conv::conv_silu;
pub use delta::gated_delta;
pub(crate) use experts::record_mlp;
pub use experts::{expert_mlp, rank_sum, shared_expert};
pub use hyper::{hc_inject, hc_mix};
pub use norm::grouped_rms_norm;
pub use ple::ple_gate;
pub use rope::{block_key, norm_rope};
pub use route::route;
pub use scalar::{sigmoid, silu, softplus};
pub use select::block_select;

/// Rows that a composed operation handles at a time: its scratch is this many rows, however long
/// the pass.
const ROWS: usize = 32;
