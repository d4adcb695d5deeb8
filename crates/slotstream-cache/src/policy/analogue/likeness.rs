//! Which tokens of the past were like the running one.

use super::fixed::{exp, weight};
use super::history::{History, Token};
use super::tally::Tally;

/// Analogues of a token.
pub(super) const MOST: usize = 32;

/// By how many standard deviations the same token id makes tokens more alike.
const SAME_ID: f64 = 4.0;
/// Standard deviations above the mean at which an analogue weighs as much as the null analogue.
const NULL_AT: f64 = 2.0;
/// The power of `e` that a standard deviation is worth.
const STEEPNESS: f64 = 0.7;

/// Likeness counts shared records in sixteenths.
const SHARED: u64 = 16;
/// A candidate is its likeness and, in so many lower bits, how many tokens are older: of equals, the
/// newest is likest.
const AGE_BITS: u32 = 32;

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
    here: Vec<u16>,
    behind: Vec<u16>,
    tally: Tally,
    candidates: Vec<u64>,
    found: Vec<Analogue>,
}

impl Likeness {
    /// For this history, whose tokens use at most `route` records each.
    pub(super) fn new(history: &History, route: usize) -> Self {
        let places = history.places();
        Self {
            here: vec![0; places],
            behind: vec![0; places],
            tally: Tally::new(history.words(), route),
            candidates: Vec::with_capacity(places),
            found: Vec::with_capacity(MOST),
        }
    }

    /// The analogues that were found last.
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
        let reached = |layer: &usize| query.reached[*layer];
        let layers = 0..query.reached.len();
        let (here, behind) = (&mut self.here, &mut self.behind);
        self.tally.share(here, history, query.current, layers.clone().filter(reached));
        self.tally.share(behind, history, query.previous, layers.filter(|layer| !reached(layer)));
        self.candidates.clear();
        let (mut sum, mut squares) = (0, 0);
        let oldest = history.tokens().start;
        for token in history.tokens() {
            let Some(next) = history.successor(token).filter(|next| *next < query.before) else {
                continue;
            };
            let (here, behind) = (history.place(next), history.place(token));
            let shared = u64::from(self.here[here]) + u64::from(self.behind[behind]);
            (sum, squares) = (sum + shared, squares + shared * shared);
            self.candidates.push(((SHARED * shared) << AGE_BITS) | (next - oldest));
        }
        let count = self.candidates.len() as f64;
        let mean = sum as f64 / count;
        // Never below one record, so that chance likeness is not told apart.
        let deviation = (squares as f64 / count - mean * mean).max(1.0).sqrt();
        self.weigh(history, query, (mean, deviation));
    }

    /// Keeps the likest of the candidates, whose likeness has this mean and standard deviation.
    fn weigh(&mut self, history: &History, query: &Query<'_>, (mean, deviation): (f64, f64)) {
        self.found.clear();
        let oldest = history.tokens().start;
        let token = |candidate: u64| oldest + (candidate & u64::from(u32::MAX));
        if let Some(id) = query.id {
            // Rounded, so that likeness stays a whole number.
            let same = ((SAME_ID * deviation * SHARED as f64).round() as u64) << AGE_BITS;
            for candidate in &mut self.candidates {
                *candidate += if history.has_id(token(*candidate), id) { same } else { 0 };
            }
        }
        let Some(last) = MOST.min(self.candidates.len()).checked_sub(1) else { return };
        self.candidates.select_nth_unstable_by(last, |a, b| b.cmp(a));
        for candidate in &self.candidates[..=last] {
            let likeness = (candidate >> AGE_BITS) as f64 / SHARED as f64;
            let weight = weight(exp(STEEPNESS * ((likeness - mean) / deviation - NULL_AT)));
            self.found.push(Analogue { token: token(*candidate), weight });
        }
    }
}

impl Tally {
    /// Counts for each place of the ring the records that `token` shares with it in `layers`.
    fn share(
        &mut self,
        shared: &mut [u16],
        history: &History,
        token: Option<Token>,
        layers: impl Iterator<Item = usize>,
    ) {
        let token = token.filter(|token| history.tokens().contains(token));
        let layers = layers.flat_map(|layer| token.map(|token| (layer, token)));
        let users = |(layer, token)| {
            history.row(token, layer).iter().map(move |expert| history.users(layer, *expert))
        };
        self.count(layers.flat_map(users), shared);
    }
}
