//! Attention over chosen tokens, and the keys of blocks.

use slotstream_kernels::{AttentionArgs, Kernels, NormRopeArgs, Paged, Reference, Rope};

use crate::data::{Random, assert_close, bits};

const HEADS: usize = 4;
const KV_HEADS: usize = 2;
const DIM: usize = 8;
const RATIO: usize = 4;
const PAGE: usize = 5;

/// Keys and values of `tokens` tokens, and queries and gates of `rows` rows.
struct Case {
    keys: Vec<f32>,
    values: Vec<f32>,
    queries: Vec<f32>,
    gate: Vec<f32>,
    rows: usize,
    position: u64,
}

impl Case {
    fn random(position: u64, rows: usize) -> Self {
        let mut random = Random::new(position + 1);
        let tokens = (position as usize + rows).next_multiple_of(PAGE);
        Self {
            keys: random.values(tokens * KV_HEADS * DIM),
            values: random.values(tokens * KV_HEADS * DIM),
            queries: random.values(rows * HEADS * DIM),
            gate: random.values(rows * HEADS * 2 * DIM),
            rows,
            position,
        }
    }

    /// Runs rows `from..` with their selection.
    fn run(&self, from: usize, selection: Option<&[u32]>) -> Vec<f32> {
        let width = KV_HEADS * DIM;
        let keys: Vec<&[f32]> = self.keys.chunks(PAGE * width).collect();
        let values: Vec<&[f32]> = self.values.chunks(PAGE * width).collect();
        let args = AttentionArgs {
            queries: &self.queries[from * HEADS * DIM..],
            keys: Paged { pages: &keys, page_rows: PAGE, width },
            values: Paged { pages: &values, page_rows: PAGE, width },
            gate: &self.gate[from * HEADS * 2 * DIM..],
            gate_row_stride: HEADS * 2 * DIM,
            gate_offset: DIM,
            gate_head_stride: 2 * DIM,
            heads: HEADS,
            kv_heads: KV_HEADS,
            head_dim: DIM,
            position: self.position + from as u64,
            ratio: RATIO,
            selection,
        };
        let mut out = vec![f32::NAN; (self.rows - from) * HEADS * DIM];
        Reference.indexed_attention(&args, &mut out);
        out
    }

    /// Row `t` over these tokens, in f64.
    fn oracle(&self, t: usize, tokens: &[usize]) -> Vec<f32> {
        let wide = |v: &f32| f64::from(*v);
        let mut out = Vec::new();
        for head in 0..HEADS {
            let at = |token: usize| (token * KV_HEADS + head / 2) * DIM;
            let query = &self.queries[(t * HEADS + head) * DIM..][..DIM];
            let exp: Vec<f64> = tokens
                .iter()
                .map(|token| {
                    let key = &self.keys[at(*token)..][..DIM];
                    let score: f64 = query.iter().zip(key).map(|(q, k)| wide(q) * wide(k)).sum();
                    (score / (DIM as f64).sqrt()).exp()
                })
                .collect();
            let total: f64 = exp.iter().sum();
            for i in 0..DIM {
                let sum: f64 =
                    tokens.iter().zip(&exp).map(|(t, e)| e * wide(&self.values[at(*t) + i])).sum();
                let gate = wide(&self.gate[(t * HEADS + head) * 2 * DIM + DIM + i]);
                out.push((sum / total / (1.0 + (-gate).exp())) as f32);
            }
        }
        out
    }
}

#[test]
fn dense_attention_is_causal() {
    let case = Case::random(6, 5);
    let out = case.run(0, None);
    for (t, out) in out.chunks_exact(HEADS * DIM).enumerate() {
        let tokens: Vec<usize> = (0..7 + t).collect();
        assert_close(out, &case.oracle(t, &tokens), 1e-6);
    }
}

#[test]
fn selected_blocks_and_the_tail_are_seen() {
    const NONE: u32 = u32::MAX;
    // Rows at positions 9 to 12: 10, 11, 12 and 13 tokens.
    let case = Case::random(9, 4);
    let selection = [0, NONE, 1, NONE, 0, 2, NONE, NONE];
    let tokens: [Vec<usize>; 4] = [
        (0..4).chain(8..10).collect(),
        (4..8).chain(8..11).collect(),
        (0..4).chain(8..12).collect(),
        (12..13).collect(),
    ];
    let out = case.run(0, Some(&selection));
    for (t, out) in out.chunks_exact(HEADS * DIM).enumerate() {
        assert_close(out, &case.oracle(t, &tokens[t]), 1e-6);
    }
}

#[test]
fn a_query_that_sees_nothing_gets_zeros() {
    let case = Case::random(7, 1);
    assert_eq!(case.run(0, Some(&[u32::MAX])), vec![0.0; HEADS * DIM]);
    assert_eq!(case.run(0, Some(&[])), vec![0.0; HEADS * DIM]);
}

#[test]
#[should_panic(expected = "not complete")]
fn a_block_from_the_future_is_refused() {
    Case::random(6, 1).run(0, Some(&[1]));
}

#[test]
fn selecting_every_block_is_dense_and_rows_do_not_depend_on_each_other() {
    let case = Case::random(8, 7);
    let all: Vec<u32> = (0..7)
        .flat_map(|t| (0..3).map(move |b| if b < (9 + t) / 4 { b } else { u32::MAX }))
        .collect();
    let dense = case.run(0, None);
    assert_eq!(bits(&case.run(0, Some(&all))), bits(&dense));
    for from in 1..7 {
        assert_eq!(bits(&case.run(from, None)), bits(&dense[from * HEADS * DIM..]));
    }
}

#[test]
fn nan_reaches_the_queries_that_see_it() {
    let mut case = Case::random(3, 4);
    case.keys[5 * KV_HEADS * DIM] = f32::NAN;
    let clean = Case::random(3, 4).run(0, None);
    let out = case.run(0, None);
    // Token 5 is seen from row 2 on, through KV head 0 by heads 0 and 1.
    let (heads, row) = (2 * DIM, HEADS * DIM);
    assert_eq!(bits(&out[..2 * row]), bits(&clean[..2 * row]));
    for t in 2..4 {
        assert!(out[t * row..][..heads].iter().all(|v| v.is_nan()));
        assert_eq!(
            bits(&out[t * row + heads..][..heads]),
            bits(&clean[t * row + heads..][..heads])
        );
    }
}

#[test]
fn large_scores_do_not_overflow() {
    let mut case = Case::random(0, 2);
    case.queries.iter_mut().for_each(|q| *q *= 1e4);
    assert!(case.run(0, None).iter().all(|v| v.is_finite()));
}

#[test]
fn the_key_of_a_block_is_the_normed_rotated_mean() {
    let mut random = Random::new(2);
    let (raw, weight, rope) = (random.values(RATIO * DIM), random.values(DIM), Rope::new(4, 1e4));
    let mean: Vec<f32> =
        (0..DIM).map(|i| (0..RATIO).map(|j| raw[j * DIM + i]).sum::<f32>() / 4.0).collect();
    let args = NormRopeArgs {
        x: &mean,
        row_stride: DIM,
        offset: 0,
        head_stride: DIM,
        heads: 1,
        head_dim: DIM,
        weight: &weight,
        eps: 1e-6,
        rope: &rope,
        position: 36,
    };
    let (mut want, mut out) = (vec![f32::NAN; DIM], vec![f32::NAN; DIM]);
    Reference.norm_rope(&args, &mut want);
    Reference.block_key(&raw, &weight, 1e-6, &rope, 36, &mut out);
    assert_close(&out, &want, 1e-6);
}
