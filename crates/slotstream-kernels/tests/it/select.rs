//! The two choices: experts and blocks.

use slotstream_kernels::{BlockSelectArgs, Kernels, Paged, Reference};

use crate::data::Random;

fn route(logits: &[f32], top_k: usize) -> (Vec<u32>, Vec<f32>) {
    let (mut ids, mut weights) = (vec![u32::MAX; top_k], vec![f32::NAN; top_k]);
    Reference.route(logits, logits.len(), top_k, &mut ids, &mut weights);
    (ids, weights)
}

#[test]
fn routes_to_the_largest_in_descending_order() {
    let (ids, weights) = route(&[0.0, 2.0, -1.0, 1.0], 3);
    assert_eq!(ids, [1, 3, 0]);
    let sum = 1.0 + (-1.0_f32).exp() + (-2.0_f32).exp();
    for (weight, exp) in weights.iter().zip([1.0, (-1.0_f32).exp(), (-2.0_f32).exp()]) {
        assert!((weight - exp / sum).abs() < 1e-7);
    }
}

#[test]
fn route_is_the_renormalised_softmax_over_all() {
    let mut random = Random::new(8);
    let (m, experts, top_k) = (5, 64, 10);
    let logits: Vec<f32> = random.values(m * experts).iter().map(|v| v * 8.0).collect();
    let (mut ids, mut weights) = (vec![0; m * top_k], vec![0.0; m * top_k]);
    Reference.route(&logits, experts, top_k, &mut ids, &mut weights);
    for t in 0..m {
        let row = &logits[t * experts..(t + 1) * experts];
        let chosen = &ids[t * top_k..(t + 1) * top_k];
        let total: f64 = chosen.iter().map(|id| f64::from(row[*id as usize]).exp()).sum();
        for (rank, id) in chosen.iter().enumerate() {
            let logit = row[*id as usize];
            // Exactly `rank` experts are better.
            assert_eq!(row.iter().filter(|other| **other > logit).count(), rank);
            let want = f64::from(logit).exp() / total;
            assert!((f64::from(weights[t * top_k + rank]) - want).abs() < 1e-6);
        }
    }
}

#[test]
fn equal_logits_go_to_the_lower_expert() {
    assert_eq!(route(&[1.0, 3.0, 1.0, 3.0, 1.0], 4).0, [1, 3, 0, 2]);
    assert_eq!(route(&[-0.0, 0.0, -0.0], 2).0, [0, 1]);
}

#[test]
fn nan_is_less_than_everything_until_there_is_nothing_else() {
    let (nan, inf) = (f32::NAN, f32::INFINITY);
    let (ids, weights) = route(&[nan, 1.0, -inf, nan, 2.0], 2);
    assert_eq!(ids, [4, 1]);
    assert!(weights.iter().all(|w| w.is_finite()));
    let (ids, weights) = route(&[nan, 1.0, -inf, -nan, 2.0], 4);
    assert_eq!(ids, [4, 1, 2, 0]);
    assert!(weights.iter().all(|w| w.is_nan()));
    assert_eq!(route(&[nan, nan, nan], 3).0, [0, 1, 2]);
}

/// One head of width 1 and query 1: the score of a block is its key, or 0 where that is negative.
fn select(keys: &[f32], position: u64, budget: usize, rows: usize) -> Vec<u32> {
    let page_rows = 3;
    let padded = [keys, &vec![0.0; keys.len().next_multiple_of(page_rows) - keys.len()]].concat();
    let pages: Vec<&[f32]> = padded.chunks(page_rows).collect();
    let args = BlockSelectArgs {
        queries: &vec![1.0; rows],
        heads: 1,
        dim: 1,
        keys: Paged { pages: &pages, page_rows, width: 1 },
        ratio: 4,
        budget_blocks: budget,
        position,
    };
    let mut out = vec![7; rows * budget];
    Reference.block_select(&args, &mut out);
    out
}

#[test]
fn blocks_count_only_when_complete_at_the_query() {
    const NONE: u32 = u32::MAX;
    // Rows at positions 2, 3, ..., 8: block 0 is complete from position 3 on, block 1 from 7 on.
    let out = select(&[1.0, 9.0], 2, 2, 7);
    let rows: Vec<&[u32]> = out.chunks(2).collect();
    assert_eq!(rows[0], [NONE, NONE]);
    assert!(rows[1..5].iter().all(|row| *row == [0, NONE]));
    assert!(rows[5..].iter().all(|row| *row == [0, 1]));
    assert!(select(&[], 5, 0, 3).is_empty());
}

#[test]
fn the_best_blocks_come_ascending_and_ties_go_to_the_lower() {
    assert_eq!(select(&[1.0, 5.0, 2.0, 4.0, 3.0], 19, 3, 1), [1, 3, 4]);
    // Negative products count as 0, and ties of them too.
    assert_eq!(select(&[-1.0, 5.0, -2.0, 0.0, -3.0], 19, 3, 1), [0, 1, 2]);
    assert_eq!(select(&[2.0, 2.0, 2.0, 2.0], 15, 2, 1), [0, 1]);
    // A block whose score is NaN comes last, and is taken when nothing else is left.
    assert_eq!(select(&[f32::NAN, 0.0, -1.0], 11, 2, 1), [1, 2]);
    assert_eq!(select(&[f32::NAN, f32::NAN, 1.0], 11, 2, 1), [0, 2]);
}

#[test]
fn scores_sum_the_positive_products_of_the_heads() {
    // Two heads of width 2. Block 0: products 3 and -4; block 1: 1 and 1.5; block 2: 2 and 0.
    let keys = [[3.0_f32, -4.0], [1.0, 1.5], [2.0, 0.0]].concat();
    let args = BlockSelectArgs {
        queries: &[1.0, 0.0, 0.0, 1.0],
        heads: 2,
        dim: 2,
        keys: Paged { pages: &[&keys], page_rows: 3, width: 2 },
        ratio: 4,
        budget_blocks: 1,
        position: 11,
    };
    let mut out = [0];
    Reference.block_select(&args, &mut out);
    assert_eq!(out, [0], "3 > 1 + 1.5 > 2 + 0");
    let lower = [[2.25_f32, -4.0], [1.0, 1.5], [2.0, 0.0]].concat();
    let args = BlockSelectArgs { keys: Paged { pages: &[&lower], page_rows: 3, width: 2 }, ..args };
    Reference.block_select(&args, &mut out);
    assert_eq!(out, [1]);
}
