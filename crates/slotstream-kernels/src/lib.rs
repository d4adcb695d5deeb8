//! The arithmetic of the model, on slices.
//!
//! Every operation that a token passes through is a method of [`Kernels`]. Its provided body is
//! the one in `reference/`: plain, obviously right, slow. [`Reference`] takes all of them;
//! [`Cpu`] replaces the ones that matter with SIMD, chosen at run time (AVX-512 with AMX or without,
//! AVX2, NEON, scalar) and spread over threads.
//!
//! This crate knows no tensor, no candle, no file and no model: shapes come in as numbers,
//! weights as little-endian bytes exactly as they lie in the checkpoint, at any alignment.
//!
//! [`metal`] holds the same operations for Apple's GPUs: MSL, and the plans that launch it. This
//! crate encodes no plan.
//!
//! # Row invariance
//! In every [`Arithmetic`] of [`Reference`] and [`Cpu`] a row gets the same bits whatever the number of
//! rows in the call and whatever the number of threads: work is split over rows and columns of the
//! output, never over `k`, and sums run in one fixed order.
//!
//! # Example
//! ```
//! use slotstream_core::AffineFormat;
//! use slotstream_kernels::{AffineMatrix, Kernels, Reference};
//!
//! // One row of 32 values, all q = 1, scale 1, bias 0: the product is the sum of x.
//! let (weight, scales, biases) = ([0x11; 16], [0x80, 0x3f], [0, 0]);
//! let w = AffineMatrix::new(AffineFormat::Q4_G32, 1, 32, &weight, &scales, &biases).unwrap();
//! let mut out = [f32::NAN];
//! Reference.affine_matmul(&[0.5; 32], &w, &mut out);
//! assert_eq!(out, [16.0]);
//! ```

mod arithmetic;
#[expect(unsafe_code, reason = "intrinsics, and outputs that threads write in turn")]
mod cpu;
mod kernels;
mod matrix;
pub mod metal;
pub mod reference;

pub use arithmetic::Arithmetic;
pub use cpu::{Cpu, CpuError, InstructionSet};
pub use kernels::{
    AttentionArgs, BlockSelectArgs, ConvArgs, ExpertRows, GatedDeltaArgs, HcWeights, Kernels,
    MlpWeights, NormRopeArgs, Paged, PleGateArgs, Reference, Rope,
};
pub use matrix::{AffineMatrix, Bf16Matrix, MatrixError};
