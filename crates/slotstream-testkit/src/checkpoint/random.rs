//! Random weights of a size that keeps activations finite.

use std::io::Write;

use slotstream_checkpoint::{Dtype, NgramConstants};
use slotstream_core::f32_to_bf16;

use super::{RouterSkew, SpecTensor};

/// A small deterministic generator (splitmix64).
pub(crate) struct Random(u64);

impl Random {
    /// A generator of its own for a name, so that the order of tensors does not matter.
    pub(crate) fn of(seed: u64, name: &str) -> Self {
        // FNV-1a of the name.
        let hash = name.bytes().fold(0xCBF2_9CE4_8422_2325_u64, |hash, byte| {
            (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01B3)
        });
        Self(seed ^ hash)
    }

    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    }

    /// Uniform in `low..high`.
    fn within(&mut self, low: f32, high: f32) -> f32 {
        let unit = (self.next() >> 40) as f32 / (1_u32 << 24) as f32;
        low + unit * (high - low)
    }
}

/// What random weights depend on.
pub(crate) struct Weights<'a> {
    pub(crate) seed: u64,
    pub(crate) constants: Option<&'a NgramConstants>,
    pub(crate) routers: Option<&'a RouterSkew>,
}

impl Weights<'_> {
    /// Writes the bytes of a tensor.
    pub(crate) fn fill(&self, tensor: &SpecTensor, out: &mut dyn Write) -> std::io::Result<()> {
        let name = tensor.name.as_str();
        match (tensor.dtype, self.routers) {
            (Dtype::I64, _) => write_constants(name, self.constants, out),
            (Dtype::U32, _) => write_words(Random::of(self.seed, name), tensor.len, out),
            (_, Some(skew)) if name.ends_with(".mlp.gate.weight") => {
                let rows = skew.rows(name, self.seed);
                write_floats(tensor, self.seed, Some(&rows), out)
            }
            _ => write_floats(tensor, self.seed, None, out),
        }
    }
}

/// Writes random words, a chunk at a time: they are nearly all of a checkpoint.
fn write_words(mut random: Random, len: u64, out: &mut dyn Write) -> std::io::Result<()> {
    let mut chunk = [0; 1 << 15];
    let mut left = len;
    while left > 0 {
        let now = left.min(chunk.len() as u64) as usize;
        for word in chunk[..now].chunks_exact_mut(4) {
            word.copy_from_slice(&((random.next() >> 32) as u32).to_le_bytes());
        }
        out.write_all(&chunk[..now])?;
        left -= now as u64;
    }
    Ok(())
}

/// Writes the values of a hash constant; nothing for other names.
pub(crate) fn write_constants(
    name: &str,
    constants: Option<&NgramConstants>,
    out: &mut dyn Write,
) -> std::io::Result<()> {
    let Some(constants) = constants else { return Ok(()) };
    let values = match name.rsplit('.').next() {
        Some("layer_multipliers") => &constants.multipliers,
        Some("ngram_heads_offsets") => &constants.head_offsets,
        Some("ngram_heads_vocab_sizes") => &constants.head_sizes,
        _ => return Ok(()),
    };
    values.iter().try_for_each(|value| out.write_all(&value.to_le_bytes()))
}

/// Writes floats; `rows` are factors of a matrix's rows, 1 where there are none.
fn write_floats(
    tensor: &SpecTensor,
    seed: u64,
    rows: Option<&[f32]>,
    out: &mut dyn Write,
) -> std::io::Result<()> {
    let name = tensor.name.as_str();
    let mut next: Box<dyn FnMut() -> f32> =
        if let Some(module) = name.strip_suffix(".scales").or(name.strip_suffix(".biases")) {
            // Both arrays draw the same scales, so that the values of a group are centred.
            let mut random = Random::of(seed, &format!("{module}.scales"));
            let size = scale_of(tensor);
            let factor = if name.ends_with(".biases") { -tensor.middle } else { 1.0 };
            Box::new(move || factor * random.within(0.5 * size, 1.5 * size))
        } else {
            let mut random = Random::of(seed, name);
            let (low, high) = range_of(tensor);
            Box::new(move || random.within(low, high))
        };
    let width = tensor.shape.last().copied().unwrap_or(1).max(1);
    for row in 0..tensor.len / 2 / width {
        let factor = rows.and_then(|rows| rows.get(row as usize)).copied().unwrap_or(1.0);
        for _ in 0..width {
            out.write_all(&f32_to_bf16(factor * next()).to_le_bytes())?;
        }
    }
    Ok(())
}

/// A scale that gives rows of about unit norm. The table's rows are looked up, not multiplied, so
/// their values are about one.
fn scale_of(tensor: &SpecTensor) -> f32 {
    let deviation =
        if tensor.name.contains(".ngram_embedding.") || tensor.name.contains("embed_tokens") {
            1.0
        } else {
            1.0 / (tensor.cols as f32).sqrt()
        };
    // The deviation of a uniform value from 0 to 2m is about 0.61 m.
    deviation / (0.61 * tensor.middle)
}

fn range_of(tensor: &SpecTensor) -> (f32, f32) {
    let name = tensor.name.as_str();
    if name.ends_with(".bias") {
        (-0.1, 0.1)
    } else if name.ends_with("A_log") {
        (0.0, 2.0)
    } else if name.ends_with("dt_bias") {
        (-3.0, 0.5)
    } else if name.contains("conv1d") {
        (-0.6, 0.6)
    } else if tensor.shape.len() == 1 {
        // Norm weights, with one added.
        (0.7, 1.3)
    } else {
        let cols = tensor.shape.last().copied().unwrap_or(1).max(1) as f32;
        let bound = (3.0 / cols).sqrt();
        (-bound, bound)
    }
}
