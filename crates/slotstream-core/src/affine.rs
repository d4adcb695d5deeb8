//! The affine quantization rule of MLX, as pure arithmetic.
//!
//! A row of `k` values is stored as `k * bits / 32` little-endian `u32` words; word `i` holds
//! `32 / bits` consecutive values, the first in the lowest bits. Each group of `group_size`
//! consecutive values shares one bf16 scale and one bf16 bias: `w = scale * q + bias`.

use crate::CoreError;

/// Bits and group size of an affine-quantized matrix (`quantization` in `config.json`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct AffineFormat {
    bits: u8,
    group_size: u16,
}

impl AffineFormat {
    /// 4 bits in groups of 64: every matrix of the model but the n-gram table.
    pub const Q4_G64: Self = Self { bits: 4, group_size: 64 };
    /// 4 bits in groups of 32: the n-gram table.
    pub const Q4_G32: Self = Self { bits: 4, group_size: 32 };

    /// Checked construction.
    ///
    /// # Errors
    /// [`CoreError::Affine`] unless `bits` is 4 or 8 and `group_size` 32, 64 or 128.
    pub fn new(bits: u32, group_size: u32) -> Result<Self, CoreError> {
        match (bits, group_size) {
            (4 | 8, 32 | 64 | 128) => Ok(Self { bits: bits as u8, group_size: group_size as u16 }),
            _ => Err(CoreError::Affine { bits, group_size }),
        }
    }

    /// Bits a value: 4 or 8.
    #[must_use]
    pub const fn bits(&self) -> usize {
        self.bits as usize
    }

    /// Values that share a scale and a bias: 32, 64 or 128.
    #[must_use]
    pub const fn group_size(&self) -> usize {
        self.group_size as usize
    }

    /// Bytes of the packed words of one row of `k` values.
    #[must_use]
    pub const fn row_bytes(&self, k: usize) -> usize {
        k / 8 * self.bits as usize
    }

    /// Groups of one row of `k` values; each has two bytes of scale and two of bias.
    #[must_use]
    pub const fn row_groups(&self, k: usize) -> usize {
        k / self.group_size as usize
    }

    /// Whether rows of `k` values consist of whole groups.
    #[must_use]
    pub const fn divides(&self, k: usize) -> bool {
        k > 0 && k.is_multiple_of(self.group_size as usize)
    }
}

/// Widens a bf16, given as its bits, to f32. Exact.
#[must_use]
pub const fn bf16_to_f32(bits: u16) -> f32 {
    f32::from_bits((bits as u32) << 16)
}

/// Narrows an f32 to the bits of the nearest bf16, ties to even. NaN stays NaN.
#[must_use]
pub const fn f32_to_bf16(value: f32) -> u16 {
    let bits = value.to_bits();
    if value.is_nan() {
        return ((bits >> 16) as u16) | 0x0040;
    }
    let round = 0x7fff + ((bits >> 16) & 1);
    (bits.wrapping_add(round) >> 16) as u16
}

/// The bf16 with number `i` of a little-endian byte array, widened.
///
/// # Panics
/// When the array is too short.
#[must_use]
pub fn bf16_at(bytes: &[u8], i: usize) -> f32 {
    bf16_to_f32(u16::from_le_bytes([bytes[2 * i], bytes[2 * i + 1]]))
}

/// The 4-bit value with number `i` of a packed row, in `0..16`.
///
/// # Panics
/// When the row is too short.
#[must_use]
pub fn nibble_at(row: &[u8], i: usize) -> u8 {
    // Words are little-endian and filled from the lowest bits, so byte `i / 2` holds it.
    (row[i / 2] >> (4 * (i % 2))) & 15
}

/// The packed value with number `i` of a row.
///
/// # Panics
/// When the row is too short.
#[must_use]
pub fn quant_at(format: AffineFormat, row: &[u8], i: usize) -> u8 {
    if format.bits == 4 { nibble_at(row, i) } else { row[i] }
}

/// Dequantizes one row in f32: `scale * q + bias`, product and sum each rounded once.
///
/// `row` holds `format.row_bytes(out.len())` bytes, `scales` and `biases` two bytes a group.
///
/// # Panics
/// When a slice is too short for `out`.
pub fn dequantize_row(
    format: AffineFormat,
    row: &[u8],
    scales: &[u8],
    biases: &[u8],
    out: &mut [f32],
) {
    for (g, group) in out.chunks_mut(format.group_size()).enumerate() {
        let (scale, bias) = (bf16_at(scales, g), bf16_at(biases, g));
        for (j, value) in group.iter_mut().enumerate() {
            let q = quant_at(format, row, g * format.group_size() + j);
            *value = scale * f32::from(q) + bias;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bf16_round_trips_and_rounds_to_even() {
        for bits in 0..=u16::MAX {
            let wide = bf16_to_f32(bits);
            if wide.is_nan() {
                assert!(bf16_to_f32(f32_to_bf16(wide)).is_nan());
            } else {
                assert_eq!(f32_to_bf16(wide), bits);
            }
        }
        assert_eq!(f32_to_bf16(f32::from_bits(0x3f80_8000)), 0x3f80);
        assert_eq!(f32_to_bf16(f32::from_bits(0x3f81_8000)), 0x3f82);
        assert_eq!(f32_to_bf16(f32::MAX), 0x7f80);
    }

    #[test]
    fn words_fill_from_the_lowest_bits() {
        let word = 0x7654_3210_u32.to_le_bytes();
        for i in 0..8 {
            assert_eq!(usize::from(nibble_at(&word, i)), i);
        }
    }

    #[test]
    fn only_the_known_formats() {
        assert!(AffineFormat::new(4, 64).is_ok() && AffineFormat::new(8, 128).is_ok());
        for (b, g) in [(3, 64), (0, 64), (4, 48), (4, 0), (16, 64)] {
            assert!(AffineFormat::new(b, g).is_err());
        }
        assert_eq!(AffineFormat::Q4_G64.row_bytes(2560), 1280);
        assert_eq!(AffineFormat::Q4_G32.row_groups(160), 5);
    }

    #[test]
    fn dequantizes() {
        let format = AffineFormat::Q4_G32;
        let row: Vec<u8> = (0..16).map(|i| (i as u8) | 0x50).collect();
        let (s, b) = (f32_to_bf16(0.5).to_le_bytes(), f32_to_bf16(-2.0).to_le_bytes());
        let mut out = [f32::NAN; 32];
        dequantize_row(format, &row, &s, &b, &mut out);
        assert_eq!((out[6], out[7]), (0.5 * 3.0 - 2.0, 0.5 * 5.0 - 2.0));
    }
}
