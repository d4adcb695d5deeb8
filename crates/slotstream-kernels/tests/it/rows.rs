//! The operations that work on a row: norms, convolution, rotation, sums and gates.

use slotstream_kernels::{
    ConvArgs, Kernels, NormRopeArgs, PleGateArgs, Reference, Rope, reference,
};

use crate::data::{Random, assert_close, bits};

fn sigmoid(x: f64) -> f64 {
    1.0 / (1.0 + (-x).exp())
}

#[test]
fn functions_of_one_number() {
    for x in [-1e30, -100.0, -20.5, -1.0, -1e-6, 0.0, 1e-6, 1.0, 19.9, 20.1, 100.0, 1e30_f32] {
        let wide = f64::from(x);
        let softplus = if x > 40.0 { wide } else { wide.exp().ln_1p() };
        assert_close(&[reference::softplus(x)], &[softplus as f32], 1e-6);
        assert_close(&[reference::sigmoid(x)], &[sigmoid(wide) as f32], 1e-6);
        assert_close(&[reference::silu(x)], &[(wide * sigmoid(wide)) as f32], 1e-6);
    }
    assert_eq!(reference::softplus(25.0), 25.0);
    for f in [reference::softplus, reference::sigmoid, reference::silu] {
        assert!(f(f32::NAN).is_nan());
    }
}

#[test]
fn norms_are_per_group_with_a_weight_per_column() {
    let (x, weight) = ([3.0, 4.0, 0.0, 0.0, 6.0, 8.0, 1.0, -1.0], [1.0, 2.0, 3.0, 4.0]);
    let mut out = [f32::NAN; 8];
    Reference.grouped_rms_norm(&x, &weight, 2, 0.0, &mut out);
    let rms = 12.5_f32.sqrt();
    assert_close(&out[..2], &[3.0 / rms, 8.0 / rms], 1e-6);
    // A group of zeros without eps is 0 times infinity.
    assert!(out[2].is_nan());
    assert_close(&out[4..], &[6.0 / (2.0 * rms), 16.0 / (2.0 * rms), 3.0, -4.0], 1e-6);
    Reference.grouped_rms_norm(&x, &weight, 2, 1e-6, &mut out);
    assert_eq!(out[2..4], [0.0, 0.0]);
    let mut dirty = x;
    dirty[0] = f32::NAN;
    Reference.grouped_rms_norm(&dirty, &weight, 2, 1e-6, &mut out);
    assert!(out[..2].iter().all(|v| v.is_nan()) && out[2..].iter().all(|v| v.is_finite()));
}

/// Channels 2, taps 3: `silu` of the taps at the rows that the dilation names.
#[test]
fn convolution_reaches_back_by_its_dilation() {
    let weight = [1.0, 10.0, 100.0, -1.0, 0.5, 2.0];
    for dilation in [1, 2, 3] {
        let (history, m) = (2 * dilation, 3);
        let window: Vec<f32> = (0..2 * (history + m)).map(|i| (i as f32 * 0.7).sin()).collect();
        let args = ConvArgs { window: &window, weight: &weight, channels: 2, kernel: 3, dilation };
        let mut out = [f32::NAN; 6];
        Reference.conv_silu(&args, &mut out);
        for t in 0..m {
            for c in 0..2 {
                // The current row is `history + t`; tap 2 is on it, tap 1 `dilation` before.
                let x = |back: usize| f64::from(window[2 * (history + t - back) + c]);
                let w = |tap: usize| f64::from(weight[3 * c + tap]);
                let sum = w(0) * x(2 * dilation) + w(1) * x(dilation) + w(2) * x(0);
                assert_close(&[out[2 * t + c]], &[(sum * sigmoid(sum)) as f32], 1e-6);
            }
        }
    }
}

#[test]
fn rotation_pairs_the_halves_and_leaves_the_rest() {
    let rope = Rope::new(4, 100.0);
    assert_eq!(rope.dims(), 4);
    // Two rows of two heads of 6, the heads 7 apart, rows 20 apart, after an offset of 3.
    let x = Random::new(3).values(40);
    let weight = [1.0, -2.0, 0.5, 1.5, 3.0, 1.0];
    let args = NormRopeArgs {
        x: &x,
        row_stride: 20,
        offset: 3,
        head_stride: 7,
        heads: 2,
        head_dim: 6,
        weight: &weight,
        eps: 1e-6,
        rope: &rope,
        position: 5,
    };
    let mut out = [f32::NAN; 24];
    Reference.norm_rope(&args, &mut out);
    for (i, out) in out.chunks_exact(6).enumerate() {
        let (t, head) = (i / 2, i % 2);
        let x = &x[t * 20 + 3 + head * 7..][..6];
        let rms = (x.iter().map(|v| f64::from(*v).powi(2)).sum::<f64>() / 6.0 + 1e-6).sqrt();
        let n: Vec<f64> =
            x.iter().zip(weight).map(|(x, w)| f64::from(*x) / rms * f64::from(w)).collect();
        let mut want = n.clone();
        for pair in 0..2 {
            let angle = (5 + t) as f64 * 100.0_f64.powf(-2.0 * pair as f64 / 4.0);
            let (sin, cos) = angle.sin_cos();
            want[pair] = n[pair] * cos - n[pair + 2] * sin;
            want[pair + 2] = n[pair + 2] * cos + n[pair] * sin;
        }
        let want: Vec<f32> = want.iter().map(|v| *v as f32).collect();
        assert_close(out, &want, 1e-6);
    }
}

#[test]
fn ranks_are_summed_in_order_and_without_fusing() {
    // 2^24 + 1 is not an f32: the order of additions shows.
    let y = [1.0, 16_777_216.0, -16_777_216.0];
    let mut out = [f32::NAN];
    Reference.rank_sum(&y, &[1.0, 1.0, 1.0], 1, &mut out);
    assert_eq!(out, [0.0], "(1 + 2^24) - 2^24");
    // A fused multiply-add would keep the low bits of the square.
    let x = 1.0 + f32::EPSILON;
    Reference.rank_sum(&[-1.0, x], &[x * x, x], 1, &mut out);
    assert_eq!(out, [0.0]);
    let mut out = [f32::NAN; 4];
    Reference.rank_sum(&[1., 2., 3., 4., 5., 6., 7., 8.], &[1., 10., 100., 1000.], 2, &mut out);
    assert_eq!(out, [31.0, 42.0, 7500.0, 8600.0]);
    Reference.rank_sum(&[], &[], 2, &mut []);
}

#[test]
fn injection_adds_to_every_stream() {
    let mut h = [1.0, 1.0, 2.0, 2.0, 3.0, 3.0, 4.0, 4.0];
    Reference.hc_inject(&mut h, &[1.0, 10.0, 0.0, -1.0], &[0.5, 0.25, 1.0, 2.0], 2);
    assert_eq!(h, [1.5, 1.25, 7.0, 4.5, 3.0, 3.0, 3.0, 2.0]);
}

/// Two streams of 2 in two rows.
#[test]
fn the_embedding_gate() {
    let mut random = Random::new(11);
    let (h, key, value) = (random.values(8), random.values(8), random.values(4));
    let weights: Vec<Vec<f32>> = (0..3).map(|_| random.values(4)).collect();
    let args = PleGateArgs {
        h: &h,
        key: &key,
        value: &value,
        norm_key: &weights[0],
        norm_query: &weights[1],
        norm_conv: &weights[2],
        streams: 2,
        eps: 1e-6,
    };
    let (mut out, mut conv) = ([f32::NAN; 8], [f32::NAN; 8]);
    Reference.ple_gate(&args, &mut out, &mut conv);
    let norm = |x: &[f32], w: &[f32]| -> Vec<f64> {
        let rms = (x.iter().map(|v| f64::from(*v).powi(2)).sum::<f64>() / 2.0 + 1e-6).sqrt();
        x.iter().zip(w).map(|(x, w)| f64::from(*x) / rms * f64::from(*w)).collect()
    };
    for i in 0..4 {
        let (at, s) = (2 * i, 2 * (i % 2));
        let k = norm(&key[at..at + 2], &weights[0][s..s + 2]);
        let q = norm(&h[at..at + 2], &weights[1][s..s + 2]);
        let a = (k[0] * q[0] + k[1] * q[1]) / 2.0_f64.sqrt();
        let gate = sigmoid(a.signum() * a.abs().max(1e-6).sqrt());
        let want: Vec<f32> =
            value[i / 2 * 2..][..2].iter().map(|v| (gate * f64::from(*v)) as f32).collect();
        assert_close(&out[at..at + 2], &want, 1e-6);
        let want: Vec<f32> =
            norm(&out[at..at + 2], &weights[2][s..s + 2]).iter().map(|v| *v as f32).collect();
        assert_close(&conv[at..at + 2], &want, 1e-6);
    }
}

#[test]
fn the_embedding_gate_at_zero_and_nan() {
    let ones = [1.0; 2];
    let gate = |h: f32| {
        let args = PleGateArgs {
            h: &[h, h],
            key: &[1.0, -1.0],
            value: &[4.0, 8.0],
            norm_key: &ones,
            norm_query: &ones,
            norm_conv: &ones,
            streams: 1,
            eps: 1e-6,
        };
        let (mut out, mut conv) = ([0.0; 2], [0.0; 2]);
        Reference.ple_gate(&args, &mut out, &mut conv);
        (out, conv)
    };
    // The dot product is 0, whose sign is 0: half of the value.
    assert_eq!(gate(1.0).0, [2.0, 4.0]);
    let (out, conv) = gate(f32::NAN);
    assert!(out.iter().chain(&conv).all(|v| v.is_nan()));
}

#[test]
fn rows_do_not_depend_on_each_other() {
    let x = Random::new(1).values(5 * 96);
    let weight = Random::new(2).values(96);
    let mut together = vec![f32::NAN; x.len()];
    Reference.grouped_rms_norm(&x, &weight, 32, 1e-6, &mut together);
    for (x, together) in x.chunks_exact(96).zip(together.chunks_exact(96)) {
        let mut alone = vec![f32::NAN; 96];
        Reference.grouped_rms_norm(x, &weight, 32, 1e-6, &mut alone);
        assert_eq!(bits(&alone), bits(together));
    }
}
