//! Products of bytes by tiles: AMX-INT8, for `across.rs`.
//!
//! A tile has up to sixteen rows of 64 bytes. Sixteen transposed weight rows are one as they are: a
//! row of it has four nibbles of each. Rows of `x` are copied once for all weight rows of a task,
//! in the order of these nibbles, so that a group of 64 is one product of two tiles: the sums of
//! sixteen rows of `x` with all sixteen of the weights, which are whole numbers. Rows that are
//! missing in the last tile of `x` are left out of its shape.
//!
//! Rust has neither types nor functions for tiles, so all that needs them together is one piece of
//! assembler. They belong to a thread, and there are some only while a [`Tiles`] lives.

use std::arch::{asm, x86_64::*};
use std::sync::OnceLock;

use super::{
    across::{Dots, Nibbles, Row},
    lanes::LANES,
    pack::ROWS,
    tile::Job,
};

/// Rows of `x` from which on tiles are faster than registers.
pub(super) const WORTH: usize = 5;

/// Most groups of a block of sixteen words: of 32 values.
const GROUPS: usize = 4;

/// Bytes of a row of a tile, and from one to the next.
const BYTES: usize = 64;

/// `arch_prctl(ARCH_REQ_XCOMP_PERM, XFEATURE_XTILEDATA)`.
const ARCH_PRCTL: i64 = 158;
const REQUEST_PERMISSION: i64 = 0x1023;
const TILE_DATA: i64 = 18;

/// Whether this machine has AMX-INT8 and its kernel lets this process use it. The first call asks
/// for that.
pub(super) fn is_available() -> bool {
    static AVAILABLE: OnceLock<bool> = OnceLock::new();
    *AVAILABLE.get_or_init(|| {
        if !cfg!(target_os = "linux") || !is_x86_feature_detected!("xsave") {
            return false;
        }
        // SAFETY: the machine has XSAVE, and the system uses it; this is Linux.
        unsafe { has_tiles() && is_permitted() }
    })
}

/// Whether processor and system have tiles, and the processor products of their bytes.
///
/// # Safety
/// The machine has XSAVE and the system uses it.
#[target_feature(enable = "xsave")]
unsafe fn has_tiles() -> bool {
    const FEATURES: u32 = 1 << 24 | 1 << 25;
    const STATES: u64 = 1 << 17 | 1 << 18;
    // SAFETY: the caller's promise.
    let states = unsafe { _xgetbv(0) };
    __cpuid(0).eax >= 7
        && __cpuid_count(7, 0).edx & FEATURES == FEATURES
        && states & STATES == STATES
}

/// Asks Linux for tiles, for all threads of this process.
///
/// # Safety
/// The system is Linux.
unsafe fn is_permitted() -> bool {
    let result: i64;
    // SAFETY: the call changes what the process may use and no memory; the kernel overwrites the
    // registers that are named.
    unsafe {
        asm!(
            "syscall",
            inlateout("rax") ARCH_PRCTL => result,
            in("rdi") REQUEST_PERMISSION,
            in("rsi") TILE_DATA,
            lateout("rcx") _,
            lateout("r11") _,
            options(nostack),
        );
    }
    result == 0
}

/// The shapes of all tiles, as `ldtilecfg` reads them and `sttilecfg` writes them; no palette: none.
#[derive(Default)]
#[repr(C, align(64))]
struct Shapes {
    palette: u8,
    start: u8,
    reserved: [u8; 14],
    bytes: [u16; 16],
    rows: [u8; 16],
}

/// The sums of sixteen weight rows with a row of `x`.
#[derive(Clone, Copy)]
#[repr(align(64))]
struct Sums([i32; LANES]);

/// The tiles of this thread, shaped for a task, and what they are loaded from.
pub(super) struct Tiles<'a> {
    /// For each block, first for words 0 to 7 and then for the others, 64 bytes of each row.
    x: &'a [f32],
    /// Rows of `x`.
    rows: usize,
    /// Of the groups of a block.
    sums: [[Sums; ROWS]; GROUPS],
    /// What this thread had before. Other libraries shape their tiles once a thread and would find
    /// none.
    before: Shapes,
}

impl<'a> Tiles<'a> {
    /// f32 that [`new`](Self::new) needs where weight rows have so many bytes.
    pub(super) fn room(job: &Job<'_>, row_bytes: usize) -> usize {
        2 * row_bytes.div_ceil(BYTES) * job.from.len() * LANES
    }

    /// Copies the rows of `x` to `room` and shapes the tiles of this thread for groups of `size`
    /// values.
    ///
    /// # Safety
    /// The machine has AVX-512 F, and [`is_available`] says that it has AMX-INT8; the rows were
    /// packed in one digit, for groups of that size; this thread has no other [`Tiles`].
    #[target_feature(enable = "avx512f")]
    pub(super) unsafe fn new(job: &Job<'_>, size: usize, room: &'a mut [f32]) -> Self {
        let rows = job.from.len();
        assert!((1..=ROWS).contains(&rows), "rows of x");
        let first = _mm512_set_epi32(23, 7, 22, 6, 21, 5, 20, 4, 19, 3, 18, 2, 17, 1, 16, 0);
        let second = _mm512_add_epi32(first, _mm512_set1_epi32(8));
        for (t, from) in job.from.iter().enumerate() {
            let row = &job.x[*from as usize * job.width..][job.groups..job.width];
            let blocks = room.chunks_exact_mut(2 * rows * LANES);
            for (x, out) in row.as_chunks::<{ 2 * LANES }>().0.iter().zip(blocks) {
                let (low, high) = out.split_at_mut(rows * LANES);
                let to = t * LANES..(t + 1) * LANES;
                // SAFETY: sixteen f32 are read and written at a time, within these slices.
                unsafe {
                    let even = _mm512_loadu_si512(x.as_ptr().cast());
                    let odd = _mm512_loadu_si512(x[LANES..].as_ptr().cast());
                    let word = |order| _mm512_permutex2var_epi32(even, order, odd);
                    _mm512_storeu_si512(low[to.clone()].as_mut_ptr().cast(), word(first));
                    _mm512_storeu_si512(high[to].as_mut_ptr().cast(), word(second));
                }
            }
        }
        let depth = size.min(BYTES);
        let upper = rows.saturating_sub(LANES);
        let mut before = Shapes::default();
        let mut shapes = Shapes { palette: 1, ..Shapes::default() };
        // The sums, the rows of `x` and the weights; the second of two are rows 16 and on.
        let all = [
            (rows.min(LANES), BYTES),
            (upper, BYTES),
            (rows.min(LANES), depth),
            (upper, depth),
            (depth / 4, BYTES),
        ];
        for (i, (rows, bytes)) in all.into_iter().enumerate() {
            if rows > 0 {
                (shapes.rows[i], shapes.bytes[i]) = (rows as u8, bytes as u16);
            }
        }
        // SAFETY: `before` has the 64 bytes that are written; the caller vouches for AMX.
        unsafe {
            asm!("sttilecfg [{}]", in(reg) &raw mut before, options(nostack, preserves_flags));
        }
        // SAFETY: the shapes are legal, and the caller vouches for AMX.
        unsafe { load(&shapes) };
        Self { x: room, rows, sums: [[Sums([0; LANES]); ROWS]; GROUPS], before }
    }
}

impl Drop for Tiles<'_> {
    fn drop(&mut self) {
        // SAFETY: whoever made these vouched for AMX; the processor itself gave these shapes, or
        // none, which releases the tiles.
        unsafe { load(&self.before) };
    }
}

/// Shapes the tiles of this thread and clears them; without a palette it has none then.
///
/// # Safety
/// The machine has AMX, this process may use it, and the shapes are legal.
unsafe fn load(shapes: &Shapes) {
    // SAFETY: the caller's promise; 64 bytes are read.
    unsafe {
        asm!(
            "ldtilecfg [{}]",
            in(reg) shapes,
            options(nostack, readonly, preserves_flags),
        );
    }
}

impl Dots for Tiles<'_> {
    #[inline(always)]
    unsafe fn block<const WORDS: usize>(&mut self, nibbles: &Nibbles, block: usize) {
        let half = self.rows * LANES;
        let x = &self.x[2 * block * half..2 * (block + 1) * half];
        for (i, weights) in nibbles.as_chunks::<WORDS>().0.iter().enumerate() {
            // Values before those of the group, of which a half has 64.
            let values = 8 * WORDS * i;
            // SAFETY: both halves of the block are within `x`; the tiles have the shapes of
            // `new`: their rows of `x` are 64 bytes apart in a half, the group's bytes follow
            // after those of the groups before it, and the words of its nibbles are rows of
            // weights. Tiles of sums have a row for each row of `x`, of which there are at most
            // `ROWS`.
            unsafe {
                let x = x.as_ptr().add(values / BYTES * half).cast::<u8>().add(values % BYTES);
                let (weights, sums) = (weights.as_ptr().cast(), self.sums[i].as_mut_ptr().cast());
                let halves = if WORDS == LANES { 2 } else { 1 };
                if self.rows > LANES {
                    products_of_two(x, weights, 4 * half, halves, sums);
                } else {
                    products(x, weights, 4 * half, halves, sums);
                }
            }
        }
    }

    #[inline(always)]
    unsafe fn sums<const WORDS: usize, const T: usize>(
        &self,
        _x: &[Row; T],
        first: usize,
        _nibbles: &[[__m512i; 2]; WORDS],
        (number, _place): (usize, usize),
    ) -> [__m512i; T] {
        let sums = &self.sums[number][first..first + T];
        // SAFETY: each sums are 64 bytes, which is what a register has.
        std::array::from_fn(|t| unsafe { sums[t].0.as_ptr().cast::<__m512i>().read() })
    }
}

/// The sums for a tile of rows of `x`, over so many halves of a block; `half` bytes of `x` are one.
///
/// # Safety
/// The tiles have the shapes of [`Tiles::new`]; there are as many rows, 64 bytes apart, of `x`, of
/// the weights and of the sums.
#[inline(always)]
unsafe fn products(x: *const u8, weights: *const u8, half: usize, halves: usize, sums: *mut u8) {
    // SAFETY: the caller's promise; nothing but these tiles and the sums is written.
    unsafe {
        asm!(
            "tilezero tmm0",
            "2:",
            "tileloadd tmm4, [{weights} + {bytes}]",
            "tileloadd tmm2, [{x} + {bytes}]",
            "tdpbsud tmm0, tmm2, tmm4",
            "add {x}, {half}",
            "add {weights}, 1024",
            "dec {halves}",
            "jnz 2b",
            "tilestored [{sums} + {bytes}], tmm0",
            x = inout(reg) x => _,
            weights = inout(reg) weights => _,
            half = in(reg) half,
            halves = inout(reg) halves => _,
            sums = in(reg) sums,
            bytes = in(reg) BYTES,
            out("tmm0") _, out("tmm2") _, out("tmm4") _,
            options(nostack),
        );
    }
}

/// [`products`] for more rows of `x` than a tile has.
///
/// # Safety
/// Those of [`products`].
#[inline(always)]
unsafe fn products_of_two(
    x: *const u8,
    weights: *const u8,
    half: usize,
    halves: usize,
    sums: *mut u8,
) {
    // SAFETY: the caller's promise; nothing but these tiles and the sums is written.
    unsafe {
        asm!(
            "tilezero tmm0",
            "tilezero tmm1",
            "2:",
            "tileloadd tmm4, [{weights} + {bytes}]",
            "tileloadd tmm2, [{x} + {bytes}]",
            "tileloadd tmm3, [{x} + {bytes} + 1024]",
            "tdpbsud tmm0, tmm2, tmm4",
            "tdpbsud tmm1, tmm3, tmm4",
            "add {x}, {half}",
            "add {weights}, 1024",
            "dec {halves}",
            "jnz 2b",
            "tilestored [{sums} + {bytes}], tmm0",
            "tilestored [{sums} + {bytes} + 1024], tmm1",
            x = inout(reg) x => _,
            weights = inout(reg) weights => _,
            half = in(reg) half,
            halves = inout(reg) halves => _,
            sums = in(reg) sums,
            bytes = in(reg) BYTES,
            out("tmm0") _, out("tmm1") _, out("tmm2") _, out("tmm3") _, out("tmm4") _,
            options(nostack),
        );
    }
}

#[cfg(test)]
mod tests {
    use slotstream_core::AffineFormat;

    use super::*;
    use crate::{AffineMatrix, Arithmetic, Cpu, InstructionSet, Kernels};

    /// The shapes of this thread's tiles; the first byte is 0 where there are none.
    fn shapes() -> [u8; BYTES] {
        let mut shapes = [0xff; BYTES];
        // SAFETY: the machine has AMX, and 64 bytes are written.
        unsafe { asm!("sttilecfg [{}]", in(reg) shapes.as_mut_ptr(), options(nostack)) };
        shapes
    }

    /// Other machines have no tiles that could be left.
    #[test]
    fn a_thread_keeps_the_tiles_it_had() {
        let (n, k, m) = (37, 192, 24);
        let Ok(cpu) = Cpu::with_instruction_set(1, InstructionSet::Amx) else {
            assert!(!is_available());
            return;
        };
        let cpu = cpu.with_arithmetic(Arithmetic::Fast);
        let (weight, ones) = (vec![0x11; n * k / 2], [0x80, 0x3f].repeat(n * k / 64));
        let w = AffineMatrix::new(AffineFormat::Q4_G64, n, k, &weight, &ones, &ones).unwrap();
        let product = || {
            let mut out = vec![f32::NAN; m * n];
            cpu.affine_matmul(&vec![1.0; m * k], &w, &mut out);
            assert_eq!(out, vec![2.0 * k as f32; m * n]);
        };
        product();
        assert_eq!(shapes(), [0; BYTES]);
        // As another library would have shaped them, once for this thread.
        let mut others = Shapes { palette: 1, ..Shapes::default() };
        (others.rows[0], others.bytes[0], others.rows[7], others.bytes[7]) = (3, 12, 16, 64);
        // SAFETY: the machine has AMX, and the shapes are legal.
        unsafe { load(&others) };
        let before = shapes();
        product();
        assert_eq!(shapes(), before);
        assert_eq!((before[0], before[16], before[48], before[55]), (1, 12, 3, 16));
        // SAFETY: none is legal.
        unsafe { load(&Shapes::default()) };
    }
}
