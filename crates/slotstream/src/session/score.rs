//! How likely a given text is: the measure behind perplexity.

use std::time::Instant;

use slotstream_qwen::Logits;

use super::Session;
use crate::Error;
use crate::sampling::SamplingError;

impl Session {
    /// Appends tokens as [`prefill`](Self::prefill) does and gives, for each, the negative
    /// natural logarithm of the probability that the model gave it after all tokens before it.
    /// The first token of an empty sequence has nothing before it and no value, so there is one
    /// value less then.
    ///
    /// Passes have at most [`logit_rows`](crate::EngineBuilder::logit_rows) and at most
    /// [`chunk`](crate::EngineBuilder::chunk) rows. Counted as prefill.
    ///
    /// ```
    /// use slotstream::{Engine, SessionOptions, Sizing};
    ///
    /// # let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../../examples/models/tiny-moe");
    /// let engine = Engine::builder(folder).sizing(Sizing::Share(0.3)).logit_rows(16).build()?;
    /// let mut session = engine.session(SessionOptions::new())?;
    /// let first = session.score(&[39, 798, 78, 11])?;
    /// let rest = session.score(&[1453, 0])?;
    /// assert_eq!((first.len(), rest.len()), (3, 2));
    /// let mean = first.iter().chain(&rest).sum::<f64>() / 5.0;
    /// println!("perplexity {}", mean.exp());
    /// # Ok::<(), slotstream::Error>(())
    /// ```
    ///
    /// # Errors
    /// As [`prefill`](Self::prefill), and [`Error::Sampling`] for logits that are no numbers.
    /// When a pass fails midway the tokens stay and their values are lost;
    /// [`truncate`](Self::truncate) takes the tokens back.
    pub fn score(&mut self, tokens: &[u32]) -> Result<Vec<f64>, Error> {
        self.check(self.tokens.len(), tokens)?;
        self.first_prefill.get_or_insert_with(Instant::now);
        self.catch_up(&mut |_, _| {})?;
        let mut values = Vec::with_capacity(tokens.len());
        let Some(first) = tokens.first() else { return Ok(values) };
        if self.logits_at > 0 {
            values.push(surprise(&self.logits, *first)?);
        }
        let begin = self.tokens.len();
        self.tokens.extend_from_slice(tokens);
        self.prompt_end = self.tokens.len();
        let rows = self.engine.0.logit_rows.min(self.engine.0.chunk).max(1);
        for start in (begin..self.tokens.len()).step_by(rows) {
            let end = (start + rows).min(self.tokens.len());
            if let Some(logits) = self.run(start, end, Logits::All, None)? {
                self.score_rows(&logits, start, &mut values)?;
            }
        }
        Ok(values)
    }

    /// Values of the tokens after each row of a pass that began at `start`.
    fn score_rows(
        &mut self,
        logits: &[f32],
        start: usize,
        values: &mut Vec<f64>,
    ) -> Result<(), Error> {
        for (row, one) in logits.chunks(self.engine.0.model.config().vocab_size).enumerate() {
            match self.tokens.get(start + row + 1) {
                Some(next) => values.push(surprise(one, *next)?),
                None => {
                    self.logits = one.to_vec();
                    self.logits_at = start + row + 1;
                }
            }
        }
        Ok(())
    }
}

/// `-ln p(token)` of the softmax of `logits`, in f64.
fn surprise(logits: &[f32], token: u32) -> Result<f64, SamplingError> {
    let bad = |value: &f32| value.is_nan() || *value == f32::INFINITY;
    if let Some(token) = logits.iter().position(bad) {
        return Err(SamplingError::Logit { token, value: logits[token] });
    }
    let vocabulary = logits.len();
    let Some(own) = logits.get(token as usize) else {
        return Err(SamplingError::Generated { token, position: 0, vocabulary });
    };
    let most = logits.iter().copied().fold(f32::NEG_INFINITY, f32::max);
    if most == f32::NEG_INFINITY {
        return Err(SamplingError::NoCandidate { vocabulary });
    }
    let most = f64::from(most);
    let sum: f64 = logits.iter().map(|logit| (f64::from(*logit) - most).exp()).sum();
    Ok(most + sum.ln() - f64::from(*own))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_logits_share_the_probability() {
        let value = surprise(&[3.0; 8], 5).expect("finite");
        assert!((value - 8.0_f64.ln()).abs() < 1e-12);
    }

    #[test]
    fn large_logits_do_not_overflow() {
        let value = surprise(&[1e30, 0.0], 0).expect("finite");
        assert_eq!(value, 0.0);
        assert_eq!(surprise(&[0.0, f32::NEG_INFINITY], 1).expect("legal"), f64::INFINITY);
    }

    #[test]
    fn what_is_no_probability_is_refused() {
        let logit = |value: f32| surprise(&[0.0, value], 0);
        assert!(matches!(logit(f32::NAN), Err(SamplingError::Logit { token: 1, .. })));
        assert!(matches!(logit(f32::INFINITY), Err(SamplingError::Logit { token: 1, .. })));
        let none = surprise(&[f32::NEG_INFINITY; 2], 0);
        assert!(matches!(none, Err(SamplingError::NoCandidate { vocabulary: 2 })));
        assert!(matches!(surprise(&[0.0], 1), Err(SamplingError::Generated { token: 1, .. })));
    }
}
