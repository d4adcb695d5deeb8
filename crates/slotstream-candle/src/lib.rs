//! candle ops over the kernels, slot memory and the expert-provider contract.
//!
//! A graph written on candle tensors gets three things here: the op set as a value ([`Ops`], with
//! [`HostOps`] for the CPU), the memory in which expert records land ([`SlotArena`]), and the
//! contract by which it asks for experts ([`ExpertProvider`]).
//!
//! This crate decides nothing: which record holds which slot is the cache's business, which bytes
//! land there is the reader's, and what is computed in which order is the graph's.
//!
//! # Example
//! ```
//! use std::sync::Arc;
//! use candle_core::{Device, Tensor};
//! use slotstream_candle::{AffineWeight, HostOps, Ops};
//! use slotstream_core::AffineFormat;
//! use slotstream_kernels::Reference;
//!
//! let ops = HostOps::new(Arc::new(Reference));
//! // One row of 32 values, all q = 1, scale 1, bias 0: the product is the sum of x.
//! let arrays = [vec![0x11; 16], vec![0x80, 0x3f], vec![0, 0]];
//! let w = AffineWeight::new(AffineFormat::Q4_G32, (1, 32), arrays, &Device::Cpu)?;
//! let x = Tensor::full(0.5_f32, (1, 32), &Device::Cpu)?;
//! assert_eq!(ops.affine_matmul(&x, &w)?.to_vec2::<f32>()?, [[16.0]]);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

#[cfg(target_endian = "big")]
compile_error!("slotstream reads little-endian checkpoints in place and needs a little-endian CPU");

mod arena;
mod checks;
mod device;
mod error;
mod host;
mod huge;
mod lease;
#[cfg(target_os = "macos")]
mod metal;
mod ops;
mod paged;
mod planned;
mod provider;
mod slab;
mod sync;
mod weights;

pub use arena::SlotArena;
pub use device::{SlotDevice, SlotMemory};
pub use error::{CandleContext, Error};
pub use host::HostOps;
pub use huge::zeros;
pub use lease::{PieceLease, Reading, RunLease, SlotLease};
#[cfg(target_os = "macos")]
pub use metal::{MetalEncoder, recommended_working_set};
pub use ops::{AttentionInputs, BlockShape, DeltaInputs, DeltaRecord, HeadLayout, Ops, SlotRows};
pub use paged::PagedTensor;
pub use planned::{GpuFigures, PlanEncoder, PlannedOps, Resource, touched};
pub use provider::ExpertProvider;
/// The rotary embedding that the ops take.
pub use slotstream_kernels::Rope;
pub use weights::{AffineWeight, Bf16Weight, DeltaWeight, HcWeight, MlpWeight, PleGateWeight};
