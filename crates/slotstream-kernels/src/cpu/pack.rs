//! The rows of `x`, laid out so that sixteen lanes load at once.

use std::ops::Range;

use super::{
    InstructionSet,
    fixed::{self, Quantize},
    lanes::LANES,
    vector::Task,
};

/// Rows of `x` that are packed at a time; what bounds the scratch of a call.
pub(super) const ROWS: usize = 32;

/// Values of a row that are packed together: whole blocks and groups of every format.
pub(super) const PART: usize = 1024;

/// How the packed words of a weight row hold its values.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Packing {
    /// Words of 8 values of 4 bits, in groups of the given size, with `x` in so many digits: see
    /// [`fixed`].
    Nibbles { size: usize, digits: usize },
    /// Words of 4 values of 8 bits, in groups of the given size.
    Bytes(usize),
    /// Words of 2 bf16, without groups.
    Bf16,
}

impl Packing {
    /// Values a word.
    const fn values(self) -> usize {
        match self {
            Self::Nibbles { .. } => 8,
            Self::Bytes(_) => 4,
            Self::Bf16 => 2,
        }
    }

    /// f32 of one packed row of `k`: its head, and `k` rounded up to whole blocks.
    pub(super) const fn width(self, k: usize) -> usize {
        self.head(k) + self.blocks(k)
    }

    /// f32 before the blocks of a packed row: the scales of its groups, where it has them.
    pub(super) const fn head(self, k: usize) -> usize {
        match self {
            Self::Nibbles { .. } => self.groups(k),
            _ => 0,
        }
    }

    /// f32 of the blocks of `k` values.
    pub(super) const fn blocks(self, k: usize) -> usize {
        let blocks = k.div_ceil(LANES * self.values());
        match self {
            Self::Nibbles { digits, .. } => blocks * fixed::block(digits),
            _ => blocks * LANES * self.values(),
        }
    }

    /// Of a row of `k`, where the groups of the part that begins with value `at` lie: up to the
    /// next part, or to the end of the row's whole sixteens.
    pub(super) const fn groups_of(self, at: usize, k: usize) -> Range<usize> {
        match self {
            Self::Nibbles { size, .. } | Self::Bytes(size) => {
                let end = if at + PART < k { (at + PART) / size } else { self.groups(k) };
                at / size..end
            }
            Self::Bf16 => 0..0,
        }
    }

    /// Group sums of one row of `k`, rounded up to whole sixteens.
    pub(super) const fn groups(self, k: usize) -> usize {
        match self {
            Self::Nibbles { size, .. } | Self::Bytes(size) => (k / size).next_multiple_of(LANES),
            Self::Bf16 => 0,
        }
    }

    /// Packs whole blocks, up to the end of a row, with the loops compiled for `isa`. Of numbers, value `j` of word `w` goes to
    /// `[w / 16][j][w % 16]`, missing ones are 0; digits are in the order of [`fixed::block`].
    ///
    /// All values of a byte word but the last are left where they are in the word when it is
    /// unpacked, so that they come out as `q * 2^(8 * j)`; `x` is divided by that here, which
    /// is exact unless it underflows.
    ///
    /// # Safety
    /// The machine has `isa`.
    pub(super) unsafe fn pack(
        self,
        isa: InstructionSet,
        x: &[f32],
        scales: &mut [f32],
        blocks: &mut [f32],
        sums: &mut [f32],
    ) {
        match self {
            // SAFETY: the caller's promise.
            Self::Nibbles { size, digits: 1 } => unsafe {
                isa.run(Quantize::<1> { x, size, scales, blocks, sums });
            },
            // SAFETY: the caller's promise.
            Self::Nibbles { size, .. } => unsafe {
                isa.run(Quantize::<3> { x, size, scales, blocks, sums });
            },
            Self::Bytes(size) => {
                // SAFETY: the caller's promise.
                unsafe { isa.run(Transpose { x, shift: [0, 8, 16, 0], out: blocks }) };
                group_sums(x, size, sums);
            }
            // SAFETY: the caller's promise.
            Self::Bf16 => unsafe { isa.run(Transpose { x, shift: [0, 0], out: blocks }) },
        }
    }
}

/// Value `j` of each word, times `2^-shift[j]`, for sixteen words at a time.
struct Transpose<'a, const VALUES: usize> {
    x: &'a [f32],
    shift: [i32; VALUES],
    out: &'a mut [f32],
}

impl<const VALUES: usize> Task for Transpose<'_, VALUES> {
    #[inline(always)]
    fn run(self) {
        let factor = self.shift.map(|shift| 2.0_f32.powi(-shift));
        let blocks = self.x.chunks(LANES * VALUES);
        for (x, out) in blocks.zip(self.out.chunks_exact_mut(LANES * VALUES)) {
            let mut padded = [[0.0; VALUES]; LANES];
            padded.as_flattened_mut()[..x.len()].copy_from_slice(x);
            for (j, out) in out.as_chunks_mut::<LANES>().0.iter_mut().enumerate() {
                for lane in 0..LANES {
                    out[lane] = padded[lane][j] * factor[j];
                }
            }
        }
    }
}

/// The sum of each group: eight running sums, one for each `i % 8`, added as a tree.
fn group_sums(x: &[f32], size: usize, sums: &mut [f32]) {
    sums.fill(0.0);
    for (group, sum) in x.chunks_exact(size).zip(sums) {
        let mut s = [0.0_f32; 8];
        for eight in group.as_chunks::<8>().0 {
            for i in 0..8 {
                s[i] += eight[i];
            }
        }
        *sum = ((s[0] + s[4]) + (s[2] + s[6])) + ((s[1] + s[5]) + (s[3] + s[7]));
    }
}

/// A cache line: registers that are loaded from packed rows lie in one each.
#[derive(Clone, Copy, Debug, Default)]
#[repr(align(64))]
pub(super) struct Line(#[expect(dead_code, reason = "read as a part of an array")] [f32; LANES]);

/// Room for packed rows, kept between calls.
#[derive(Debug, Default)]
pub(super) struct Buffer {
    x: Vec<Line>,
    sums: Vec<Line>,
}

impl Buffer {
    /// Room for `rows` rows of `k` values; contents are unspecified.
    pub(super) fn of(
        &mut self,
        packing: Packing,
        rows: usize,
        k: usize,
    ) -> (&mut [f32], &mut [f32]) {
        (
            lines(&mut self.x, rows * packing.width(k)),
            lines(&mut self.sums, rows * packing.groups(k)),
        )
    }
}

/// The first `len` of some lines, of which there may be too few yet.
pub(super) fn lines(lines: &mut Vec<Line>, len: usize) -> &mut [f32] {
    lines.resize(lines.len().max(len.div_ceil(LANES)), Line::default());
    // SAFETY: a line is sixteen f32 without padding, so the lines are one array of them.
    let all = unsafe {
        std::slice::from_raw_parts_mut(lines.as_mut_ptr().cast::<f32>(), LANES * lines.len())
    };
    &mut all[..len]
}
