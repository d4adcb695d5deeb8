//! Our kernels, and the plain read.

use std::error::Error;
use std::hint::black_box;
use std::rc::Rc;

use slotstream_core::{AffineFormat, ExpertShape, Part, RecordLayout};
use slotstream_kernels::{Arithmetic, Cpu, ExpertRows, InstructionSet, Kernels};

use crate::measure::Cases;
use crate::weights::{self, Affines, SET, Wides, values};

const FORMAT: AffineFormat = AffineFormat::Q4_G64;

/// The best two instruction sets on one thread, and the best on two; for the fast arithmetic tiles,
/// too, where there are some: they change nothing in the exact one.
fn cpus(arithmetic: Arithmetic) -> Vec<Cpu> {
    let (tiles, mut sets): (Vec<_>, Vec<_>) =
        InstructionSet::available().into_iter().partition(|set| *set == InstructionSet::Amx);
    sets.drain(..sets.len().saturating_sub(2));
    if arithmetic == Arithmetic::Fast {
        sets.extend(tiles);
    }
    let best = sets.last().map(|set| (2, *set));
    let alone = sets.iter().rev().map(|set| (1, *set));
    let cpu = |(threads, set)| Cpu::with_instruction_set(threads, set).expect("available");
    alone.chain(best).map(|one| cpu(one).with_arithmetic(arithmetic)).collect()
}

fn exact() -> Vec<Cpu> {
    cpus(Arithmetic::Exact)
}

/// Those in each arithmetic, with their names.
fn sets() -> Vec<(String, Rc<Cpu>)> {
    let fast = cpus(Arithmetic::Fast).into_iter();
    let fast = fast.map(|cpu| (format!("fast {}", cpu.name()), Rc::new(cpu)));
    exact().into_iter().map(|cpu| (cpu.name(), Rc::new(cpu))).chain(fast).collect()
}

/// One row, each time with the next matrix of the set.
pub(crate) fn add_matvec(cases: &mut Cases, n: usize, k: usize) -> Affines {
    let weights = Affines::new(FORMAT, n, k);
    let name = format!("affine {n}x{k} m=1");
    let set = weights.clone();
    cases.add(format!("{name}/read x 1"), set.len(), 1, move |i| {
        black_box(weights::sum(set.bytes(i)));
    });
    let set = weights.clone();
    cases.add(format!("{name}/read x 2"), 16 * set.len(), 2, move |i| {
        let bytes: Vec<_> = (0..16).map(|j| set.bytes(16 * i + j)).collect();
        std::thread::scope(|scope| {
            for half in bytes.chunks(8) {
                scope.spawn(move || {
                    for bytes in half {
                        black_box(weights::sum(bytes));
                    }
                });
            }
        });
    });
    for (kind, cpu) in sets() {
        let (set, x, mut out) = (weights.clone(), values(k), vec![0.0; n]);
        cases.add(format!("{name}/{kind}"), set.len(), cpu.threads(), move |i| {
            cpu.affine_matmul(&x, &set.matrix(i), &mut out);
        });
    }
    // The arithmetic alone: one matrix stays in the second level cache.
    for cpu in exact().into_iter().filter(|cpu| cpu.threads() == 1) {
        let (set, x, mut out) = (weights.clone(), values(k), vec![0.0; n]);
        cases.add(format!("{name}/cached {}", cpu.name()), set.len(), 1, move |_| {
            cpu.affine_matmul(&x, &set.matrix(0), &mut out);
        });
    }
    weights
}

/// Several rows.
pub(crate) fn add_matmul(cases: &mut Cases, weights: &Affines, rows: &[usize]) {
    let (n, k) = (weights.n, weights.k);
    for &m in rows {
        for (kind, cpu) in sets() {
            let (set, x, mut out) = (weights.clone(), values(m * k), vec![0.0; m * n]);
            let name = format!("affine {n}x{k} m={m}/{kind}");
            cases.add(name, 2 * m * n * k, cpu.threads(), move |i| {
                cpu.affine_matmul(&x, &set.matrix(i), &mut out);
            });
        }
    }
}

/// How far the fast arithmetic is from the exact one, with 16 normal rows and uniform nibbles: the
/// root of the mean square of the differences, and the worst of them, to that of the results.
pub(crate) fn note_errors(cases: &mut Cases, weights: &Affines) {
    let (n, k, m) = (weights.n, weights.k, 16);
    let errors = || {
        let x = weights::normal(m * k);
        let [exact, fast] = [Arithmetic::Exact, Arithmetic::Fast].map(|arithmetic| {
            let mut out = vec![0.0; m * n];
            let cpu = Cpu::new(1).expect("a thread").with_arithmetic(arithmetic);
            cpu.affine_matmul(&x, &weights.matrix(0), &mut out);
            out
        });
        let size = |values: &mut dyn Iterator<Item = f32>| {
            (values.map(|x| f64::from(x).powi(2)).sum::<f64>() / exact.len() as f64).sqrt()
        };
        let differences = || exact.iter().zip(&fast).map(|(exact, fast)| exact - fast);
        let whole = size(&mut exact.iter().copied());
        let worst = differences().fold(0.0, |worst, d| f32::max(worst, d.abs()));
        [size(&mut differences()) / whole, f64::from(worst) / whole]
    };
    cases.note(format!("fast {n}x{k} m=16/error"), || errors()[0]);
    cases.note(format!("fast {n}x{k} m=16/worst error"), || errors()[1]);
}

/// bf16 weights, one row and eight.
pub(crate) fn add_bf16(cases: &mut Cases, n: usize, k: usize) {
    let weights = Wides::new(n, k);
    for m in [1, 8] {
        for cpu in exact().into_iter().map(Rc::new) {
            let (set, x, mut out) = (weights.clone(), values(m * k), vec![0.0; m * n]);
            let name = format!("bf16 {n}x{k} m={m}/{}", cpu.name());
            let work = if m == 1 { 2 * n * k } else { 2 * m * n * k };
            cases.add(name, work, cpu.threads(), move |i| {
                cpu.bf16_matmul(&x, &set.matrix(i), &mut out);
            });
        }
    }
}

/// Ten experts of one layer for one token, and fifty for ten rows each.
pub(crate) fn add_experts(cases: &mut Cases) -> Result<(), Box<dyn Error>> {
    let layout = RecordLayout::new(ExpertShape::new(2560, 640, FORMAT)?);
    let stride = layout.stride();
    let mut bytes = weights::random(SET / stride * stride);
    for record in bytes.chunks_exact_mut(stride) {
        for piece in layout.pieces() {
            let value = match piece.part {
                Part::Weight => continue,
                Part::Scales => 0.01,
                Part::Biases => -0.08,
            };
            record[piece.offset..piece.offset + piece.len]
                .copy_from_slice(&weights::bf16(value, piece.len));
        }
    }
    let bytes = Rc::new(bytes);
    for (name, experts, rows) in [("ten experts", 10, 1), ("fifty experts, ten rows each", 50, 10)]
    {
        for (kind, cpu) in sets() {
            let (bytes, layout) = (Rc::clone(&bytes), layout.clone());
            let work = if rows == 1 {
                experts * layout.payload_len()
            } else {
                2 * experts * rows * 3 * 640 * 2560
            };
            // Row `r` of expert `e` is token `(e + 5 r) % tokens`, as if ten chose at random.
            let tokens = experts * rows / 10;
            let lists: Vec<Vec<u32>> = (0..experts)
                .map(|e| (0..rows).map(|r| ((e + 5 * r) % tokens) as u32).collect())
                .collect();
            let places: Vec<u32> = (0..(experts * rows) as u32).collect();
            let (x, mut out) = (values(tokens * 2560), vec![0.0; experts * rows * 2560]);
            cases.add(format!("{name}/{kind}"), work, cpu.threads(), move |i| {
                let record =
                    |e: usize| &bytes[(experts * i + e) % (bytes.len() / stride) * stride..];
                let list: Vec<_> = (0..experts)
                    .map(|e| ExpertRows {
                        record: &record(e)[..stride],
                        rows: &lists[e],
                        places: &places[e * rows..(e + 1) * rows],
                    })
                    .collect();
                cpu.expert_mlp(&layout, &x, &list, &mut out);
            });
        }
    }
    Ok(())
}
