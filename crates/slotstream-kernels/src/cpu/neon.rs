//! Four lanes in one NEON register.

#![allow(unused_unsafe, reason = "safe to call where NEON is part of the target's baseline")]

use std::arch::{aarch64::*, asm};

use super::lanes::Lanes;

/// Four of the sixteen lanes.
#[derive(Clone, Copy)]
pub(super) struct Neon(float32x4_t);

/// `sums` plus, for each of the four, four products of signed bytes.
#[inline(always)]
unsafe fn dot(mut sums: int32x4_t, a: int8x16_t, b: int8x16_t) -> int32x4_t {
    // SAFETY: the caller vouches for the dot products of NEON; it changes nothing but `sums`.
    unsafe {
        asm!(
            ".arch_extension dotprod",
            "sdot {sums:v}.4s, {a:v}.16b, {b:v}.16b",
            sums = inout(vreg) sums,
            a = in(vreg) a,
            b = in(vreg) b,
            options(pure, nomem, nostack, preserves_flags),
        );
    }
    sums
}

/// 4 words at `at`.
#[inline(always)]
unsafe fn four(at: *const u8) -> uint32x4_t {
    // SAFETY: the caller vouches for 16 bytes at `at` and for NEON.
    unsafe { vreinterpretq_u32_u8(vld1q_u8(at)) }
}

impl Lanes for Neon {
    type All = [Self; 4];
    type Words = uint32x4_t;

    const WIDTH: usize = 4;
    const REGISTERS: usize = 32;

    #[inline(always)]
    unsafe fn zero() -> Self {
        // SAFETY: the caller vouches for NEON.
        unsafe { Self(vdupq_n_f32(0.0)) }
    }

    #[inline(always)]
    unsafe fn zeros() -> Self::All {
        // SAFETY: the caller vouches for NEON.
        unsafe { [Self::zero(); 4] }
    }

    #[inline(always)]
    unsafe fn load(at: *const f32) -> Self {
        // SAFETY: the caller vouches for 4 f32 at `at` and for NEON.
        unsafe { Self(vld1q_f32(at)) }
    }

    #[inline(always)]
    unsafe fn store(self, at: *mut f32) {
        // SAFETY: the caller vouches for 4 f32 at `at` and for NEON.
        unsafe { vst1q_f32(at, self.0) };
    }

    #[inline(always)]
    unsafe fn fma(self, b: Self, c: Self) -> Self {
        // SAFETY: the caller vouches for NEON.
        unsafe { Self(vfmaq_f32(c.0, self.0, b.0)) }
    }

    #[inline(always)]
    unsafe fn sums<const N: usize>(all: [Self::All; N]) -> [f32; N] {
        // SAFETY: the caller vouches for NEON.
        all.map(|[a, b, c, d]| unsafe {
            let by4 = vaddq_f32(vaddq_f32(a.0, c.0), vaddq_f32(b.0, d.0));
            let by2 = vadd_f32(vget_low_f32(by4), vget_high_f32(by4));
            vget_lane_f32::<0>(by2) + vget_lane_f32::<1>(by2)
        })
    }

    #[inline(always)]
    unsafe fn words(at: *const u8) -> Self::Words {
        // SAFETY: the caller vouches for 16 bytes at `at` and for NEON.
        unsafe { four(at) }
    }

    #[inline(always)]
    unsafe fn field(words: Self::Words, mask: u32) -> Self {
        // SAFETY: the caller vouches for NEON.
        unsafe { Self(vcvtq_f32_u32(vandq_u32(words, vdupq_n_u32(mask)))) }
    }

    #[inline(always)]
    unsafe fn top_byte(words: Self::Words) -> Self {
        // SAFETY: the caller vouches for NEON.
        unsafe { Self(vcvtq_f32_u32(vshrq_n_u32::<24>(words))) }
    }

    #[inline(always)]
    unsafe fn low_bf16(words: Self::Words) -> Self {
        // SAFETY: the caller vouches for NEON.
        unsafe { Self(vreinterpretq_f32_u32(vshlq_n_u32::<16>(words))) }
    }

    #[inline(always)]
    unsafe fn high_bf16(words: Self::Words) -> Self {
        // SAFETY: the caller vouches for NEON.
        unsafe { Self(vreinterpretq_f32_u32(vandq_u32(words, vdupq_n_u32(0xffff_0000)))) }
    }

    #[inline(always)]
    unsafe fn bf16(at: *const u8) -> Self {
        // SAFETY: the caller vouches for 4 bf16 at `at` and for NEON.
        unsafe {
            let wide = vmovl_u16(vreinterpret_u16_u8(vld1_u8(at)));
            Self(vreinterpretq_f32_u32(vshlq_n_u32::<16>(wide)))
        }
    }

    #[inline(always)]
    unsafe fn masked(self, mask: *const u32) -> Self {
        // SAFETY: the caller vouches for 4 masks at `mask` and for NEON.
        unsafe {
            let bits = vreinterpretq_u32_f32(self.0);
            Self(vreinterpretq_f32_u32(vandq_u32(bits, four(mask.cast()))))
        }
    }

    #[inline(always)]
    unsafe fn spread(at: *const f32, part: usize, words: usize) -> Self {
        // A group has at least 4 words, so the lanes of a part share a scale.
        // SAFETY: the caller vouches for the f32 of the block's groups and for NEON.
        unsafe { Self(vld1q_dup_f32(at.add(part * Self::WIDTH / words))) }
    }

    #[inline(always)]
    unsafe fn nibbles(words: Self::Words) -> [Self::Words; 2] {
        // SAFETY: the caller vouches for NEON.
        unsafe {
            let bytes = vreinterpretq_u8_u32(words);
            let (low, high) = (vandq_u8(bytes, vdupq_n_u8(15)), vshrq_n_u8::<4>(bytes));
            [vreinterpretq_u32_u8(low), vreinterpretq_u32_u8(high)]
        }
    }

    #[inline(always)]
    unsafe fn nothing() -> Self::Words {
        // SAFETY: the caller vouches for NEON.
        unsafe { vdupq_n_u32(0) }
    }

    #[inline(always)]
    unsafe fn dots<const DOT: bool>(
        sums: Self::Words,
        w: [Self::Words; 2],
        x: [*const f32; 2],
    ) -> Self::Words {
        // SAFETY: the caller vouches for 16 bytes at each of `x`, for NEON and, with `DOT`, for
        // the dot products of NEON.
        unsafe {
            let sums = vreinterpretq_s32_u32(sums);
            let [low, high] = w.map(|w| vreinterpretq_s8_u32(w));
            let [even, odd] = x.map(|x| vld1q_s8(x.cast()));
            let sums = if DOT {
                dot(dot(sums, low, even), high, odd)
            } else {
                // Four products of a nibble and a byte are far below 2^15.
                let first = vmull_s8(vget_low_s8(low), vget_low_s8(even));
                let first = vmlal_s8(first, vget_low_s8(high), vget_low_s8(odd));
                let second = vmull_high_s8(low, even);
                let second = vmlal_high_s8(second, high, odd);
                vpadalq_s16(sums, vpaddq_s16(first, second))
            };
            vreinterpretq_u32_s32(sums)
        }
    }

    #[inline(always)]
    unsafe fn fours([a, b, c, d]: [Self::Words; 4]) -> Self::Words {
        // SAFETY: the caller vouches for NEON.
        unsafe { vpaddq_u32(vpaddq_u32(a, b), vpaddq_u32(c, d)) }
    }

    #[inline(always)]
    unsafe fn groups(fours: &[Self::Words], words: usize) -> Self::All {
        let mut groups = [fours[0]; 4];
        // SAFETY: the caller vouches for NEON.
        unsafe {
            for (i, groups) in groups.iter_mut().enumerate() {
                *groups = match words {
                    4 => fours[i],
                    8 => vpaddq_u32(fours[2 * i], fours[2 * i + 1]),
                    _ => vpaddq_u32(
                        vpaddq_u32(fours[4 * i], fours[4 * i + 1]),
                        vpaddq_u32(fours[4 * i + 2], fours[4 * i + 3]),
                    ),
                };
            }
            groups.map(|groups| Self::whole(groups))
        }
    }

    #[inline(always)]
    unsafe fn times_256(words: Self::Words) -> Self::Words {
        // SAFETY: the caller vouches for NEON.
        unsafe { vshlq_n_u32::<8>(words) }
    }

    #[inline(always)]
    unsafe fn whole(words: Self::Words) -> Self {
        // SAFETY: the caller vouches for NEON.
        unsafe { Self(vcvtq_f32_s32(vreinterpretq_s32_u32(words))) }
    }

    #[inline(always)]
    unsafe fn prefetch(at: *const u8) {
        // SAFETY: a prefetch may name any address; it changes nothing but caches.
        unsafe {
            asm!("prfm pldl2keep, [{at}]", at = in(reg) at, options(nostack, readonly, preserves_flags));
        };
    }
}
