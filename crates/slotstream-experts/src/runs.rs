//! Which stretches of the files to read for a block of records.

use slotstream_core::{Extent, RecordLayout};

use crate::landing::Place;

/// Most bytes between two pieces that are read over rather than left out: what a disk brings in
/// the time of one more request.
const MAX_GAP: u64 = 64 << 10;

/// One read of a block.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Run {
    /// Whole records that lie in the file as they will lie in `count` slots from number `first`.
    Slots { extent: Extent, first: usize, count: usize },
    /// Pieces that lie apart in the slots.
    Pieces { extent: Extent, pieces: Vec<Part> },
}

/// A piece of a record within a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Part {
    /// Where it begins within the run.
    pub(crate) at: usize,
    /// Number of the record within its block.
    pub(crate) record: usize,
    /// Index into core's `PIECE_ORDER`.
    pub(crate) piece: usize,
}

impl Run {
    pub(crate) const fn extent(&self) -> &Extent {
        match self {
            Self::Slots { extent, .. } | Self::Pieces { extent, .. } => extent,
        }
    }
}

/// Most bytes of a run of pieces for blocks of `records` records: as many of the largest piece,
/// and an eighth for what lies between them.
pub(crate) fn longest_pieces(layout: &RecordLayout, records: usize) -> u64 {
    let largest = layout.pieces().iter().map(|piece| piece.len).max().unwrap_or(0) as u64;
    records as u64 * (largest + largest / 8)
}

/// The reads of a block whose records lie at `places`, in the order in which they lie in the
/// files: neighbours are read at once.
pub(crate) fn runs(places: &[Place], layout: &RecordLayout) -> Vec<Run> {
    let mut runs = Vec::new();
    let mut pieces = Vec::new();
    for (record, place) in places.iter().enumerate() {
        match place {
            Place::Whole(extent) => join_slots(&mut runs, *extent, record, layout.stride() as u64),
            Place::Pieces(extents) => {
                pieces.extend(extents.iter().enumerate().map(|(piece, e)| (*e, record, piece)));
            }
        }
    }
    pieces.sort_unstable();
    let longest = longest_pieces(layout, places.len());
    for (extent, record, piece) in pieces {
        join_pieces(&mut runs, extent, Part { at: 0, record, piece }, longest);
    }
    runs
}

/// Appends a whole record to the last run where both lie next to each other in file and slots.
fn join_slots(runs: &mut Vec<Run>, one: Extent, record: usize, stride: u64) {
    if let Some(Run::Slots { extent, first, count }) = runs.last_mut()
        && *first + *count == record
        && extent.file() == one.file()
        && extent.offset() + *count as u64 * stride == one.offset()
        && let Ok(joined) = joined(extent, &one)
    {
        (*extent, *count) = (joined, *count + 1);
        return;
    }
    runs.push(Run::Slots { extent: one, first: record, count: 1 });
}

/// Appends a piece to the last run where it follows closely: at once, or in the same tensor behind
/// pieces of experts that nobody wants. Between two tensors lie those of other blocks, too, which
/// would be read twice.
fn join_pieces(runs: &mut Vec<Run>, one: Extent, part: Part, longest: u64) {
    if let Some(Run::Pieces { extent, pieces }) = runs.last_mut()
        && extent.file() == one.file()
        && (extent.end()..=extent.end() + MAX_GAP).contains(&one.offset())
        && (one.offset() == extent.end() || pieces.last().is_some_and(|p| p.piece == part.piece))
        && one.end() - extent.offset() <= longest
        && let Ok(joined) = joined(extent, &one)
    {
        pieces.push(Part { at: (one.offset() - extent.offset()) as usize, ..part });
        *extent = joined;
        return;
    }
    runs.push(Run::Pieces { extent: one, pieces: vec![part] });
}

/// From the start of one to the end of another behind it.
fn joined(first: &Extent, last: &Extent) -> Result<Extent, slotstream_core::CoreError> {
    Extent::new(first.file(), first.offset(), last.end() - first.offset())
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use slotstream_core::{AffineFormat, ExpertShape, FileId};

    fn layout() -> RecordLayout {
        RecordLayout::new(ExpertShape::new(256, 128, AffineFormat::Q4_G64).expect("legal"))
    }

    fn extent(file: u16, offset: u64, len: u64) -> Extent {
        Extent::new(FileId::new(file), offset, len).expect("small")
    }

    /// As in shards: one tensor after another, each with the pieces of all experts.
    fn stacked(layout: &RecordLayout, experts: u64, expert: u64) -> Place {
        let mut tensor = 0;
        Place::Pieces(layout.pieces().map(|piece| {
            let (at, len) = (tensor, piece.len as u64);
            // Far apart: no tensor follows another within a gap.
            tensor += experts * len + MAX_GAP + 1;
            extent(0, at + expert * len, len)
        }))
    }

    #[test]
    fn neighbours_in_shards_are_nine_runs() {
        let layout = layout();
        let places: Vec<_> = (3..7).map(|expert| stacked(&layout, 64, expert)).collect();
        let found = runs(&places, &layout);
        assert_eq!(found.len(), 9);
        for (piece, run) in found.iter().enumerate() {
            let len = layout.pieces()[piece].len;
            let Run::Pieces { extent, pieces } = run else { panic!("{run:?}") };
            assert_eq!(extent.len(), 4 * len as u64);
            for (record, part) in pieces.iter().enumerate() {
                assert_eq!(*part, Part { at: record * len, record, piece });
            }
        }
    }

    #[test]
    fn small_gaps_are_read_over_and_large_ones_are_not() {
        let layout = layout();
        let places = [0, 2, 60].map(|expert| stacked(&layout, 64, expert));
        let largest = layout.pieces().iter().map(|piece| piece.len).max().expect("nine") as u64;
        for run in runs(&places, &layout) {
            let Run::Pieces { extent, pieces } = &run else { panic!("{run:?}") };
            let read: usize = pieces.iter().map(|part| layout.pieces()[part.piece].len).sum();
            assert!(extent.len() - read as u64 <= MAX_GAP * (pieces.len() as u64 - 1), "{run:?}");
            assert!(extent.len() <= longest_pieces(&layout, 3), "{run:?}");
        }
        let far = [stacked(&layout, 64, 0), Place::Pieces([extent(1, 0, largest); 9])];
        assert!(runs(&far, &layout).iter().all(|run| match run {
            Run::Pieces { pieces, .. } => pieces.iter().all(|p| p.record == pieces[0].record),
            Run::Slots { .. } => false,
        }));
    }

    #[test]
    fn records_of_a_container_go_to_slots_as_they_lie() {
        let layout = layout();
        let (stride, len) = (layout.stride() as u64, layout.record_len() as u64);
        let at = |n: u64| Place::Whole(extent(0, n * stride, len));
        let places = [at(4), at(5), at(6), at(9), at(10)];
        let found = runs(&places, &layout);
        let want = [
            Run::Slots { extent: extent(0, 4 * stride, 2 * stride + len), first: 0, count: 3 },
            Run::Slots { extent: extent(0, 9 * stride, stride + len), first: 3, count: 2 },
        ];
        assert_eq!(found, want);
    }
}
