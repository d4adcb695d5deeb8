//! The SIMD kernels: right, and the same bits however the work is cut.

use slotstream_core::{AffineFormat, ErrorKind, ExpertShape, Matrix, RecordLayout, f32_to_bf16};
use slotstream_kernels::{
    AffineMatrix, Bf16Matrix, Cpu, CpuError, ExpertRows, InstructionSet, Kernels, MlpWeights,
    Reference,
};

use crate::data::{Affine, Bf16, Random, bits, cpus, formats, product};

const KS: [usize; 12] = [32, 64, 96, 128, 160, 192, 320, 640, 704, 2048, 2176, 2560];
const NS: [usize; 9] = [1, 2, 3, 5, 7, 8, 17, 64, 129];
const MS: [usize; 7] = [1, 2, 3, 5, 8, 16, 33];
const N: usize = 129;
const M: usize = 33;

/// Relative to the size of a product of random numbers.
#[track_caller]
fn assert_right(out: &[f32], oracle: &[(f64, f64)], what: &str) {
    for (i, (got, (want, size))) in out.iter().zip(oracle).enumerate() {
        let error = (f64::from(*got) - want).abs() / size;
        assert!(error <= 1e-5, "{what}: element {i} is {got}, wanted {want} (error {error:e})");
    }
}

/// The first `m` rows and `n` columns of an `[M, N]` array.
fn corner(all: &[f32], m: usize, n: usize) -> Vec<f32> {
    all.chunks_exact(N).take(m).flat_map(|row| &row[..n]).copied().collect()
}

/// The product of `x` with the first `n` weight rows.
type Product<'a> = &'a dyn Fn(&dyn Kernels, &[f32], usize) -> Vec<f32>;

/// Calls `matmul(set, x, n)` for every set, number of threads, `n` and `m`: all must give the
/// bits of the scalar set on one thread, and those must be right.
fn sweep(k: usize, oracle: &[(f64, f64)], x: &[f32], what: &str, matmul: Product<'_>) {
    let scalar = Cpu::with_instruction_set(1, InstructionSet::Scalar).expect("everywhere");
    let expected = matmul(&scalar, x, N);
    assert_right(&expected, oracle, what);
    assert_right(&matmul(&Reference, x, N), oracle, what);
    for cpu in cpus(&[1, 3]) {
        // The scalar set is slow: it is walked through with few shapes.
        let slow = cpu.instruction_set() == InstructionSet::Scalar;
        for n in NS {
            for m in MS {
                if slow && n * m * k > 1 << 19 {
                    continue;
                }
                let out = matmul(&cpu, &x[..m * k], n);
                let name = cpu.name();
                assert_eq!(bits(&out), bits(&corner(&expected, m, n)), "{what} {n} {m} {name}");
            }
        }
    }
}

#[test]
fn affine_products_are_right_and_have_one_order_of_additions() {
    for format in formats() {
        for k in KS.into_iter().filter(|k| format.divides(*k)) {
            let w = Affine::random(format, N, k, 0);
            let x = Random::new(k as u64).values(M * k);
            let oracle = product(&x, &w.dequantized(), k);
            sweep(k, &oracle, &x, &format!("{format:?} k={k}"), &|set, x, n| {
                let mut out = vec![f32::NAN; x.len() / k * n];
                set.affine_matmul(x, &w.head(n), &mut out);
                out
            });
        }
    }
}

#[test]
fn bf16_products_are_right_and_have_one_order_of_additions() {
    for k in KS.into_iter().chain([1, 31, 33, 2559]) {
        let w = Bf16::random(N, k, 0);
        let x = Random::new(k as u64).values(M * k);
        let oracle = product(&x, &w.widened(), k);
        sweep(k, &oracle, &x, &format!("bf16 k={k}"), &|set, x, n| {
            let mut out = vec![f32::NAN; x.len() / k * n];
            set.bf16_matmul(x, &w.head(n), &mut out);
            out
        });
    }
}

/// Large enough that several threads take part (see `threads.rs`).
#[test]
fn threads_do_not_change_a_bit() {
    let (n, k) = (517, 1280);
    let w = Affine::random(AffineFormat::Q4_G64, n, k, 0);
    let wide = Bf16::random(n, k, 0);
    for m in [1, 2, 7, 70] {
        let x = Random::new(m as u64).values(m * k);
        let mut expected: Option<(Vec<u32>, Vec<u32>)> = None;
        for cpu in (1..=4).map(|threads| Cpu::new(threads).unwrap()) {
            let (mut a, mut b) = (vec![f32::NAN; m * n], vec![f32::NAN; m * n]);
            cpu.affine_matmul(&x, &w.matrix(), &mut a);
            cpu.bf16_matmul(&x, &wide.matrix(), &mut b);
            let both = (bits(&a), bits(&b));
            assert_eq!(*expected.get_or_insert_with(|| both.clone()), both, "{}", cpu.name());
        }
    }
}

#[test]
fn a_row_has_the_same_bits_alone_and_among_others() {
    let (n, k, m) = (64, 704, 70);
    for format in [AffineFormat::Q4_G64, AffineFormat::new(8, 32).unwrap()] {
        let w = Affine::random(format, n, k, 0);
        let x = Random::new(5).values(m * k);
        for cpu in cpus(&[1, 2]) {
            let mut together = vec![f32::NAN; m * n];
            cpu.affine_matmul(&x, &w.matrix(), &mut together);
            for (x, together) in x.chunks_exact(k).zip(together.chunks_exact(n)) {
                let mut alone = vec![f32::NAN; n];
                cpu.affine_matmul(x, &w.matrix(), &mut alone);
                assert_eq!(bits(&alone), bits(together));
            }
        }
    }
}

#[test]
fn weights_may_lie_at_any_address() {
    for format in formats() {
        let x = Random::new(9).values(3 * 640);
        let mut expected = None;
        for shift in [0, 1, 2, 3, 7, 33] {
            let (w, wide) = (Affine::random(format, 37, 640, shift), Bf16::random(37, 640, shift));
            for cpu in cpus(&[1]) {
                let (mut a, mut b) = (vec![f32::NAN; 3 * 37], vec![f32::NAN; 3 * 37]);
                let mut rows = vec![f32::NAN; 2 * 640];
                cpu.affine_matmul(&x, &w.matrix(), &mut a);
                cpu.bf16_matmul(&x, &wide.matrix(), &mut b);
                cpu.affine_rows(&w.matrix(), &[36, 0], &mut rows);
                let all = [bits(&a), bits(&b), bits(&rows)];
                assert_eq!(*expected.get_or_insert_with(|| all.clone()), all, "{format:?} {shift}");
            }
        }
    }
}

#[test]
fn rows_are_dequantized_exactly() {
    for format in formats() {
        let w = Affine::random(format, 300, 1280, 1);
        let all = w.dequantized();
        let mut random = Random::new(3);
        let ids: Vec<u32> = (0..200).map(|_| (random.bits() % 300) as u32).collect();
        let wanted: Vec<f32> =
            ids.iter().flat_map(|id| &all[*id as usize * 1280..][..1280]).copied().collect();
        let sets = cpus(&[1, 2]);
        for set in sets.iter().map(|set| set as &dyn Kernels).chain([&Reference as _]) {
            let mut out = vec![f32::NAN; ids.len() * 1280];
            set.affine_rows(&w.matrix(), &ids, &mut out);
            assert_eq!(bits(&out), bits(&wanted), "{}", set.name());
        }
    }
}

/// Records of random experts.
pub(crate) fn records(layout: &RecordLayout, count: usize) -> Vec<Vec<u8>> {
    let mut random = Random::new(77);
    let mut record = || {
        let mut record = random.bytes(layout.record_len());
        for piece in layout.pieces() {
            if piece.part != slotstream_core::Part::Weight {
                let values = random.bf16(piece.len / 2, 0.05);
                record[piece.offset..piece.offset + piece.len].copy_from_slice(&values);
            }
        }
        record
    };
    (0..count).map(|_| record()).collect()
}

/// Rows and places of `experts` experts for `m` rows: each row has `top_k` of them.
pub(crate) fn routes(experts: usize, m: usize, top_k: usize) -> Vec<(Vec<u32>, Vec<u32>)> {
    let mut lists = vec![(Vec::new(), Vec::new()); experts];
    let mut random = Random::new(m as u64);
    for t in 0..m {
        let first = random.bits() as usize;
        for rank in 0..top_k {
            let list = &mut lists[(first + rank * 3) % experts];
            list.0.push(t as u32);
            list.1.push((t * top_k + rank) as u32);
        }
    }
    lists
}

/// Each row of each expert as a shared expert, whose gate is 1.
fn one_by_one(
    set: &dyn Kernels,
    layout: &RecordLayout,
    x: &[f32],
    experts: &[ExpertRows<'_>],
    out: &mut [f32],
) {
    let hidden = layout.shape().hidden();
    for expert in experts {
        let [gate, up, down] = [Matrix::Gate, Matrix::Up, Matrix::Down]
            .map(|matrix| AffineMatrix::of_record(layout, expert.record, matrix));
        for (row, place) in expert.rows.iter().zip(expert.places) {
            let x = &x[*row as usize * hidden..][..hidden];
            let large: Vec<u8> =
                x.iter().flat_map(|x| f32_to_bf16(x.signum() * 1e4).to_le_bytes()).collect();
            let open = Bf16Matrix::new(1, hidden, &large).expect("one row");
            let out = &mut out[*place as usize * hidden..][..hidden];
            set.shared_expert(x, &MlpWeights { gate, up, down }, &open, out);
        }
    }
}

#[test]
fn experts_give_the_bits_of_their_products() {
    for (hidden, inner, format) in
        [(128, 64, AffineFormat::Q4_G64), (640, 352, AffineFormat::new(8, 32).unwrap())]
    {
        let layout = RecordLayout::new(ExpertShape::new(hidden, inner, format).unwrap());
        let records = records(&layout, 7);
        for m in [1, 3, 40, 100] {
            let x = Random::new(m as u64).values(m * hidden);
            let lists = routes(7, m, 2);
            let experts: Vec<_> = records
                .iter()
                .zip(&lists)
                .map(|(record, (rows, places))| ExpertRows { record, rows, places })
                .collect();
            // The last place is nobody's.
            let run = |set: &dyn Kernels, own: bool| {
                let mut out = vec![f32::NAN; (2 * m + 1) * hidden];
                out[2 * m * hidden..].fill(7.0);
                if own {
                    set.expert_mlp(&layout, &x, &experts, &mut out);
                } else {
                    one_by_one(set, &layout, &x, &experts, &mut out);
                }
                assert!(out[2 * m * hidden..].iter().all(|v| *v == 7.0));
                out
            };
            let scalar = Cpu::with_instruction_set(1, InstructionSet::Scalar).unwrap();
            let expected = run(&scalar, false);
            assert!(expected.iter().all(|v| v.is_finite()));
            for cpu in cpus(&[1, 2, 3]) {
                assert_eq!(bits(&run(&cpu, true)), bits(&expected), "{} m={m}", cpu.name());
            }
            let plain = run(&Reference, true);
            let size = plain.iter().fold(0.0_f32, |a, b| a.max(b.abs()));
            for (got, want) in expected.iter().zip(&plain) {
                assert!((got - want).abs() <= 1e-5 * size, "{got} {want} of {size}");
            }
        }
    }
}

#[test]
#[should_panic(expected = "share a place")]
fn experts_that_share_a_place_are_refused() {
    let shape = ExpertShape::new(64, 64, AffineFormat::Q4_G64).unwrap();
    let layout = RecordLayout::new(shape);
    let records = records(&layout, 2);
    let expert = |i: usize| ExpertRows { record: &records[i], rows: &[0], places: &[0] };
    let cpu = Cpu::new(1).unwrap();
    cpu.expert_mlp(&layout, &[0.0; 64], &[expert(0), expert(1)], &mut [0.0; 64]);
}

#[test]
fn nan_and_infinity_reach_the_results_of_their_row_alone() {
    for format in formats() {
        let w = Affine::random(format, 17, 128, 0);
        let wide = Bf16::random(17, 128, 0);
        let clean = Random::new(4).values(6 * 128);
        for cpu in cpus(&[1]) {
            for value in [f32::NAN, f32::INFINITY, f32::NEG_INFINITY] {
                for at in [0, 7, 127] {
                    let mut x = clean.clone();
                    x[3 * 128 + at] = value;
                    let run = |x: &[f32]| {
                        let (mut a, mut b) = (vec![0.0; 6 * 17], vec![0.0; 6 * 17]);
                        cpu.affine_matmul(x, &w.matrix(), &mut a);
                        cpu.bf16_matmul(x, &wide.matrix(), &mut b);
                        [a, b]
                    };
                    for (dirty, clean) in run(&x).iter().zip(&run(&clean)) {
                        assert!(dirty[3 * 17..4 * 17].iter().all(|v| !v.is_finite()));
                        assert_eq!(bits(&dirty[..3 * 17]), bits(&clean[..3 * 17]));
                        assert_eq!(bits(&dirty[4 * 17..]), bits(&clean[4 * 17..]));
                    }
                }
            }
        }
    }
}

/// Numbers of very different sizes in one group and in different ones: small ones may drown in
/// their group, as they do in any sum, but not in other groups.
#[test]
fn outliers_and_sizes_of_groups_do_not_spoil_products() {
    let (n, k) = (33, 896);
    for format in formats() {
        let w = Affine::random(format, n, k, 0);
        let all = w.dequantized();
        for outlier in [2.0_f32.powi(4), 1e3, 1e6, -1e9] {
            let mut x = Random::new(8).values(k);
            x[133] *= outlier;
            for (group, x) in x.chunks_mut(format.group_size()).enumerate().skip(4) {
                let size = 10.0_f32.powi(group as i32 % 7 - 3);
                x.iter_mut().for_each(|x| *x *= size);
            }
            let oracle = product(&x, &all, k);
            for cpu in cpus(&[1]) {
                let mut out = vec![f32::NAN; n];
                cpu.affine_matmul(&x, &w.matrix(), &mut out);
                assert_right(&out, &oracle, &format!("{format:?} {outlier} {}", cpu.name()));
            }
        }
    }
}

/// From numbers that have no bits left up to the largest: the same as in the reference, to within
/// what is below the smallest number with all of its bits.
#[test]
fn tiny_and_huge_numbers() {
    let (n, k) = (9, 192);
    let random = Random::new(6).values(k);
    for format in formats().into_iter().filter(|format| format.divides(k)) {
        let w = Affine::random(format, n, k, 0);
        for size in [0.0, -0.0, 1e-45, 1e-39, 1e-36, 1e-32, 1e-30, 1e-20, 1e20, 1e30, 1e35] {
            let x: Vec<f32> = random.iter().map(|x| x * size).collect();
            let mut wanted = vec![f32::NAN; n];
            Reference.affine_matmul(&x, &w.matrix(), &mut wanted);
            for cpu in cpus(&[1]) {
                let mut out = vec![f32::NAN; n];
                cpu.affine_matmul(&x, &w.matrix(), &mut out);
                for (got, want) in out.iter().zip(&wanted) {
                    let close = 1e-5 * size * (k as f32).sqrt() + k as f32 * f32::MIN_POSITIVE;
                    assert!((got - want).abs() <= close, "{format:?} {size:e}: {got:e} {want:e}");
                }
            }
        }
    }
}

/// The largest multiples and nibbles that there are, in every place: no sum of a word overflows.
#[test]
fn extremes_do_not_overflow() {
    for format in formats().into_iter().filter(|format| format.bits() == 4) {
        let (k, groups) = (640, 640 / format.group_size());
        let (weight, one) = (vec![0xff; k / 2], [0x80, 0x3f].repeat(groups));
        let zero = vec![0; 2 * groups];
        let w = AffineMatrix::new(format, 1, k, &weight, &one, &zero).unwrap();
        for value in [1.0, 127.0, 1.000_000_1, 1.999_999_9, 1.0 / 3.0, 8_355_600.0] {
            for cpu in cpus(&[1]) {
                for value in [value, -value] {
                    let mut out = [f32::NAN];
                    cpu.affine_matmul(&vec![value; k], &w, &mut out);
                    let want = 15.0 * value * k as f32;
                    assert!((out[0] - want).abs() <= 3e-7 * want.abs(), "{} {want}", out[0]);
                }
            }
        }
    }
}

#[test]
fn cpus_that_cannot_be_had_are_refused() {
    let error = Cpu::new(0).unwrap_err();
    assert!(matches!(error, CpuError::NoThreads) && error.kind() == ErrorKind::User);
    assert!(InstructionSet::available().contains(&InstructionSet::detect()));
    let missing =
        if cfg!(target_arch = "x86_64") { InstructionSet::Neon } else { InstructionSet::Avx2 };
    let error = Cpu::with_instruction_set(1, missing).unwrap_err();
    assert!(matches!(error, CpuError::Unavailable { wanted, .. } if wanted == missing));
    assert!(error.to_string().contains(&missing.to_string()));
}

#[test]
fn names_tell_the_set_and_the_threads() {
    let cpu = Cpu::with_instruction_set(2, InstructionSet::Scalar).unwrap();
    assert_eq!((cpu.name().as_str(), cpu.threads()), ("scalar x 2", 2));
    assert_eq!(Reference.name(), "reference");
}
