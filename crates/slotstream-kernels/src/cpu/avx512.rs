//! Sixteen lanes in one AVX-512 register.

use std::arch::x86_64::*;

use super::{avx2, lanes::Lanes};

/// Sixteen lanes.
#[derive(Clone, Copy)]
pub(super) struct Avx512(__m512);

impl Lanes for Avx512 {
    type All = [Self; 1];
    type Words = __m512i;

    const WIDTH: usize = 16;
    const REGISTERS: usize = 32;

    #[inline(always)]
    unsafe fn zero() -> Self {
        // SAFETY: the caller vouches for AVX-512.
        unsafe { Self(_mm512_setzero_ps()) }
    }

    #[inline(always)]
    unsafe fn zeros() -> Self::All {
        // SAFETY: the caller vouches for AVX-512.
        unsafe { [Self::zero()] }
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
    unsafe fn sums<const N: usize>(all: [Self::All; N]) -> [f32; N] {
        // SAFETY: the caller vouches for AVX-512, which comes with AVX2.
        unsafe {
            let mut halves = [_mm256_setzero_ps(); N];
            for n in 0..N {
                let lanes = all[n][0].0;
                let upper = _mm512_extractf64x4_pd::<1>(_mm512_castps_pd(lanes));
                halves[n] = _mm256_add_ps(_mm512_castps512_ps256(lanes), _mm256_castpd_ps(upper));
            }
            avx2::sums(halves)
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
    unsafe fn scales(at: *const u8, _part: usize, words_per_group: usize) -> Self {
        // Bytes `i` and `i + 1` as the upper half of a word.
        const fn upper(i: i32) -> i32 {
            i << 16 | (i + 1) << 24 | 0x8080
        }
        // SAFETY: the caller vouches for the scales of the block's groups and for AVX-512.
        unsafe {
            let (few, bytes) = match words_per_group {
                4 => (
                    _mm512_set1_epi64(at.cast::<i64>().read_unaligned()),
                    _mm512_set_epi32(
                        upper(6),
                        upper(6),
                        upper(6),
                        upper(6),
                        upper(4),
                        upper(4),
                        upper(4),
                        upper(4),
                        upper(2),
                        upper(2),
                        upper(2),
                        upper(2),
                        upper(0),
                        upper(0),
                        upper(0),
                        upper(0),
                    ),
                ),
                8 => (
                    _mm512_set1_epi32(at.cast::<i32>().read_unaligned()),
                    _mm512_set_epi32(
                        upper(2),
                        upper(2),
                        upper(2),
                        upper(2),
                        upper(2),
                        upper(2),
                        upper(2),
                        upper(2),
                        upper(0),
                        upper(0),
                        upper(0),
                        upper(0),
                        upper(0),
                        upper(0),
                        upper(0),
                        upper(0),
                    ),
                ),
                _ => (
                    _mm512_set1_epi16(at.cast::<i16>().read_unaligned()),
                    _mm512_set1_epi32(upper(0)),
                ),
            };
            Self(_mm512_castsi512_ps(_mm512_shuffle_epi8(few, bytes)))
        }
    }

    #[inline(always)]
    unsafe fn nibbles(words: Self::Words) -> [Self::Words; 2] {
        // SAFETY: the caller vouches for AVX-512.
        unsafe {
            let mask = _mm512_set1_epi8(15);
            [_mm512_and_si512(words, mask), _mm512_and_si512(_mm512_srli_epi16::<4>(words), mask)]
        }
    }

    #[inline(always)]
    unsafe fn dots<const DOT: bool>(w: [Self::Words; 2], x: [*const f32; 2]) -> Self {
        // SAFETY: the caller vouches for 64 bytes at each of `x`, for AVX-512 and, with `DOT`,
        // for AVX-512 VNNI.
        unsafe {
            let x = x.map(|x| _mm512_loadu_si512(x.cast()));
            let sums = if DOT {
                let sums = _mm512_dpbusd_epi32(_mm512_setzero_si512(), w[0], x[0]);
                _mm512_dpbusd_epi32(sums, w[1], x[1])
            } else {
                // Four products of a nibble and a byte are far below 2^15.
                let pairs = _mm512_add_epi16(
                    _mm512_maddubs_epi16(w[0], x[0]),
                    _mm512_maddubs_epi16(w[1], x[1]),
                );
                _mm512_madd_epi16(pairs, _mm512_set1_epi16(1))
            };
            Self(_mm512_cvtepi32_ps(sums))
        }
    }

    #[inline(always)]
    unsafe fn prefetch(at: *const u8) {
        // SAFETY: a prefetch may name any address.
        unsafe { _mm_prefetch::<_MM_HINT_T0>(at.cast()) };
    }
}
