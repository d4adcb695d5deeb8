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

#[cfg(test)]
mod tests {
    use slotstream_core::ErrorKind;

    use super::*;

    fn rows(cache: &mut RowCache, of: impl IntoIterator<Item = u64>) -> Vec<u64> {
        // `get` marks rows, so look by the index.
        of.into_iter().filter(|&row| cache.index.get(row).is_some()).collect()
    }

    #[test]
    fn spares_a_row_found_again_once() {
        let mut cache = RowCache::new(3, 2).expect("small");
        for row in 0..3 {
            cache.insert(row, &[row as u8, 7]);
        }
        assert_eq!(cache.get(0), Some(&[0, 7][..]));
        cache.insert(3, &[3, 7]);
        assert_eq!(rows(&mut cache, 0..9), [0, 2, 3], "0 is spared, 1 is next");
        cache.insert(4, &[4, 7]);
        cache.insert(5, &[5, 7]);
        assert_eq!(rows(&mut cache, 0..9), [3, 4, 5], "0's second chance is used up");
        for row in 3..6 {
            assert_eq!(cache.get(row), Some(&[row as u8, 7][..]));
        }
        cache.insert(6, &[6, 7]);
        assert_eq!((rows(&mut cache, 0..9).len(), cache.len()), (3, 3), "all marked: one goes");
        assert_eq!(cache.get(6), Some(&[6, 7][..]));
    }

    #[test]
    fn a_row_that_is_there_stays() {
        let mut cache = RowCache::new(2, 1).expect("small");
        cache.insert(9, &[1]);
        cache.insert(9, &[2]);
        assert_eq!((cache.len(), cache.get(9)), (1, Some(&[1][..])));
    }

    #[test]
    fn states_the_bytes_that_it_reserves() {
        let mut cache = RowCache::new(1000, 100).expect("small");
        let reserved = |cache: &RowCache| {
            let index = RowIndex::bytes(1000).expect("small");
            index + cache.slab.capacity() + cache.used.capacity()
        };
        let stated = RowCache::bytes_for(1000, 100);
        assert_eq!(stated, Some(1000 * 113 + 1024 * 4));
        assert_eq!(stated, Some(reserved(&cache)));
        for row in 0..5000 {
            cache.insert(row, &[0; 100]);
        }
        assert_eq!((stated, cache.len()), (Some(reserved(&cache)), 1000));
    }

    #[test]
    fn refuses_what_does_not_fit_in_memory() {
        for capacity in [u32::MAX as usize, usize::MAX] {
            let error = RowCache::new(capacity, 100).expect_err("too large");
            assert!(matches!(error, NgramError::CacheMemory { rows, .. } if rows == capacity));
            assert_eq!(error.kind(), ErrorKind::User);
        }
        let error = RowCache::new(1 << 30, 1 << 40).expect_err("2^70 bytes");
        assert!(matches!(error, NgramError::CacheMemory { bytes: u64::MAX, .. }));
    }

    #[test]
    fn without_room_it_keeps_nothing() {
        let mut cache = RowCache::new(0, 100).expect("nothing");
        cache.insert(1, &[0; 100]);
        assert_eq!(cache.get(1), None);
        assert_eq!(cache.len(), 0);
    }
}
