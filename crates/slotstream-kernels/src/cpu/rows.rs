//! Dequantized rows.

use slotstream_core::bf16_at;

use super::{Cpu, tile::Out};
use crate::AffineMatrix;

/// Multiply-adds that dequantizing one value is worth.
const WORK: usize = 8;

impl Cpu {
    /// See [`Kernels::affine_rows`](crate::Kernels::affine_rows).
    pub(super) fn rows(&self, w: &AffineMatrix<'_>, ids: &[u32], out: &mut [f32]) {
        let k = w.cols();
        assert_eq!(out.len(), ids.len() * k, "out is [ids, k]");
        let out = Out::new(out);
        self.threads.run(ids.len(), ids.len() * k * WORK, |i| {
            // SAFETY: each task has its own row of `out`, which is borrowed exclusively.
            dequantize(w, ids[i] as usize, unsafe { out.slice(i * k..(i + 1) * k) });
        });
    }
}

/// `scale * q + bias`, each rounded once, as [`slotstream_core::dequantize_row`] does.
fn dequantize(w: &AffineMatrix<'_>, row: usize, out: &mut [f32]) {
    let (bits, size) = (w.format().bits(), w.format().group_size());
    let (scales, biases) = (w.scales_row(row), w.biases_row(row));
    let groups = w.weight_row(row).chunks_exact(size * bits / 8).zip(out.chunks_exact_mut(size));
    for (g, (packed, out)) in groups.enumerate() {
        let (scale, bias) = (bf16_at(scales, g), bf16_at(biases, g));
        if bits == 4 {
            for (out, byte) in out.as_chunks_mut::<2>().0.iter_mut().zip(packed) {
                *out = [byte & 15, byte >> 4].map(|q| scale * f32::from(q) + bias);
            }
        } else {
            for (out, byte) in out.iter_mut().zip(packed) {
                *out = scale * f32::from(*byte) + bias;
            }
        }
    }
}
