//! Places in files that are read once and never again.

use slotstream_core::{Extent, FileId, Rng};

use super::measure::Cell;
use super::{Shape, Way};

/// Bytes of a region. Reads of one measurement go to different regions, so that what a read ahead
/// brings is of no use to it.
const REGION: u64 = 16 << 20;
/// Multiples at which records and pages begin.
const PAGE: u64 = 16 << 10;

/// Whether reads of this way begin at a multiple of [`PAGE`].
fn is_aligned(way: Way) -> bool {
    matches!(way, Way::Record | Way::Page)
}

/// Bytes of the longest read of these ways, those of the warm-up included.
pub(super) fn longest(ways: &[Way], shape: &Shape) -> u64 {
    let longest = ways.iter().map(|way| match way {
        Way::Record => shape.record(),
        Way::Pieces => shape.pieces.into_iter().max().unwrap_or(0),
        Way::Page | Way::Row => PAGE,
    });
    longest.max().unwrap_or(0).max(PAGE)
}

/// What has not been read yet.
#[derive(Debug)]
pub(super) struct Places {
    regions: Vec<Region>,
    /// The region whose turn it is.
    turn: usize,
    rng: Rng,
}

#[derive(Debug)]
struct Region {
    file: u16,
    at: u64,
    end: u64,
}

impl Places {
    pub(super) fn new(lens: &[u64], seed: u64) -> Self {
        let mut rng = Rng::new(seed);
        let mut regions = Vec::new();
        for (file, len) in (0_u16..).zip(lens) {
            let starts = (0..*len).step_by(REGION as usize);
            regions.extend(starts.map(|at| Region { file, at, end: (at + REGION).min(*len) }));
        }
        for last in (1..regions.len()).rev() {
            regions.swap(last, rng.below(last as u64 + 1) as usize);
        }
        Self { regions, turn: 0, rng }
    }

    /// The reads of a measurement of about so many bytes, at least one a lane; `None` when there
    /// is not enough left.
    pub(super) fn take_for(
        &mut self,
        cell: &Cell,
        shape: &Shape,
        bytes: u64,
    ) -> Option<Vec<Extent>> {
        let record = [shape.record()];
        let lens: &[u64] = match cell.way {
            Way::Record => &record,
            Way::Pieces => &shape.pieces,
            Way::Page => &[PAGE],
            Way::Row => &[100],
        };
        let aligned = is_aligned(cell.way);
        let each: u64 = lens.iter().sum();
        let least = u64::from(cell.depth).div_ceil(lens.len() as u64);
        // One a region, as far as a lane each leaves the choice; of large reads that fetch what
        // they ask for as many as there are.
        let small = matches!(cell.way, Way::Page | Way::Row);
        let most = if small || cell.source.reads_ahead() {
            (self.regions.len() / lens.len()).max(1) as u64
        } else {
            u64::MAX
        };
        let items = (bytes / each.max(1)).min(most).max(least);
        let mut reads = Vec::new();
        for _ in 0..items {
            for len in lens {
                reads.push(self.take(*len, aligned)?);
            }
        }
        Some(reads)
    }

    /// One small read a lane, for what comes before a measurement; `None` as above.
    pub(super) fn take_warm_up(&mut self, cell: &Cell) -> Option<Vec<Extent>> {
        let aligned = is_aligned(cell.way);
        (0..cell.depth).map(|_| self.take(PAGE, aligned)).collect()
    }

    fn take(&mut self, len: u64, aligned: bool) -> Option<Extent> {
        for _ in 0..self.regions.len() {
            self.turn = (self.turn + 1) % self.regions.len();
            // No piece of a raw shard begins at a multiple of 512.
            let skip = if aligned { 0 } else { 2 + 2 * self.rng.below(100) };
            let region = &mut self.regions[self.turn];
            let at = if aligned { region.at.next_multiple_of(PAGE) } else { region.at + skip };
            if at + len <= region.end {
                region.at = at + len;
                return Extent::new(FileId::new(region.file), at, len).ok();
            }
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use slotstream_io::ReaderKind;

    use super::super::source::Source;
    use super::*;

    #[test]
    fn nothing_is_read_twice() {
        let lens = [100_000_000, 5, 40_000_123];
        let mut places = Places::new(&lens, 3);
        let shape = Shape { pieces: [9000, 10, 10, 9000, 10, 10, 9000, 10, 10], token_bytes: 1 };
        let mut taken: Vec<Extent> = Vec::new();
        let ways = [Way::Record, Way::Pieces, Way::Page, Way::Row];
        let source = |round: usize| match round % 2 {
            0 => Source::Reader(ReaderKind::Buffered),
            _ => Source::Reader(ReaderKind::Direct),
        };
        'used_up: for round in 0.. {
            for way in ways {
                let cell = Cell { source: source(round), way, depth: 4 };
                let Some(first) = places.take_warm_up(&cell) else { break 'used_up };
                assert_eq!(first.len(), 4);
                taken.extend(first);
                let Some(reads) = places.take_for(&cell, &shape, 4_000_000) else { break 'used_up };
                assert!(reads.len() >= 4 && round < 1000);
                if matches!(way, Way::Record | Way::Page) {
                    assert!(reads.iter().all(|read| read.offset() % PAGE == 0));
                }
                taken.extend(reads);
            }
        }
        taken.sort_by_key(|read| (read.file(), read.offset()));
        assert!(taken.iter().map(Extent::len).sum::<u64>() > 60_000_000);
        for pair in taken.windows(2) {
            assert!(pair[0].file() != pair[1].file() || pair[0].end() <= pair[1].offset());
        }
        assert!(taken.iter().all(|read| read.end() <= lens[read.file().index()]));
    }
}
