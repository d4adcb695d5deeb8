//! From logits to the next token id.
//!
//! Works on token ids and `f32` logits alone, so it is there without the `text` feature too.
//!
//! A [`Sampler`] applies, in this order: penalties on the *generated* tokens, temperature, top-k,
//! top-p, min-p, and one draw. Temperature 0, the default, is greedy: the highest penalised logit
//! wins, of equal ones the lowest token id. A NaN or a `+inf` among the logits is refused with its
//! token id; `-inf` stands for an impossible token.
//!
//! Draws are a function of the seed and the logits alone. The generator (xoshiro256++) and the
//! exponential are this crate's own, so no platform's math library can change a token.

mod draw;
mod sampler;
#[cfg(test)]
mod tests;

pub use sampler::Sampler;

use slotstream_core::ErrorKind;

/// How the next token is chosen. `Default` is greedy without penalties.
///
/// ```
/// use slotstream::sampling::{Sampler, SamplingParams};
///
/// let mut sampler = Sampler::new(SamplingParams::default())?;
/// assert_eq!(sampler.sample(&[0.1, 2.5, -1.0], &[])?, 1);
///
/// let mut sampler = Sampler::new(SamplingParams { top_k: 2, seed: 7, ..SamplingParams::THINKING })?;
/// assert!([0, 1].contains(&sampler.sample(&[0.1, 2.5, -1.0], &[])?));
/// # Ok::<(), slotstream::sampling::SamplingError>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct SamplingParams {
    /// Divisor of the logits, finite and at least 0. 0 is greedy, and then `top_k`, `top_p`,
    /// `min_p` and `seed` have no effect. Default 0.
    pub temperature: f32,
    /// Keep the `top_k` highest logits (of equal ones the lower ids). 0, the default, is off.
    pub top_k: u32,
    /// Keep the smallest set of most likely tokens whose probabilities add up to at least `top_p`,
    /// in (0, 1]. 1, the default, is off.
    pub top_p: f32,
    /// Keep the tokens at least `min_p` times as likely as the most likely one, in \[0, 1].
    /// 0, the default, is off.
    pub min_p: f32,
    /// Positive logits of generated tokens are divided by this, negative ones multiplied
    /// (Keskar et al. 2019), finite and above 0. 1, the default, is off.
    pub repetition_penalty: f32,
    /// Subtracted once from the logit of each token generated before, in \[-2, 2]. Default 0.
    pub presence_penalty: f32,
    /// Subtracted from a logit for each time its token was generated before, in \[-2, 2].
    /// Default 0.
    pub frequency_penalty: f32,
    /// Seed of the draws. Default 0: two runs with the same settings give the same tokens.
    pub seed: u64,
}

impl SamplingParams {
    /// The highest logit, always.
    pub const GREEDY: Self = Self {
        temperature: 0.0,
        top_k: 0,
        top_p: 1.0,
        min_p: 0.0,
        repetition_penalty: 1.0,
        presence_penalty: 0.0,
        frequency_penalty: 0.0,
        seed: 0,
    };

    /// The values recommended for Qwen3.8 models while they think: temperature 1, top-p 0.95,
    /// top-k 20.
    pub const THINKING: Self = Self { temperature: 1.0, top_k: 20, top_p: 0.95, ..Self::GREEDY };

    /// The values recommended for Qwen3.8 models with thinking switched off: temperature 0.7,
    /// top-p 0.8, top-k 20, presence penalty 1.5.
    pub const NON_THINKING: Self =
        Self { temperature: 0.7, top_k: 20, top_p: 0.8, presence_penalty: 1.5, ..Self::GREEDY };

    /// The settings that a checkpoint's `generation_config.json` asks for.
    ///
    /// Greedy unless `do_sample` is true, as transformers has it. Then an absent temperature is 1
    /// and every other absent filter is off. The values are checked by [`Sampler::new`].
    #[must_use]
    pub fn from_generation_config(config: &GenerationDefaults) -> Self {
        let penalised =
            Self { repetition_penalty: config.repetition_penalty.unwrap_or(1.0), ..Self::GREEDY };
        if config.do_sample != Some(true) {
            return penalised;
        }
        Self {
            temperature: config.temperature.unwrap_or(1.0),
            top_k: config.top_k.unwrap_or(0),
            top_p: config.top_p.unwrap_or(1.0),
            min_p: config.min_p.unwrap_or(0.0),
            ..penalised
        }
    }

    /// Checks every field against its legal range.
    ///
    /// # Errors
    /// [`SamplingError::Parameter`] with the first field that is out of range.
    pub fn validate(&self) -> Result<(), SamplingError> {
        let legal = |field, value: f32, range, legal: bool| {
            if legal { Ok(()) } else { Err(SamplingError::Parameter { field, value, range }) }
        };
        let penalty = |value: f32| (-2.0..=2.0).contains(&value);
        let (temperature, repetition) = (self.temperature, self.repetition_penalty);
        legal(
            "temperature",
            temperature,
            "finite and at least 0 (0 is greedy)",
            temperature.is_finite() && temperature >= 0.0,
        )?;
        legal(
            "top_p",
            self.top_p,
            "above 0 and at most 1 (1 is off)",
            self.top_p > 0.0 && self.top_p <= 1.0,
        )?;
        legal("min_p", self.min_p, "from 0 to 1 (0 is off)", (0.0..=1.0).contains(&self.min_p))?;
        legal(
            "repetition_penalty",
            repetition,
            "finite and above 0 (1 is off)",
            repetition.is_finite() && repetition > 0.0,
        )?;
        let range = "from -2 to 2 (0 is off)";
        legal("presence_penalty", self.presence_penalty, range, penalty(self.presence_penalty))?;
        legal("frequency_penalty", self.frequency_penalty, range, penalty(self.frequency_penalty))
    }

    /// Whether every draw is the highest logit.
    #[must_use]
    pub fn is_greedy(&self) -> bool {
        self.temperature == 0.0
    }

    pub(crate) fn penalises(&self) -> bool {
        self.repetition_penalty != 1.0
            || self.presence_penalty != 0.0
            || self.frequency_penalty != 0.0
    }
}

impl Default for SamplingParams {
    fn default() -> Self {
        Self::GREEDY
    }
}

/// The sampling fields of `generation_config.json`; an absent field is `None`.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct GenerationDefaults {
    /// `do_sample`.
    pub do_sample: Option<bool>,
    /// `temperature`.
    pub temperature: Option<f32>,
    /// `top_k`.
    pub top_k: Option<u32>,
    /// `top_p`.
    pub top_p: Option<f32>,
    /// `min_p`.
    pub min_p: Option<f32>,
    /// `repetition_penalty`.
    pub repetition_penalty: Option<f32>,
}

/// Why no token could be chosen.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum SamplingError {
    /// A setting is outside its legal range.
    #[error("sampling parameter {field} is {value}: it must be {range}")]
    #[non_exhaustive]
    Parameter {
        /// Name of the field in [`SamplingParams`].
        field: &'static str,
        /// The value given.
        value: f32,
        /// The legal range, in words.
        range: &'static str,
    },
    /// A logit is NaN or `+inf`.
    #[error(
        "the logit of token {token} is {value}: logits must be finite (or -inf for an impossible \
         token); weights or arithmetic are damaged"
    )]
    #[non_exhaustive]
    Logit {
        /// Position in the logits, which is the token id.
        token: usize,
        /// NaN or `+inf`.
        value: f32,
    },
    /// No token is possible: there are no logits, or all of them are `-inf`.
    #[error("none of the {vocabulary} logits stands for a possible token")]
    #[non_exhaustive]
    NoCandidate {
        /// Number of logits given.
        vocabulary: usize,
    },
    /// A token said to be generated before has no logit.
    #[error("generated token {token} at position {position} is not below the {vocabulary} logits")]
    #[non_exhaustive]
    Generated {
        /// The token id.
        token: u32,
        /// Its position in the list of generated tokens.
        position: usize,
        /// Number of logits given.
        vocabulary: usize,
    },
}

impl SamplingError {
    /// What the caller can do about it.
    #[must_use]
    pub const fn kind(&self) -> ErrorKind {
        match self {
            Self::Parameter { .. } | Self::Generated { .. } | Self::NoCandidate { .. } => {
                ErrorKind::User
            }
            Self::Logit { .. } => ErrorKind::Corrupt,
        }
    }
}
