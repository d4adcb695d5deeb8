//! Where the rows of the n-gram table lie and the constants that hash tokens to them.
//!
//! The hash itself is computed elsewhere; here are its constants.

use slotstream_core::{AffineFormat, Extent, LayerIdx};

use crate::{CheckpointError, PleConfig, TextConfig};

/// The n-gram (PLE) table of one layer: constants of the hash and extents of the shards.
///
/// Source: `model.layers.L.ple.ple_embedding.*` and the config fields `ngram_size`,
/// `heads_per_ngram`, `ple_embed_dim`, `split_ngram_parts`, `seed`.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct NgramPlan {
    /// The layer whose streams the rows are injected into (zero-based).
    pub layer: LayerIdx,
    /// Longest n-gram (`ngram_size`, 3): a token and the two before it.
    pub ngram_size: usize,
    /// Heads of each n-gram order (`heads_per_ngram`, 8); heads are ordered by order, then number.
    pub heads_per_ngram: usize,
    /// The token that ends a context (`eos_token_id` of the text config).
    pub reset_token: u32,
    /// One multiplier a token of the window (`layer_multipliers`, `[ngram_size]`).
    pub multipliers: Vec<i64>,
    /// Rows of each head's table (`ngram_heads_vocab_sizes`, `[heads]`): primes.
    pub head_sizes: Vec<i64>,
    /// First row of each head's table (`ngram_heads_offsets`, `[heads]`).
    pub head_offsets: Vec<i64>,
    /// Values of one row (`ple_embed_dim / heads`, 160).
    pub row_width: usize,
    /// Quantization of a row: 4 bits in groups of 32.
    pub format: AffineFormat,
    /// Rows of each shard; global row `r` lies in shard `r / rows_per_shard`.
    pub rows_per_shard: u64,
    /// The shards in order.
    pub shards: Vec<NgramShard>,
}

/// The three arrays of one shard of the table, each `[rows_per_shard, ..]`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(clippy::exhaustive_structs, reason = "affine quantization has exactly these arrays")]
pub struct NgramShard {
    /// Packed words, `[rows, row_width / 8]` u32.
    pub weight: Extent,
    /// bf16 scales, `[rows, row_width / group_size]`.
    pub scales: Extent,
    /// bf16 biases, `[rows, row_width / group_size]`.
    pub biases: Extent,
}

/// The plan of a config's n-gram layer; `find` gives the extent of a tensor by canonical name.
pub(crate) fn plan_ngram(
    config: &TextConfig,
    find: impl Fn(&str) -> Result<Extent, CheckpointError>,
) -> Result<Option<NgramPlan>, CheckpointError> {
    let Some(ple) = &config.ple else { return Ok(None) };
    let bad = |what: &str| CheckpointError::NgramConfig {
        path: config.path.clone(),
        what: what.to_owned(),
    };
    let constants = NgramConstants::from_config(config, ple)?;
    let table =
        format!("model.layers.{}.ple.ple_embedding.ngram_embedding.shard_", ple.layer.get());
    let mut shards = Vec::new();
    for i in 0..ple.split_ngram_parts {
        let part = |part: &str| find(&format!("{table}{i}.{part}"));
        let (weight, scales, biases) = (part("weight")?, part("scales")?, part("biases")?);
        shards.push(NgramShard { weight, scales, biases });
    }
    let format = |i: usize| config.quantization.format(&format!("{table}{i}"));
    let first = format(0).ok_or_else(|| bad("the table must be quantized"))?;
    if (0..ple.split_ngram_parts).any(|i| format(i) != Some(first)) {
        return Err(bad("the shards of the table are quantized differently"));
    }
    Ok(Some(NgramPlan {
        layer: ple.layer,
        ngram_size: ple.ngram_size,
        heads_per_ngram: ple.heads_per_ngram,
        reset_token: config
            .reset_token()
            .ok_or_else(|| bad("eos_token_id is missing, which resets the context"))?,
        multipliers: constants.multipliers,
        head_sizes: constants.head_sizes,
        head_offsets: constants.head_offsets,
        row_width: ple.row_width(),
        format: first,
        rows_per_shard: constants.rows_per_shard,
        shards,
    }))
}

/// The gamma of splitmix64.
const GAMMA: u64 = 0x9E37_79B9_7F4A_7C15;

/// The numbers of the hash, rebuilt from the config.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct NgramConstants {
    /// One odd multiplier a token of the window; its product with a token id is below 2^63.
    pub multipliers: Vec<i64>,
    /// Rows of each head's table: consecutive primes from `ngram_vocab_size_base` on.
    pub head_sizes: Vec<i64>,
    /// First row of each head's table: running sums of the sizes.
    pub head_offsets: Vec<i64>,
    /// Rows of a shard, the padding of the last one included.
    pub rows_per_shard: u64,
}

impl NgramConstants {
    /// Multipliers from the seed, prime table sizes from the base, offsets as running sums, and
    /// rows padded and split evenly. `ple` is the config's n-gram part.
    ///
    /// # Errors
    /// [`CheckpointError::NgramConfig`] when the rows do not split evenly.
    pub fn from_config(config: &TextConfig, ple: &PleConfig) -> Result<Self, CheckpointError> {
        let bad = |what: String| CheckpointError::NgramConfig { path: config.path.clone(), what };
        // A product of a multiplier and a token id stays below 2^63.
        let half = i64::MAX as u64 / (config.vocab_size as u64).max(1) / 2;
        if half == 0 {
            return Err(bad(format!("vocab_size {} leaves no multiplier", config.vocab_size)));
        }
        let multipliers = (1..=ple.ngram_size as u64)
            .map(|i| {
                let mixed = splitmix64(ple.seed.wrapping_add(i.wrapping_mul(GAMMA)));
                (2 * (mixed % half) + 1) as i64
            })
            .collect();
        let (mut head_sizes, mut head_offsets) = (Vec::new(), Vec::new());
        let (mut next, mut rows) = (ple.ngram_vocab_size_base, 0_u64);
        for _ in 0..ple.heads() {
            let prime = next_prime(next);
            head_sizes.push(prime as i64);
            head_offsets.push(rows as i64);
            // At most 1,792 heads of at most about 2^40 rows.
            (next, rows) = (prime + 1, rows + prime);
        }
        let padded = rows.next_multiple_of(ple.make_ngram_vocab_size_divisible_by);
        let parts = ple.split_ngram_parts as u64;
        if !padded.is_multiple_of(parts) {
            return Err(bad(format!(
                "{rows} rows padded to {padded} do not split into split_ngram_parts = {parts} \
                 equal shards"
            )));
        }
        Ok(Self { multipliers, head_sizes, head_offsets, rows_per_shard: padded / parts })
    }
}

/// The output function of splitmix64 at a state, which first advances by gamma.
const fn splitmix64(state: u64) -> u64 {
    let mut z = state.wrapping_add(GAMMA);
    z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    z ^ (z >> 31)
}

/// The smallest prime that is at least `from`; `from` is far below 2^63. Gaps between primes of
/// this size are below 2,000, so the search is short.
fn next_prime(from: u64) -> u64 {
    (from.max(2)..).find(|n| is_prime(*n)).unwrap_or(u64::MAX)
}

/// Miller-Rabin with the twelve bases that decide every 64-bit number.
fn is_prime(n: u64) -> bool {
    const BASES: [u64; 12] = [2, 3, 5, 7, 11, 13, 17, 19, 23, 29, 31, 37];
    if n < 2 {
        return false;
    }
    if let Some(base) = BASES.iter().find(|base| n.is_multiple_of(**base)) {
        return n == *base;
    }
    let twos = (n - 1).trailing_zeros();
    BASES.iter().all(|base| {
        let mut x = pow_mod(*base, (n - 1) >> twos, n);
        if x == 1 || x == n - 1 {
            return true;
        }
        for _ in 1..twos {
            x = mul_mod(x, x, n);
            if x == n - 1 {
                return true;
            }
        }
        false
    })
}

fn pow_mod(mut base: u64, mut exponent: u64, modulus: u64) -> u64 {
    let mut result = 1;
    while exponent > 0 {
        if exponent & 1 == 1 {
            result = mul_mod(result, base, modulus);
        }
        base = mul_mod(base, base, modulus);
        exponent >>= 1;
    }
    result
}

fn mul_mod(a: u64, b: u64, modulus: u64) -> u64 {
    // The remainder is below a u64.
    (u128::from(a) * u128::from(b) % u128::from(modulus)) as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn primes() {
        let slow =
            |n: u64| n >= 2 && (2..n).take_while(|d| d * d <= n).all(|d| !n.is_multiple_of(d));
        for n in 0..5_000 {
            assert_eq!(is_prime(n), slow(n), "{n}");
        }
        assert!(is_prime((1 << 61) - 1));
        assert!(!is_prime(3_215_031_751), "a strong pseudoprime to the bases 2, 3, 5 and 7");
        assert_eq!(next_prime(20_000_000), 20_000_003);
    }

    #[test]
    fn first_output_of_splitmix64() {
        // The published first output for seed 0.
        assert_eq!(splitmix64(0), 0xE220_A839_7B1D_CDAF);
    }
}
