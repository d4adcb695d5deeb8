//! The fast arithmetic: how far it is off, and the same bits however the work is cut.

use slotstream_core::{AffineFormat, ExpertShape, RecordLayout};
use slotstream_kernels::{
    AffineMatrix, Arithmetic, Cpu, ExpertRows, InstructionSet, Kernels, Reference, reference,
};

use crate::cpu_bits::{records, routes};
use crate::data::{Affine, Bf16, Random, bits, cpus, formats, product};

const KS: [usize; 10] = [32, 64, 96, 128, 160, 192, 320, 640, 704, 2560];
const NS: [usize; 9] = [1, 2, 3, 5, 7, 8, 17, 64, 129];
/// Parts of one tile of sixteen rows, and of two.
const MS: [usize; 9] = [1, 2, 3, 5, 8, 16, 21, 32, 33];
const N: usize = 129;
const M: usize = 33;

/// How far a product may be off, as a part of the size that a product of random numbers has, and
/// the root of the mean square of that over all products of a sweep.
const WORST: f64 = 0.06;
const TYPICAL: f64 = 0.01;

fn fast(cpu: Cpu) -> Cpu {
    cpu.with_arithmetic(Arithmetic::Fast)
}

fn scalar() -> Cpu {
    fast(Cpu::with_instruction_set(1, InstructionSet::Scalar).expect("everywhere"))
}

fn nibbles() -> impl Iterator<Item = AffineFormat> {
    formats().into_iter().filter(|format| format.bits() == 4)
}

fn matmul(set: &dyn Kernels, x: &[f32], w: &AffineMatrix<'_>) -> Vec<f32> {
    let mut out = vec![f32::NAN; x.len() / w.cols() * w.rows()];
    set.affine_matmul(x, w, &mut out);
    out
}

#[test]
fn products_are_close_and_have_one_order_of_additions() {
    for format in nibbles() {
        for k in KS.into_iter().filter(|k| format.divides(*k)) {
            let w = Affine::random(format, N, k, 0);
            let x = Random::new(k as u64).values(M * k);
            let expected = matmul(&scalar(), &x, &w.matrix());
            let mut squares = 0.0;
            let oracle = product(&x, &w.dequantized(), k);
            for (got, (want, size)) in expected.iter().zip(&oracle) {
                let error = (f64::from(*got) - want).abs() / size;
                assert!(error <= WORST, "{format:?} k={k}: {got}, wanted {want} ({error:e})");
                squares += error * error;
            }
            let typical = (squares / oracle.len() as f64).sqrt();
            assert!(typical <= TYPICAL, "{format:?} k={k}: {typical:e}");
            for cpu in cpus(&[1, 3]).into_iter().map(fast) {
                let slow = cpu.instruction_set() == InstructionSet::Scalar;
                for n in NS {
                    for m in MS.into_iter().filter(|m| !slow || n * m * k <= 1 << 19) {
                        let corner: Vec<f32> = expected
                            .chunks_exact(N)
                            .take(m)
                            .flat_map(|row| &row[..n])
                            .copied()
                            .collect();
                        let out = matmul(&cpu, &x[..m * k], &w.head(n));
                        assert_eq!(
                            bits(&out),
                            bits(&corner),
                            "{format:?} {n} {m} {k} {}",
                            cpu.name()
                        );
                    }
                }
            }
        }
    }
}

/// Large enough that several threads take part (see `threads.rs`).
#[test]
fn threads_and_rows_do_not_change_a_bit() {
    let (n, k, m) = (517, 1280, 70);
    let w = Affine::random(AffineFormat::Q4_G64, n, k, 3);
    let x = Random::new(1).values(m * k);
    let expected = matmul(&scalar(), &x, &w.matrix());
    for cpu in (1..=4).map(|threads| fast(Cpu::new(threads).unwrap())) {
        assert_eq!(bits(&matmul(&cpu, &x, &w.matrix())), bits(&expected), "{}", cpu.name());
        for (x, expected) in x.chunks_exact(k).zip(expected.chunks_exact(n)) {
            assert_eq!(bits(&matmul(&cpu, x, &w.matrix())), bits(expected), "{}", cpu.name());
        }
    }
}

/// The largest bytes and nibbles that there are, in every place: no sum of a word overflows.
#[test]
fn extremes_are_exact() {
    for format in nibbles() {
        let (k, groups) = (640, 640 / format.group_size());
        for (n, m) in [(1, 1), (17, 21)] {
            let (weight, one) = (vec![0xff; n * k / 2], [0x80, 0x3f].repeat(n * groups));
            let zero = vec![0; 2 * n * groups];
            let w = AffineMatrix::new(format, n, k, &weight, &one, &zero).unwrap();
            for value in [127.0, -127.0] {
                for cpu in cpus(&[1]).into_iter().map(fast) {
                    let expected = vec![15.0 * value * k as f32; n * m];
                    assert_eq!(matmul(&cpu, &vec![value; k * m], &w), expected, "{}", cpu.name());
                }
            }
        }
    }
}

#[test]
fn groups_of_nothing_and_of_no_numbers() {
    let format = AffineFormat::Q4_G64;
    for (n, m) in [(5, 3), (21, 24)] {
        let w = Affine::random(format, n, 192, 0);
        for cpu in cpus(&[1]).into_iter().map(fast) {
            for tiny in [0.0, -0.0, 1e-40, 9e-37] {
                assert_eq!(matmul(&cpu, &vec![tiny; 192 * m], &w.matrix()), vec![0.0; n * m]);
            }
            for bad in [f32::NAN, f32::INFINITY, f32::NEG_INFINITY] {
                let mut x = Random::new(2).values(m * 192);
                let clean = matmul(&cpu, &x, &w.matrix());
                x[192 + 70] = bad;
                let out = matmul(&cpu, &x, &w.matrix());
                assert!(out[n..2 * n].iter().all(|v| v.is_nan()), "{bad} {}", cpu.name());
                assert_eq!(bits(&out[..n]), bits(&clean[..n]));
                assert_eq!(bits(&out[2 * n..]), bits(&clean[2 * n..]));
            }
        }
    }
}

/// All that is not a product with 4-bit weights is exact.
#[test]
fn other_products_are_exact() {
    let x = Random::new(9).values(3 * 640);
    let wide = Bf16::random(37, 640, 1);
    for exact in [Cpu::new(1).unwrap(), scalar().with_arithmetic(Arithmetic::Exact)] {
        let set = exact.instruction_set();
        let fast = fast(Cpu::with_instruction_set(1, set).unwrap());
        assert_eq!((exact.arithmetic(), fast.arithmetic()), (Arithmetic::Exact, Arithmetic::Fast));
        for format in formats() {
            let w = Affine::random(format, 37, 640, 1);
            let [exact, fast] = [&exact, &fast].map(|cpu| bits(&matmul(cpu, &x, &w.matrix())));
            assert_eq!(exact == fast, format.bits() == 8, "{format:?}");
        }
        let [exact, fast] = [exact, fast].map(|cpu| {
            let mut out = vec![f32::NAN; 3 * 37];
            cpu.bf16_matmul(&x, &wide.matrix(), &mut out);
            bits(&out)
        });
        assert_eq!(exact, fast);
    }
}

#[test]
fn experts_give_the_bits_of_their_products() {
    let (hidden, inner) = (640, 192);
    let shape = ExpertShape::new(hidden, inner, AffineFormat::Q4_G64).unwrap();
    let layout = RecordLayout::new(shape);
    let records = records(&layout, 7);
    for m in [1, 3, 40, 100] {
        let x = Random::new(m as u64).values(m * hidden);
        let lists = routes(7, m, 2);
        let experts: Vec<_> = records
            .iter()
            .zip(&lists)
            .map(|(record, (rows, places))| ExpertRows { record, rows, places })
            .collect();
        let mut expected = vec![f32::NAN; 2 * m * hidden];
        reference::expert_mlp(&scalar(), &layout, &x, &experts, &mut expected);
        for cpu in cpus(&[1, 2, 3]).into_iter().map(fast) {
            let mut out = vec![f32::NAN; 2 * m * hidden];
            cpu.expert_mlp(&layout, &x, &experts, &mut out);
            assert_eq!(bits(&out), bits(&expected), "{} m={m}", cpu.name());
        }
        let mut plain = vec![f32::NAN; 2 * m * hidden];
        Reference.expert_mlp(&layout, &x, &experts, &mut plain);
        let (mut errors, mut sizes) = (0.0, 0.0);
        for (got, want) in expected.iter().zip(plain) {
            errors += f64::from(got - want).powi(2);
            sizes += f64::from(want).powi(2);
        }
        assert!((errors / sizes).sqrt() <= 0.02, "m={m}: {}", (errors / sizes).sqrt());
    }
}
