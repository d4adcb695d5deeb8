//! Several rows of `x` times sixteen weight rows at once, a row a lane: AVX-512, one digit.
//!
//! Sixteen rows of words are transposed once, and then serve all rows of `x`. With VNNI
//! ([`Registers`]) a word of `x` is sent to all lanes and multiplied with a word of each row; AMX
//! (`amx.rs`) multiplies tiles. A whole group is summed before it is scaled, and no lane needs
//! anything of another. With VNNI that is worth it from [`WORTH`] rows on.
//!
//! The order of additions is that of `tile.rs`: here its sixteen lanes are sixteen registers.

use std::arch::x86_64::*;
use std::mem::MaybeUninit;
use std::ops::Range;
use std::ptr;

use super::{fixed, lanes::LANES, pack::ROWS, tile::Job};
use crate::AffineMatrix;

/// Rows of `x` from which on it pays to transpose the weights.
pub(super) const WORTH: usize = 5;

/// Rows of `x` that are worked on together, so that no sum waits for the one before.
const TOGETHER: usize = 4;

/// Groups whose scales are transposed together: two to a word.
const GROUPS: usize = 2 * LANES;

/// A register for each of sixteen words.
type Words = [__m512i; LANES];

/// The nibbles of sixteen words of sixteen rows: of each word those with even numbers and those
/// with odd ones.
pub(super) type Nibbles = [[__m512i; 2]; LANES];

/// A register for each of the lanes.
type Lanes = [__m512; LANES];

/// How the sums of a group are made: exactly.
pub(super) trait Dots {
    /// Looks at the nibbles of a block before the [`sums`](Self::sums) of its groups, which have
    /// `WORDS` words, are asked for.
    ///
    /// # Safety
    /// The machine has what these need; the rows of `x` have the block.
    unsafe fn block<const WORDS: usize>(&mut self, nibbles: &Nibbles, block: usize);

    /// The sums of `T` rows of `x`, from row `first` of the job on, with all lanes of a group:
    /// which of its block it is, and where its digits begin, is `at`.
    ///
    /// # Safety
    /// Those of [`block`](Self::block), which was called; these are rows of the job.
    unsafe fn sums<const WORDS: usize, const T: usize>(
        &self,
        x: &[Row; T],
        first: usize,
        nibbles: &[[__m512i; 2]; WORDS],
        at: (usize, usize),
    ) -> [__m512i; T];
}

/// By dot products of bytes in registers: VNNI.
pub(super) struct Registers;

impl Dots for Registers {
    #[inline(always)]
    unsafe fn block<const WORDS: usize>(&mut self, _: &Nibbles, _: usize) {}

    #[inline(always)]
    unsafe fn sums<const WORDS: usize, const T: usize>(
        &self,
        x: &[Row; T],
        _first: usize,
        nibbles: &[[__m512i; 2]; WORDS],
        (_number, place): (usize, usize),
    ) -> [__m512i; T] {
        // SAFETY: the caller's promise. The odd digits follow sixteen words after the even ones.
        unsafe {
            let mut dots = [_mm512_setzero_si512(); T];
            for (i, [even, odd]) in nibbles.iter().enumerate() {
                for t in 0..T {
                    let x = x[t].x.add(place + i);
                    dots[t] = _mm512_dpbusd_epi32(dots[t], *even, everywhere(x));
                    dots[t] = _mm512_dpbusd_epi32(dots[t], *odd, everywhere(x.add(LANES)));
                }
            }
            dots
        }
    }
}

/// Computes sixteen rows of `w`, whose groups have `WORDS` words, at a time, from the first of
/// `rows` on, for all rows of the job; returns those that are left.
///
/// # Safety
/// Those of [`Weights::run`](super::dispatch::Weights::run), for weights of 4 bits and one digit;
/// the machine has AVX-512 F, BW, VL and VNNI, and what `dots` need, which were made for the job;
/// the job has at most [`ROWS`] rows.
#[inline(always)]
pub(super) unsafe fn rows<const WORDS: usize, D: Dots>(
    w: &AffineMatrix<'_>,
    job: &Job<'_>,
    mut rows: Range<usize>,
    dots: &mut D,
) -> Range<usize> {
    while rows.len() >= LANES {
        // SAFETY: the caller's promise.
        unsafe { sixteen::<WORDS, D>(w, job, rows.start, dots) };
        rows.start += LANES;
    }
    rows
}

/// A row of `x` of the job: its scales and blocks, and its group sums.
#[derive(Clone, Copy)]
pub(super) struct Row {
    x: *const f32,
    sums: *const f32,
}

/// The products of rows `row..row + 16`, with groups of `WORDS` words.
///
/// # Safety
/// Those of [`rows`].
#[inline(always)]
unsafe fn sixteen<const WORDS: usize, D: Dots>(
    w: &AffineMatrix<'_>,
    job: &Job<'_>,
    row: usize,
    dots: &mut D,
) {
    let (weight, scales, biases) = w.arrays();
    let (row_bytes, groups) = (w.format().row_bytes(w.cols()), w.cols() / (WORDS * 8));
    let m = job.from.len();
    assert!(m <= ROWS && (row + LANES) * row_bytes <= weight.len(), "rows of both");
    let mut x = [Row { x: ptr::null(), sums: ptr::null() }; ROWS];
    for (x, from) in x.iter_mut().zip(job.from) {
        let from = *from as usize;
        x.x = job.x[from * job.width..(from + 1) * job.width].as_ptr();
        x.sums = job.sums[from * job.groups..(from + 1) * job.groups].as_ptr();
    }
    // SAFETY: the caller's promise: sixteen rows of the weights begin here, and `transposed` reads
    // nothing past the bytes of a row that it is told of; a packed row of `x` is the scales of its
    // groups, in whole sixteens, and then its blocks.
    unsafe {
        // For each row of `x` the sixteen lanes, each of them for sixteen rows of the weights.
        let mut acc = [const { MaybeUninit::<Lanes>::uninit() }; ROWS];
        let acc = &mut acc[..m];
        for acc in &mut *acc {
            acc.write([_mm512_setzero_ps(); LANES]);
        }
        // SAFETY: all of these were written just now.
        let acc = &mut *(ptr::from_mut(acc) as *mut [Lanes]);
        let (mut scale, mut bias) = ([_mm512_setzero_ps(); GROUPS], [_mm512_setzero_ps(); GROUPS]);
        for block in 0..row_bytes.div_ceil(4 * LANES) {
            let (first, at) = (block * (LANES / WORDS), row * row_bytes + block * 4 * LANES);
            if first.is_multiple_of(GROUPS) {
                let at = 2 * (row * groups + first);
                scale = halves(&scales[at..], 2 * groups, 2 * (groups - first));
                bias = halves(&biases[at..], 2 * groups, 2 * (groups - first));
            }
            let left = row_bytes - block * 4 * LANES;
            let nibbles = nibbles(&weight[at..], row_bytes, left);
            dots.block::<WORDS>(&nibbles, block);
            for (i, nibbles) in nibbles.as_chunks::<WORDS>().0.iter().enumerate() {
                let group = first + i;
                if group < groups {
                    let place = job.groups + 2 * block * LANES + i * WORDS;
                    let factors = [scale[group % GROUPS], bias[group % GROUPS]];
                    add_group(&x[..m], nibbles, (group, i, place), factors, dots, acc);
                }
            }
        }
        for (acc, to) in acc.iter_mut().zip(job.to) {
            let at = *to as usize * job.stride + row;
            _mm512_storeu_ps(job.out.slice(at..at + LANES).as_mut_ptr(), tree(acc));
        }
    }
}

/// Adds a group for all rows of `x`: `nibbles` are its words; its number, that in its block and
/// where its digits begin are `at`.
///
/// # Safety
/// The machine has AVX-512 F and VNNI and what `dots` need; the rows have that group.
#[target_feature(enable = "avx512f,avx512vnni")]
unsafe fn add_group<const WORDS: usize, D: Dots>(
    x: &[Row],
    nibbles: &[[__m512i; 2]; WORDS],
    (group, number, place): (usize, usize, usize),
    factors: [__m512; 2],
    dots: &D,
    acc: &mut [Lanes],
) {
    let nibbles = *nibbles;
    let (at, whole) = ((number, place), x.len() / TOGETHER * TOGETHER);
    let (x, rest) = x.as_chunks::<TOGETHER>();
    let (acc, rest_acc) = acc.as_chunks_mut::<TOGETHER>();
    // SAFETY: the caller's promise.
    unsafe {
        for (i, (x, acc)) in x.iter().zip(acc).enumerate() {
            let sums = dots.sums(x, TOGETHER * i, &nibbles, at);
            add(x, sums, group, factors, acc);
        }
        let rest = rest.as_chunks::<1>().0.iter().zip(rest_acc.as_chunks_mut::<1>().0);
        for (i, (x, acc)) in rest.enumerate() {
            add(x, dots.sums(x, whole + i, &nibbles, at), group, factors, acc);
        }
    }
}

/// Adds the sums of a group for `T` rows.
///
/// # Safety
/// The machine has AVX-512 F; the rows have that group.
#[inline(always)]
unsafe fn add<const T: usize>(
    x: &[Row; T],
    sums: [__m512i; T],
    group: usize,
    [scale, bias]: [__m512; 2],
    acc: &mut [Lanes; T],
) {
    // SAFETY: the caller's promise.
    unsafe {
        for t in 0..T {
            let acc = &mut acc[t][group % LANES];
            *acc = _mm512_fmadd_ps(bias, _mm512_set1_ps(*x[t].sums.add(group)), *acc);
            // As in `groups_of`.
            let of_x = _mm512_set1_ps(*x[t].x.add(group));
            let scale = _mm512_fmadd_ps(scale, of_x, _mm512_setzero_ps());
            *acc = _mm512_fmadd_ps(_mm512_cvtepi32_ps(sums[t]), scale, *acc);
        }
    }
}

/// Four bytes of `x` in each lane.
///
/// # Safety
/// The caller vouches for AVX-512 and for the f32.
#[inline(always)]
unsafe fn everywhere(x: *const f32) -> __m512i {
    // SAFETY: the caller's promise.
    unsafe { _mm512_set1_epi32((*x).to_bits().cast_signed()) }
}

/// The nibbles of sixteen words of sixteen rows, those with even numbers and those with odd ones;
/// see [`transposed`].
///
/// # Safety
/// Those of [`transposed`], and AVX-512 BW.
// Within a larger function its sixteen pointers would be kept in memory.
#[inline(never)]
#[target_feature(enable = "avx512f,avx512bw")]
unsafe fn nibbles(from: &[u8], stride: usize, left: usize) -> Nibbles {
    let mask = _mm512_set1_epi8(15);
    // SAFETY: the caller's promise.
    let words = unsafe { transposed(from, stride, left) };
    let mut nibbles = [[mask; 2]; LANES];
    for (nibbles, words) in nibbles.iter_mut().zip(words) {
        nibbles[0] = _mm512_and_si512(words, mask);
        nibbles[1] = _mm512_and_si512(_mm512_srli_epi16::<4>(words), mask);
    }
    nibbles
}

/// The sum of sixteen lanes: `i` and `i + 8`, then `i + 4`, `i + 2`, `i + 1`.
#[inline]
#[target_feature(enable = "avx512f")]
fn tree(lanes: &Lanes) -> __m512 {
    let mut sums = *lanes;
    for i in 0..8 {
        sums[i] = _mm512_add_ps(sums[i], sums[i + 8]);
    }
    for i in 0..4 {
        sums[i] = _mm512_add_ps(sums[i], sums[i + 4]);
    }
    let [a, b] = [_mm512_add_ps(sums[0], sums[2]), _mm512_add_ps(sums[1], sums[3])];
    _mm512_add_ps(a, b)
}

/// bf16 numbers of sixteen rows that begin `stride` bytes apart: number `i` of each, for the first
/// `left` bytes of a row, then 0.
///
/// # Safety
/// Those of [`transposed`], and AVX-512 BW.
#[inline(never)]
#[target_feature(enable = "avx512f,avx512bw")]
unsafe fn halves(from: &[u8], stride: usize, left: usize) -> [__m512; GROUPS] {
    let upper = _mm512_set1_epi32(0xffff_0000_u32.cast_signed());
    // SAFETY: the caller's promise.
    let words = unsafe { transposed(from, stride, left) };
    let mut numbers = [_mm512_setzero_ps(); GROUPS];
    for (numbers, words) in numbers.as_chunks_mut::<2>().0.iter_mut().zip(words) {
        numbers[0] = _mm512_castsi512_ps(_mm512_slli_epi32::<16>(words));
        numbers[1] = _mm512_castsi512_ps(_mm512_and_si512(words, upper));
    }
    numbers
}

/// Sixteen words of each of sixteen rows that begin `stride` bytes apart: word `i` of each; of a row
/// only the first `left` bytes, the rest is 0. Asks for the same of the sixteen rows after these.
///
/// # Safety
/// The caller vouches for AVX-512 and for `left` bytes, or 64 if that is less, of each row.
#[inline(always)]
unsafe fn transposed(from: &[u8], stride: usize, left: usize) -> Words {
    // SAFETY: the caller's promise.
    unsafe {
        let mask = if left >= 64 { u64::MAX } else { (1 << left) - 1 };
        let mut r = [_mm512_setzero_si512(); LANES];
        for (i, r) in r.iter_mut().enumerate() {
            let at = from.as_ptr().add(i * stride);
            _mm_prefetch::<_MM_HINT_T1>(at.wrapping_add(LANES * stride).cast());
            *r = _mm512_maskz_loadu_epi8(mask, at.cast());
        }
        // Pairs, then fours, within each quarter of a register; then the quarters.
        let mut two = r;
        for i in 0..8 {
            two[2 * i] = _mm512_unpacklo_epi32(r[2 * i], r[2 * i + 1]);
            two[2 * i + 1] = _mm512_unpackhi_epi32(r[2 * i], r[2 * i + 1]);
        }
        let mut four = two;
        for i in 0..4 {
            let t = &two[4 * i..4 * i + 4];
            four[4 * i] = _mm512_unpacklo_epi64(t[0], t[2]);
            four[4 * i + 1] = _mm512_unpackhi_epi64(t[0], t[2]);
            four[4 * i + 2] = _mm512_unpacklo_epi64(t[1], t[3]);
            four[4 * i + 3] = _mm512_unpackhi_epi64(t[1], t[3]);
        }
        for i in 0..4 {
            let even = _mm512_shuffle_i32x4::<0x88>(four[i], four[4 + i]);
            let odd = _mm512_shuffle_i32x4::<0xdd>(four[i], four[4 + i]);
            let even2 = _mm512_shuffle_i32x4::<0x88>(four[8 + i], four[12 + i]);
            let odd2 = _mm512_shuffle_i32x4::<0xdd>(four[8 + i], four[12 + i]);
            r[i] = _mm512_shuffle_i32x4::<0x88>(even, even2);
            r[4 + i] = _mm512_shuffle_i32x4::<0x88>(odd, odd2);
            r[8 + i] = _mm512_shuffle_i32x4::<0xdd>(even, even2);
            r[12 + i] = _mm512_shuffle_i32x4::<0xdd>(odd, odd2);
        }
        r
    }
}

// Digits are where `add` looks for them.
const _: () = assert!(fixed::block(1) == 2 * LANES);
