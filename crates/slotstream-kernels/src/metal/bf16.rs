//! Products with bf16 matrices.

use super::affine::matmul;
use super::dispatch::count;
use super::library::{Constants, constants};
use super::{Dispatch, Element, Library, PRELUDE, PlanError, View};

constants!(Bf16Args { m: u32, n: u32, k: u32 });

/// Kernels of this file.
pub static BF16: Library = Library::new(
    "bf16",
    &[PRELUDE, include_str!("quantized.metal"), Bf16Args::MSL, include_str!("bf16.metal")],
);

/// A bf16 matrix `[rows, cols]` in device memory.
#[derive(Clone, Copy, Debug)]
#[expect(clippy::exhaustive_structs, reason = "an argument list")]
pub struct Bf16View<B> {
    /// Output features.
    pub rows: usize,
    /// Input features.
    pub cols: usize,
    /// The values.
    pub weight: View<B>,
}

/// `out[m, n] = x[m, k] . w[n, k]^T`, f32 accumulation; `x` and `out` are of `element`.
///
/// # Errors
/// [`PlanError`].
pub fn bf16_matmul<B: Clone>(
    element: Element,
    m: usize,
    x: View<B>,
    w: &Bf16View<B>,
    out: View<B>,
) -> Result<Dispatch<B>, PlanError> {
    let names = match element {
        Element::F32 => ["bf16_mv_f32", "bf16_mm_f32"],
        Element::Bf16 => ["bf16_mv_bf16", "bf16_mm_bf16"],
    };
    let (n, k) = (w.rows, w.cols);
    let args = Bf16Args { m: count("rows", m)?, n: count("rows", n)?, k: count("columns", k)? };
    let plan = Dispatch::new(&BF16, names[usize::from(m != 1)])
        .input(w.weight.clone().check("weight", n.saturating_mul(k), 2)?)
        .input(x.check("x", m.saturating_mul(k), element.size())?)
        .output(out.check("out", m.saturating_mul(n), element.size())?)
        .with_constants(args.bytes());
    matmul(plan, m, n)
}
