//! Sixteen lanes in four NEON registers.

#![allow(unused_unsafe, reason = "safe to call where NEON is part of the target's baseline")]

use std::arch::aarch64::*;

use slotstream_core::bf16_to_f32;

use super::lanes::{LANES, Lanes};

/// Lanes 0 to 3, 4 to 7, 8 to 11 and 12 to 15.
#[derive(Clone, Copy)]
pub(super) struct Neon(float32x4_t, float32x4_t, float32x4_t, float32x4_t);

/// Four registers of words.
#[derive(Clone, Copy)]
pub(super) struct Words(uint32x4_t, uint32x4_t, uint32x4_t, uint32x4_t);

/// 4 words at `at`.
#[inline(always)]
unsafe fn four(at: *const u8) -> uint32x4_t {
    // SAFETY: the caller vouches for 16 bytes at `at` and for NEON.
    unsafe { vreinterpretq_u32_u8(vld1q_u8(at)) }
}

/// 4 bf16 at `at`, widened and masked.
#[inline(always)]
unsafe fn widen(at: *const u8, mask: *const u32) -> float32x4_t {
    // SAFETY: the caller vouches for 8 bytes at `at`, 16 at `mask` and for NEON.
    unsafe {
        let wide = vshlq_n_u32::<16>(vmovl_u16(vreinterpret_u16_u8(vld1_u8(at))));
        vreinterpretq_f32_u32(vandq_u32(wide, four(mask.cast())))
    }
}

/// bf16 number `i` at `at` in 4 lanes.
#[inline(always)]
unsafe fn splat(at: *const u8, i: usize) -> float32x4_t {
    // SAFETY: the caller vouches for the two bytes of number `i` and for NEON.
    unsafe {
        let bits = u16::from_le_bytes(at.add(2 * i).cast::<[u8; 2]>().read());
        vdupq_n_f32(bf16_to_f32(bits))
    }
}

/// `words & mask` as numbers.
#[inline(always)]
unsafe fn masked(words: uint32x4_t, mask: uint32x4_t) -> float32x4_t {
    // SAFETY: the caller vouches for NEON.
    unsafe { vcvtq_f32_u32(vandq_u32(words, mask)) }
}

impl Lanes for Neon {
    type Words = Words;

    #[inline(always)]
    unsafe fn zero() -> Self {
        // SAFETY: the caller vouches for NEON.
        unsafe {
            let zero = vdupq_n_f32(0.0);
            Self(zero, zero, zero, zero)
        }
    }

    #[inline(always)]
    unsafe fn load(at: *const f32) -> Self {
        // SAFETY: the caller vouches for 16 f32 at `at` and for NEON.
        unsafe {
            Self(vld1q_f32(at), vld1q_f32(at.add(4)), vld1q_f32(at.add(8)), vld1q_f32(at.add(12)))
        }
    }

    #[inline(always)]
    unsafe fn fma(self, b: Self, c: Self) -> Self {
        // SAFETY: the caller vouches for NEON.
        unsafe {
            Self(
                vfmaq_f32(c.0, self.0, b.0),
                vfmaq_f32(c.1, self.1, b.1),
                vfmaq_f32(c.2, self.2, b.2),
                vfmaq_f32(c.3, self.3, b.3),
            )
        }
    }

    #[inline(always)]
    unsafe fn sum(self) -> f32 {
        // SAFETY: the caller vouches for NEON.
        unsafe {
            let by8 = (vaddq_f32(self.0, self.2), vaddq_f32(self.1, self.3));
            let by4 = vaddq_f32(by8.0, by8.1);
            let by2 = vadd_f32(vget_low_f32(by4), vget_high_f32(by4));
            vget_lane_f32::<0>(by2) + vget_lane_f32::<1>(by2)
        }
    }

    #[inline(always)]
    unsafe fn words(at: *const u8) -> Self::Words {
        // SAFETY: the caller vouches for 64 bytes at `at` and for NEON.
        unsafe { Words(four(at), four(at.add(16)), four(at.add(32)), four(at.add(48))) }
    }

    #[inline(always)]
    unsafe fn field(words: Self::Words, mask: u32) -> Self {
        // SAFETY: the caller vouches for NEON.
        unsafe {
            let mask = vdupq_n_u32(mask);
            Self(
                masked(words.0, mask),
                masked(words.1, mask),
                masked(words.2, mask),
                masked(words.3, mask),
            )
        }
    }

    #[inline(always)]
    unsafe fn top_nibble(words: Self::Words) -> Self {
        // SAFETY: the caller vouches for NEON.
        unsafe {
            Self(
                vcvtq_f32_u32(vshrq_n_u32::<28>(words.0)),
                vcvtq_f32_u32(vshrq_n_u32::<28>(words.1)),
                vcvtq_f32_u32(vshrq_n_u32::<28>(words.2)),
                vcvtq_f32_u32(vshrq_n_u32::<28>(words.3)),
            )
        }
    }

    #[inline(always)]
    unsafe fn top_byte(words: Self::Words) -> Self {
        // SAFETY: the caller vouches for NEON.
        unsafe {
            Self(
                vcvtq_f32_u32(vshrq_n_u32::<24>(words.0)),
                vcvtq_f32_u32(vshrq_n_u32::<24>(words.1)),
                vcvtq_f32_u32(vshrq_n_u32::<24>(words.2)),
                vcvtq_f32_u32(vshrq_n_u32::<24>(words.3)),
            )
        }
    }

    #[inline(always)]
    unsafe fn low_bf16(words: Self::Words) -> Self {
        // SAFETY: the caller vouches for NEON.
        unsafe {
            Self(
                vreinterpretq_f32_u32(vshlq_n_u32::<16>(words.0)),
                vreinterpretq_f32_u32(vshlq_n_u32::<16>(words.1)),
                vreinterpretq_f32_u32(vshlq_n_u32::<16>(words.2)),
                vreinterpretq_f32_u32(vshlq_n_u32::<16>(words.3)),
            )
        }
    }

    #[inline(always)]
    unsafe fn high_bf16(words: Self::Words) -> Self {
        // SAFETY: the caller vouches for NEON.
        unsafe {
            let mask = vdupq_n_u32(0xffff_0000);
            Self(
                vreinterpretq_f32_u32(vandq_u32(words.0, mask)),
                vreinterpretq_f32_u32(vandq_u32(words.1, mask)),
                vreinterpretq_f32_u32(vandq_u32(words.2, mask)),
                vreinterpretq_f32_u32(vandq_u32(words.3, mask)),
            )
        }
    }

    #[inline(always)]
    unsafe fn bf16(at: *const u8, mask: *const u32) -> Self {
        // SAFETY: the caller vouches for 16 bf16 at `at`, 16 masks at `mask` and for NEON.
        unsafe {
            Self(
                widen(at, mask),
                widen(at.add(8), mask.add(4)),
                widen(at.add(16), mask.add(8)),
                widen(at.add(24), mask.add(12)),
            )
        }
    }

    #[inline(always)]
    unsafe fn scales(at: *const u8, block: usize, words_per_group: usize) -> Self {
        let word = LANES * block;
        // SAFETY: the caller vouches for the scales of the block's groups and for NEON. A group
        // has at least 4 words, so 4 lanes share a scale.
        unsafe {
            Self(
                splat(at, word / words_per_group),
                splat(at, (word + 4) / words_per_group),
                splat(at, (word + 8) / words_per_group),
                splat(at, (word + 12) / words_per_group),
            )
        }
    }

    #[inline(always)]
    unsafe fn prefetch(_at: *const u8) {}
}
