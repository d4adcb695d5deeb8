//! Products with affine-quantized matrices.

use slotstream_core::AffineFormat;

use super::dispatch::count;
use super::library::{Constants, constants};
use super::{Dispatch, Element, Library, PRELUDE, PlanError, View};

constants!(AffineArgs { m: u32, n: u32, k: u32 });

/// Kernels of this file.
pub static AFFINE: Library = Library::new(
    "affine",
    &[PRELUDE, include_str!("quantized.metal"), AffineArgs::MSL, include_str!("affine.metal")],
);

/// Output rows of a threadgroup of two simdgroups: `2 * MV_ROWS` of `quantized.metal`.
pub(super) const MV_ROWS: usize = 8;
/// Rows and columns of a tile: `TILE` of `quantized.metal`.
pub(super) const TILE: usize = 32;
/// Bytes of one tile.
pub(super) const TILE_BYTES: usize = TILE * TILE * 4;
/// Threads that work at a tile.
pub(super) const TILE_THREADS: u32 = 128;

/// An affine-quantized matrix `[rows, cols]` in device memory: words of 4 bytes, bf16 scales and
/// biases.
#[derive(Clone, Copy, Debug)]
#[expect(clippy::exhaustive_structs, reason = "an argument list")]
pub struct AffineView<B> {
    /// Bits and group size: 4 and 32 or 64.
    pub format: AffineFormat,
    /// Output features.
    pub rows: usize,
    /// Input features, whole groups.
    pub cols: usize,
    /// Packed words.
    pub weight: View<B>,
    /// bf16 scales.
    pub scales: View<B>,
    /// bf16 biases.
    pub biases: View<B>,
}

/// `g32` or `g64`, as an index.
pub(super) fn group(format: AffineFormat, cols: usize) -> Result<usize, PlanError> {
    let of = match format {
        AffineFormat::Q4_G32 => 0,
        AffineFormat::Q4_G64 => 1,
        _ => return Err(PlanError::Format { format }),
    };
    if format.divides(cols) {
        Ok(of)
    } else {
        Err(PlanError::Parts { what: "columns", of: cols, part: format.group_size() })
    }
}

impl<B: Clone> AffineView<B> {
    /// A launch with the three arrays bound.
    fn bind(&self, kernel: &'static str) -> Result<Dispatch<B>, PlanError> {
        let groups = self.rows.saturating_mul(self.format.row_groups(self.cols));
        let words = self.rows.saturating_mul(self.format.row_bytes(self.cols) / 4);
        Ok(Dispatch::new(&AFFINE, kernel)
            .input(self.weight.clone().words("weight", words)?)
            .input(self.scales.clone().check("scales", groups, 2)?)
            .input(self.biases.clone().check("biases", groups, 2)?))
    }
}

/// `out[m, n] = x[m, k] . w[n, k]^T`, f32 accumulation; `x` and `out` are of `element`. One row
/// streams the weights, more rows take tiles of simdgroup matrices.
///
/// # Errors
/// [`PlanError`].
pub fn affine_matmul<B: Clone>(
    element: Element,
    m: usize,
    x: View<B>,
    w: &AffineView<B>,
    out: View<B>,
) -> Result<Dispatch<B>, PlanError> {
    const MV: [[&str; 2]; 2] =
        [["affine_mv_f32_g32", "affine_mv_f32_g64"], ["affine_mv_bf16_g32", "affine_mv_bf16_g64"]];
    const MM: [[&str; 2]; 2] =
        [["affine_mm_f32_g32", "affine_mm_f32_g64"], ["affine_mm_bf16_g32", "affine_mm_bf16_g64"]];
    let (n, k) = (w.rows, w.cols);
    let names = if m == 1 { MV } else { MM };
    let args = AffineArgs { m: count("rows", m)?, n: count("rows", n)?, k: count("columns", k)? };
    let plan = w
        .bind(names[element.index()][group(w.format, k)?])?
        .input(x.check("x", m.saturating_mul(k), element.size())?)
        .output(out.check("out", m.saturating_mul(n), element.size())?)
        .with_constants(args.bytes());
    matmul(plan, m, n)
}

/// The launch of a product of one or of more rows.
pub(super) fn matmul<B>(plan: Dispatch<B>, m: usize, n: usize) -> Result<Dispatch<B>, PlanError> {
    if m == 1 {
        return plan.launch([n.div_ceil(MV_ROWS), 1, 1], 64);
    }
    plan.with_threadgroup_memory(2 * TILE_BYTES)
        .launch([n.div_ceil(TILE), m.div_ceil(TILE), 1], TILE_THREADS)
}

/// `out[i] = dequantized row ids[i] of w`, f32 `[ids, k]`. `ids` are u32 and in range.
///
/// # Errors
/// [`PlanError`].
pub fn affine_rows<B: Clone>(
    w: &AffineView<B>,
    rows: usize,
    ids: View<B>,
    out: View<B>,
) -> Result<Dispatch<B>, PlanError> {
    let names = ["affine_rows_g32", "affine_rows_g64"];
    let args = AffineArgs {
        m: count("rows", rows)?,
        n: count("rows", w.rows)?,
        k: count("columns", w.cols)?,
    };
    w.bind(names[group(w.format, w.cols)?])?
        .input(ids.words("ids", rows)?)
        .output(out.floats("out", rows.saturating_mul(w.cols))?)
        .with_constants(args.bytes())
        .launch([(w.cols / 8).div_ceil(128), rows, 1], 128)
}
