//! From an instruction set and a weight format to the code for it.

#[cfg(target_arch = "x86_64")]
use std::cell::RefCell;
use std::ops::Range;

#[cfg(target_arch = "x86_64")]
use super::across::{self, Dots, Registers};
#[cfg(target_arch = "x86_64")]
use super::amx::{self, Tiles};
#[cfg(target_arch = "x86_64")]
use super::avx2::Avx2;
#[cfg(target_arch = "x86_64")]
use super::avx512::Avx512;
#[cfg(target_arch = "x86_64")]
use super::kept;
#[cfg(target_arch = "x86_64")]
use super::lanes::LANES;
#[cfg(target_arch = "aarch64")]
use super::neon::Neon;
#[cfg(target_arch = "x86_64")]
use super::pack::{self, ROWS};
use super::{
    InstructionSet,
    affine::{Affine, Bytes, Words},
    bf16::Bf16,
    fixed::{Exact, Fast},
    lanes::Lanes,
    pack::Packing,
    scalar::Scalar,
    tile::{self, Job},
};
use crate::{AffineMatrix, Bf16Matrix};

#[cfg(target_arch = "x86_64")]
thread_local! {
    static TILES: RefCell<Vec<pack::Line>> = RefCell::default();
}

/// A weight matrix of either kind.
#[derive(Clone, Copy, Debug)]
pub(super) enum Weights<'a> {
    /// 4-bit rows, for rows of `x` in 1 or 3 digits.
    Nibbles {
        w: AffineMatrix<'a>,
        digits: usize,
        /// The machine has dot products of bytes.
        dots: bool,
    },
    /// 8-bit rows.
    Bytes(AffineMatrix<'a>),
    Bf16(Bf16Matrix<'a>),
}

impl Weights<'_> {
    /// Output features.
    pub(super) fn rows(&self) -> usize {
        match self {
            Self::Nibbles { w, .. } | Self::Bytes(w) => w.rows(),
            Self::Bf16(w) => w.rows(),
        }
    }

    /// Input features.
    pub(super) fn cols(&self) -> usize {
        match self {
            Self::Nibbles { w, .. } | Self::Bytes(w) => w.cols(),
            Self::Bf16(w) => w.cols(),
        }
    }

    /// How `x` must be packed.
    pub(super) fn packing(&self) -> Packing {
        match *self {
            Self::Nibbles { w, digits, .. } => {
                Packing::Nibbles { size: w.format().group_size(), digits }
            }
            Self::Bytes(w) => Packing::Bytes(w.format().group_size()),
            Self::Bf16(_) => Packing::Bf16,
        }
    }

    /// Computes rows `rows` of these weights for all rows of the job.
    ///
    /// # Safety
    /// The machine has `isa` and what [`Nibbles`](Self::Nibbles) says that it has; the job's rows
    /// were packed with [`packing`](Self::packing) for [`cols`](Self::cols); nobody else touches the columns `rows` of its `out` rows.
    pub(super) unsafe fn run(&self, isa: InstructionSet, job: &Job<'_>, rows: Range<usize>) {
        assert!(rows.end <= self.rows() && rows.end <= job.stride, "rows of the weights");
        // SAFETY: the caller's promise, with the rows just checked.
        unsafe {
            match (isa, self) {
                #[cfg(target_arch = "x86_64")]
                (InstructionSet::Avx2, Self::Nibbles { w, digits, dots: true }) => {
                    dots_avx2(w, *digits, job, rows);
                }
                #[cfg(target_arch = "x86_64")]
                (InstructionSet::Avx512, Self::Nibbles { w, digits, dots: true }) => {
                    dots_avx512(w, *digits, job, rows);
                }
                #[cfg(target_arch = "x86_64")]
                (InstructionSet::Amx, Self::Nibbles { w, digits, dots: true }) => {
                    dots_amx(w, *digits, job, rows);
                }
                #[cfg(target_arch = "aarch64")]
                (InstructionSet::Neon, Self::Nibbles { w, digits, dots: true }) => {
                    dots_neon(w, *digits, job, rows);
                }
                _ => isa.run_lanes(Products { w: self, job, rows }),
            }
        }
    }
}

/// A piece of work that is written for any [`Lanes`].
pub(super) trait LanesTask {
    /// # Safety
    /// Those of [`Lanes`]; must be inlined into a function that has the features of `V`.
    unsafe fn run<V: Lanes>(self);
}

impl InstructionSet {
    /// Runs `task` with the lanes of this set.
    ///
    /// # Safety
    /// The machine has the set.
    pub(super) unsafe fn run_lanes<T: LanesTask>(self, task: T) {
        // SAFETY: the caller's promise.
        unsafe {
            match self {
                #[cfg(target_arch = "x86_64")]
                Self::Avx2 => lanes_avx2(task),
                #[cfg(target_arch = "x86_64")]
                Self::Avx512 | Self::Amx => lanes_avx512(task),
                #[cfg(target_arch = "aarch64")]
                Self::Neon => lanes_neon(task),
                _ => task.run::<Scalar>(),
            }
        }
    }
}

/// # Safety
/// The machine has AVX2 and FMA.
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2,fma")]
unsafe fn lanes_avx2<T: LanesTask>(task: T) {
    // SAFETY: the caller's promise; AVX2 and FMA are enabled here.
    unsafe { task.run::<Avx2>() };
}

/// # Safety
/// The machine has AVX-512 F, BW and VL.
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2,fma,avx512f,avx512bw,avx512vl")]
unsafe fn lanes_avx512<T: LanesTask>(task: T) {
    // SAFETY: the caller's promise; AVX-512 is enabled here.
    unsafe { task.run::<Avx512>() };
}

/// # Safety
/// The machine has NEON.
#[cfg(target_arch = "aarch64")]
#[target_feature(enable = "neon")]
unsafe fn lanes_neon<T: LanesTask>(task: T) {
    // SAFETY: the caller's promise; NEON is enabled here.
    unsafe { task.run::<Neon>() };
}

/// # Safety
/// Those of [`Weights::run`].
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2,fma,avxvnni")]
unsafe fn dots_avx2(w: &AffineMatrix<'_>, digits: usize, job: &Job<'_>, rows: Range<usize>) {
    // SAFETY: the caller's promise; AVX2, FMA and AVX-VNNI are enabled here.
    unsafe { nibbles::<Avx2, true>(w, digits, job, rows) };
}

/// # Safety
/// Those of [`Weights::run`].
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2,fma,avx512f,avx512bw,avx512vl,avx512vnni")]
unsafe fn dots_avx512(w: &AffineMatrix<'_>, digits: usize, job: &Job<'_>, rows: Range<usize>) {
    // SAFETY: the caller's promise; AVX-512 with VNNI is enabled here.
    unsafe {
        let left = match (digits, job.from.len()) {
            (1, across::WORTH..=ROWS) => by_sixteen(w, job, rows, &mut Registers),
            _ => rows,
        };
        nibbles::<Avx512, true>(w, digits, job, left);
    }
}

/// # Safety
/// Those of [`Weights::run`].
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2,fma,avx512f,avx512bw,avx512vl,avx512vnni")]
unsafe fn dots_amx(w: &AffineMatrix<'_>, digits: usize, job: &Job<'_>, mut rows: Range<usize>) {
    let worth = (amx::WORTH..=ROWS).contains(&job.from.len()) && rows.len() >= LANES;
    if digits == 1 && worth {
        let row_bytes = w.format().row_bytes(w.cols());
        kept(&TILES, |lines: &mut Vec<pack::Line>| {
            let room = pack::lines(lines, Tiles::room(job, row_bytes));
            // SAFETY: the caller's promise: AVX-512 with VNNI is enabled here, and the machine has
            // AMX; nothing below this makes other tiles.
            unsafe {
                let mut tiles = Tiles::new(job, w.format().group_size(), room);
                rows = by_sixteen(w, job, rows.clone(), &mut tiles);
            }
        });
    }
    // SAFETY: the caller's promise, which is all that AVX-512 with VNNI needs.
    unsafe { dots_avx512(w, digits, job, rows) };
}

/// Sixteen rows at a time; returns those that are left.
///
/// # Safety
/// Those of [`across::rows`].
#[cfg(target_arch = "x86_64")]
#[inline(always)]
unsafe fn by_sixteen<D: Dots>(
    w: &AffineMatrix<'_>,
    job: &Job<'_>,
    rows: Range<usize>,
    dots: &mut D,
) -> Range<usize> {
    // SAFETY: the caller's promise.
    unsafe {
        match w.format().group_size() {
            32 => across::rows::<4, D>(w, job, rows, dots),
            64 => across::rows::<8, D>(w, job, rows, dots),
            _ => across::rows::<16, D>(w, job, rows, dots),
        }
    }
}

/// # Safety
/// Those of [`Weights::run`].
#[cfg(target_arch = "aarch64")]
#[target_feature(enable = "neon,dotprod")]
unsafe fn dots_neon(w: &AffineMatrix<'_>, digits: usize, job: &Job<'_>, rows: Range<usize>) {
    // SAFETY: the caller's promise; NEON with its dot products is enabled here.
    unsafe { nibbles::<Neon, true>(w, digits, job, rows) };
}

/// # Safety
/// As for [`affine`]; with `DOT` the machine has dot products of bytes.
#[inline(always)]
unsafe fn nibbles<V: Lanes, const DOT: bool>(
    w: &AffineMatrix<'_>,
    digits: usize,
    job: &Job<'_>,
    rows: Range<usize>,
) {
    // SAFETY: the caller's promise.
    unsafe {
        match digits {
            1 => affine::<V, Fast<DOT>>(w, job, rows),
            _ => affine::<V, Exact<DOT>>(w, job, rows),
        }
    }
}

/// # Safety
/// Those of [`Weights::run`]; must be inlined into a function that has the features of `V`.
#[inline(always)]
unsafe fn affine<V: Lanes, W: Words>(w: &AffineMatrix<'_>, job: &Job<'_>, rows: Range<usize>) {
    // SAFETY: the caller's promise; the constants are those of the matrix.
    unsafe {
        match w.format().group_size() {
            32 => tile::rows::<V, _>(&Affine::<W, 32>::new(w), job, rows),
            64 => tile::rows::<V, _>(&Affine::<W, 64>::new(w), job, rows),
            _ => tile::rows::<V, _>(&Affine::<W, 128>::new(w), job, rows),
        }
    }
}

/// Rows of weights times all rows of the job, without dot products of bytes.
struct Products<'a, 'b> {
    w: &'a Weights<'b>,
    job: &'a Job<'b>,
    rows: Range<usize>,
}

impl LanesTask for Products<'_, '_> {
    #[inline(always)]
    unsafe fn run<V: Lanes>(self) {
        let Self { w, job, rows } = self;
        // SAFETY: that of `Weights::run`, which alone makes these.
        unsafe {
            match w {
                Weights::Nibbles { w, digits, .. } => nibbles::<V, false>(w, *digits, job, rows),
                Weights::Bytes(w) => affine::<V, Bytes>(w, job, rows),
                Weights::Bf16(w) => tile::rows::<V, _>(&Bf16(w), job, rows),
            }
        }
    }
}
