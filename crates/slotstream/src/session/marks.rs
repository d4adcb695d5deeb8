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

    /// Notes the end of a prompt at a checkpoint that is there already. Says whether it is.
    pub(super) fn has(&mut self, position: usize, turn: bool) -> bool {
        let found = self.marks.iter_mut().find(|mark| mark.position() == position);
        found.is_some_and(|mark| {
            mark.turn |= turn;
            true
        })
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
    /// ends of prompts, the one between whose neighbours there is the least to run again, measured
    /// by how far back they lie.
    fn victim(&self, turn: bool, end: usize) -> Option<usize> {
        let between = self.marks.iter().enumerate().filter(|(_, mark)| !mark.turn);
        let mut candidates: Vec<usize> = between.map(|(at, _)| at).collect();
        if candidates.is_empty() && turn {
            // The last prompt's end, and the one before it, are where the next prompt may part.
            candidates = (0..self.marks.len().saturating_sub(1).max(1)).collect();
        }
        let position = |at: usize| self.marks.get(at).map_or(end, Mark::position);
        let missed = |at: &usize| {
            let before = at.checked_sub(1).map_or(0, position);
            let again = position(at + 1).saturating_sub(before);
            again as f64 / end.saturating_sub(before).max(1) as f64
        };
        candidates.into_iter().min_by(|a, b| missed(a).total_cmp(&missed(b)))
    }

    /// Adds one behind all others.
    pub(super) fn push(&mut self, mark: Mark) {
        self.marks.push(mark);
        self.marks.sort_by_key(Mark::position);
    }
}
