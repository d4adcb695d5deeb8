//! The tokens of the past and what each of them used.

use std::ops::Range;

use slotstream_core::{Geometry, SessionId};

use super::tally::LANES;

/// Which token: how many came before it.
pub(super) type Token = u64;

/// No token has this number.
const NO_TOKEN: Token = Token::MAX;
/// No token has this id.
const NO_ID: u64 = u64::MAX;

/// A ring of the last tokens. For every record it also has a bit a token, set where the token
/// used the record.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct History {
    layers: usize,
    experts: usize,
    top_k: usize,
    /// Tokens that are remembered.
    window: u64,
    /// Places, a power of two, less one.
    mask: u64,
    /// The next token.
    end: Token,
    /// `[layers, places, top_k]`: experts; behind them the number of experts, which none has.
    rows: Vec<u16>,
    /// By place: the token's id in the vocabulary.
    ids: Vec<u64>,
    /// By place: whose token it is; nobody's when it came from an earlier process.
    sessions: Vec<Option<SessionId>>,
    /// By place: the token that followed in the same session.
    next: Vec<Token>,
    /// `[records, words]`.
    bits: Vec<u64>,
    words: usize,
}

impl History {
    /// Room for `window` tokens.
    pub(super) fn new(geometry: &Geometry, window: u32) -> Self {
        let (layers, experts, top_k) = (geometry.layers(), geometry.experts(), geometry.top_k());
        // In range: the window is far below 2^31.
        let places = window.max(1).next_power_of_two() as usize;
        let words = places.div_ceil(64).next_multiple_of(LANES);
        Self {
            layers,
            experts,
            top_k,
            window: u64::from(window.max(1)),
            mask: places as u64 - 1,
            end: 0,
            rows: vec![nobody(experts); layers * places * top_k],
            ids: vec![NO_ID; places],
            sessions: vec![None; places],
            next: vec![NO_TOKEN; places],
            bits: vec![0; geometry.records() * words],
            words,
        }
    }

    /// The tokens that are remembered, the oldest first.
    pub(super) fn tokens(&self) -> Range<Token> {
        self.end.saturating_sub(self.window)..self.end
    }

    /// How many came before the next token.
    pub(super) const fn end(&self) -> Token {
        self.end
    }

    /// Words of [`users`](Self::users).
    pub(super) const fn words(&self) -> usize {
        self.words
    }

    /// Number of places, at least the window.
    pub(super) fn places(&self) -> usize {
        self.next.len()
    }

    /// Experts of a layer.
    pub(super) const fn experts(&self) -> usize {
        self.experts
    }

    /// Where a remembered token is in the ring.
    pub(super) const fn place(&self, token: Token) -> usize {
        (token & self.mask) as usize
    }

    /// The token that followed a remembered one.
    pub(super) fn successor(&self, token: Token) -> Option<Token> {
        Some(self.next[self.place(token)]).filter(|next| *next != NO_TOKEN)
    }

    /// Whether a remembered token has this id.
    pub(super) fn has_id(&self, token: Token, id: u32) -> bool {
        self.ids.get(self.place(token)) == Some(&u64::from(id))
    }

    /// The id of a remembered token.
    pub(super) fn id(&self, token: Token) -> Option<u32> {
        u32::try_from(self.ids[self.place(token)]).ok()
    }

    /// The last token of `session`.
    pub(super) fn last_of(&self, session: SessionId) -> Option<Token> {
        self.tokens().rev().find(|token| self.sessions[self.place(*token)] == Some(session))
    }

    /// What the tokens used in `layer`: `top_k` experts a place, fewer where the number of
    /// experts stands instead.
    pub(super) fn rows(&self, layer: usize) -> &[u16] {
        let size = self.places() * self.top_k;
        &self.rows[layer * size..][..size]
    }

    /// What a remembered token used in `layer`.
    pub(super) fn row(&self, token: Token, layer: usize) -> &[u16] {
        let row = self.whole_row(token, layer);
        &row[..row.iter().take_while(|expert| usize::from(**expert) < self.experts).count()]
    }

    /// The same with what stands behind the experts.
    pub(super) fn whole_row(&self, token: Token, layer: usize) -> &[u16] {
        &self.rows(layer)[self.place(token) * self.top_k..][..self.top_k]
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
        if let Some(oldest) = token.checked_sub(self.window) {
            self.forget(oldest);
        }
        self.end += 1;
        if let Some(previous) = previous.filter(|previous| self.tokens().contains(previous)) {
            self.follow(previous, token);
        }
        let place = self.place(token);
        self.ids[place] = id.map_or(NO_ID, u64::from);
        self.sessions[place] = session;
        token
    }

    /// `next` follows a remembered token.
    pub(super) fn follow(&mut self, token: Token, next: Token) {
        let place = self.place(token);
        self.next[place] = next;
    }

    /// The token used `expert` in `layer`. A row has room for a route, and each expert once.
    pub(super) fn used(&mut self, token: Token, layer: usize, expert: u16) {
        if !self.tokens().contains(&token)
            || layer >= self.layers
            || usize::from(expert) >= self.experts
        {
            return;
        }
        let (place, used) = (self.place(token), self.row(token, layer).len());
        let bit = (layer * self.experts + usize::from(expert)) * self.words + place / 64;
        if used < self.top_k && self.bits[bit] & 1 << (place % 64) == 0 {
            self.bits[bit] |= 1 << (place % 64);
            self.rows[(layer * self.next.len() + place) * self.top_k + used] = expert;
        }
    }

    fn forget(&mut self, token: Token) {
        let place = self.place(token);
        for layer in 0..self.layers {
            let row = (layer * self.next.len() + place) * self.top_k;
            for expert in &mut self.rows[row..][..self.top_k] {
                let used = std::mem::replace(expert, nobody(self.experts));
                if usize::from(used) < self.experts {
                    let record = layer * self.experts + usize::from(used);
                    self.bits[record * self.words + place / 64] &= !(1 << (place % 64));
                }
            }
        }
        (self.ids[place], self.sessions[place], self.next[place]) = (NO_ID, None, NO_TOKEN);
    }

    /// Nothing is remembered.
    pub(super) fn clear(&mut self) {
        self.end = 0;
        self.rows.fill(nobody(self.experts));
        self.ids.fill(NO_ID);
        self.sessions.fill(None);
        self.next.fill(NO_TOKEN);
        self.bits.fill(0);
    }
}

/// The entry of a row that holds no expert.
const fn nobody(experts: usize) -> u16 {
    // In range: a geometry counts experts in 16 bits.
    experts as u16
}
