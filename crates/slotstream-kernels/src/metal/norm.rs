//! Norms over groups of columns.

use super::dispatch::count;
use super::library::{Constants, constants};
use super::{Dispatch, Library, PRELUDE, PlanError, SIMD, View};

constants!(NormArgs { groups: u32, width: u32, eps: f32 });

/// Kernels of this file.
pub static NORM: Library =
    Library::new("norm", &[PRELUDE, NormArgs::MSL, include_str!("norm.metal")]);

/// Threads that reduce `width` values: whole simdgroups, 256 at most.
pub(super) fn reducers(width: usize) -> u32 {
    u32::try_from(width.min(256)).unwrap_or(256).next_multiple_of(SIMD).max(SIMD)
}

/// Bytes with room for one float of each simdgroup.
pub(super) const PARTS: usize = 32 * 4;

/// `x * rsqrt(mean(x^2) + eps) * weight` over consecutive groups of `width` of the rows
/// `[m, groups * width]`, f32; `weight` is `[groups * width]`.
///
/// # Errors
/// [`PlanError`].
pub fn grouped_rms_norm<B: Clone>(
    m: usize,
    groups: usize,
    width: usize,
    eps: f32,
    x: View<B>,
    weight: View<B>,
    out: View<B>,
) -> Result<Dispatch<B>, PlanError> {
    let cols = groups.saturating_mul(width);
    let args = NormArgs { groups: count("groups", groups)?, width: count("width", width)?, eps };
    Dispatch::new(&NORM, "grouped_rms_norm")
        .input(x.floats("x", m.saturating_mul(cols))?)
        .input(weight.floats("weight", cols)?)
        .output(out.floats("out", m.saturating_mul(cols))?)
        .with_constants(args.bytes())
        .with_threadgroup_memory(PARTS)
        .launch([groups, m, 1], reducers(width))
}
