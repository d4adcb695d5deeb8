//! The CPU's ops besides the matrix products: close to the reference at odd shapes, and the same
//! bits for every instruction set, number of threads, number of rows and cut of a pass.

use slotstream_core::AffineFormat;
use slotstream_kernels::{
    AttentionArgs, BlockSelectArgs, ConvArgs, Cpu, GatedDeltaArgs, HcWeights, InstructionSet,
    Kernels, MlpWeights, NormRopeArgs, Paged, PleGateArgs, Reference, Rope,
};

use crate::data::{Affine, Bf16, Random, assert_close, bits, cpus};

/// Rows of a pass that starts at row `from`: the results of `rows` rows, one after the other.
type Run<'a> = &'a dyn Fn(&dyn Kernels, usize, usize) -> Vec<f32>;

/// Runs `m` rows with every set: close to the reference, all with the same bits, and those of
/// the same rows in passes of other lengths.
#[track_caller]
fn check(what: &str, m: usize, tolerance: f32, run: Run<'_>) {
    let scalar = Cpu::with_instruction_set(1, InstructionSet::Scalar).expect("everywhere");
    let expected = run(&scalar, 0, m);
    let width = expected.len() / m;
    assert_close(&expected, &run(&Reference, 0, m), tolerance);
    for cpu in cpus(&[1, 3]) {
        assert_eq!(bits(&run(&cpu, 0, m)), bits(&expected), "{what}: {}", cpu.name());
        for (from, rows) in [(0, 1), (m - 1, 1), (m / 2, m - m / 2), (m / 3, m / 3)] {
            let wanted = &expected[from * width..(from + rows) * width];
            let got = run(&cpu, from, rows);
            assert_eq!(bits(&got), bits(wanted), "{what}: {from}+{rows}, {}", cpu.name());
        }
    }
}

#[test]
fn norms() {
    for (width, groups) in [(1, 1), (3, 2), (8, 1), (31, 3), (64, 4), (257, 2), (2560, 4)] {
        let (cols, m) = (width * groups, 9);
        let x = Random::new(width as u64).values(m * cols);
        let weight = Random::new(5).values(cols);
        check(&format!("norm {width}"), m, 1e-6, &|set, from, rows| {
            let mut out = vec![f32::NAN; rows * cols];
            set.grouped_rms_norm(&x[from * cols..][..rows * cols], &weight, width, 1e-6, &mut out);
            out
        });
    }
}

#[test]
fn heads_are_normalised_and_rotated() {
    for (heads, dim, rotary) in [(1, 6, 4), (3, 8, 8), (5, 33, 2), (16, 256, 64), (2, 128, 0)] {
        let (m, stride) = (7, 2 * dim + 3);
        let row = heads * stride + 5;
        let x = Random::new(dim as u64).values(m * row);
        let (weight, rope) = (Random::new(2).values(dim), Rope::new(rotary, 1e4));
        check(&format!("heads {heads}x{dim}"), m, 1e-6, &|set, from, rows| {
            let args = NormRopeArgs {
                x: &x[from * row..][..rows * row],
                row_stride: row,
                offset: 4,
                head_stride: stride,
                heads,
                head_dim: dim,
                weight: &weight,
                eps: 1e-6,
                rope: &rope,
                position: 1000 + from as u64,
            };
            let mut out = vec![f32::NAN; rows * heads * dim];
            set.norm_rope(&args, &mut out);
            out
        });
    }
}

#[test]
fn keys_of_blocks() {
    for (ratio, dim, rotary) in [(1, 6, 4), (4, 33, 2), (4, 128, 64), (16, 256, 0)] {
        let x = Random::new(dim as u64).values(5 * ratio * dim);
        let (weight, rope) = (Random::new(2).values(dim), Rope::new(rotary, 1e4));
        check(&format!("key {ratio}x{dim}"), 5, 1e-6, &|set, from, rows| {
            let mut out = vec![f32::NAN; rows * dim];
            let raw = x[from * ratio * dim..].chunks_exact(ratio * dim);
            for (i, (raw, out)) in raw.zip(out.chunks_exact_mut(dim)).enumerate() {
                let position = (from + i) * ratio;
                set.block_key(raw, &weight, 1e-6, &rope, position as u64, out);
            }
            out
        });
    }
}

#[test]
fn convolutions() {
    for (channels, kernel, dilation) in
        [(1, 1, 1), (3, 2, 1), (7, 3, 2), (64, 4, 1), (333, 4, 3), (8192, 4, 1), (17, 5, 2)]
    {
        let (m, history) = (9, (kernel - 1) * dilation);
        let window = Random::new(channels as u64).values((history + m) * channels);
        let window: Vec<f32> = window.iter().map(|v| 9.0 * v).collect();
        let weight = Random::new(3).values(channels * kernel);
        check(&format!("conv {channels}x{kernel}"), m, 1e-6, &|set, from, rows| {
            let window = &window[from * channels..][..(history + rows) * channels];
            let args = ConvArgs { window, weight: &weight, channels, kernel, dilation };
            let mut out = vec![f32::NAN; rows * channels];
            set.conv_silu(&args, &mut out);
            out
        });
    }
}

#[test]
fn sums_over_ranks_are_those_of_the_reference() {
    for (hidden, top_k) in [(1, 1), (5, 3), (64, 6), (2561, 10)] {
        let m = 5;
        let y = Random::new(hidden as u64).values(m * top_k * hidden);
        let weights = Random::new(4).values(m * top_k);
        check(&format!("ranks {hidden}x{top_k}"), m, 0.0, &|set, from, rows| {
            let mut out = vec![f32::NAN; rows * hidden];
            let y = &y[from * top_k * hidden..][..rows * top_k * hidden];
            set.rank_sum(y, &weights[from * top_k..][..rows * top_k], hidden, &mut out);
            out
        });
    }
}

#[test]
fn hyper_connections() {
    for (hidden, streams, rank) in [(64, 1, 32), (96, 3, 64), (160, 4, 32), (2560, 4, 320)] {
        let (m, width) = (if hidden > 1000 { 3 } else { 37 }, hidden * streams);
        let down = Affine::random(AffineFormat::Q4_G32, rank, width, 0);
        let up = Affine::random(AffineFormat::Q4_G32, width, rank, 0);
        let inject = Bf16::random(streams, width, 0);
        let h = Random::new(hidden as u64).values(m * width);
        let norm: Vec<f32> = Random::new(7).values(width).iter().map(|v| 0.1 * v).collect();
        let weights = HcWeights {
            streams,
            norm: &norm,
            down: down.matrix(),
            up: up.matrix(),
            inject: Some(inject.matrix()),
            eps: 1e-6,
        };
        check(&format!("mix {hidden}x{streams}"), m, 1e-5, &|set, from, rows| {
            let h = &h[from * width..][..rows * width];
            let (mut mixed, mut gates) =
                (vec![f32::NAN; rows * hidden], vec![f32::NAN; rows * streams]);
            set.hc_mix(h, &weights, &mut mixed, Some(&mut gates));
            let mut written = h.to_vec();
            set.hc_inject(&mut written, &gates, &mixed, hidden);
            let rows = mixed.chunks(hidden).zip(gates.chunks(streams)).zip(written.chunks(width));
            rows.flat_map(|((m, g), w)| [m, g, w].concat()).collect()
        });
        let without = HcWeights { inject: None, ..weights };
        let mut mixed = [vec![f32::NAN; hidden], vec![f32::NAN; hidden]];
        let cpu = Cpu::new(1).expect("one");
        cpu.hc_mix(&h[..width], &without, &mut mixed[0], None);
        let mut gates = vec![f32::NAN; streams];
        cpu.hc_mix(&h[..width], &weights, &mut mixed[1], Some(&mut gates));
        assert_eq!(bits(&mixed[0]), bits(&mixed[1]));
    }
}

#[test]
fn shared_experts() {
    for (hidden, inner) in [(32, 32), (96, 160), (640, 352)] {
        let m = 35;
        let matrix = |rows, cols| Affine::random(AffineFormat::Q4_G32, rows, cols, 0);
        let (gate, up, down) =
            (matrix(inner, hidden), matrix(inner, hidden), matrix(hidden, inner));
        let mlp = MlpWeights { gate: gate.matrix(), up: up.matrix(), down: down.matrix() };
        let own = Bf16::random(1, hidden, 0);
        let x: Vec<f32> =
            Random::new(hidden as u64).values(m * hidden).iter().map(|v| 0.03 * v).collect();
        check(&format!("shared {hidden}x{inner}"), m, 2e-5, &|set, from, rows| {
            let mut out = vec![f32::NAN; rows * hidden];
            set.shared_expert(&x[from * hidden..][..rows * hidden], &mlp, &own.matrix(), &mut out);
            out
        });
    }
}

#[test]
fn delta_rule() {
    for (key_heads, groups, key, value, sigmoid_gate) in
        [(1, 1, 1, 1, true), (2, 2, 8, 5, false), (1, 3, 33, 17, true), (3, 2, 128, 128, false)]
    {
        let (heads, m) = (key_heads * groups, 11);
        let row = 2 * key_heads * key + heads * value;
        let size = heads * key * value;
        let mut random = Random::new(value as u64);
        let (qkv, z) = (random.values(m * row), random.values(m * heads * value));
        let (a, b) = (random.values(m * heads), random.values(m * heads));
        let (a_log, dt_bias, norm) =
            (random.values(heads), random.values(heads), random.values(value));
        let begun = random.values(size);
        let advance = |set: &dyn Kernels, rows: std::ops::Range<usize>, state: &mut [f32]| {
            let (from, n) = (rows.start, rows.len());
            let args = GatedDeltaArgs {
                qkv: &qkv[from * row..][..n * row],
                a: &a[from * heads..][..n * heads],
                b: &b[from * heads..][..n * heads],
                z: &z[from * heads * value..][..n * heads * value],
                a_log: &a_log,
                dt_bias: &dt_bias,
                norm: &norm,
                key_heads,
                value_heads: heads,
                key_dim: key,
                value_dim: value,
                sigmoid_gate,
                eps: 1e-6,
            };
            let mut out = vec![f32::NAN; n * heads * value];
            // Kept for all rows but one.
            let mut kept = vec![vec![f32::NAN; size]; n];
            let mut record: Vec<_> = kept.iter_mut().map(|s| Some(s.as_mut_slice())).collect();
            record[n / 2] = None;
            set.gated_delta(&args, state, &mut record, &mut out);
            assert!(kept[n / 2].iter().all(|v| v.is_nan()));
            if n > 1 {
                assert_eq!(bits(&kept[n - 1]), bits(state), "the last row's state is recorded");
            }
            out
        };
        // The rows before `from` in a pass of their own: the state is the same, however cut.
        check(&format!("delta {heads}x{key}x{value}"), m, 2e-5, &|set, from, rows| {
            let mut state = begun.clone();
            if from > 0 {
                advance(set, 0..from, &mut state);
            }
            advance(set, from..from + rows, &mut state)
        });
        let mut states = [&Reference as &dyn Kernels, &Cpu::new(2).expect("two")].map(|set| {
            let mut state = begun.clone();
            advance(set, 0..m, &mut state);
            state
        });
        let [want, got] = &mut states;
        assert_close(got, want, 2e-5);
    }
}

/// Rows in pages, the last of which is not full; what is beyond is NaN.
fn pages(rows: &[f32], width: usize, page_rows: usize) -> Vec<Vec<f32>> {
    let mut pages: Vec<Vec<f32>> = rows.chunks(page_rows * width).map(<[f32]>::to_vec).collect();
    for page in &mut pages {
        page.resize(page_rows * width, f32::NAN);
    }
    pages
}

#[test]
fn blocks_are_those_of_the_reference() {
    for (heads, dim, ratio, budget) in [(1, 1, 1, 3), (3, 17, 4, 5), (16, 128, 4, 64)] {
        let (m, position, page_rows) = (41, 391_u64, 32);
        let blocks = (position as usize + m) / ratio;
        let keys = Random::new(dim as u64).values(blocks * dim);
        let pages = pages(&keys, dim, page_rows);
        let pages: Vec<&[f32]> = pages.iter().map(Vec::as_slice).collect();
        let queries = Random::new(9).values(m * heads * dim);
        check(&format!("blocks {heads}x{dim}"), m, 0.0, &|set, from, rows| {
            let args = BlockSelectArgs {
                queries: &queries[from * heads * dim..][..rows * heads * dim],
                heads,
                dim,
                keys: Paged { pages: &pages, page_rows, width: dim },
                ratio,
                budget_blocks: budget,
                position: position + from as u64,
            };
            let mut out = vec![7; rows * budget];
            set.block_select(&args, &mut out);
            out.iter().map(|block| *block as f32).collect()
        });
    }
}

#[test]
fn attention() {
    for (heads, kv_heads, dim, ratio, budget) in
        [(1, 1, 1, 2, 3), (3, 1, 7, 4, 5), (5, 2, 20, 4, 100), (16, 2, 256, 4, 8), (6, 6, 72, 3, 0)]
    {
        let (m, position, page_rows) = (7, 61_usize, 32);
        let (width, tokens) = (kv_heads * dim, position + m);
        let mut random = Random::new(dim as u64);
        let rows = [random.values(tokens * width), random.values(tokens * width)];
        let [keys, values] = [0, 1].map(|i| pages(&rows[i], width, page_rows));
        let [keys, values] =
            [&keys, &values].map(|p| p.iter().map(Vec::as_slice).collect::<Vec<&[f32]>>());
        let (queries, gate) = (random.values(m * heads * dim), random.values(m * heads * 2 * dim));
        // Any ascending choice of complete blocks will do.
        let selection: Vec<u32> = (0..m)
            .flat_map(|t| {
                let complete = (position + t + 1) / ratio;
                let mut chosen: Vec<u32> = (0..complete as u32)
                    .filter(|b| !(b + t as u32).is_multiple_of(3))
                    .take(budget)
                    .collect();
                chosen.resize(budget, u32::MAX);
                chosen
            })
            .collect();
        for selected in [false, true] {
            check(&format!("attention {heads}x{dim} {selected}"), m, 1e-5, &|set, from, rows| {
                let args = AttentionArgs {
                    queries: &queries[from * heads * dim..][..rows * heads * dim],
                    keys: Paged { pages: &keys, page_rows, width },
                    values: Paged { pages: &values, page_rows, width },
                    gate: &gate[from * heads * 2 * dim..][..rows * heads * 2 * dim],
                    gate_row_stride: heads * 2 * dim,
                    gate_offset: dim,
                    gate_head_stride: 2 * dim,
                    heads,
                    kv_heads,
                    head_dim: dim,
                    position: (position + from) as u64,
                    ratio,
                    selection: selected.then(|| &selection[from * budget..][..rows * budget]),
                };
                let mut out = vec![f32::NAN; rows * heads * dim];
                set.indexed_attention(&args, &mut out);
                out
            });
        }
    }
}

#[test]
fn routes_are_those_of_the_reference() {
    for (experts, top_k) in [(1, 1), (7, 7), (64, 6), (512, 10), (513, 1)] {
        let m = 9;
        let mut logits: Vec<f32> =
            Random::new(experts as u64).values(m * experts).iter().map(|v| 8.0 * v).collect();
        // Ties, zeros of both signs and what is not a number.
        for (i, logit) in logits.iter_mut().enumerate() {
            match i % 23 {
                0 => *logit = 0.0,
                5 => *logit = -0.0,
                7 | 8 => *logit = 3.0,
                11 if i > experts => *logit = f32::NAN,
                _ => {}
            }
        }
        for cpu in cpus(&[1]) {
            let run = |set: &dyn Kernels| {
                let (mut ids, mut weights) = (vec![u32::MAX; m * top_k], vec![f32::NAN; m * top_k]);
                set.route(&logits, experts, top_k, &mut ids, &mut weights);
                (ids, bits(&weights))
            };
            assert_eq!(run(&cpu), run(&Reference), "{experts} {top_k}");
        }
    }
}

#[test]
fn the_gate_of_the_embedding() {
    for (hidden, streams) in [(1, 1), (33, 2), (128, 4), (2560, 4)] {
        let (m, width) = (7, hidden * streams);
        let mut random = Random::new(hidden as u64);
        let (h, key) = (random.values(m * width), random.values(m * width));
        let value = random.values(m * hidden);
        let norms: Vec<Vec<f32>> = (0..3).map(|_| random.values(width)).collect();
        check(&format!("gate {hidden}x{streams}"), m, 1e-5, &|set, from, rows| {
            let args = PleGateArgs {
                h: &h[from * width..][..rows * width],
                key: &key[from * width..][..rows * width],
                value: &value[from * hidden..][..rows * hidden],
                norm_key: &norms[0],
                norm_query: &norms[1],
                norm_conv: &norms[2],
                streams,
                eps: 1e-6,
            };
            let mut outs = [vec![f32::NAN; rows * width], vec![f32::NAN; rows * width]];
            let [values, conv] = &mut outs;
            set.ple_gate(&args, values, conv);
            let rows = values.chunks(width).zip(conv.chunks(width));
            rows.flat_map(|(v, c)| [v, c].concat()).collect()
        });
    }
}

/// A NaN in a row's inputs reaches that row's results, and no other row's.
#[test]
fn nan_stays_in_its_row() {
    let cpu = Cpu::new(2).expect("two");
    let (m, cols) = (5, 64);
    let mut x = Random::new(1).values(m * cols);
    let weight = Random::new(2).values(4 * cols);
    let run = |x: &[f32]| {
        let (mut norm, mut conv) = (vec![0.0; m * cols], vec![0.0; (m - 3) * cols]);
        cpu.grouped_rms_norm(x, &weight[..cols], cols, 1e-6, &mut norm);
        let args = ConvArgs { window: x, weight: &weight, channels: cols, kernel: 4, dilation: 1 };
        cpu.conv_silu(&args, &mut conv);
        (norm, conv)
    };
    let clean = run(&x);
    x[cols / 2] = f32::NAN;
    let (norm, conv) = run(&x);
    assert!(norm[..cols].iter().all(|v| v.is_nan()));
    assert_eq!(bits(&norm[cols..]), bits(&clean.0[cols..]));
    // The window's first row is seen by the first result alone.
    assert!(conv[cols / 2].is_nan());
    assert_eq!(bits(&conv[cols..]), bits(&clean.1[cols..]));
}
