//! The op set for Apple's GPUs: MSL sources and, beside each, the Rust that turns shapes into
//! [`Dispatch`] plans.
//!
//! A plan is plain numbers: a kernel's name, its buffers with offsets and directions, constants,
//! grid, threads, threadgroup memory. It knows no Metal and no macOS. A Mac encodes it; on Linux
//! the tests carry the same plan out on the MSL compiled as C++, and compare with
//! [`reference`](crate::reference).
//!
//! A function returns one launch or, for an operation that consists of others, several, to be
//! encoded in that order. Nothing is launched for no rows: callers with an empty pass skip the
//! call, and a plan with an empty grid is an error.
//!
//! Arrays are f32 unless said otherwise, row-major, at offsets that are multiples of the
//! element's size. Sums are f32, in an order that depends on the shapes alone.

mod affine;
mod attention;
mod bf16;
mod conv;
mod delta;
mod dispatch;
mod error;
mod experts;
mod hyper;
mod library;
mod memory;
mod norm;
mod ple;
mod rope;
mod route;
mod sample;
mod select;

pub use affine::{AFFINE, AffineView, affine_matmul, affine_rows};
pub use attention::{ATTENTION, AttentionShape, AttentionViews, indexed_attention};
pub use bf16::{BF16, Bf16View, bf16_matmul};
pub use conv::{CONV, ConvShape, conv_silu};
pub use delta::{DELTA, DeltaRing, DeltaShape, DeltaViews, gated_delta};
pub use dispatch::{
    Bind, Direction, Dispatch, MAX_BUFFERS, MAX_CONSTANTS, MAX_THREADGROUP_MEMORY, MAX_THREADS,
    SIMD, View,
};
pub use error::PlanError;
pub use experts::{
    EXPERTS, ExpertJobs, ExpertViews, SharedScratch, SharedView, SlotJob, expert_mlp, rank_sum,
    shared_expert,
};
pub use hyper::{HYPER, HcScratch, HcView, hc_inject, hc_mix, probe};
pub use library::Library;
pub use memory::{Address, Buffer, BufferId, Memory, POISON};
pub use norm::{NORM, grouped_rms_norm};
pub use ple::{PLE, PleViews, ple_gate};
pub use rope::{HeadShape, ROPE, block_key, norm_rope, rope_angles};
pub use route::{ROUTE, route};
pub use sample::{SAMPLE, argmax, top_k};
pub use select::{PagedView, SELECT, SelectShape, block_select};

/// What every library starts with.
const PRELUDE: &str = include_str!("prelude.metal");

/// All libraries.
pub static LIBRARIES: &[&Library] = &[
    &AFFINE, &ATTENTION, &BF16, &CONV, &DELTA, &EXPERTS, &HYPER, &NORM, &PLE, &ROPE, &ROUTE,
    &SAMPLE, &SELECT,
];

/// The type of activations.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(clippy::exhaustive_enums, reason = "what the kernels are compiled for")]
pub enum Element {
    /// 4 bytes.
    F32,
    /// 2 bytes.
    Bf16,
}

impl Element {
    /// Bytes of an element.
    #[must_use]
    pub const fn size(self) -> usize {
        match self {
            Self::F32 => 4,
            Self::Bf16 => 2,
        }
    }

    const fn index(self) -> usize {
        match self {
            Self::F32 => 0,
            Self::Bf16 => 1,
        }
    }
}
