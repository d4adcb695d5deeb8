//! Readers around readers.

/// The parts of a [`RecordReader`](slotstream_core::RecordReader) that a decorator hands on
/// unchanged.
macro_rules! hand_on {
    () => {
        fn alignment(&self) -> slotstream_core::Alignment {
            self.inner.alignment()
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
pub(crate) use hand_on;
