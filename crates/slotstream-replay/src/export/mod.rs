//! Requests in formats that others read.

mod oracle;
mod table;
mod text;

pub use oracle::write_oracle_general;
pub use table::{Table, TableWriter};
pub use text::write_text;

use std::io;

use crate::trace::TraceError;

/// The error of writing something that has no path.
fn failed(offset: u64, source: io::Error) -> TraceError {
    TraceError::io("export".as_ref(), "writing", offset, source)
}
