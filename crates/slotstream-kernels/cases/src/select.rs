//! The indexer's choice of blocks.

use slotstream_kernels::metal::{SelectShape, block_select};
use slotstream_kernels::{BlockSelectArgs, reference};

use crate::case::Case;
use crate::data::Random;
use crate::pages::Pages;

pub(crate) fn cases() -> Vec<Case> {
    let mut cases = Vec::new();
    let shape = |position, budget_blocks| SelectShape {
        heads: 4,
        dim: 32,
        ratio: 4,
        budget_blocks,
        position,
    };
    // No block yet, then one more a row: none, some and more than fit.
    for position in [0, 2, 7, 40] {
        cases.push(choice(6, shape(position, 3), Keys::Random));
    }
    // More blocks than threads, 512 chosen; the last block ends with the last row.
    cases.push(choice(2, shape(4 * 600 - 2, 512), Keys::Random));
    for keys in [Keys::Equal, Keys::Zero, Keys::Odd] {
        cases.push(choice(3, shape(4 * 37 - 1, 5), keys));
    }
    cases.push(choice(
        1,
        SelectShape { heads: 1, dim: 128, ratio: 1, budget_blocks: 10, position: 300 },
        Keys::Random,
    ));
    cases.push(choice(
        1,
        SelectShape { heads: 3, dim: 17, ratio: 5, budget_blocks: 1, position: 99 },
        Keys::Random,
    ));
    cases.push(choice(
        1,
        SelectShape { heads: 4, dim: 96, ratio: 4, budget_blocks: 3, position: 99 },
        Keys::Far,
    ));
    cases
}

/// 512 of 4,096 blocks.
pub(crate) fn timed() -> Vec<Case> {
    let shape =
        SelectShape { heads: 4, dim: 128, ratio: 4, budget_blocks: 512, position: 4 * 4096 - 1 };
    vec![choice(1, shape, Keys::Random)]
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Keys {
    Random,
    /// Every key the same: every score a tie.
    Equal,
    /// Scores of zero.
    Zero,
    /// Some NaN, some infinite.
    Odd,
    /// Pages gigabytes apart.
    Far,
}

fn choice(m: usize, shape: SelectShape, kind: Keys) -> Case {
    let SelectShape { heads, dim, ratio, budget_blocks, position } = shape;
    let mut case = Case::new(format!("select {m} {shape:?} {kind:?}"));
    let blocks = (position + m) / ratio;
    let mut random = Random::new((m + position) as u64);
    // Small integers: scores have no rounding, so that none is close to another but equal.
    let mut small =
        |len: usize| -> Vec<f32> { random.values(len).iter().map(|v| (v * 9.0).round()).collect() };
    let queries = small(m * heads * dim);
    let mut keys = small(blocks.max(1) * dim);
    match kind {
        Keys::Equal => keys.iter_mut().enumerate().for_each(|(i, v)| *v = (i % dim % 3) as f32),
        Keys::Zero => keys.fill(0.0),
        Keys::Odd => {
            keys[2 * dim] = f32::NAN;
            keys[3 * dim] = f32::INFINITY;
            keys[5 * dim] = f32::NEG_INFINITY;
            (8..blocks).for_each(|block| keys[block * dim] = f32::NAN);
        }
        Keys::Random | Keys::Far => {}
    }
    let pages = Pages::new(&keys, 7, dim);
    let slices = pages.slices();
    let args = BlockSelectArgs {
        queries: &queries,
        heads,
        dim,
        keys: pages.paged(&slices),
        ratio,
        budget_blocks,
        position: position as u64,
    };
    let mut want = vec![0; m * budget_blocks];
    reference::block_select(&args, &mut want);
    let queries = case.floats(&queries);
    let view = pages.view(&mut case, kind == Keys::Far);
    let (scores, out) = (case.scratch(m * blocks), case.scratch(m * budget_blocks));
    let plan = block_select(m, shape, queries, view, scores, out).expect("a plan");
    case.launches.extend(plan);
    case.want_words(out, want);
    case
}
