//! How much each record will be used, by the analogues' successors.

use slotstream_core::Geometry;

use super::fixed::{BITS, NULL, fixed};
use super::history::{History, Token};
use super::likeness::Analogue;

/// Tokens ahead that analogues speak for.
const STEPS: usize = 8;
/// What a use a token later is worth.
const DISCOUNT: f64 = 0.85;

/// What the records are worth at two moments: in a layer that the running token has not reached,
/// whose next visit is its own, and in one that it has passed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Outlook {
    /// By steps ahead: the discount.
    discounts: Vec<u64>,
    /// The frequency's share of the time after those steps.
    tail: u64,
    /// `[layers, experts + 1]`: what analogues say of a record, ahead in the upper half and passed
    /// in the lower; the last of a layer takes what rows hold behind their experts.
    uses: Vec<u64>,
    /// What a frequency counts for, ahead and passed.
    ahead: u64,
    passed: u64,
    /// By place: coefficients of the token's uses, as in `uses`. All 0 between two calls.
    coefficients: Vec<u64>,
    /// Places with coefficients.
    touched: Vec<u32>,
}

impl Outlook {
    pub(super) fn new(geometry: &Geometry, places: usize) -> Self {
        let powers = std::iter::successors(Some(1.0), |power| Some(power * DISCOUNT));
        let powers: Vec<f64> = powers.take(STEPS + 1).collect();
        let mut outlook = Self {
            discounts: powers.iter().take(STEPS).copied().map(fixed).collect(),
            tail: fixed(powers[STEPS] / (1.0 - DISCOUNT)),
            uses: vec![0; geometry.layers() * (geometry.experts() + 1)],
            coefficients: vec![0; places],
            touched: Vec::with_capacity(places),
            ..Self::default()
        };
        outlook.clear();
        outlook
    }

    /// No analogue says anything.
    pub(super) fn clear(&mut self) {
        self.uses.fill(0);
        self.ahead = self.tail + self.discounts.iter().sum::<u64>();
        self.passed = self.ahead;
    }

    /// What the records of `layer` are worth.
    pub(super) fn of<'s>(&'s self, layer: usize, frequency: &'s [u32], passed: bool) -> Values<'s> {
        let size = frequency.len() + 1;
        let (shift, counts) = if passed { (0, self.passed) } else { (32, self.ahead) };
        Values { uses: &self.uses[layer * size..][..size], frequency, shift, counts }
    }

    /// Takes over what `analogues` of the running token and their successors before `before`
    /// used. The running pass has `rows` tokens.
    pub(super) fn look(
        &mut self,
        history: &History,
        analogues: &[Analogue],
        before: Token,
        rows: u64,
    ) {
        self.clear();
        let rows = usize::try_from(rows).unwrap_or(usize::MAX).clamp(1, STEPS);
        let weights = weights(history, analogues, before, STEPS + rows);
        self.ahead = self.tail + self.counts(&weights);
        self.passed = self.tail + self.counts(&weights[rows..]);
        for analogue in analogues {
            for (at, token) in follow(history, *analogue, before).take(STEPS + rows).enumerate() {
                let place = history.place(token);
                let share = |step: usize| {
                    let discount = self.discounts.get(step).copied().unwrap_or(0);
                    discount * analogue.weight / (NULL + weights[at])
                };
                let coefficient = share(at) << 32 | at.checked_sub(rows).map_or(0, share);
                if self.coefficients[place] == 0 && coefficient > 0 {
                    // In range: less than the window.
                    self.touched.push(place as u32);
                }
                self.coefficients[place] += coefficient;
            }
        }
        self.add_up(history);
    }

    /// What a frequency counts for in the steps with so much weight of analogues each.
    fn counts(&self, weights: &[u64]) -> u64 {
        let shares = self.discounts.iter().zip(weights);
        shares.map(|(discount, weight)| discount * NULL / (NULL + weight)).sum()
    }

    /// Adds the coefficient of each token to the records that it used.
    fn add_up(&mut self, history: &History) {
        for (layer, uses) in self.uses.chunks_exact_mut(history.experts() + 1).enumerate() {
            let rows = history.rows(layer);
            let top_k = rows.len() / self.coefficients.len();
            for place in &self.touched {
                let coefficient = self.coefficients[*place as usize];
                for expert in &rows[*place as usize * top_k..][..top_k] {
                    let uses = &mut uses[usize::from(*expert)];
                    // Wraps only in the last of a layer, which nobody reads.
                    *uses = uses.wrapping_add(coefficient);
                }
            }
        }
        for place in self.touched.drain(..) {
            self.coefficients[place as usize] = 0;
        }
    }
}

/// What the records of a layer are worth.
#[derive(Clone, Copy, Debug)]
pub(super) struct Values<'a> {
    uses: &'a [u64],
    frequency: &'a [u32],
    shift: u32,
    counts: u64,
}

impl Values<'_> {
    /// What `expert` is worth.
    #[inline]
    pub(super) fn of(&self, expert: usize) -> u64 {
        let uses = self.uses[expert] >> self.shift & u64::from(u32::MAX);
        uses + ((u64::from(self.frequency[expert]) * self.counts) >> BITS)
    }
}

/// The analogue and its successors.
fn follow<'h>(
    history: &'h History,
    analogue: Analogue,
    before: Token,
) -> impl Iterator<Item = Token> + 'h {
    std::iter::successors(Some(analogue.token), |token| history.successor(*token))
        .take_while(move |token| *token < before)
}

/// By steps ahead: the weight of the analogues that have so many successors.
fn weights(
    history: &History,
    analogues: &[Analogue],
    before: Token,
    steps: usize,
) -> [u64; 2 * STEPS] {
    let mut weights = [0; 2 * STEPS];
    for analogue in analogues {
        let known = follow(history, *analogue, before).take(steps).count();
        weights[..known].iter_mut().for_each(|weight| *weight += analogue.weight);
    }
    weights
}

#[cfg(test)]
mod tests {
    use super::super::fixed::ONE;
    use super::*;

    #[test]
    fn without_analogues_a_value_is_the_discounted_frequency() {
        let geometry = Geometry::new(2, 4, 1).unwrap();
        let outlook = Outlook::new(&geometry, 8);
        // A use at every token, for ever.
        let frequency = [0, 0, 0, u32::try_from(ONE).unwrap()];
        let most = outlook.of(1, &frequency, false).of(3);
        assert!(most.abs_diff(fixed(1.0 / (1.0 - DISCOUNT))) < 16);
        assert_eq!(outlook.of(0, &frequency, true).of(0), 0);
    }
}
