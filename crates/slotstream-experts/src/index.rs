//! Where records lie.

use slotstream_core::{ExpertKey, Extent};

/// Says where the pieces of a record lie.
pub trait RecordIndex: Send + Sync + std::fmt::Debug {
    /// The nine pieces of a record in [`slotstream_core::PIECE_ORDER`]; `None` when there is no
    /// such record.
    fn pieces(&self, key: ExpertKey) -> Option<[Extent; 9]>;

    /// The whole record where it lies in one run as it lies in a slot, from the first byte on: at
    /// least the layout's `record_len` bytes, at most its stride. It is then read at once, and
    /// [`pieces`](Self::pieces) is not asked for.
    fn whole(&self, key: ExpertKey) -> Option<Extent> {
        let _ = key;
        None
    }

    /// The tensor that an extent belongs to, for messages.
    fn tensor(&self, extent: &Extent) -> Option<String> {
        let _ = extent;
        None
    }
}
