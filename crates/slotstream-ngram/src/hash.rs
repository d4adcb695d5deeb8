//! From token windows to row ids.

use slotstream_checkpoint::NgramPlan;

use crate::NgramError;

/// Hashes a token and the few before it to one row id a head.
///
/// For the order `n` (2 to `ngram_size`) the products of the last `n` tokens with their
/// multipliers are combined by exclusive or, in wrapping 64-bit arithmetic. Each head of that
/// order takes the remainder by its own number of rows (floored, so never negative) and adds the
/// first row of its range. A position before the start of the sequence counts as the reset token,
/// and so does everything further back than a reset token that precedes the hashed one.
///
/// Source: `model.layers.L.ple.ple_embedding.{layer_multipliers, ngram_heads_vocab_sizes,
/// ngram_heads_offsets}` and `eos_token_id` of the text config.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NgramHasher {
    reset_token: u32,
    heads_per_ngram: usize,
    multipliers: Box<[i64]>,
    heads: Box<[Head]>,
}

/// The rows of one head.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Head {
    offset: i64,
    size: i64,
}

impl NgramHasher {
    /// The hash of a checkpoint's table.
    ///
    /// # Errors
    /// As [`Self::from_constants`]; also when an array's length is not what the plan's
    /// `ngram_size` and `heads_per_ngram` call for, or a head ends beyond the plan's shards.
    pub fn new(plan: &NgramPlan) -> Result<Self, NgramError> {
        let (ngram_size, shards) = (plan.ngram_size, plan.shards.len());
        check_length("layer_multipliers", ngram_size, plan.multipliers.len())?;
        let heads = ngram_size.saturating_sub(1).saturating_mul(plan.heads_per_ngram);
        check_length("ngram_heads_vocab_sizes", heads, plan.head_sizes.len())?;
        check_length("ngram_heads_offsets", heads, plan.head_offsets.len())?;
        let (offsets, sizes) = (&plan.head_offsets, &plan.head_sizes);
        let hasher = Self::from_constants(plan.reset_token, &plan.multipliers, sizes, offsets)?;
        hasher.check_rows(plan.rows_per_shard.saturating_mul(shards as u64))?;
        Ok(hasher)
    }

    /// The hash with these constants. The longest n-gram has as many tokens as there are
    /// `multipliers`; `head_sizes` and `head_offsets` hold an entry a head, ordered by n-gram
    /// order (bigrams first), then by number within the order.
    ///
    /// # Errors
    /// [`NgramError::Orders`] for fewer than two multipliers or heads that do not spread evenly
    /// over the orders, [`NgramError::Constants`] for unequal lengths, [`NgramError::HeadRange`]
    /// for a head without rows, before row 0 or beyond 2^63.
    pub fn from_constants(
        reset_token: u32,
        multipliers: &[i64],
        head_sizes: &[i64],
        head_offsets: &[i64],
    ) -> Result<Self, NgramError> {
        let (ngram_size, heads) = (multipliers.len(), head_sizes.len());
        check_length("ngram_heads_offsets", heads, head_offsets.len())?;
        if ngram_size < 2 || heads == 0 || !heads.is_multiple_of(ngram_size - 1) {
            return Err(NgramError::Orders { ngram_size, heads });
        }
        let pairs = head_offsets.iter().zip(head_sizes);
        let hasher = Self {
            reset_token,
            heads_per_ngram: heads / (ngram_size - 1),
            multipliers: multipliers.into(),
            heads: pairs.map(|(&offset, &size)| Head { offset, size }).collect(),
        };
        hasher.check_rows(i64::MAX as u64)?;
        Ok(hasher)
    }

    /// Whether all heads lie within a table of `rows` rows.
    pub(crate) fn check_rows(&self, rows: u64) -> Result<(), NgramError> {
        for (i, &Head { offset, size }) in self.heads.iter().enumerate() {
            let end = offset.checked_add(size).and_then(|end| u64::try_from(end).ok());
            if offset < 0 || size <= 0 || end.is_none_or(|end| end > rows) {
                return Err(NgramError::HeadRange { head: i, offset, size, rows });
            }
        }
        Ok(())
    }

    /// Heads of all orders: row ids a token.
    #[must_use]
    pub const fn heads(&self) -> usize {
        self.heads.len()
    }

    /// Heads of each order (`heads_per_ngram`).
    #[must_use]
    pub const fn heads_per_ngram(&self) -> usize {
        self.heads_per_ngram
    }

    /// Longest n-gram in tokens (`ngram_size`).
    #[must_use]
    pub const fn ngram_size(&self) -> usize {
        self.multipliers.len()
    }

    /// Tokens before the hashed one that can matter: `ngram_size - 1`.
    #[must_use]
    pub const fn context_len(&self) -> usize {
        self.multipliers.len() - 1
    }

    /// The token that ends a context.
    #[must_use]
    pub const fn reset_token(&self) -> u32 {
        self.reset_token
    }

    /// Row ids of the last token of `window`, which holds that token and up to `ngram_size - 1`
    /// tokens before it, oldest first; fewer at the start of a sequence. `out` receives one id a
    /// head.
    ///
    /// # Errors
    /// [`NgramError::Window`] for an empty or too long window, [`NgramError::RowIds`] when `out`
    /// does not hold [`Self::heads`] ids.
    pub fn rows(&self, window: &[u32], out: &mut [u64]) -> Result<(), NgramError> {
        let (ngram_size, heads, found) = (self.ngram_size(), self.heads(), out.len());
        if window.is_empty() || window.len() > ngram_size {
            return Err(NgramError::Window { ngram_size, found: window.len() });
        }
        if found != heads {
            return Err(NgramError::RowIds { heads, found });
        }
        self.hash(|back| window.iter().rev().nth(back).copied(), out);
        Ok(())
    }

    /// Row ids of each of `tokens`, `[tokens, heads]`, into `out`, which is cleared first.
    /// `context` holds the tokens before them, oldest first, of any length: its last
    /// [`Self::context_len`] matter, and where there are fewer the sequence starts.
    pub fn rows_for(&self, context: &[u32], tokens: &[u32], out: &mut Vec<u64>) {
        let heads = self.heads();
        out.clear();
        out.resize(tokens.len() * heads, 0);
        for (i, out) in out.chunks_exact_mut(heads).enumerate() {
            let token = |back: usize| match i.checked_sub(back) {
                Some(at) => tokens.get(at).copied(),
                None => context.iter().rev().nth(back - i - 1).copied(),
            };
            self.hash(token, out);
        }
    }

    /// The hash itself; `token(back)` is the token `back` places before the hashed one.
    fn hash(&self, token: impl Fn(usize) -> Option<u32>, out: &mut [u64]) {
        let mut mixed = 0_i64;
        let mut ended = false;
        for (back, multiplier) in self.multipliers.iter().enumerate() {
            let id = if ended { self.reset_token } else { token(back).unwrap_or(self.reset_token) };
            // The hashed token itself, though it be the reset token, still sees those before it.
            ended |= back > 0 && id == self.reset_token;
            mixed ^= i64::from(id).wrapping_mul(*multiplier);
            if back == 0 {
                continue;
            }
            let of_order = (back - 1) * self.heads_per_ngram..back * self.heads_per_ngram;
            for (row, head) in out[of_order.clone()].iter_mut().zip(&self.heads[of_order]) {
                // Sizes are positive and `offset + size` fits: checked on construction.
                *row = (head.offset + mixed.rem_euclid(head.size)) as u64;
            }
        }
    }
}

fn check_length(array: &'static str, expected: usize, found: usize) -> Result<(), NgramError> {
    if expected == found { Ok(()) } else { Err(NgramError::Constants { array, expected, found }) }
}
