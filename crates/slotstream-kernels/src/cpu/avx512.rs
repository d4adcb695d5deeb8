//! Sixteen lanes in one AVX-512 register.

use std::arch::x86_64::*;

use super::{avx2, lanes::Lanes};

/// Sixteen lanes.
#[derive(Clone, Copy)]
pub(super) struct Avx512(__m512);

/// Of two quarters of a register in a row the sums, of the first register and of the second.
///
/// # Safety
/// The caller vouches for AVX-512.
#[inline(always)]
unsafe fn halves(a: __m512i, b: __m512i) -> __m512i {
    // SAFETY: the caller's promise.
    unsafe {
        _mm512_add_epi32(_mm512_shuffle_i32x4::<0x88>(a, b), _mm512_shuffle_i32x4::<0xdd>(a, b))
    }
}

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
    unsafe fn store(self, at: *mut f32) {
        // SAFETY: the caller vouches for 16 f32 at `at` and for AVX-512.
        unsafe { _mm512_storeu_ps(at, self.0) };
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
    unsafe fn bf16(at: *const u8) -> Self {
        // SAFETY: the caller vouches for 16 bf16 at `at` and for AVX-512.
        unsafe {
            let wide = _mm512_cvtepu16_epi32(_mm256_loadu_si256(at.cast()));
            Self(_mm512_castsi512_ps(_mm512_slli_epi32::<16>(wide)))
        }
    }

    #[inline(always)]
    unsafe fn masked(self, mask: *const u32) -> Self {
        // SAFETY: the caller vouches for 16 masks at `mask` and for AVX-512.
        unsafe {
            let masked =
                _mm512_and_si512(_mm512_castps_si512(self.0), _mm512_loadu_si512(mask.cast()));
            Self(_mm512_castsi512_ps(masked))
        }
    }

    #[inline(always)]
    unsafe fn spread(at: *const f32, _part: usize, words: usize) -> Self {
        // SAFETY: the caller vouches for the f32 of the block's groups and for AVX-512.
        unsafe {
            Self(match words {
                4 => _mm512_permutevar_ps(
                    _mm512_broadcast_f32x4(_mm_loadu_ps(at)),
                    _mm512_set_epi32(3, 3, 3, 3, 2, 2, 2, 2, 1, 1, 1, 1, 0, 0, 0, 0),
                ),
                8 => _mm512_permutevar_ps(
                    _mm512_castpd_ps(_mm512_set1_pd(at.cast::<f64>().read_unaligned())),
                    _mm512_set_epi32(1, 1, 1, 1, 1, 1, 1, 1, 0, 0, 0, 0, 0, 0, 0, 0),
                ),
                _ => _mm512_set1_ps(*at),
            })
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
    unsafe fn nothing() -> Self::Words {
        // SAFETY: the caller vouches for AVX-512.
        unsafe { _mm512_setzero_si512() }
    }

    #[inline(always)]
    unsafe fn dots<const DOT: bool>(
        sums: Self::Words,
        w: [Self::Words; 2],
        x: [*const f32; 2],
    ) -> Self::Words {
        // SAFETY: the caller vouches for 64 bytes at each of `x`, for AVX-512 and, with `DOT`,
        // for AVX-512 VNNI.
        unsafe {
            let x = x.map(|x| _mm512_loadu_si512(x.cast()));
            if DOT {
                return _mm512_dpbusd_epi32(_mm512_dpbusd_epi32(sums, w[0], x[0]), w[1], x[1]);
            }
            // Four products of a nibble and a byte are far below 2^15.
            let pairs = _mm512_add_epi16(
                _mm512_maddubs_epi16(w[0], x[0]),
                _mm512_maddubs_epi16(w[1], x[1]),
            );
            _mm512_add_epi32(sums, _mm512_madd_epi16(pairs, _mm512_set1_epi16(1)))
        }
    }

    #[inline(always)]
    unsafe fn fours([a, b, c, d]: [Self::Words; 4]) -> Self::Words {
        // SAFETY: the caller vouches for AVX-512. Sums of two words still have 16 bits.
        unsafe {
            let one = _mm512_set1_epi16(1);
            let ab = _mm512_madd_epi16(_mm512_packs_epi32(a, b), one);
            let cd = _mm512_madd_epi16(_mm512_packs_epi32(c, d), one);
            _mm512_madd_epi16(_mm512_packs_epi32(ab, cd), one)
        }
    }

    #[inline(always)]
    unsafe fn groups(fours: &[Self::Words], words: usize) -> Self::All {
        // SAFETY: the caller vouches for AVX-512.
        unsafe {
            let groups = match words {
                4 => _mm512_permutexvar_epi32(
                    _mm512_set_epi32(15, 11, 7, 3, 14, 10, 6, 2, 13, 9, 5, 1, 12, 8, 4, 0),
                    fours[0],
                ),
                8 => _mm512_permutexvar_epi32(
                    _mm512_set_epi32(15, 11, 14, 10, 13, 9, 12, 8, 7, 3, 6, 2, 5, 1, 4, 0),
                    halves(fours[0], fours[1]),
                ),
                _ => halves(halves(fours[0], fours[1]), halves(fours[2], fours[3])),
            };
            [Self(_mm512_cvtepi32_ps(groups))]
        }
    }

    #[inline(always)]
    unsafe fn times_256(words: Self::Words) -> Self::Words {
        // SAFETY: the caller vouches for AVX-512.
        unsafe { _mm512_slli_epi32::<8>(words) }
    }

    #[inline(always)]
    unsafe fn whole(words: Self::Words) -> Self {
        // SAFETY: the caller vouches for AVX-512.
        unsafe { Self(_mm512_cvtepi32_ps(words)) }
    }

    #[inline(always)]
    unsafe fn prefetch(at: *const u8) {
        // SAFETY: a prefetch may name any address.
        unsafe { _mm_prefetch::<_MM_HINT_T1>(at.cast()) };
    }
}
