//! Sixteen lanes in plain Rust.

use slotstream_core::bf16_to_f32;

use super::lanes::{LANES, Lanes};

/// Sixteen lanes, one after the other.
#[derive(Clone, Copy)]
pub(super) struct Scalar([f32; LANES]);

/// `f(lane)` in each lane.
#[inline(always)]
fn each(f: impl Fn(usize) -> f32) -> Scalar {
    let mut lanes = [0.0; LANES];
    for (i, lane) in lanes.iter_mut().enumerate() {
        *lane = f(i);
    }
    Scalar(lanes)
}

/// bf16 number `i` at `at`.
#[inline(always)]
unsafe fn bf16_at(at: *const u8, i: usize) -> f32 {
    // SAFETY: the caller vouches for the two bytes of number `i`.
    bf16_to_f32(u16::from_le_bytes(unsafe { at.add(2 * i).cast::<[u8; 2]>().read() }))
}

impl Lanes for Scalar {
    type All = [Self; 1];
    type Words = [u32; LANES];

    const WIDTH: usize = LANES;
    const REGISTERS: usize = 0;

    #[inline(always)]
    unsafe fn zero() -> Self {
        Self([0.0; LANES])
    }

    #[inline(always)]
    unsafe fn zeros() -> Self::All {
        [Self([0.0; LANES])]
    }

    #[inline(always)]
    unsafe fn load(at: *const f32) -> Self {
        // SAFETY: the caller vouches for 16 f32 at `at`.
        Self(unsafe { at.cast::<[f32; LANES]>().read_unaligned() })
    }

    #[inline(always)]
    unsafe fn store(self, at: *mut f32) {
        // SAFETY: the caller vouches for 16 f32 at `at`.
        unsafe { at.cast::<[f32; LANES]>().write_unaligned(self.0) };
    }

    #[inline(always)]
    unsafe fn fma(self, b: Self, c: Self) -> Self {
        each(|i| self.0[i].mul_add(b.0[i], c.0[i]))
    }

    #[inline(always)]
    unsafe fn sums<const N: usize>(all: [Self::All; N]) -> [f32; N] {
        all.map(|[Self(mut lanes)]| {
            for half in [8, 4, 2, 1] {
                for i in 0..half {
                    lanes[i] += lanes[i + half];
                }
            }
            lanes[0]
        })
    }

    #[inline(always)]
    unsafe fn words(at: *const u8) -> Self::Words {
        // SAFETY: the caller vouches for 64 bytes at `at`.
        unsafe { at.cast::<[[u8; 4]; LANES]>().read() }.map(u32::from_le_bytes)
    }

    #[inline(always)]
    unsafe fn field(words: Self::Words, mask: u32) -> Self {
        each(|i| (words[i] & mask) as f32)
    }

    #[inline(always)]
    unsafe fn top_byte(words: Self::Words) -> Self {
        each(|i| (words[i] >> 24) as f32)
    }

    #[inline(always)]
    unsafe fn low_bf16(words: Self::Words) -> Self {
        each(|i| f32::from_bits(words[i] << 16))
    }

    #[inline(always)]
    unsafe fn high_bf16(words: Self::Words) -> Self {
        each(|i| f32::from_bits(words[i] & 0xffff_0000))
    }

    #[inline(always)]
    unsafe fn bf16(at: *const u8) -> Self {
        // SAFETY: the caller vouches for 16 bf16 at `at`.
        each(|i| unsafe { bf16_at(at, i) })
    }

    #[inline(always)]
    unsafe fn masked(self, mask: *const u32) -> Self {
        // SAFETY: the caller vouches for 16 masks at `mask`.
        each(|i| unsafe { f32::from_bits(self.0[i].to_bits() & mask.add(i).read_unaligned()) })
    }

    #[inline(always)]
    unsafe fn spread(at: *const f32, _part: usize, words: usize) -> Self {
        // SAFETY: the caller vouches for the f32 of the block's groups.
        each(|i| unsafe { at.add(i / words).read() })
    }

    #[inline(always)]
    unsafe fn nibbles(words: Self::Words) -> [Self::Words; 2] {
        [words.map(|word| word & 0x0f0f_0f0f), words.map(|word| word >> 4 & 0x0f0f_0f0f)]
    }

    #[inline(always)]
    unsafe fn nothing() -> Self::Words {
        [0; LANES]
    }

    #[inline(always)]
    unsafe fn dots<const DOT: bool>(
        sums: Self::Words,
        w: [Self::Words; 2],
        x: [*const f32; 2],
    ) -> Self::Words {
        let mut sums = sums;
        for (i, sum) in sums.iter_mut().enumerate() {
            for (w, x) in w.iter().zip(x) {
                // SAFETY: the caller vouches for 16 words at each of `x`.
                let x = unsafe { x.add(i).read() }.to_bits();
                for (w, x) in w[i].to_le_bytes().into_iter().zip(x.to_le_bytes()) {
                    *sum = sum.wrapping_add_signed(i32::from(w) * i32::from(x as i8));
                }
            }
        }
        sums
    }

    #[inline(always)]
    unsafe fn fours(sums: [Self::Words; 4]) -> Self::Words {
        let mut fours = [0_u32; LANES];
        for (i, four) in fours.iter_mut().enumerate() {
            let words = &sums[i % 4][i / 4 * 4..][..4];
            *four = words.iter().fold(0, |sum, word| sum.wrapping_add(*word));
        }
        fours
    }

    #[inline(always)]
    unsafe fn groups(fours: &[Self::Words], words: usize) -> Self::All {
        // Four words of number `i` of all, in the order of the words.
        let four = |i: usize| fours[i / 16][i % 4 * 4 + i / 4 % 4];
        let group = |g: usize| {
            let fours = g * words / 4..(g + 1) * words / 4;
            fours.fold(0_u32, |sum, i| sum.wrapping_add(four(i)))
        };
        [each(|g| group(g).cast_signed() as f32)]
    }

    #[inline(always)]
    unsafe fn times_256(words: Self::Words) -> Self::Words {
        words.map(|word| word << 8)
    }

    #[inline(always)]
    unsafe fn whole(words: Self::Words) -> Self {
        each(|i| words[i].cast_signed() as f32)
    }

    #[inline(always)]
    unsafe fn prefetch(_at: *const u8) {}
}
