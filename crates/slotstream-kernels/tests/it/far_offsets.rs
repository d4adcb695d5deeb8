//! Weights beyond 2^31 bytes, as the embedding of a large vocabulary has them.

use memmap2::{MmapMut, MmapOptions};
use slotstream_core::{AffineFormat, f32_to_bf16};
use slotstream_kernels::{AffineMatrix, Kernels, Reference};

use crate::data::{Random, bits, cpus};

const K: usize = 2560;
const FORMAT: AffineFormat = AffineFormat::Q4_G64;

/// Memory that costs nothing until it is written.
fn sparse(len: usize) -> MmapMut {
    MmapOptions::new().len(len).map_anon().expect("address space")
}

#[test]
fn rows_beyond_two_gigabytes() {
    let (words, groups) = (FORMAT.row_bytes(K), 2 * FORMAT.row_groups(K));
    let rows = (1 << 31) / words + 5;
    let (mut weight, mut scales, mut biases) =
        (sparse(rows * words), sparse(rows * groups), sparse(rows * groups));
    assert!(weight.len() > 1 << 31);
    let mut random = Random::new(1);
    let tail = rows - 3;
    weight[tail * words..].copy_from_slice(&random.bytes(3 * words));
    scales[tail * groups..]
        .copy_from_slice(&f32_to_bf16(0.25).to_le_bytes().repeat(3 * groups / 2));
    biases[tail * groups..]
        .copy_from_slice(&f32_to_bf16(-2.0).to_le_bytes().repeat(3 * groups / 2));
    let all = AffineMatrix::new(FORMAT, rows, K, &weight, &scales, &biases).unwrap();
    let view = AffineMatrix::new(
        FORMAT,
        3,
        K,
        &weight[tail * words..],
        &scales[tail * groups..],
        &biases[tail * groups..],
    )
    .unwrap();

    let byte = weight[(rows - 1) * words];
    let x = random.values(K);
    let sets = cpus(&[1]);
    for set in sets.iter().map(|set| set as &dyn Kernels).chain([&Reference as _]) {
        let (mut far, mut near) = (vec![f32::NAN; 3 * K], vec![f32::NAN; 3 * K]);
        let ids = [rows - 3, rows - 2, rows - 1].map(|row| row as u32);
        set.affine_rows(&all, &ids, &mut far);
        set.affine_rows(&view, &[0, 1, 2], &mut near);
        assert_eq!(bits(&far), bits(&near));
        assert_eq!(far[2 * K], 0.25 * f32::from(byte & 15) - 2.0);

        let mut out = [f32::NAN; 3];
        set.affine_matmul(&x, &view, &mut out);
        for (out, row) in out.iter().zip(far.chunks_exact(K)) {
            let want: f64 = x.iter().zip(row).map(|(x, w)| f64::from(*x) * f64::from(*w)).sum();
            assert!((f64::from(*out) - want).abs() < 1e-3, "{out} {want}");
        }
    }
}
