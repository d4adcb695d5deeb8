//! Eight lanes in one AVX2 register.

use std::arch::x86_64::*;

use super::lanes::Lanes;

/// Eight of the sixteen lanes.
#[derive(Clone, Copy)]
pub(super) struct Avx2(__m256);

/// The sum of the eight lanes of each: lane `i` and `i + 4`, then `i + 2`, `i + 1`.
///
/// # Safety
/// The caller vouches for AVX2.
#[inline(always)]
pub(super) unsafe fn sums<const N: usize>(all: [__m256; N]) -> [f32; N] {
    let mut results = [0.0; N];
    // SAFETY: the caller vouches for AVX2.
    unsafe {
        let mut i = 0;
        while i < N {
            let mut four = [all[i]; 4];
            for j in 1..4 {
                if i + j < N {
                    four[j] = all[i + j];
                }
            }
            let four = four_sums(four);
            for j in 0..4 {
                if i + j < N {
                    results[i + j] = four[j];
                }
            }
            i += 4;
        }
    }
    results
}

/// Of the two halves of each register the sums.
///
/// # Safety
/// The caller vouches for AVX2.
#[inline(always)]
unsafe fn eights(a: __m256i, b: __m256i) -> __m256i {
    // SAFETY: the caller's promise.
    unsafe {
        _mm256_add_epi32(
            _mm256_permute2x128_si256::<0x20>(a, b),
            _mm256_permute2x128_si256::<0x31>(a, b),
        )
    }
}

/// Of each register, one of four, the sum of the first half and that of the second half, one after
/// the other: [`eights`], of which two in a row are added.
///
/// # Safety
/// The caller vouches for AVX2.
#[inline(always)]
unsafe fn sixteens(fours: &[__m256i]) -> __m256i {
    // SAFETY: the caller's promise.
    unsafe {
        let pairs = _mm256_hadd_epi32(eights(fours[0], fours[1]), eights(fours[2], fours[3]));
        _mm256_permute4x64_epi64::<0b11_01_10_00>(pairs)
    }
}

/// [`sums`] of four, the additions of different ones side by side.
#[inline(always)]
unsafe fn four_sums([a, b, c, d]: [__m256; 4]) -> [f32; 4] {
    // SAFETY: the caller vouches for AVX2.
    unsafe {
        // Four lanes of each.
        let ac = _mm256_castps_pd(_mm256_add_ps(
            _mm256_permute2f128_ps::<0x20>(a, c),
            _mm256_permute2f128_ps::<0x31>(a, c),
        ));
        let bd = _mm256_castps_pd(_mm256_add_ps(
            _mm256_permute2f128_ps::<0x20>(b, d),
            _mm256_permute2f128_ps::<0x31>(b, d),
        ));
        let by2 = _mm256_add_ps(
            _mm256_castpd_ps(_mm256_unpacklo_pd(ac, bd)),
            _mm256_castpd_ps(_mm256_unpackhi_pd(ac, bd)),
        );
        let by1 = _mm256_add_ps(by2, _mm256_movehdup_ps(by2));
        let (ab, cd) = (_mm256_castps256_ps128(by1), _mm256_extractf128_ps::<1>(by1));
        let sums = _mm_shuffle_ps::<0b10_00_10_00>(ab, cd);
        let mut results = [0.0; 4];
        _mm_storeu_ps(results.as_mut_ptr(), sums);
        results
    }
}

impl Lanes for Avx2 {
    type All = [Self; 2];
    type Words = __m256i;

    const WIDTH: usize = 8;
    const REGISTERS: usize = 16;

    #[inline(always)]
    unsafe fn zero() -> Self {
        // SAFETY: the caller vouches for AVX2.
        unsafe { Self(_mm256_setzero_ps()) }
    }

    #[inline(always)]
    unsafe fn zeros() -> Self::All {
        // SAFETY: the caller vouches for AVX2.
        unsafe { [Self::zero(); 2] }
    }

    #[inline(always)]
    unsafe fn load(at: *const f32) -> Self {
        // SAFETY: the caller vouches for 8 f32 at `at` and for AVX2.
        unsafe { Self(_mm256_loadu_ps(at)) }
    }

    #[inline(always)]
    unsafe fn store(self, at: *mut f32) {
        // SAFETY: the caller vouches for 8 f32 at `at` and for AVX2.
        unsafe { _mm256_storeu_ps(at, self.0) };
    }

    #[inline(always)]
    unsafe fn fma(self, b: Self, c: Self) -> Self {
        // SAFETY: the caller vouches for AVX2 and FMA.
        unsafe { Self(_mm256_fmadd_ps(self.0, b.0, c.0)) }
    }

    #[inline(always)]
    unsafe fn sums<const N: usize>(all: [Self::All; N]) -> [f32; N] {
        // SAFETY: the caller vouches for AVX2.
        unsafe {
            let mut halves = [_mm256_setzero_ps(); N];
            for n in 0..N {
                halves[n] = _mm256_add_ps(all[n][0].0, all[n][1].0);
            }
            sums(halves)
        }
    }

    #[inline(always)]
    unsafe fn words(at: *const u8) -> Self::Words {
        // SAFETY: the caller vouches for 32 bytes at `at` and for AVX2.
        unsafe { _mm256_loadu_si256(at.cast()) }
    }

    #[inline(always)]
    unsafe fn field(words: Self::Words, mask: u32) -> Self {
        // SAFETY: the caller vouches for AVX2.
        unsafe {
            let mask = _mm256_set1_epi32(mask as i32);
            Self(_mm256_cvtepi32_ps(_mm256_and_si256(words, mask)))
        }
    }

    #[inline(always)]
    unsafe fn top_byte(words: Self::Words) -> Self {
        // SAFETY: the caller vouches for AVX2.
        unsafe { Self(_mm256_cvtepi32_ps(_mm256_srli_epi32::<24>(words))) }
    }

    #[inline(always)]
    unsafe fn low_bf16(words: Self::Words) -> Self {
        // SAFETY: the caller vouches for AVX2.
        unsafe { Self(_mm256_castsi256_ps(_mm256_slli_epi32::<16>(words))) }
    }

    #[inline(always)]
    unsafe fn high_bf16(words: Self::Words) -> Self {
        // SAFETY: the caller vouches for AVX2.
        unsafe {
            let mask = _mm256_set1_epi32(0xffff_0000_u32 as i32);
            Self(_mm256_castsi256_ps(_mm256_and_si256(words, mask)))
        }
    }

    #[inline(always)]
    unsafe fn bf16(at: *const u8) -> Self {
        // SAFETY: the caller vouches for 8 bf16 at `at` and for AVX2.
        unsafe {
            let wide = _mm256_cvtepu16_epi32(_mm_loadu_si128(at.cast()));
            Self(_mm256_castsi256_ps(_mm256_slli_epi32::<16>(wide)))
        }
    }

    #[inline(always)]
    unsafe fn masked(self, mask: *const u32) -> Self {
        // SAFETY: the caller vouches for 8 masks at `mask` and for AVX2.
        unsafe { Self(_mm256_and_ps(self.0, _mm256_loadu_ps(mask.cast()))) }
    }

    #[inline(always)]
    unsafe fn spread(at: *const f32, part: usize, words: usize) -> Self {
        // SAFETY: the caller vouches for the f32 of the block's groups and for AVX2.
        unsafe {
            let at = at.add(part * Self::WIDTH / words);
            let first = _mm256_broadcast_ss(&*at);
            if words > 4 {
                return Self(first);
            }
            Self(_mm256_blend_ps::<0xf0>(first, _mm256_broadcast_ss(&*at.add(1))))
        }
    }

    #[inline(always)]
    unsafe fn nibbles(words: Self::Words) -> [Self::Words; 2] {
        // SAFETY: the caller vouches for AVX2.
        unsafe {
            let mask = _mm256_set1_epi8(15);
            [_mm256_and_si256(words, mask), _mm256_and_si256(_mm256_srli_epi16::<4>(words), mask)]
        }
    }

    #[inline(always)]
    unsafe fn nothing() -> Self::Words {
        // SAFETY: the caller vouches for AVX2.
        unsafe { _mm256_setzero_si256() }
    }

    #[inline(always)]
    unsafe fn dots<const DOT: bool>(
        sums: Self::Words,
        w: [Self::Words; 2],
        x: [*const f32; 2],
    ) -> Self::Words {
        // SAFETY: the caller vouches for 32 bytes at each of `x`, for AVX2 and, with `DOT`,
        // for AVX-VNNI.
        unsafe {
            let x = x.map(|x| _mm256_loadu_si256(x.cast()));
            if DOT {
                let sums = _mm256_dpbusd_avx_epi32(sums, w[0], x[0]);
                return _mm256_dpbusd_avx_epi32(sums, w[1], x[1]);
            }
            // Four products of a nibble and a byte are far below 2^15.
            let pairs = _mm256_add_epi16(
                _mm256_maddubs_epi16(w[0], x[0]),
                _mm256_maddubs_epi16(w[1], x[1]),
            );
            _mm256_add_epi32(sums, _mm256_madd_epi16(pairs, _mm256_set1_epi16(1)))
        }
    }

    #[inline(always)]
    unsafe fn fours([a, b, c, d]: [Self::Words; 4]) -> Self::Words {
        // SAFETY: the caller vouches for AVX2. Sums of two words still have 16 bits.
        unsafe {
            let one = _mm256_set1_epi16(1);
            let ab = _mm256_madd_epi16(_mm256_packs_epi32(a, b), one);
            let cd = _mm256_madd_epi16(_mm256_packs_epi32(c, d), one);
            _mm256_madd_epi16(_mm256_packs_epi32(ab, cd), one)
        }
    }

    #[inline(always)]
    unsafe fn groups(fours: &[Self::Words], words: usize) -> Self::All {
        // SAFETY: the caller vouches for AVX2.
        unsafe {
            let mixed = _mm256_set_epi32(7, 3, 6, 2, 5, 1, 4, 0);
            let [first, second] = match words {
                4 => [
                    _mm256_permutevar8x32_epi32(fours[0], mixed),
                    _mm256_permutevar8x32_epi32(fours[1], mixed),
                ],
                8 => [eights(fours[0], fours[1]), eights(fours[2], fours[3])],
                _ => [sixteens(&fours[..4]), sixteens(&fours[4..8])],
            };
            [Self(_mm256_cvtepi32_ps(first)), Self(_mm256_cvtepi32_ps(second))]
        }
    }

    #[inline(always)]
    unsafe fn times_256(words: Self::Words) -> Self::Words {
        // SAFETY: the caller vouches for AVX2.
        unsafe { _mm256_slli_epi32::<8>(words) }
    }

    #[inline(always)]
    unsafe fn whole(words: Self::Words) -> Self {
        // SAFETY: the caller vouches for AVX2.
        unsafe { Self(_mm256_cvtepi32_ps(words)) }
    }

    #[inline(always)]
    unsafe fn prefetch(at: *const u8) {
        // SAFETY: a prefetch may name any address.
        unsafe { _mm_prefetch::<_MM_HINT_T1>(at.cast()) };
    }
}
