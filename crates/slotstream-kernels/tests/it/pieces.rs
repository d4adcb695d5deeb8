//! Golden values of the affine rule and the gated delta rule, made with MLX and transformers.

use std::path::Path;

use safetensors::{Dtype, SafeTensors};
use slotstream_core::{AffineFormat, f32_to_bf16};
use slotstream_kernels::{AffineMatrix, GatedDeltaArgs, Kernels, Reference};

use crate::data::{assert_close, bits, cpus};

struct Pieces(Vec<u8>);

impl Pieces {
    fn load() -> Self {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/pieces.safetensors");
        Self(std::fs::read(path).expect("the fixture"))
    }

    fn bytes(&self, name: &str, dtype: Dtype) -> Vec<u8> {
        let tensors = SafeTensors::deserialize(&self.0).expect("a safetensors file");
        let tensor = tensors.tensor(name).expect(name);
        assert_eq!(tensor.dtype(), dtype, "{name}");
        tensor.data().to_vec()
    }

    fn f32(&self, name: &str) -> Vec<f32> {
        let bytes = self.bytes(name, Dtype::F32);
        bytes.as_chunks::<4>().0.iter().map(|b| f32::from_le_bytes(*b)).collect()
    }

    /// Values that are bf16 numbers, as such.
    fn bf16(&self, name: &str) -> Vec<u8> {
        self.f32(name).iter().flat_map(|v| f32_to_bf16(*v).to_le_bytes()).collect()
    }
}

#[test]
fn affine() {
    let pieces = Pieces::load();
    for group in [64, 32] {
        let name = |part: &str| format!("affine.g{group}.{part}");
        let (weight, scales, biases) = (
            pieces.bytes(&name("q"), Dtype::U32),
            pieces.bf16(&name("scales")),
            pieces.bf16(&name("biases")),
        );
        let format = AffineFormat::new(4, group).unwrap();
        let w = AffineMatrix::new(format, 64, 256, &weight, &scales, &biases).unwrap();
        let sets = cpus(&[1, 2]);
        for set in sets.iter().map(|set| set as &dyn Kernels).chain([&Reference as _]) {
            let mut rows = vec![f32::NAN; 64 * 256];
            let ids: Vec<u32> = (0..64).collect();
            set.affine_rows(&w, &ids, &mut rows);
            assert_eq!(bits(&rows), bits(&pieces.f32(&name("dequant_f32"))), "{}", set.name());
            let mut out = vec![f32::NAN; 3 * 64];
            set.affine_matmul(&pieces.f32(&name("x")), &w, &mut out);
            // Sums of 256 products, about 10 in size; the golden ones were summed in f32 too.
            assert_close(&out, &pieces.f32(&name("x_wT")), 3e-5);
        }
    }
}

/// The golden values have `g` and `beta` where the operation has `a`, `b`, `A_log` and `dt_bias`,
/// and the rule's own output before the norm: `a` and `b` are found by inverting, and the norm is
/// undone by a `z` and `norm` of ones and the root mean square of the golden output.
#[test]
fn gated_delta() {
    let pieces = Pieces::load();
    let (m, key_heads, value_heads, dim) = (12, 2, 6, 32);
    let [q, k, v] = ["q", "k", "v"].map(|part| pieces.f32(&format!("delta.{part}")));
    let qkv: Vec<f32> = (0..m)
        .flat_map(|t| {
            let (keys, values) = (key_heads * dim, value_heads * dim);
            [
                &q[t * keys..(t + 1) * keys],
                &k[t * keys..(t + 1) * keys],
                &v[t * values..(t + 1) * values],
            ]
            .concat()
        })
        .collect();
    // softplus(a) = -g, sigmoid(b) = beta.
    let inverse = |name, f: fn(f64) -> f64| -> Vec<f32> {
        pieces.f32(name).iter().map(|v| f(f64::from(*v)) as f32).collect()
    };
    let a = inverse("delta.g", |g| (-g).exp_m1().ln());
    let b = inverse("delta.beta", |beta| (beta / (1.0 - beta)).ln());
    let zeros = vec![0.0; value_heads];
    let args = GatedDeltaArgs {
        qkv: &qkv,
        a: &a,
        b: &b,
        z: &vec![0.0; m * value_heads * dim],
        a_log: &zeros,
        dt_bias: &zeros,
        norm: &vec![2.0; dim],
        key_heads,
        value_heads,
        key_dim: dim,
        value_dim: dim,
        sigmoid_gate: true,
        eps: 0.0,
    };
    let mut state = pieces.f32("delta.state0");
    let mut out = vec![f32::NAN; m * value_heads * dim];
    Reference.gated_delta(&args, &mut state, &mut [], &mut out);
    assert_close(&state, &pieces.f32("delta.state"), 1e-5);
    let golden = pieces.f32("delta.out");
    for (out, golden) in out.chunks_exact(dim).zip(golden.chunks_exact(dim)) {
        // sigmoid(0) * 2 is 1, so `out` is the golden output over its root mean square.
        let rms = (golden.iter().map(|v| v * v).sum::<f32>() / dim as f32).sqrt();
        let scaled: Vec<f32> = out.iter().map(|v| v * rms).collect();
        assert_close(&scaled, golden, 1e-5);
    }
}
