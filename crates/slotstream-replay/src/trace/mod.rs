//! The trace format: what a run asked of its pool, and what befell the pool, in a file.
//!
//! `docs/formats.md` describes it byte by byte.

use std::fs::{self, File};
use std::io::{self, Read};
use std::path::Path;

mod codec;
mod cursor;
mod error;
mod event;
mod header;
mod outcomes;
mod reader;
mod writer;

pub use error::TraceError;
pub use event::{Event, RoutingEvent, StepEvent};
pub use header::{PoolEnd, TraceEnd, TraceHeader, TraceTotals};
pub use reader::{Events, Played, TraceReader};
pub use writer::{TraceOptions, TraceWriter};

pub(crate) use codec::step_of;
pub(crate) use reader::shown;

/// Whether a regular file begins as every trace does; nothing else of it is looked at.
///
/// # Errors
/// The system's.
pub fn is_trace(path: &Path) -> io::Result<bool> {
    // Before it is opened: a pipe would wait for its other end.
    if !fs::metadata(path)?.is_file() {
        return Ok(false);
    }
    let mut begin = Vec::new();
    File::open(path)?.take(MAGIC.len() as u64).read_to_end(&mut begin)?;
    Ok(begin == MAGIC)
}

/// First bytes of a trace.
pub(crate) const MAGIC: [u8; 8] = *b"\x89SLTR\r\n\x1a";
/// The version that is written and read.
pub(crate) const VERSION: u16 = 1;
/// Bytes before a header's payload: magic, version, flags, length, checksum.
pub(crate) const HEADER_PREFIX: usize = 20;
/// Most bytes of a header's payload: its numbers and three texts.
pub(crate) const MAX_HEADER: usize = 32 + 3 * (2 + u16::MAX as usize);
/// Most bytes of a block's payload. One event is never cut in two.
pub(crate) const MAX_BLOCK: usize = 16 << 20;
/// Most logits that one routing is played back with, unrecorded ones included.
pub(crate) const MAX_LOGITS: usize = 1 << 24;
/// Header flag: some routings carry weights.
pub(crate) const FLAG_WEIGHTS: u16 = 1;
/// Header flag: some routings carry logits.
pub(crate) const FLAG_LOGITS: u16 = 2;
/// Kind of a block of events.
pub(crate) const KIND_EVENTS: u8 = 1;
/// Kind of the last block.
pub(crate) const KIND_END: u8 = 2;
