//! N-gram embedding rows: ids from tokens, batched reads, a bounded cache.
//!
//! A `qwen4_exp` model adds to its streams, at one early layer, a vector looked up by the last few
//! *token ids* alone (PLE, per-layer embedding). The table behind it is far larger than memory (32
//! GB), but a token needs only `heads` rows of about a hundred bytes. This crate
//!
//! * hashes token windows to row ids ([`NgramHasher`]),
//! * knows where the three pieces of a row lie ([`NgramTable`]),
//! * reads the rows of a whole pass as one batch on a [`ReadQueue`](slotstream_core::ReadQueue),
//!   without waiting, keeps the packed rows in a cache of bounded size and dequantizes them when
//!   the layer asks ([`NgramStore`]).
//!
//! It opens no file, starts no thread, takes no lock, and does not compute what the layer does
//! with the rows (gate, projections, convolution). Several layers with such a table are several
//! stores.
//!
//! Since the ids need nothing but tokens, a caller requests the rows as soon as the tokens are
//! known and joins them when the layer runs:
//!
//! ```
//! use std::path::Path;
//! use std::sync::Arc;
//! use slotstream_checkpoint::NgramShard;
//! use slotstream_core::*;
//! use slotstream_ngram::{NgramHasher, NgramStore, NgramTable};
//!
//! /// A file in memory: 64 rows of 32 values; every packed byte is 0x21, scale 1, bias -1.
//! #[derive(Debug)]
//! struct Memory(Vec<u8>);
//!
//! impl RecordReader for Memory {
//!     fn read_exact_at(&self, extent: &Extent, buffer: &mut [u8]) -> Result<(), ReadError> {
//!         buffer.copy_from_slice(&self.0[extent.offset() as usize..extent.end() as usize]);
//!         Ok(())
//!     }
//!     fn effective(&self) -> ReaderMode {
//!         ReaderMode::new("memory", "an example")
//!     }
//!     fn path(&self, _file: FileId) -> Option<&Path> {
//!         None
//!     }
//! }
//!
//! /// Reads at once, on the caller's thread.
//! #[derive(Debug)]
//! struct Inline(Memory);
//!
//! impl ReadQueue for Inline {
//!     fn submit(&self, _class: ReadClass, jobs: Vec<Job>) {
//!         for mut job in jobs {
//!             let extent = *job.extent();
//!             let result = self.0.read_exact_at(&extent, job.buffer());
//!             job.complete(result);
//!         }
//!     }
//!     fn counters(&self) -> ReadCounters {
//!         ReadCounters::default()
//!     }
//! }
//!
//! let mut bytes = vec![0x21; 64 * 16];
//! bytes.extend(f32_to_bf16(1.0).to_le_bytes().repeat(64));
//! bytes.extend(f32_to_bf16(-1.0).to_le_bytes().repeat(64));
//! let piece = |offset, len| Extent::new(FileId::new(0), offset, len);
//! let shard = NgramShard {
//!     weight: piece(0, 1024)?,
//!     scales: piece(1024, 128)?,
//!     biases: piece(1152, 128)?,
//! };
//! let table = NgramTable::from_shards(AffineFormat::Q4_G32, 32, 64, &[shard])?;
//! // Bigrams and trigrams with one head each; token 0 ends a context.
//! let hasher = NgramHasher::from_constants(0, &[5, 3, 7], &[31, 29], &[0, 31])?;
//! let queue = Arc::new(Inline(Memory(bytes)));
//! let mut store = NgramStore::from_parts(hasher, table, 16, queue)?;
//!
//! let ticket = store.request(&[], &[4, 9])?; // the first two tokens of a sequence
//! let mut rows = vec![0.0; 2 * store.hasher().heads() * store.table().row_width()];
//! store.join(ticket, &mut rows)?;
//! assert_eq!(rows[..4], [0.0, 1.0, 0.0, 1.0]);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
#![forbid(unsafe_code)]

mod cache;
mod error;
mod hash;
mod index;
mod store;
mod table;
mod ticket;

pub use error::NgramError;
pub use hash::NgramHasher;
pub use store::{NgramMetrics, NgramStore};
pub use table::NgramTable;
pub use ticket::NgramTicket;
