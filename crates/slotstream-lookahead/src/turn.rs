//! Where a pass begins, and whose it is.

use slotstream_core::{LayerIdx, PassId, Routing, SessionId, Tap};

/// Follows the calls of a forecaster: tell it of every `probes` and of every `observe`, before
/// anything else is done with them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Turn {
    before: Option<LayerIdx>,
    pass: Option<(SessionId, PassId)>,
}

impl Turn {
    /// Probes are asked for at this tap. `true` when a pass begins.
    pub fn probes(&mut self, at: Tap) -> bool {
        let Tap::BeforeLayer(layer) = at else { return false };
        let begins = self.before.is_none_or(|before| layer <= before);
        self.before = Some(layer);
        if begins {
            self.pass = None;
        }
        begins
    }

    /// A layer was routed. `true` when it is the first one of its pass that was heard of.
    pub fn observe(&mut self, routing: &Routing<'_>) -> bool {
        let pass = Some((routing.session(), routing.pass()));
        let first = self.pass != pass;
        self.pass = pass;
        first
    }

    /// Whose pass it is; `None` until its first layer was routed.
    #[must_use]
    pub fn session(&self) -> Option<SessionId> {
        self.pass.map(|(session, _)| session)
    }

    /// The pass; `None` until its first layer was routed.
    #[must_use]
    pub fn pass(&self) -> Option<PassId> {
        self.pass.map(|(_, pass)| pass)
    }
}
