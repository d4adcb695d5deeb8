//! Sixteen lanes in two AVX2 registers.

use std::arch::x86_64::*;

use super::lanes::{LANES, Lanes};

/// Lanes 0 to 7 and 8 to 15.
#[derive(Clone, Copy)]
pub(super) struct Avx2(__m256, __m256);

/// bf16 number `i` at `at` in 8 lanes.
#[inline(always)]
unsafe fn splat(at: *const u8, i: usize) -> __m256 {
    // SAFETY: the caller vouches for the two bytes of number `i` and for AVX2.
    unsafe {
        let pair = _mm256_set1_epi16(at.add(2 * i).cast::<i16>().read_unaligned());
        _mm256_castsi256_ps(_mm256_and_si256(pair, _mm256_set1_epi32(0xffff_0000_u32 as i32)))
    }
}

/// bf16 number `i` at `at` in lanes 0 to 3, number `i + 1` in lanes 4 to 7.
#[inline(always)]
unsafe fn splat_two(at: *const u8, i: usize) -> __m256 {
    // SAFETY: the caller vouches for the four bytes and for AVX2.
    unsafe { _mm256_blend_ps::<0xf0>(splat(at, i), splat(at, i + 1)) }
}

/// 8 bf16 at `at`, widened and masked.
#[inline(always)]
unsafe fn widen(at: *const u8, mask: *const u32) -> __m256 {
    // SAFETY: the caller vouches for 16 bytes at `at`, 32 at `mask` and for AVX2.
    unsafe {
        let wide = _mm256_slli_epi32::<16>(_mm256_cvtepu16_epi32(_mm_loadu_si128(at.cast())));
        _mm256_castsi256_ps(_mm256_and_si256(wide, _mm256_loadu_si256(mask.cast())))
    }
}

impl Lanes for Avx2 {
    type Words = (__m256i, __m256i);

    #[inline(always)]
    unsafe fn zero() -> Self {
        // SAFETY: the caller vouches for AVX2.
        unsafe { Self(_mm256_setzero_ps(), _mm256_setzero_ps()) }
    }

    #[inline(always)]
    unsafe fn load(at: *const f32) -> Self {
        // SAFETY: the caller vouches for 16 f32 at `at` and for AVX2.
        unsafe { Self(_mm256_loadu_ps(at), _mm256_loadu_ps(at.add(8))) }
    }

    #[inline(always)]
    unsafe fn fma(self, b: Self, c: Self) -> Self {
        // SAFETY: the caller vouches for AVX2 and FMA.
        unsafe { Self(_mm256_fmadd_ps(self.0, b.0, c.0), _mm256_fmadd_ps(self.1, b.1, c.1)) }
    }

    #[inline(always)]
    unsafe fn sum(self) -> f32 {
        // SAFETY: the caller vouches for AVX2.
        unsafe {
            let by8 = _mm256_add_ps(self.0, self.1);
            let by4 = _mm_add_ps(_mm256_castps256_ps128(by8), _mm256_extractf128_ps::<1>(by8));
            let by2 = _mm_add_ps(by4, _mm_movehl_ps(by4, by4));
            _mm_cvtss_f32(_mm_add_ss(by2, _mm_movehdup_ps(by2)))
        }
    }

    #[inline(always)]
    unsafe fn words(at: *const u8) -> Self::Words {
        // SAFETY: the caller vouches for 64 bytes at `at` and for AVX2.
        unsafe { (_mm256_loadu_si256(at.cast()), _mm256_loadu_si256(at.add(32).cast())) }
    }

    #[inline(always)]
    unsafe fn field(words: Self::Words, mask: u32) -> Self {
        // SAFETY: the caller vouches for AVX2.
        unsafe {
            let mask = _mm256_set1_epi32(mask as i32);
            Self(
                _mm256_cvtepi32_ps(_mm256_and_si256(words.0, mask)),
                _mm256_cvtepi32_ps(_mm256_and_si256(words.1, mask)),
            )
        }
    }

    #[inline(always)]
    unsafe fn top_nibble(words: Self::Words) -> Self {
        // SAFETY: the caller vouches for AVX2.
        unsafe {
            Self(
                _mm256_cvtepi32_ps(_mm256_srli_epi32::<28>(words.0)),
                _mm256_cvtepi32_ps(_mm256_srli_epi32::<28>(words.1)),
            )
        }
    }

    #[inline(always)]
    unsafe fn top_byte(words: Self::Words) -> Self {
        // SAFETY: the caller vouches for AVX2.
        unsafe {
            Self(
                _mm256_cvtepi32_ps(_mm256_srli_epi32::<24>(words.0)),
                _mm256_cvtepi32_ps(_mm256_srli_epi32::<24>(words.1)),
            )
        }
    }

    #[inline(always)]
    unsafe fn low_bf16(words: Self::Words) -> Self {
        // SAFETY: the caller vouches for AVX2.
        unsafe {
            Self(
                _mm256_castsi256_ps(_mm256_slli_epi32::<16>(words.0)),
                _mm256_castsi256_ps(_mm256_slli_epi32::<16>(words.1)),
            )
        }
    }

    #[inline(always)]
    unsafe fn high_bf16(words: Self::Words) -> Self {
        // SAFETY: the caller vouches for AVX2.
        unsafe {
            let mask = _mm256_set1_epi32(0xffff_0000_u32 as i32);
            Self(
                _mm256_castsi256_ps(_mm256_and_si256(words.0, mask)),
                _mm256_castsi256_ps(_mm256_and_si256(words.1, mask)),
            )
        }
    }

    #[inline(always)]
    unsafe fn bf16(at: *const u8, mask: *const u32) -> Self {
        // SAFETY: the caller vouches for 16 bf16 at `at`, 16 masks at `mask` and for AVX2.
        unsafe { Self(widen(at, mask), widen(at.add(16), mask.add(8))) }
    }

    #[inline(always)]
    unsafe fn scales(at: *const u8, block: usize, words_per_group: usize) -> Self {
        let group = LANES * block / words_per_group;
        // SAFETY: the caller vouches for the scales of the block's groups and for AVX2.
        unsafe {
            match words_per_group {
                4 => Self(splat_two(at, group), splat_two(at, group + 2)),
                8 => Self(splat(at, group), splat(at, group + 1)),
                _ => {
                    let scale = splat(at, group);
                    Self(scale, scale)
                }
            }
        }
    }

    #[inline(always)]
    unsafe fn prefetch(at: *const u8) {
        // SAFETY: a prefetch may name any address.
        unsafe { _mm_prefetch::<_MM_HINT_T0>(at.cast()) };
    }
}
