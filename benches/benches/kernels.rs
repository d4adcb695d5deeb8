//! Matrix products over weights that do not fit the last level cache, as in decode.
//!
//! The throughput is bytes of weights (words, scales and biases) a second; to compare with what
//! the memory delivers, see the `read` lines, which sum the same bytes up.

use std::{hint::black_box, time::Duration};

use criterion::{BenchmarkGroup, Criterion, Throughput, criterion_group, criterion_main};
use slotstream_core::{AffineFormat, ExpertShape, Part, RecordLayout, f32_to_bf16};
use slotstream_kernels::{AffineMatrix, Cpu, ExpertRows, Kernels, Reference};

const FORMAT: AffineFormat = AffineFormat::Q4_G64;

/// Bytes of weights to walk through: many times a last level cache.
const SET: usize = 512 << 20;

/// Xorshift; quick enough to fill the set.
fn random_bytes(len: usize) -> Vec<u8> {
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    let mut words = Vec::with_capacity(len + 8);
    while words.len() < len {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        words.extend_from_slice(&state.to_le_bytes());
    }
    words.truncate(len);
    words
}

/// `len` bytes of bf16 that are all `value`.
fn bf16(value: f32, len: usize) -> Vec<u8> {
    f32_to_bf16(value).to_le_bytes().repeat(len / 2)
}

fn values(len: usize) -> Vec<f32> {
    (0..len).map(|i| (i as f32 * 0.37).sin()).collect()
}

/// The op sets to compare; the reference is too slow for large `m`.
fn kernels(reference: bool) -> Vec<Box<dyn Kernels>> {
    let mut sets: Vec<Box<dyn Kernels>> = Vec::new();
    for threads in [1, 2] {
        sets.push(Box::new(Cpu::new(threads).expect("threads")));
    }
    if reference {
        sets.push(Box::new(Reference));
    }
    sets
}

fn configure(group: &mut BenchmarkGroup<'_, criterion::measurement::WallTime>, bytes: usize) {
    group
        .throughput(Throughput::Bytes(bytes as u64))
        .sample_size(10)
        .warm_up_time(Duration::from_millis(500))
        .measurement_time(Duration::from_secs(2));
}

/// `x[m, k] . w[n, k]^T`, each time with the next matrix of the set.
fn matmul(criterion: &mut Criterion, n: usize, k: usize, m: usize) {
    let (len, groups) = (n * FORMAT.row_bytes(k), 2 * n * FORMAT.row_groups(k));
    let bytes = random_bytes(SET / len * len);
    let (scales, biases) = (bf16(0.01, groups), bf16(-0.08, groups));
    let matrix = |i: usize| {
        let at = i % (bytes.len() / len) * len;
        AffineMatrix::new(FORMAT, n, k, &bytes[at..at + len], &scales, &biases).expect("fits")
    };
    let (x, mut out) = (values(m * k), vec![0.0; m * n]);
    let mut group = criterion.benchmark_group(format!("affine {n}x{k} m={m}"));
    configure(&mut group, len);
    if m == 1 {
        let mut next = 0;
        group.bench_function("read", |bencher| {
            bencher.iter(|| {
                next = (next + 1) % (bytes.len() / len);
                black_box(sum(&bytes[next * len..(next + 1) * len]))
            });
        });
    }
    for set in kernels(m == 1) {
        let mut next = 0;
        group.bench_function(set.name(), |bencher| {
            bencher.iter(|| {
                next += 1;
                set.affine_matmul(&x, &matrix(next), &mut out);
            });
        });
    }
    group.finish();
}

/// The sum of all words: as fast as one thread reads.
fn sum(bytes: &[u8]) -> u64 {
    let mut sums = [0_u64; 8];
    for eight in bytes.as_chunks::<8>().0.as_chunks::<8>().0 {
        for (sum, word) in sums.iter_mut().zip(eight) {
            *sum = sum.wrapping_add(u64::from_le_bytes(*word));
        }
    }
    sums.iter().fold(0, |a, b| a.wrapping_add(*b))
}

/// Ten experts of one layer for one token.
fn experts(criterion: &mut Criterion) {
    let shape = ExpertShape::new(2560, 640, FORMAT).expect("legal");
    let layout = RecordLayout::new(shape);
    let mut bytes = random_bytes(SET / layout.stride() * layout.stride());
    for record in bytes.chunks_exact_mut(layout.stride()) {
        for piece in layout.pieces() {
            if piece.part != Part::Weight {
                record[piece.offset..piece.offset + piece.len]
                    .copy_from_slice(&bf16(0.01, piece.len));
            }
        }
    }
    let records = bytes.len() / layout.stride();
    let (x, mut out) = (values(2560), vec![0.0; 10 * 2560]);
    let mut group = criterion.benchmark_group("ten experts");
    configure(&mut group, 10 * layout.payload_len());
    for set in kernels(true) {
        let mut next = 0;
        group.bench_function(set.name(), |bencher| {
            bencher.iter(|| {
                let places: Vec<u32> = (0..10).collect();
                let experts: Vec<_> = (0..10)
                    .map(|i| {
                        let at = (next + i) % records * layout.stride();
                        ExpertRows {
                            record: &bytes[at..at + layout.stride()],
                            rows: &[0],
                            places: &places[i..=i],
                        }
                    })
                    .collect();
                next += 10;
                set.expert_mlp(&layout, &x, &experts, &mut out);
            });
        });
    }
    group.finish();
}

fn all(criterion: &mut Criterion) {
    for (n, k) in [(640, 2560), (2560, 640)] {
        for m in [1, 4, 32] {
            matmul(criterion, n, k, m);
        }
    }
    experts(criterion);
}

criterion_group!(benches, all);
criterion_main!(benches);
