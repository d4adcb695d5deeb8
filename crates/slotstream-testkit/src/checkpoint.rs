//! Writes, rewrites and damages checkpoints of any shape.
//!
//! [`CheckpointSpec`] writes a folder from a config alone: sparse (headers are real, payload is
//! a hole in the file) or with random weights of sane size. [`edit`] damages files on purpose;
//! [`damage`] is the list of all damages that a reader must refuse.
//! [`rewrite_raw_norms`] turns a folder into the other norm form.

pub mod damage;
pub mod edit;
mod error;
mod meter;
mod norms;
mod random;
mod routers;
mod shard;
mod spec;
mod vision;

pub use error::WriteError;
pub use norms::rewrite_raw_norms;
pub use routers::RouterSkew;
pub use spec::{CheckpointSpec, SpecTensor, published_config, small_config};
