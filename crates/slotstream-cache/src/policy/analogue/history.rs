//! The tokens of the past and what each of them used.

use slotstream_core::{Geometry, SessionId};

/// An entry of a row that holds no expert: no geometry has one of this number.
pub(super) const NOTHING: u16 = u16::MAX;

/// Which token: how many came before it.
pub(super) type Token = u64;

/// What is known of a token besides its records.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Known {
    /// Its id in the vocabulary, where that was told.
    pub(super) id: Option<u32>,
    /// Whose it is; nobody's when it came from an earlier process.
    pub(super) session: Option<SessionId>,
    /// The token that followed it in its session.
    pub(super) next: Option<Token>,
}

const UNKNOWN: Known = Known { id: None, session: None, next: None };

/// A ring of the last tokens. For every record it also has a bit a token, set where the token
/// used the record.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct History {
    layers: usize,
    experts: usize,
    top_k: usize,
    window: usize,
    /// The next token.
    end: Token,
    /// `[window, layers, top_k]`: experts; unused entries at the end of a row.
    rows: Vec<u16>,
    known: Vec<Known>,
    /// `[records, words]`.
    bits: Vec<u64>,
    words: usize,
}

impl History {
    /// Room for `window` tokens, which is not 0.
    pub(super) fn new(geometry: &Geometry, window: usize) -> Self {
        let (layers, experts, top_k) = (geometry.layers(), geometry.experts(), geometry.top_k());
        let words = window.div_ceil(64);
        Self {
            layers,
            experts,
            top_k,
            window,
            end: 0,
            rows: vec![NOTHING; window * layers * top_k],
            known: vec![UNKNOWN; window],
            bits: vec![0; geometry.records() * words],
            words,
        }
    }

    /// The tokens that are remembered, the oldest first.
    pub(super) fn tokens(&self) -> std::ops::Range<Token> {
        self.end.saturating_sub(self.window as u64)..self.end
    }

    /// Where a remembered token is in the ring.
    pub(super) fn place(&self, token: Token) -> Option<usize> {
        // In range: less than the window.
        self.tokens().contains(&token).then(|| (token % self.window as u64) as usize)
    }

    /// Experts of a layer.
    pub(super) const fn experts(&self) -> usize {
        self.experts
    }

    /// How many came before the next token.
    pub(super) const fn end(&self) -> Token {
        self.end
    }

    /// What is known of the token in `place`.
    pub(super) fn known(&self, place: usize) -> Known {
        self.known.get(place).copied().unwrap_or(UNKNOWN)
    }

    /// The token that followed, while it is remembered.
    pub(super) fn next(&self, token: Token) -> Option<Token> {
        self.known(self.place(token)?).next
    }

    /// The last token of `session`.
    pub(super) fn last_of(&self, session: SessionId) -> Option<Token> {
        let of = |token: &Token| {
            self.place(*token).is_some_and(|place| self.known[place].session == Some(session))
        };
        self.tokens().rev().find(of)
    }

    /// The experts that the token in `place` used in `layer`.
    pub(super) fn row(&self, place: usize, layer: usize) -> &[u16] {
        let row = &self.rows[(place * self.layers + layer) * self.top_k..][..self.top_k];
        row.split(|expert| *expert == NOTHING).next().unwrap_or(&[])
    }

    /// For each place of the ring a bit: whether that token used the record.
    pub(super) fn users(&self, layer: usize, expert: u16) -> &[u64] {
        &self.bits[(layer * self.experts + usize::from(expert)) * self.words..][..self.words]
    }

    /// A token that follows `previous`. The oldest one is forgotten where there is no room.
    pub(super) fn push(
        &mut self,
        id: Option<u32>,
        session: Option<SessionId>,
        previous: Option<Token>,
    ) -> Token {
        let token = self.end;
        let place = (token % self.window as u64) as usize;
        self.forget(place);
        if let Some(previous) = previous.and_then(|previous| self.place(previous)) {
            self.known[previous].next = Some(token);
        }
        self.known[place] = Known { id, session, next: None };
        self.end += 1;
        token
    }

    /// The token used `expert` in `layer`. A row has room for a route, and each expert once.
    pub(super) fn used(&mut self, token: Token, layer: usize, expert: u16) {
        let Some(place) = self.place(token) else { return };
        if layer >= self.layers || usize::from(expert) >= self.experts {
            return;
        }
        let used = self.row(place, layer).len();
        let bit = (layer * self.experts + usize::from(expert)) * self.words + place / 64;
        if used < self.top_k && self.bits[bit] & 1 << (place % 64) == 0 {
            self.bits[bit] |= 1 << (place % 64);
            self.rows[(place * self.layers + layer) * self.top_k + used] = expert;
        }
    }

    fn forget(&mut self, place: usize) {
        let size = self.layers * self.top_k;
        for layer in 0..self.layers {
            for at in 0..self.top_k {
                let expert = self.rows[place * size + layer * self.top_k + at];
                if expert == NOTHING {
                    break;
                }
                let record = layer * self.experts + usize::from(expert);
                self.bits[record * self.words + place / 64] &= !(1 << (place % 64));
            }
        }
        self.rows[place * size..][..size].fill(NOTHING);
        self.known[place] = UNKNOWN;
    }

    /// Nothing is remembered.
    pub(super) fn clear(&mut self) {
        self.end = 0;
        self.rows.fill(NOTHING);
        self.known.fill(UNKNOWN);
        self.bits.fill(0);
    }
}
