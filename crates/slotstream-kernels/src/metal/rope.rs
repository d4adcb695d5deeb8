//! Norm and rotary embedding of heads and of block keys.

use super::dispatch::count;
use super::library::{Constants, constants};
use super::{Dispatch, Library, PRELUDE, PlanError, SIMD, View};
use crate::Rope;

constants!(RopeArgs {
    row_stride: u32,
    offset: u32,
    head_stride: u32,
    heads: u32,
    dim: u32,
    half_dims: u32,
    eps: f32,
});

/// Kernels of this file.
pub static ROPE: Library =
    Library::new("rope", &[PRELUDE, RopeArgs::MSL, include_str!("rope.metal")]);

/// Cosines and sines for the kernels: `[positions, pairs, cos | sin]`.
#[must_use]
pub fn rope_angles(rope: &Rope, positions: impl IntoIterator<Item = u64>) -> Vec<f32> {
    let pairs = rope.dims() / 2;
    let angles = positions.into_iter().flat_map(|position| {
        (0..pairs).flat_map(move |pair| {
            let (cos, sin) = rope.cos_sin(position, pair);
            [cos, sin]
        })
    });
    angles.collect()
}

/// Heads within rows; see [`NormRopeArgs`](crate::NormRopeArgs).
#[derive(Clone, Copy, Debug)]
#[expect(clippy::exhaustive_structs, reason = "an argument list")]
pub struct HeadShape {
    /// Elements between rows.
    pub row_stride: usize,
    /// First head within a row.
    pub offset: usize,
    /// Elements between heads.
    pub head_stride: usize,
    /// Heads.
    pub heads: usize,
    /// Width of a head.
    pub dim: usize,
    /// Rotary dimensions, even.
    pub rotary: usize,
}

/// Per head: RMS norm with `weight[dim]`, then rotary embedding with [`rope_angles`] of the `m`
/// rows. `out[m, heads, dim]`.
///
/// # Errors
/// [`PlanError`].
pub fn norm_rope<B>(
    m: usize,
    shape: HeadShape,
    eps: f32,
    x: View<B>,
    weight: View<B>,
    angles: View<B>,
    out: View<B>,
) -> Result<Dispatch<B>, PlanError> {
    let HeadShape { row_stride, offset, head_stride, heads, dim, rotary } = shape;
    let args = arguments(shape, eps)?;
    let row = offset + heads.saturating_sub(1).saturating_mul(head_stride).saturating_add(dim);
    count("columns", row)?;
    let all = m.saturating_sub(1).saturating_mul(row_stride).saturating_add(row);
    Dispatch::new(&ROPE, "norm_rope")
        .input(x.floats("x", all)?)
        .input(weight.floats("weight", dim)?)
        .input(angles.floats("angles", m.saturating_mul(rotary))?)
        .output(out.floats("out", m.saturating_mul(heads).saturating_mul(dim))?)
        .with_constants(args.bytes())
        .with_threadgroup_memory(dim.saturating_mul(4))
        .launch([heads, m, 1], SIMD)
}

/// The keys of `blocks` finished blocks: mean of the raw keys `[blocks, ratio, dim]`, RMS norm,
/// rotary embedding with [`rope_angles`] of the blocks' first positions. `out[blocks, dim]`.
///
/// # Errors
/// [`PlanError`].
#[expect(clippy::too_many_arguments, reason = "the numbers of one block, then the arrays")]
pub fn block_key<B>(
    blocks: usize,
    ratio: usize,
    dim: usize,
    rotary: usize,
    eps: f32,
    raw: View<B>,
    weight: View<B>,
    angles: View<B>,
    out: View<B>,
) -> Result<Dispatch<B>, PlanError> {
    let row_stride = ratio.saturating_mul(dim);
    let shape = HeadShape { row_stride, offset: 0, head_stride: dim, heads: ratio, dim, rotary };
    let args = arguments(shape, eps)?;
    Dispatch::new(&ROPE, "block_key")
        .input(raw.floats("raw", blocks.saturating_mul(row_stride))?)
        .input(weight.floats("weight", dim)?)
        .input(angles.floats("angles", blocks.saturating_mul(rotary))?)
        .output(out.floats("out", blocks.saturating_mul(dim))?)
        .with_constants(args.bytes())
        .with_threadgroup_memory(dim.saturating_mul(4))
        .launch([blocks, 1, 1], SIMD)
}

fn arguments(shape: HeadShape, eps: f32) -> Result<RopeArgs, PlanError> {
    let HeadShape { row_stride, offset, head_stride, heads, dim, rotary } = shape;
    if !rotary.is_multiple_of(2) || rotary > dim {
        return Err(PlanError::Parts { what: "dimensions", of: dim, part: rotary });
    }
    Ok(RopeArgs {
        row_stride: count("columns", row_stride)?,
        offset: count("columns", offset)?,
        head_stride: count("columns", head_stride)?,
        heads: count("heads", heads)?,
        dim: count("columns", dim)?,
        half_dims: count("dimensions", rotary / 2)?,
        eps,
    })
}
