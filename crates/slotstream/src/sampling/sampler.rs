//! The sampler: buffers, penalties and filters.

use slotstream_core::Rng;

use super::draw::{exp, more_likely, nucleus, pick};
use super::{SamplingError, SamplingParams};

/// Size of the first head of the vocabulary that a top-p filter sorts; each next one is eight
/// times as large. Most nuclei end within the first.
const FIRST_HEAD: usize = 64;

/// Chooses tokens by one set of [`SamplingParams`].
///
/// Buffers of the vocabulary's size are kept: after the first call none is allocated. A clone
/// continues the same stream of draws, which is how a snapshot of a session keeps its place.
#[derive(Clone)]
pub struct Sampler {
    params: SamplingParams,
    rng: Rng,
    /// Penalised logits, by token id.
    logits: Vec<f32>,
    /// Times generated, by token id; all zero between calls.
    counts: Vec<u32>,
    /// Token ids of the candidates where a filter orders them.
    order: Vec<u32>,
    /// Weights (probability relative to the most likely token), parallel to `order`, or by token
    /// id where no filter orders the candidates.
    weights: Vec<f64>,
}

impl Sampler {
    /// A sampler at the start of its stream of draws.
    ///
    /// # Errors
    /// [`SamplingError::Parameter`] for a value outside its legal range.
    pub fn new(params: SamplingParams) -> Result<Self, SamplingError> {
        params.validate()?;
        Ok(Self {
            params,
            rng: Rng::new(params.seed),
            logits: Vec::new(),
            counts: Vec::new(),
            order: Vec::new(),
            weights: Vec::new(),
        })
    }

    /// The settings it was made with.
    #[must_use]
    pub const fn params(&self) -> &SamplingParams {
        &self.params
    }

    /// Where its stream of draws is.
    pub(crate) const fn draws(&self) -> [u64; 4] {
        self.rng.state()
    }

    /// A sampler in the middle of its stream; `None` for a state that no stream reaches.
    pub(crate) fn resumed(
        params: SamplingParams,
        draws: [u64; 4],
    ) -> Result<Option<Self>, SamplingError> {
        let sampler = Self::new(params)?;
        Ok(Rng::from_state(draws).map(|rng| Self { rng, ..sampler }))
    }

    /// Chooses the next token.
    ///
    /// `logits` holds one value a token id. `generated` lists the tokens generated so far, without
    /// the prompt: only they are penalised. Unless greedy, a call that succeeds takes exactly one
    /// number from the seeded stream.
    ///
    /// The work is O(vocabulary + generated), plus sorting the candidates that top-k or top-p
    /// keep.
    ///
    /// # Errors
    /// [`SamplingError::Logit`] for a NaN or `+inf`, [`SamplingError::NoCandidate`] if there is no
    /// possible token, [`SamplingError::Generated`] for an id that has no logit.
    pub fn sample(&mut self, logits: &[f32], generated: &[u32]) -> Result<u32, SamplingError> {
        let best = most_likely(logits)?;
        let best = if self.params.penalises() && !generated.is_empty() {
            self.penalise(logits, generated)?;
            most_likely(&self.logits)?
        } else if self.params.is_greedy() {
            return Ok(best);
        } else {
            self.logits.clear();
            self.logits.extend_from_slice(logits);
            best
        };
        if self.params.is_greedy() {
            return Ok(best);
        }
        let ordered = self.weigh(self.logits[best as usize]);
        let index = pick(&self.weights, self.rng.uniform());
        let index = index.ok_or(SamplingError::NoCandidate { vocabulary: logits.len() })?;
        Ok(if ordered { self.order[index] } else { index as u32 })
    }

    /// Fills `self.logits` with the penalised logits. Finite values stay finite.
    fn penalise(&mut self, logits: &[f32], generated: &[u32]) -> Result<(), SamplingError> {
        let vocabulary = logits.len();
        for (position, &token) in generated.iter().enumerate() {
            if token as usize >= vocabulary {
                return Err(SamplingError::Generated { token, position, vocabulary });
            }
        }
        self.logits.clear();
        self.logits.extend_from_slice(logits);
        self.counts.resize(vocabulary, 0);
        for &token in generated {
            self.counts[token as usize] += 1;
        }
        let params = &self.params;
        for &token in generated {
            // Taking the count makes a token's later occurrences no-ops and clears the buffer.
            let count = std::mem::take(&mut self.counts[token as usize]);
            let logit = &mut self.logits[token as usize];
            if count == 0 || *logit == f32::NEG_INFINITY {
                continue;
            }
            let repeated = if *logit > 0.0 {
                *logit / params.repetition_penalty
            } else {
                *logit * params.repetition_penalty
            };
            let penalty = params.presence_penalty + params.frequency_penalty * count as f32;
            *logit = (repeated - penalty).clamp(f32::MIN, f32::MAX);
        }
        Ok(())
    }

    /// Fills `self.weights`; returns whether `self.order` holds their token ids.
    fn weigh(&mut self, max: f32) -> bool {
        let vocabulary = self.logits.len();
        let top_k = self.params.top_k as usize;
        if top_k > 0 && top_k < vocabulary {
            self.keep_top_k(top_k, max);
        } else if self.params.top_p < 1.0 {
            self.keep_top_p(max);
        } else {
            self.weigh_all(max);
            let min_p = f64::from(self.params.min_p);
            for weight in &mut self.weights {
                if *weight < min_p {
                    *weight = 0.0;
                }
            }
            return false;
        }
        // The weights descend, and the first is 1.
        let min_p = f64::from(self.params.min_p);
        let kept = self.weights.partition_point(|weight| *weight >= min_p);
        self.weights.truncate(kept.max(1));
        true
    }

    /// Weight of a logit: 1 at the highest one.
    fn weight(&self, logit: f32, max: f32) -> f64 {
        exp((f64::from(logit) - f64::from(max)) / f64::from(self.params.temperature))
    }

    fn weigh_all(&mut self, max: f32) {
        let mut weights = std::mem::take(&mut self.weights);
        weights.clear();
        weights.extend(self.logits.iter().map(|logit| self.weight(*logit, max)));
        self.weights = weights;
    }

    /// Appends the weights of `self.order[from..to]`.
    fn weigh_ordered(&mut self, from: usize, to: usize, max: f32) {
        for index in from..to {
            let logit = self.logits[self.order[index] as usize];
            self.weights.push(self.weight(logit, max));
        }
    }

    #[cfg(test)]
    pub(super) fn capacities(&self) -> [usize; 4] {
        [
            self.logits.capacity(),
            self.counts.capacity(),
            self.order.capacity(),
            self.weights.capacity(),
        ]
    }

    fn order_all(&mut self) {
        self.order.clear();
        self.order.extend(0..self.logits.len() as u32);
    }

    /// The `count` most likely tokens of `order[from..]` in front, sorted.
    fn sort_head(&mut self, from: usize, count: usize) {
        let logits = &self.logits;
        let rest = &mut self.order[from..];
        if count < rest.len() {
            rest.select_nth_unstable_by(count, |a, b| more_likely(logits, *a, *b));
        }
        rest[..count].sort_unstable_by(|a, b| more_likely(logits, *a, *b));
    }

    fn keep_top_k(&mut self, top_k: usize, max: f32) {
        self.order_all();
        self.sort_head(0, top_k);
        self.weights.clear();
        self.weigh_ordered(0, top_k, max);
        if self.params.top_p < 1.0 {
            let total = self.weights.iter().sum();
            let share = f64::from(self.params.top_p);
            let kept = nucleus(&self.weights, &mut 0.0, share, total);
            self.weights.truncate(kept.unwrap_or(top_k));
        }
    }

    fn keep_top_p(&mut self, max: f32) {
        self.weigh_all(max);
        let total = self.weights.iter().sum();
        let share = f64::from(self.params.top_p);
        self.order_all();
        self.weights.clear();
        let (mut taken, mut head, mut sum) = (0, FIRST_HEAD, 0.0);
        while taken < self.order.len() {
            let count = head.min(self.order.len() - taken);
            self.sort_head(taken, count);
            self.weigh_ordered(taken, taken + count, max);
            if let Some(kept) = nucleus(&self.weights[taken..], &mut sum, share, total) {
                self.weights.truncate(taken + kept);
                return;
            }
            taken += count;
            head *= 8;
        }
    }
}

impl std::fmt::Debug for Sampler {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Sampler")
            .field("params", &self.params)
            .field("vocabulary", &self.logits.len())
            .finish_non_exhaustive()
    }
}

/// The token with the highest logit, of equal ones the lowest id.
fn most_likely(logits: &[f32]) -> Result<u32, SamplingError> {
    let mut best = None;
    let mut highest = f32::NEG_INFINITY;
    for (token, &value) in logits.iter().enumerate() {
        if value.is_nan() || value == f32::INFINITY {
            return Err(SamplingError::Logit { token, value });
        }
        if value > highest {
            highest = value;
            best = Some(token as u32);
        }
    }
    best.ok_or(SamplingError::NoCandidate { vocabulary: logits.len() })
}
