//! Checkpoints of a session: where it can come back to without running its tokens again.

use std::sync::Arc;

use slotstream_qwen::Checkpoint;

use crate::retained::Kept;

/// A checkpoint.
#[derive(Clone, Debug)]
pub(super) struct Mark {
    /// Shared with forks.
    place: Arc<Place>,
    /// Whether a prompt ended here; the others are taken now and then.
    turn: bool,
}

#[derive(Debug)]
struct Place {
    state: Checkpoint,
    /// Logits after its last token; empty where none were computed.
    logits: Vec<f32>,
    _kept: Kept,
}

impl Mark {
    pub(super) fn new(state: Checkpoint, logits: Vec<f32>, turn: bool, kept: Kept) -> Self {
        Self { place: Arc::new(Place { state, logits, _kept: kept }), turn }
    }

    /// Tokens of the session that it has seen.
    pub(super) fn position(&self) -> usize {
        self.place.state.position() as usize
    }

    pub(super) fn state(&self) -> &Checkpoint {
        &self.place.state
    }

    pub(super) fn logits(&self) -> &[f32] {
        &self.place.logits
    }
}

/// The checkpoints of a session, by position. All are of a beginning of its present tokens.
#[derive(Clone, Debug)]
pub(super) struct Marks {
    marks: Vec<Mark>,
    most: usize,
}

impl Marks {
    /// None yet, and at most `most`.
    pub(super) const fn new(most: usize) -> Self {
        Self { marks: Vec::new(), most }
    }

    /// The nearest one that has seen no more than `len` tokens.
    pub(super) fn nearest(&self, len: usize) -> Option<&Mark> {
        self.marks.iter().rev().find(|mark| mark.position() <= len)
    }

    /// Where the last one is.
    pub(super) fn last(&self) -> usize {
        self.marks.last().map_or(0, Mark::position)
    }

    /// Drops those that have seen more than `len` tokens.
    pub(super) fn truncate(&mut self, len: usize) {
        self.marks.retain(|mark| mark.position() <= len);
    }

    pub(super) fn len(&self) -> usize {
        self.marks.len()
    }

    /// Whether there is one already, with logits where those are known; notes that a prompt ended
    /// there. One that is worth less than a new one is dropped.
    pub(super) fn has(&mut self, position: usize, turn: bool, logits: bool) -> bool {
        let Some(at) = self.marks.iter().position(|mark| mark.position() == position) else {
            return false;
        };
        let mark = &mut self.marks[at];
        mark.turn |= turn;
        let good = !logits || !mark.logits().is_empty();
        if !good {
            self.marks.remove(at);
        }
        good
    }

    /// Gives up one, so that another of this kind has room behind all. `false`: there is none to
    /// give up for it.
    pub(super) fn make_room(&mut self, turn: bool, position: usize) -> bool {
        if self.marks.len() < self.most || self.most == 0 {
            return self.most > 0;
        }
        let victim = self.victim(turn, position);
        if let Some(victim) = victim {
            self.marks.remove(victim);
        }
        victim.is_some()
    }

    /// Which one is missed least: of those that no prompt ended at, else of all but the newest two
    /// ends of prompts. Without it a prompt that parts from the tokens behind it, before the next
    /// one, has all tokens since the one before it to run again; that it parts at a place is the
    /// less likely, the farther that lies from the end.
    fn victim(&self, turn: bool, end: usize) -> Option<usize> {
        let between = self.marks.iter().enumerate().filter(|(_, mark)| !mark.turn);
        let mut candidates: Vec<usize> = between.map(|(at, _)| at).collect();
        if candidates.is_empty() && turn {
            // The last prompt's end, and the one before it, are where the next prompt may part.
            candidates = (0..self.marks.len().saturating_sub(1).max(1)).collect();
        }
        let position = |at: usize| self.marks.get(at).map_or(end, Mark::position);
        let missed = |at: &usize| {
            let again = position(*at) - at.checked_sub(1).map_or(0, position);
            let from_end = |position: usize| (end.saturating_sub(position) + 1) as f64;
            let parts_there = (from_end(position(*at)) / from_end(position(at + 1))).ln();
            again as f64 * parts_there
        };
        candidates.into_iter().min_by(|a, b| missed(a).total_cmp(&missed(b)))
    }

    /// Adds one behind all others.
    pub(super) fn push(&mut self, mark: Mark) {
        self.marks.push(mark);
        self.marks.sort_by_key(Mark::position);
    }
}
