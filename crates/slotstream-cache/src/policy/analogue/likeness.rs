//! Which tokens of the past were like the running one.

use super::fixed::{exp, weight};
use super::history::{History, Token};

/// Analogues of a token.
pub(super) const MOST: usize = 32;

/// Records that two tokens share are counted in sixteenths.
const SHARED: u64 = 16;
/// By how many standard deviations the same token id makes tokens more alike.
const SAME_ID: f64 = 4.0;
/// Standard deviations above the mean at which an analogue weighs as much as the null analogue.
const NULL_AT: f64 = 2.0;
/// The power of `e` that a standard deviation is worth.
const STEEPNESS: f64 = 0.7;

/// The token whose future is asked for.
#[derive(Clone, Copy, Debug)]
pub(super) struct Query<'a> {
    /// The token before it in its session.
    pub(super) previous: Option<Token>,
    /// The token itself, once a part of it is known.
    pub(super) current: Option<Token>,
    /// By layer: whether the token itself was routed there.
    pub(super) reached: &'a [bool],
    /// Its id.
    pub(super) id: Option<u32>,
    /// Its pass: these tokens and later ones are no past.
    pub(super) before: Token,
}

/// An analogue of the running token.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Analogue {
    pub(super) token: Token,
    pub(super) weight: u64,
}

/// The search, and the room that it needs.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Likeness {
    /// By place: records shared with the running token, and with the one before it.
    here: Vec<u32>,
    behind: Vec<u32>,
    /// Likeness, token.
    candidates: Vec<(u64, Token)>,
    found: Vec<Analogue>,
}

impl Likeness {
    pub(super) fn new(window: usize) -> Self {
        Self {
            here: vec![0; window],
            behind: vec![0; window],
            candidates: Vec::with_capacity(window),
            found: Vec::with_capacity(MOST),
        }
    }

    /// The analogues that were found last, the latest first.
    pub(super) fn found(&self) -> &[Analogue] {
        &self.found
    }

    /// Nothing was found.
    pub(super) fn clear(&mut self) {
        self.found.clear();
    }

    /// Finds the tokens that share most records with the running one: in the layers that it has
    /// reached with itself, in the others their predecessors with its own.
    pub(super) fn find(&mut self, history: &History, query: &Query<'_>) {
        let reached = |layer: &usize| query.reached.get(*layer).copied().unwrap_or(false);
        let layers = 0..query.reached.len();
        count(&mut self.here, history, query.current, layers.clone().filter(reached));
        count(&mut self.behind, history, query.previous, layers.filter(|layer| !reached(layer)));
        self.candidates.clear();
        for token in history.tokens() {
            let Some(behind) = history.place(token) else { continue };
            let next = history.known(behind).next.filter(|next| *next < query.before);
            let Some((next, here)) = next.and_then(|next| Some((next, history.place(next)?)))
            else {
                continue;
            };
            let shared = u64::from(self.behind[behind]) + u64::from(self.here[here]);
            self.candidates.push((SHARED * shared, next));
        }
        self.weigh(history, query);
    }

    /// Keeps the likest of the candidates.
    fn weigh(&mut self, history: &History, query: &Query<'_>) {
        self.found.clear();
        let Some((mean, deviation)) = statistics(&self.candidates) else { return };
        // Rounded, so that likeness stays a whole number; in range, for counts are.
        let same = (SAME_ID * deviation).round() as u64;
        if query.id.is_some() {
            for (likeness, token) in &mut self.candidates {
                let id = history.place(*token).and_then(|place| history.known(place).id);
                *likeness += if id == query.id { same } else { 0 };
            }
        }
        let last = MOST.min(self.candidates.len()) - 1;
        self.candidates.select_nth_unstable_by(last, |a, b| b.cmp(a));
        let best = &mut self.candidates[..=last];
        best.sort_unstable_by_key(|(_, token)| std::cmp::Reverse(*token));
        for (likeness, token) in best {
            let above = (*likeness as f64 - mean) / deviation - NULL_AT;
            let weight = weight(exp(STEEPNESS * above));
            self.found.push(Analogue { token: *token, weight });
        }
    }
}

/// Counts for each place of the ring the records that `token` shares with it in `layers`.
fn count(
    shared: &mut [u32],
    history: &History,
    token: Option<Token>,
    layers: impl Iterator<Item = usize>,
) {
    shared.fill(0);
    let Some(place) = token.and_then(|token| history.place(token)) else { return };
    for layer in layers {
        for expert in history.row(place, layer) {
            for (shared, users) in shared.chunks_mut(64).zip(history.users(layer, *expert)) {
                let mut left = *users;
                while left != 0 {
                    shared[left.trailing_zeros() as usize] += 1;
                    left &= left - 1;
                }
            }
        }
    }
}

/// Mean and standard deviation of likeness, the latter at least one record; `None` without
/// candidates.
fn statistics(candidates: &[(u64, Token)]) -> Option<(f64, f64)> {
    let count = candidates.len() as f64;
    let sum: u64 = candidates.iter().map(|(likeness, _)| likeness).sum();
    let squares: u64 = candidates.iter().map(|(likeness, _)| likeness * likeness).sum();
    let mean = sum as f64 / count;
    let variance = squares as f64 / count - mean * mean;
    (count > 0.0).then(|| (mean, variance.max(0.0).sqrt().max(SHARED as f64)))
}
