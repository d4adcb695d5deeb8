//! Turns config, index and safetensors headers into validated extents, a reverse map and a byte
//! ledger.
//!
//! [`Checkpoint::open`] reads `config.json`, `generation_config.json`, the index (or, without
//! one, every shard) and the headers of a `qwen4_exp` checkpoint in MLX affine quantization. It
//! checks every name, dtype and shape against the config and every byte range against the file
//! sizes, and then says where each thing lies: a dense matrix ([`Checkpoint::affine`]), the nine
//! pieces of an expert ([`Checkpoint::expert_pieces`]), the n-gram table ([`Checkpoint::ngram`]),
//! and, in reverse, what lies at a byte of a file ([`Checkpoint::locate`]).
//!
//! It never reads a payload to do so: a folder of 104 GB opens in milliseconds. The two checks
//! that need a few bytes of payload, [`NormForm::detect`] and [`verify_ngram_constants`], take a
//! reader from the caller. This crate loads no weights, downloads nothing and computes no hash of
//! tokens.
//!
//! In a checkpoint an expert is nine slices of nine tensors. [`container::Repack`] copies the
//! records, and the rows of the n-gram table, into files in which each is one read, and
//! [`container::Container`] opens them, unless they are stale, unfinished or damaged.
//!
//! # Example: where an expert lies
//! ```
//! # fn main() -> Result<(), slotstream_checkpoint::CheckpointError> {
//! use std::path::Path;
//! use slotstream_checkpoint::Checkpoint;
//!
//! # let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../../examples/models/tiny-moe");
//! let checkpoint = Checkpoint::open(Path::new(folder))?;
//! let key = checkpoint.geometry().key(0).expect("there is a first record");
//! let pieces = checkpoint.expert_pieces(key).expect("of this geometry");
//!
//! // The nine pieces make up a record, and the reverse map knows whose bytes they are.
//! let bytes: u64 = pieces.iter().map(|piece| piece.len()).sum();
//! assert_eq!(bytes, checkpoint.ledger().record_bytes);
//! let found = checkpoint.locate(pieces[4].file(), pieces[4].offset()).expect("a tensor");
//! assert_eq!(found.expert, Some(key));
//! # Ok(())
//! # }
//! ```
#![forbid(unsafe_code)]

#[cfg(not(unix))]
compile_error!(
    "slotstream-checkpoint writes containers by position with the calls of Unix (Linux and macOS): \
     build it there, or in the Windows Subsystem for Linux"
);

mod checkpoint;
mod config;
pub mod container;
mod dtype;
mod error;
mod generation;
mod header;
mod identity;
mod json;
mod ledger;
mod names;
mod ngram;
mod payload;
mod quantization;
mod resolve;
mod routers;
mod schema;
mod shards;
mod values;

pub use checkpoint::{AffineTensors, Checkpoint, Location, TensorInfo};
pub use config::{LayerType, OutputGate, PleConfig, TextConfig};
pub use dtype::Dtype;
pub use error::CheckpointError;
pub use generation::GenerationConfig;
pub use header::{Header, HeaderTensor};
pub use json::{check_json, is_link_loop};
pub use ledger::{Ledger, LedgerRow, TensorClass};
pub use ngram::{NgramConstants, NgramPlan, NgramShard};
pub use payload::{NormForm, is_centred_norm, norm_means, read_floats, verify_ngram_constants};
pub use quantization::Quantization;
pub use schema::{DtypeRule, ExpectedTensor, expected_tensors};
pub use shards::Index;
pub use shards::SIDECAR_NAME;
pub use values::{CheckedValues, check_values};
