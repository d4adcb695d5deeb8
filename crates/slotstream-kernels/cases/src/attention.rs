//! Attention over selected tokens.

use slotstream_kernels::metal::{AttentionShape, AttentionViews, indexed_attention};
use slotstream_kernels::{AttentionArgs, reference};

use crate::case::Case;
use crate::data::Random;
use crate::pages::Pages;

const NONE: u32 = u32::MAX;
const RATIO: usize = 4;

pub(crate) fn cases() -> Vec<Case> {
    let mut cases = Vec::new();
    for (heads, kv_heads, head_dim) in [(1, 1, 32), (4, 2, 64), (3, 1, 96), (2, 2, 256), (2, 1, 17)]
    {
        for (m, position) in [(1, 0), (3, 9), (1, 600)] {
            let shape = AttentionShape {
                heads,
                kv_heads,
                head_dim,
                position,
                ratio: RATIO,
                budget_blocks: None,
            };
            cases.push(attend(m, shape, &[], Odd::Nothing));
        }
    }
    let shape = |position, budget| AttentionShape {
        heads: 4,
        kv_heads: 2,
        head_dim: 32,
        position,
        ratio: RATIO,
        budget_blocks: Some(budget),
    };
    // Rows at positions 9 to 12: 10, 11, 12 and 13 tokens.
    let selection = [0, NONE, 1, NONE, 0, 2, NONE, NONE];
    cases.push(attend(4, shape(9, 2), &selection, Odd::Nothing));
    // Nothing is seen: zeros. The second row sees one token.
    cases.push(attend(2, shape(7, 1), &[NONE, NONE], Odd::Nothing));
    cases.push(attend(1, shape(7, 0), &[], Odd::Nothing));
    // More than one split, the last of them empty for the second row.
    let many: Vec<u32> =
        (0..150).map(|i| 2 * i).chain((0..150).map(|i| if i < 60 { i } else { NONE })).collect();
    cases.push(attend(2, shape(1300, 150), &many, Odd::Nothing));
    for odd in [Odd::Key(f32::NAN), Odd::Key(f32::INFINITY), Odd::Large, Odd::Far] {
        cases.push(attend(4, shape(9, 2), &selection, odd));
        cases.push(attend(2, AttentionShape { budget_blocks: None, ..shape(5, 0) }, &[], odd));
    }
    cases
}

/// A token after 2,047 others, which it sees all, and one that sees 512 blocks.
pub(crate) fn timed() -> Vec<Case> {
    let shape = AttentionShape {
        heads: 24,
        kv_heads: 2,
        head_dim: 256,
        position: 2047,
        ratio: RATIO,
        budget_blocks: None,
    };
    let selection: Vec<u32> = (0..512).collect();
    let chosen = AttentionShape { position: 4095, budget_blocks: Some(512), ..shape };
    vec![attend(1, shape, &[], Odd::Nothing), attend(1, chosen, &selection, Odd::Nothing)]
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Odd {
    Nothing,
    /// The key of token 6 has this first value.
    Key(f32),
    /// Scores of thousands.
    Large,
    /// Pages gigabytes apart.
    Far,
}

fn attend(m: usize, shape: AttentionShape, selection: &[u32], odd: Odd) -> Case {
    let AttentionShape { heads, kv_heads, head_dim: dim, position, ratio, budget_blocks } = shape;
    let mut case = Case::new(format!("attention {m} {shape:?} {odd:?}"));
    let (tokens, width) = (position + m, kv_heads * dim);
    let mut random = Random::new((m + position + dim) as u64);
    let mut keys = random.values(tokens * width);
    let values = random.values(tokens * width);
    let mut queries = random.values(m * heads * dim);
    match odd {
        Odd::Key(value) => keys[6 * width] = value,
        Odd::Large => queries.iter_mut().for_each(|q| *q *= 4096.0),
        Odd::Nothing | Odd::Far => {}
    }
    // Each head's gates lie behind something else.
    let gate = random.values(m * heads * 2 * dim);
    let (keys, values) = (Pages::new(&keys, 5, width), Pages::new(&values, 5, width));
    let (key_slices, value_slices) = (keys.slices(), values.slices());
    let args = AttentionArgs {
        queries: &queries,
        keys: keys.paged(&key_slices),
        values: values.paged(&value_slices),
        gate: &gate,
        gate_row_stride: heads * 2 * dim,
        gate_offset: dim,
        gate_head_stride: 2 * dim,
        heads,
        kv_heads,
        head_dim: dim,
        position: position as u64,
        ratio,
        selection: budget_blocks.map(|_| selection),
    };
    let mut want = vec![f32::NAN; m * heads * dim];
    reference::indexed_attention(&args, &mut want);
    let far = odd == Odd::Far;
    let views = AttentionViews {
        queries: case.floats(&queries),
        keys: keys.view(&mut case, far),
        values: values.view(&mut case, far),
        selection: budget_blocks.map(|_| case.words(selection)),
        gate: case.floats(&gate),
        gate_row_stride: heads * 2 * dim,
        gate_offset: dim,
        gate_head_stride: 2 * dim,
        partials: case.scratch(shape.scratch(m)),
    };
    let out = case.scratch(want.len());
    case.launches.extend(indexed_attention(m, &shape, &views, out).expect("a plan"));
    // A score of thousands is rounded to more than a thousandth.
    let tolerance = if odd == Odd::Large { 2e-2 } else { 5e-6 };
    case.want_floats(out, want, tolerance);
    case
}
