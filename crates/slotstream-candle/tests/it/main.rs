//! The host ops on tensors that do not fit, and the rings of the delta rule.

use std::sync::Arc;

use candle_core::{DType, Device, Tensor};
use slotstream_candle::{
    AffineWeight, Bf16Weight, DeltaInputs, DeltaRecord, DeltaWeight, Error, HeadLayout, HostOps,
    Ops, PagedTensor, Rope, SlotArena, SlotRows,
};
use slotstream_core::{AffineFormat, ExpertShape, RecordLayout, SlotId};
use slotstream_kernels::Reference;

fn ops() -> HostOps {
    HostOps::new(Arc::new(Reference))
}

fn zeros(shape: &[usize]) -> Tensor {
    Tensor::zeros(shape, DType::F32, &Device::Cpu).expect("small")
}

/// Values that differ from each other, in -1..1.
fn ramp(shape: &[usize]) -> Tensor {
    let n: usize = shape.iter().product();
    let values: Vec<f32> = (0..n).map(|i| (i as f32 * 0.7).sin()).collect();
    Tensor::from_vec(values, shape, &Device::Cpu).expect("fits")
}

fn floats(tensor: &Tensor) -> Vec<f32> {
    tensor.flatten_all().and_then(|t| t.to_vec1()).expect("f32")
}

/// `rows` x 64, all values `scale * 1 + 0`.
fn affine(rows: usize) -> AffineWeight {
    let arrays = [vec![0x11; rows * 32], [0x80, 0x3f].repeat(rows), vec![0; rows * 2]];
    AffineWeight::new(AffineFormat::Q4_G64, (rows, 64), arrays, &Device::Cpu).expect("fits")
}

#[test]
fn wrong_shapes_are_named() {
    let (ops, w) = (ops(), affine(3));
    let cases = [
        ops.affine_matmul(&zeros(&[2, 32]), &w).map(drop),
        ops.affine_matmul(&zeros(&[64]), &w).map(drop),
        ops.hc_inject(&zeros(&[2, 8]), &zeros(&[2, 4]), &zeros(&[2, 3])),
        ops.conv_silu(&zeros(&[2, 4]), &zeros(&[4, 4]), 1).map(drop),
        ops.rank_sum(&zeros(&[5, 4]), &zeros(&[2, 3])).map(drop),
    ];
    for (i, case) in cases.into_iter().enumerate() {
        assert!(matches!(case, Err(Error::Shape { .. })), "case {i}: {case:?}");
    }
    let short = AffineWeight::new(
        AffineFormat::Q4_G64,
        (3, 64),
        [vec![0; 95], vec![0; 6], vec![0; 6]],
        &Device::Cpu,
    );
    assert!(matches!(short, Err(Error::Shape { tensor: "weight", .. })));
}

#[test]
fn wrong_numbers_types_and_strides_are_named() {
    let (ops, w) = (ops(), affine(3));
    let error = ops.embed_rows(&w, &[0, 3]).expect_err("three rows");
    assert!(matches!(error, Error::Range { what: "id", value: 3, limit: 3, .. }), "{error}");
    assert!(matches!(ops.route(&zeros(&[1, 4]), 5), Err(Error::Range { what: "top-k", .. })));
    let ints = Tensor::zeros((2, 64), DType::U32, &Device::Cpu).expect("small");
    assert!(matches!(ops.affine_matmul(&ints, &w), Err(Error::Candle { op: "affine_matmul", .. })));
    let turned = zeros(&[64, 2]).t().expect("2d");
    assert!(matches!(ops.affine_matmul(&turned, &w), Err(Error::Storage { .. })));
    let heads = HeadLayout { offset: 8, stride: 8, heads: 2, dim: 8 };
    let (norm, rope) = (zeros(&[8]), Rope::new(4, 1e4));
    assert!(ops.norm_rope(&zeros(&[1, 16]), heads, &norm, 1e-6, &rope, 0).is_err());
    let keys = PagedTensor::new(8, 4, &Device::Cpu);
    let shape = slotstream_candle::BlockShape { heads: 1, ratio: 4, budget_blocks: 2 };
    let blind = ops.block_select(&zeros(&[1, 8]), &keys, shape, 7);
    assert!(matches!(blind, Err(Error::Range { what: "visible blocks", .. })));
}

#[test]
fn experts_need_their_slots_lent() {
    let shape = ExpertShape::new(64, 64, AffineFormat::Q4_G64).expect("legal");
    let layout = RecordLayout::new(shape);
    let arena = SlotArena::new(layout.clone(), 2).expect("small");
    let (x, out) = (zeros(&[1, 64]), zeros(&[1, 64]));
    let reading = arena.read(&[SlotId::new(0)]).expect("free");
    let expert = |slot, rows, places| SlotRows { slot: SlotId::new(slot), rows, places };
    let run = |expert| ops().expert_mlp(&layout, &reading, &[expert], &x, &out);
    run(expert(0, &[0], &[0])).expect("lent");
    assert!(matches!(run(expert(1, &[0], &[0])), Err(Error::SlotBusy { .. })));
    assert!(matches!(run(expert(0, &[1], &[0])), Err(Error::Range { what: "row", .. })));
    assert!(matches!(run(expert(0, &[0], &[1])), Err(Error::Range { what: "place", .. })));
}

#[test]
fn rings_hold_the_states_after_the_rows() {
    let (heads, dim, rows) = (2, 4, 3);
    let w = DeltaWeight {
        a_log: ramp(&[heads]),
        dt_bias: ramp(&[heads]),
        norm: ramp(&[dim]),
        key_heads: 1,
        value_heads: heads,
        key_dim: dim,
        value_dim: dim,
        sigmoid_gate: true,
        eps: 1e-6,
    };
    let (qkv, a, b, z) = (
        ramp(&[rows, 2 * dim + heads * dim]),
        ramp(&[rows, heads]),
        ramp(&[rows, heads]),
        ramp(&[rows, heads * dim]),
    );
    let ops = ops();
    let ring = zeros(&[2, heads, dim, dim]);
    let state = zeros(&[heads, dim, dim]);
    let inputs = DeltaInputs { qkv: &qkv, a: &a, b: &b, z: &z };
    let entries = [Some(1), Some(0), None];
    let record = DeltaRecord { ring: &ring, entries: &entries };
    let whole = floats(&ops.gated_delta(&inputs, &w, &state, Some(record)).expect("runs"));
    let single = zeros(&[heads, dim, dim]);
    for (row, entry) in entries.iter().enumerate() {
        let pick = |t: &Tensor| t.narrow(0, row, 1).and_then(|t| t.contiguous()).expect("a row");
        let (qkv, a, b, z) = (pick(&qkv), pick(&a), pick(&b), pick(&z));
        let inputs = DeltaInputs { qkv: &qkv, a: &a, b: &b, z: &z };
        let out = floats(&ops.gated_delta(&inputs, &w, &single, None).expect("runs"));
        assert!(out == whole[row * heads * dim..][..heads * dim], "row {row}");
        if let Some(entry) = entry {
            let kept = floats(&ring.get(*entry).expect("an entry"));
            assert!(kept == floats(&single), "row {row}");
        }
    }
    assert!(floats(&state) == floats(&single));
    for entries in [&[Some(2), None, None][..], &[Some(0), Some(0), None], &[None]] {
        let record = Some(DeltaRecord { ring: &ring, entries });
        assert!(ops.gated_delta(&inputs, &w, &state, record).is_err(), "{entries:?}");
    }
}

#[test]
fn one_readback_brings_everything() {
    let ids = Tensor::from_slice(&[3_u32, 1], (1, 2), &Device::Cpu).expect("small");
    let (ids, floats) = ops().read_back(&ids, &[&ramp(&[2]), &ramp(&[3])]).expect("host");
    assert_eq!((ids, floats.len(), floats[1].len()), (vec![3, 1], 2, 3));
    let bf16 = Bf16Weight::read((1, 2), &Device::Cpu, |bytes| {
        bytes.copy_from_slice(&[0x80, 0x3f, 0, 0x40]);
        Ok::<(), Error>(())
    });
    let y = ops().bf16_matmul(&ramp(&[1, 2]), &bf16.expect("fits")).expect("runs");
    assert!(
        (y.flatten_all().and_then(|t| t.to_vec1::<f32>()).expect("f32")[0] - 2.0 * 0.7_f32.sin())
            .abs()
            < 1e-6
    );
}

/// What was given back is used again, and a view of something larger is not.
#[test]
fn recycled_tensors_are_written_anew() {
    let (ops, w) = (ops(), affine(3));
    let fresh = floats(&ops.affine_matmul(&ramp(&[2, 64]), &w).expect("fits"));
    let other = ramp(&[2, 3]);
    ops.recycle(other.clone());
    let again = ops.affine_matmul(&ramp(&[2, 64]), &w).expect("fits");
    assert_eq!(floats(&again), fresh);
    assert_eq!(floats(&other), fresh, "in the memory that was given back");
    let whole = ramp(&[4, 3]);
    let before = floats(&whole);
    ops.recycle(whole.narrow(0, 0, 2).expect("two of four"));
    let third = ops.affine_matmul(&ramp(&[2, 64]), &w).expect("fits");
    assert_eq!((floats(&third), floats(&whole)), (fresh, before));
    // Passes of many rows hold on to nothing.
    let many = ramp(&[9, 3]);
    let before = floats(&many);
    ops.recycle(many.clone());
    ops.affine_matmul(&ramp(&[9, 64]), &w).expect("fits");
    assert_eq!(floats(&many), before);
}
