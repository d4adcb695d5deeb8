//! Norm and rotary embedding of heads, and the keys of blocks.

use slotstream_kernels::metal::{HeadShape, block_key, norm_rope, rope_angles};
use slotstream_kernels::{NormRopeArgs, Rope, reference};

use crate::case::Case;
use crate::data::Random;

pub(crate) fn cases() -> Vec<Case> {
    let mut cases = Vec::new();
    for (heads, dim, rotary) in [(1, 32, 32), (3, 64, 16), (2, 96, 64), (4, 128, 64), (24, 256, 64)]
    {
        for m in [1, 3] {
            let position = if m == 1 { 262_143 } else { 0 };
            let shape = HeadShape {
                row_stride: heads * 2 * dim + 5,
                offset: 5,
                head_stride: 2 * dim,
                heads,
                dim,
                rotary,
            };
            cases.push(heads_of(m, shape, position, None));
        }
    }
    let small =
        HeadShape { row_stride: 33, offset: 0, head_stride: 33, heads: 1, dim: 33, rotary: 8 };
    cases.push(heads_of(2, small, 7, None));
    cases.push(heads_of(2, small, 7, Some(f32::NAN)));
    cases.push(heads_of(2, small, 7, Some(f32::INFINITY)));
    for (blocks, ratio, dim, rotary) in
        [(1, 4, 128, 64), (3, 4, 32, 32), (2, 1, 96, 0), (2, 5, 37, 6)]
    {
        cases.push(keys(blocks, ratio, dim, rotary));
    }
    cases
}

/// The query heads of a row, and a block's key.
pub(crate) fn timed() -> Vec<Case> {
    let shape = HeadShape {
        row_stride: 24 * 512,
        offset: 0,
        head_stride: 512,
        heads: 24,
        dim: 256,
        rotary: 64,
    };
    vec![heads_of(1, shape, 4096, None), keys(1, 4, 128, 64)]
}

fn heads_of(m: usize, shape: HeadShape, position: u64, odd: Option<f32>) -> Case {
    let HeadShape { row_stride, offset, head_stride, heads, dim, rotary } = shape;
    let mut case = Case::new(format!("rope {m} {shape:?} {odd:?}"));
    let mut random = Random::new((m + dim) as u64);
    let (mut x, weight) = (random.values(m * row_stride), random.values(dim));
    if let Some(odd) = odd {
        x[offset + 3] = odd;
    }
    let rope = Rope::new(rotary, 1e7);
    let mut want = vec![f32::NAN; m * heads * dim];
    let args = NormRopeArgs {
        x: &x,
        row_stride,
        offset,
        head_stride,
        heads,
        head_dim: dim,
        weight: &weight,
        eps: 1e-6,
        rope: &rope,
        position,
    };
    reference::norm_rope(&args, &mut want);
    let angles = rope_angles(&rope, position..position + m as u64);
    let (x, weight, angles) = (case.floats(&x), case.floats(&weight), case.floats(&angles));
    let out = case.scratch(want.len());
    case.launch(norm_rope(m, shape, 1e-6, x, weight, angles, out).expect("a plan"));
    case.want_floats(out, want, 2e-6);
    case
}

fn keys(blocks: usize, ratio: usize, dim: usize, rotary: usize) -> Case {
    let mut case = Case::new(format!("block key {blocks} x {ratio} x {dim}"));
    let mut random = Random::new(dim as u64);
    let (raw, weight) = (random.values(blocks * ratio * dim), random.values(dim));
    let rope = Rope::new(rotary, 1e7);
    let position = |block: usize| ((40 + block) * ratio) as u64;
    let mut want = vec![f32::NAN; blocks * dim];
    for (block, (raw, want)) in
        raw.chunks_exact(ratio * dim).zip(want.chunks_exact_mut(dim)).enumerate()
    {
        reference::block_key(raw, &weight, 1e-6, &rope, position(block), want);
    }
    let angles = rope_angles(&rope, (0..blocks).map(position));
    let (raw, weight) = (case.floats(&raw), case.floats(&weight));
    let (angles, out) = (case.floats(&angles), case.scratch(want.len()));
    let plan = block_key(blocks, ratio, dim, rotary, 1e-6, raw, weight, angles, out);
    case.launch(plan.expect("a plan"));
    case.want_floats(out, want, 2e-6);
    case
}
