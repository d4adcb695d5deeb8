//! Adds many rows of bits up, column by column.

/// Rows are a multiple of so many words: that is what a loop over them does at once.
pub(super) const LANES: usize = 8;
/// Rows that are added at once: their sums fit three bits.
const AT_ONCE: usize = 7;

/// A count for each column, kept as binary digits across columns: 64 columns are counted by one
/// operation, however many of them have their bit set.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Tally {
    /// `[digits, words]`, the lowest digit first.
    digits: Vec<u64>,
    /// A row without bits.
    nothing: Vec<u64>,
}

/// Most digits of a count; what is above is lost.
const MOST_DIGITS: u32 = 16;

impl Tally {
    /// For at most `rows` rows of `words` words each, a multiple of [`LANES`].
    pub(super) fn new(words: usize, rows: usize) -> Self {
        // In range: a few bits.
        let digits = (usize::BITS - rows.leading_zeros()).clamp(3, MOST_DIGITS) as usize;
        Self { digits: vec![0; digits * words], nothing: vec![0; words] }
    }

    /// Adds `rows` up and writes the counts of the first columns to `counts`.
    pub(super) fn count<'r>(&mut self, rows: impl Iterator<Item = &'r [u64]>, counts: &mut [u16]) {
        self.digits.fill(0);
        let Self { digits, nothing } = self;
        let mut waiting = [nothing.as_slice(); AT_ONCE];
        let mut taken = 0;
        for row in rows {
            waiting[taken] = row;
            taken += 1;
            if taken == AT_ONCE {
                add(digits, waiting);
                taken = 0;
            }
        }
        waiting[taken..].fill(nothing);
        add(digits, waiting);
        self.read(counts);
    }

    /// Writes the counts of the first columns to `counts`.
    fn read(&self, counts: &mut [u16]) {
        let words = self.nothing.len();
        for (word, counts) in counts.chunks_mut(64).enumerate() {
            let mut lanes = [0; 16];
            for (digit, own) in self.digits.chunks_exact(words).enumerate() {
                for (at, lanes) in lanes.iter_mut().enumerate() {
                    *lanes |= SPREAD[(own[word] >> (4 * at) & 15) as usize] << digit;
                }
            }
            for (at, count) in counts.iter_mut().enumerate() {
                // The lane's 16 bits.
                *count = (lanes[at / 4] >> (at % 4 * 16)) as u16;
            }
        }
    }
}

/// Adds rows to counts.
fn add(digits: &mut [u64], rows: [&[u64]; AT_ONCE]) {
    let words = rows[0].len();
    let rows = rows.map(|row| row.as_chunks::<LANES>().0);
    let block = |number: usize, at: usize| rows[number][at];
    for at in 0..words / LANES {
        let row = |number| block(number, at);
        let (a, a2) = sum(row(0), row(1), row(2));
        let (b, b2) = sum(row(3), row(4), row(5));
        let (one, c2) = sum(a, b, row(6));
        let (two, four) = sum(a2, b2, c2);
        let mut carry = [0; LANES];
        let mut more = [one, two, four].into_iter();
        for own in digits.chunks_exact_mut(words) {
            let own = &mut own.as_chunks_mut::<LANES>().0[at];
            (*own, carry) = sum(*own, more.next().unwrap_or_default(), carry);
        }
    }
}

/// Four bits, each at the bottom of 16.
const SPREAD: [u64; 16] = {
    let mut spread = [0; 16];
    let mut bits = 0;
    while bits < 16 {
        let mut lane = 0;
        while lane < 4 {
            spread[bits] |= (bits as u64 >> lane & 1) << (16 * lane);
            lane += 1;
        }
        bits += 1;
    }
    spread
};

/// The digits of the sum of three bits, in every column.
#[inline]
fn sum(a: [u64; LANES], b: [u64; LANES], c: [u64; LANES]) -> ([u64; LANES], [u64; LANES]) {
    let one = std::array::from_fn(|at| a[at] ^ b[at] ^ c[at]);
    let two = std::array::from_fn(|at| a[at] & b[at] | (a[at] ^ b[at]) & c[at]);
    (one, two)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_are_those_of_counting() {
        let mut state = 5_u64;
        for (words, rows) in [(8, 1), (8, 3), (16, 7), (24, 8), (8, 500), (16, 1000)] {
            let mut tally = Tally::new(words, rows);
            let mut counts = vec![0_u16; 64 * words];
            tally.count([&vec![u64::MAX; words][..]].into_iter(), &mut counts);
            counts.fill(0);
            counts.truncate(64 * words - 2);
            let mut all = Vec::new();
            for row in 0..rows {
                let row: Vec<u64> = (0..words)
                    .map(|_| {
                        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(9);
                        if row % 3 == 0 { u64::MAX } else { state ^ state >> 31 }
                    })
                    .collect();
                for (column, count) in counts.iter_mut().enumerate() {
                    *count += (row[column / 64] >> (column % 64) & 1) as u16;
                }
                all.push(row);
            }
            let mut found = vec![7_u16; counts.len()];
            tally.count(all.iter().map(Vec::as_slice), &mut found);
            assert_eq!(found, counts, "{rows} rows");
        }
    }
}
