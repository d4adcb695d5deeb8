//! Sixteen lanes in one AVX-512 register.

use std::arch::x86_64::*;

use super::lanes::{LANES, Lanes};

/// Sixteen lanes.
#[derive(Clone, Copy)]
pub(super) struct Avx512(__m512);

impl Lanes for Avx512 {
    type Words = __m512i;

    #[inline(always)]
    unsafe fn zero() -> Self {
        // SAFETY: the caller vouches for AVX-512.
        unsafe { Self(_mm512_setzero_ps()) }
    }

    #[inline(always)]
    unsafe fn load(at: *const f32) -> Self {
        // SAFETY: the caller vouches for 16 f32 at `at` and for AVX-512.
        unsafe { Self(_mm512_loadu_ps(at)) }
    }

    #[inline(always)]
    unsafe fn fma(self, b: Self, c: Self) -> Self {
        // SAFETY: the caller vouches for AVX-512.
        unsafe { Self(_mm512_fmadd_ps(self.0, b.0, c.0)) }
    }

    #[inline(always)]
    unsafe fn sum(self) -> f32 {
        // SAFETY: the caller vouches for AVX-512.
        unsafe {
            let upper = _mm512_extractf64x4_pd::<1>(_mm512_castps_pd(self.0));
            let by8 = _mm256_add_ps(_mm512_castps512_ps256(self.0), _mm256_castpd_ps(upper));
            let by4 = _mm_add_ps(_mm256_castps256_ps128(by8), _mm256_extractf128_ps::<1>(by8));
            let by2 = _mm_add_ps(by4, _mm_movehl_ps(by4, by4));
            _mm_cvtss_f32(_mm_add_ss(by2, _mm_movehdup_ps(by2)))
        }
    }

    #[inline(always)]
    unsafe fn words(at: *const u8) -> Self::Words {
        // SAFETY: the caller vouches for 64 bytes at `at` and for AVX-512.
        unsafe { _mm512_loadu_si512(at.cast()) }
    }

    #[inline(always)]
    unsafe fn field(words: Self::Words, mask: u32) -> Self {
        // SAFETY: the caller vouches for AVX-512.
        unsafe {
            let mask = _mm512_set1_epi32(mask as i32);
            Self(_mm512_cvtepi32_ps(_mm512_and_si512(words, mask)))
        }
    }

    #[inline(always)]
    unsafe fn top_nibble(words: Self::Words) -> Self {
        // SAFETY: the caller vouches for AVX-512.
        unsafe { Self(_mm512_cvtepi32_ps(_mm512_srli_epi32::<28>(words))) }
    }

    #[inline(always)]
    unsafe fn top_byte(words: Self::Words) -> Self {
        // SAFETY: the caller vouches for AVX-512.
        unsafe { Self(_mm512_cvtepi32_ps(_mm512_srli_epi32::<24>(words))) }
    }

    #[inline(always)]
    unsafe fn low_bf16(words: Self::Words) -> Self {
        // SAFETY: the caller vouches for AVX-512.
        unsafe { Self(_mm512_castsi512_ps(_mm512_slli_epi32::<16>(words))) }
    }

    #[inline(always)]
    unsafe fn high_bf16(words: Self::Words) -> Self {
        // SAFETY: the caller vouches for AVX-512.
        unsafe {
            let mask = _mm512_set1_epi32(0xffff_0000_u32 as i32);
            Self(_mm512_castsi512_ps(_mm512_and_si512(words, mask)))
        }
    }

    #[inline(always)]
    unsafe fn bf16(at: *const u8, mask: *const u32) -> Self {
        // SAFETY: the caller vouches for 16 bf16 at `at`, 16 masks at `mask` and for AVX-512.
        unsafe {
            let wide = _mm512_cvtepu16_epi32(_mm256_loadu_si256(at.cast()));
            let masked =
                _mm512_and_si512(_mm512_slli_epi32::<16>(wide), _mm512_loadu_si512(mask.cast()));
            Self(_mm512_castsi512_ps(masked))
        }
    }

    #[inline(always)]
    unsafe fn scales(at: *const u8, block: usize, words_per_group: usize) -> Self {
        // SAFETY: the caller vouches for the scales of the block's groups and for AVX-512.
        unsafe {
            let at = at.add(2 * (LANES * block / words_per_group));
            let (few, lanes) = match words_per_group {
                4 => (
                    _mm_loadl_epi64(at.cast()),
                    _mm512_set_epi32(3, 3, 3, 3, 2, 2, 2, 2, 1, 1, 1, 1, 0, 0, 0, 0),
                ),
                8 => (
                    _mm_cvtsi32_si128(at.cast::<i32>().read_unaligned()),
                    _mm512_set_epi32(1, 1, 1, 1, 1, 1, 1, 1, 0, 0, 0, 0, 0, 0, 0, 0),
                ),
                _ => (
                    _mm_cvtsi32_si128(i32::from(at.cast::<u16>().read_unaligned())),
                    _mm512_setzero_si512(),
                ),
            };
            let wide = _mm512_castsi128_si512(_mm_slli_epi32::<16>(_mm_cvtepu16_epi32(few)));
            Self(_mm512_castsi512_ps(_mm512_permutexvar_epi32(lanes, wide)))
        }
    }

    #[inline(always)]
    unsafe fn prefetch(at: *const u8) {
        // SAFETY: a prefetch may name any address.
        unsafe { _mm_prefetch::<_MM_HINT_T0>(at.cast()) };
    }
}
