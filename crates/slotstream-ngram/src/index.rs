//! A map from rows to places, of a size known to the byte.

use std::collections::TryReserveError;

/// No place.
const END: u32 = u32::MAX;

/// 2^64 divided by the golden ratio: multiplication spreads neighbouring rows over the top bits.
const SPREAD: u64 = 0x9e37_79b9_7f4a_7c15;

/// Rows in places `0..len`, found by a chained hash table. Never grows beyond its capacity.
#[derive(Debug)]
pub(crate) struct RowIndex {
    /// First place of each chain, by hash.
    chains: Vec<u32>,
    /// The next place of the same chain, by place.
    next: Vec<u32>,
    /// The row, by place.
    rows: Vec<u64>,
    /// `64 - log2(chains)`.
    shift: u32,
}

impl RowIndex {
    /// Bytes of an index of `capacity` rows, `None` when a number cannot name them.
    pub(crate) fn bytes(capacity: usize) -> Option<usize> {
        chains(capacity)?.checked_mul(4)?.checked_add(capacity.checked_mul(12)?)
    }

    /// An empty index with room for `capacity` rows, below 2^32 - 1.
    pub(crate) fn with_capacity(capacity: usize) -> Result<Self, TryReserveError> {
        let (mut heads, mut next, mut rows) = (Vec::new(), Vec::new(), Vec::new());
        // A count without a power of two above it is refused by the reservation.
        let count = chains(capacity).unwrap_or(usize::MAX);
        heads.try_reserve_exact(count)?;
        heads.resize(count, END);
        next.try_reserve_exact(capacity)?;
        rows.try_reserve_exact(capacity)?;
        Ok(Self { chains: heads, next, rows, shift: 64 - count.trailing_zeros() })
    }

    /// The place of `row`.
    pub(crate) fn get(&self, row: u64) -> Option<usize> {
        let mut place = self.chains[self.chain(row)];
        while place != END {
            if self.rows[place as usize] == row {
                return Some(place as usize);
            }
            place = self.next[place as usize];
        }
        None
    }

    /// Puts a row that is not there into the next new place.
    pub(crate) fn push(&mut self, row: u64) -> usize {
        let place = self.rows.len();
        self.rows.push(row);
        self.next.push(END);
        self.link(place);
        place
    }

    /// Puts a row that is not there in the place of another.
    pub(crate) fn replace(&mut self, place: usize, row: u64) {
        self.unlink(place);
        self.rows[place] = row;
        self.link(place);
    }

    /// The rows by place.
    pub(crate) fn into_rows(self) -> Vec<u64> {
        self.rows
    }

    fn chain(&self, row: u64) -> usize {
        (row.wrapping_mul(SPREAD) >> self.shift) as usize
    }

    fn link(&mut self, place: usize) {
        let chain = self.chain(self.rows[place]);
        self.next[place] = self.chains[chain];
        self.chains[chain] = place as u32;
    }

    fn unlink(&mut self, place: usize) {
        let chain = self.chain(self.rows[place]);
        let mut at = self.chains[chain];
        if at as usize == place {
            self.chains[chain] = self.next[place];
            return;
        }
        while at != END {
            let after = self.next[at as usize];
            if after as usize == place {
                self.next[at as usize] = self.next[place];
                return;
            }
            at = after;
        }
    }
}

/// Chains of an index: a power of two, at least 2 (a shift by 64 is none), at least `capacity`.
fn chains(capacity: usize) -> Option<usize> {
    capacity.max(2).checked_next_power_of_two()
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn agrees_with_a_hash_map(capacity in 1_usize..20, rows in prop::collection::vec(0_u64..40, 1..200)) {
            let mut index = RowIndex::with_capacity(capacity).expect("small");
            let mut model: HashMap<u64, usize> = HashMap::new();
            for (i, &row) in rows.iter().enumerate() {
                prop_assert_eq!(index.get(row), model.get(&row).copied());
                if model.contains_key(&row) {
                    continue;
                }
                if index.rows.len() < capacity {
                    model.insert(row, index.push(row));
                } else {
                    let place = i % capacity;
                    model.retain(|_, at| *at != place);
                    index.replace(place, row);
                    model.insert(row, place);
                }
                for row in 0..40 {
                    prop_assert_eq!(index.get(row), model.get(&row).copied());
                }
            }
        }
    }

    #[test]
    fn states_the_bytes_that_it_reserves() {
        for capacity in [0, 1, 2, 3, 100, 4096] {
            let index = RowIndex::with_capacity(capacity).expect("small");
            let bytes =
                4 * index.chains.capacity() + 4 * index.next.capacity() + 8 * index.rows.capacity();
            assert_eq!(RowIndex::bytes(capacity), Some(bytes));
        }
        assert_eq!(RowIndex::bytes(usize::MAX), None);
    }
}
