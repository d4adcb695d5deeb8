//! Packed rows kept in memory.

use crate::NgramError;
use crate::index::RowIndex;

/// Packed rows in one dense slab, replaced by CLOCK (second chance): a row found again since the
/// hand last passed is spared once.
#[derive(Debug)]
pub(crate) struct RowCache {
    row_len: usize,
    capacity: usize,
    index: RowIndex,
    slab: Vec<u8>,
    /// 1 for a row that was found since the hand last passed it.
    used: Vec<u8>,
    hand: usize,
}

impl RowCache {
    /// Bytes of a cache of `capacity` rows, `None` when a number cannot name them.
    pub(crate) fn bytes_for(capacity: usize, row_len: usize) -> Option<usize> {
        RowIndex::bytes(capacity)?.checked_add(capacity.checked_mul(row_len.checked_add(1)?)?)
    }

    /// An empty cache with room for `capacity` rows of `row_len` bytes. All of its memory is
    /// reserved here.
    pub(crate) fn new(capacity: usize, row_len: usize) -> Result<Self, NgramError> {
        let bytes = Self::bytes_for(capacity, row_len);
        let refused = || NgramError::CacheMemory {
            rows: capacity,
            bytes: bytes.map_or(u64::MAX, |bytes| bytes as u64),
        };
        if bytes.is_none() || capacity >= u32::MAX as usize {
            return Err(refused());
        }
        let index = RowIndex::with_capacity(capacity).map_err(|_| refused())?;
        let (mut slab, mut used) = (Vec::new(), Vec::new());
        slab.try_reserve_exact(capacity * row_len).map_err(|_| refused())?;
        used.try_reserve_exact(capacity).map_err(|_| refused())?;
        Ok(Self { row_len, capacity, index, slab, used, hand: 0 })
    }

    /// Rows that fit.
    pub(crate) const fn capacity(&self) -> usize {
        self.capacity
    }

    /// Rows that are there.
    pub(crate) fn len(&self) -> usize {
        self.used.len()
    }

    /// The packed bytes of `row`.
    pub(crate) fn get(&mut self, row: u64) -> Option<&[u8]> {
        let place = self.index.get(row)?;
        self.used[place] = 1;
        Some(&self.slab[place * self.row_len..][..self.row_len])
    }

    /// Keeps a row, in place of another when all places are taken. A row that is there stays.
    pub(crate) fn insert(&mut self, row: u64, packed: &[u8]) {
        if self.capacity == 0 || self.index.get(row).is_some() {
            return;
        }
        if self.len() < self.capacity {
            self.index.push(row);
            self.slab.extend_from_slice(packed);
            self.used.push(0);
            return;
        }
        let place = self.victim();
        self.index.replace(place, row);
        self.slab[place * self.row_len..][..self.row_len].copy_from_slice(packed);
    }

    /// Every step clears a mark that one hit has set, so a victim costs O(1) amortized.
    fn victim(&mut self) -> usize {
        loop {
            let place = self.hand;
            self.hand = (place + 1) % self.capacity;
            if std::mem::take(&mut self.used[place]) == 0 {
                return place;
            }
        }
    }
}
