//! Readers that fail on purpose, and conformance of readers.
//!
//! The decorators wrap any [`RecordReader`] and are readers themselves, so they stack:
//! [`FaultyReader`], [`ShortReader`] and [`TornReader`] fail by a [`Schedule`], [`FlippingReader`]
//! brings wrong bytes and says nothing, [`SlowReader`] takes its time, [`CountingReader`] keeps
//! books. [`check`] drives a reader of your own through
//! the contract and lists what it breaks; [`assert_lawful`] panics with that list.
//!
//! # Example
//! ```
//! use std::path::{Path, PathBuf};
//! use slotstream_core::{Extent, FileId, ReadError, ReaderMode, RecordReader};
//! use slotstream_testkit::reader::{Conformance, Violation};
//!
//! /// Serves zeros for everything.
//! #[derive(Debug)]
//! struct Zeros(Vec<PathBuf>);
//!
//! impl RecordReader for Zeros {
//!     fn read_exact_at(&self, _extent: &Extent, buffer: &mut [u8]) -> Result<(), ReadError> {
//!         buffer.fill(0);
//!         Ok(())
//!     }
//!     fn effective(&self) -> ReaderMode {
//!         ReaderMode::new("zeros", "an example")
//!     }
//!     fn path(&self, file: FileId) -> Option<&Path> {
//!         self.0.get(file.index()).map(PathBuf::as_path)
//!     }
//! }
//!
//! let found = Conformance::new()
//!     .without_large_file()
//!     .check(|paths| Box::new(Zeros(paths.to_vec())));
//! assert!(found.iter().any(|v| matches!(v, Violation::WrongBytes { .. })));
//! assert!(found.iter().any(|v| matches!(v, Violation::Accepted { .. })));
//! ```
//!
//! [`RecordReader`]: slotstream_core::RecordReader

mod conformance;
mod counting;
mod faults;
mod files;
mod slow;
#[cfg(test)]
mod tests;
mod violation;

pub use conformance::{Conformance, assert_lawful, check};
pub use counting::CountingReader;
pub use faults::{Fault, FaultyReader, FlippingReader, Schedule, ShortReader, TornReader};
pub use slow::SlowReader;
pub use violation::Violation;

/// The parts of a reader that a decorator hands on unchanged.
macro_rules! hand_on {
    ($label:literal) => {
        fn alignment(&self) -> slotstream_core::Alignment {
            self.inner.alignment()
        }

        fn effective(&self) -> slotstream_core::ReaderMode {
            let mut mode = self.inner.effective();
            mode.why.push_str(concat!(" (", $label, ")"));
            mode
        }

        fn issued_len(&self, extent: &slotstream_core::Extent) -> u64 {
            self.inner.issued_len(extent)
        }

        fn advise(&self, extent: &slotstream_core::Extent, advice: slotstream_core::Advice) {
            self.inner.advise(extent, advice);
        }

        fn check_unchanged(&self) -> Result<(), slotstream_core::ReadError> {
            self.inner.check_unchanged()
        }

        fn file_len(&self, file: slotstream_core::FileId) -> Option<u64> {
            self.inner.file_len(file)
        }

        fn held_bytes(&self) -> u64 {
            self.inner.held_bytes()
        }

        fn path(&self, file: slotstream_core::FileId) -> Option<&std::path::Path> {
            self.inner.path(file)
        }
    };
}
use hand_on;
