//! Where a pass begins, and whose it is.

use slotstream_core::{LayerIdx, PassId, Routing, SessionId, Step, Tap};

/// Follows the calls of a forecaster: tell it of every `on_step`, `probes` and `observe`, before
/// anything else is done with them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Turn {
    before: Option<LayerIdx>,
    /// A step was announced and none of its taps has come.
    announced: bool,
    pass: Option<(SessionId, PassId)>,
    /// The pass of the last observation.
    observed: Option<(SessionId, PassId)>,
}

impl Turn {
    /// A pass is announced.
    pub const fn step(&mut self, step: &Step<'_>) {
        self.before = None;
        self.announced = true;
        self.pass = Some((step.session, step.pass));
    }

    /// Probes are asked for at this tap. `true` when a pass begins.
    pub fn probes(&mut self, at: Tap) -> bool {
        let Tap::BeforeLayer(layer) = at else { return false };
        let begins = self.before.is_none_or(|before| layer <= before);
        self.before = Some(layer);
        if begins && !std::mem::take(&mut self.announced) {
            self.pass = None;
        }
        begins
    }

    /// A layer was routed. `true` when it is the first one of its pass that was heard of.
    pub fn observe(&mut self, routing: &Routing<'_>) -> bool {
        let pass = Some((routing.session(), routing.pass()));
        let first = self.observed != pass;
        (self.observed, self.pass) = (pass, pass);
        first
    }

    /// Whose pass it is; `None` until its step was announced or its first layer was routed.
    #[must_use]
    pub fn session(&self) -> Option<SessionId> {
        self.pass.map(|(session, _)| session)
    }

    /// The pass; `None` until its step was announced or its first layer was routed.
    #[must_use]
    pub fn pass(&self) -> Option<PassId> {
        self.pass.map(|(_, pass)| pass)
    }
}

#[cfg(test)]
mod tests {
    use slotstream_core::{ExpertIdx, Phase};

    use super::*;

    fn step(pass: u64, session: u64) -> Step<'static> {
        let (pass, session) = (PassId::new(pass), SessionId::new(session));
        Step { pass, phase: Phase::Decode, session, position: 0, tokens: &[0] }
    }

    #[test]
    fn an_announced_pass_is_known_at_its_first_tap_and_another_at_its_first_route() {
        let (mut turn, first) = (Turn::default(), LayerIdx::new(0));
        let ids = [ExpertIdx::new(1)];
        turn.step(&step(1, 7));
        assert!(turn.probes(Tap::BeforeLayer(first)));
        assert_eq!((turn.pass(), turn.session()), (Some(PassId::new(1)), Some(SessionId::new(7))));
        assert!(turn.observe(&Routing::new(&step(1, 7), first, 1, &ids, &[])));
        assert!(!turn.observe(&Routing::new(&step(1, 7), LayerIdx::new(1), 1, &ids, &[])));
        // Nobody announces the next one.
        assert!(turn.probes(Tap::BeforeLayer(first)));
        assert_eq!(turn.session(), None);
        assert!(turn.observe(&Routing::new(&step(2, 8), first, 1, &ids, &[])));
        assert_eq!(turn.session(), Some(SessionId::new(8)));
        // One without taps is followed by one with.
        turn.step(&step(3, 9));
        turn.step(&step(4, 7));
        assert!(turn.probes(Tap::BeforeLayer(first)));
        assert_eq!(turn.pass(), Some(PassId::new(4)));
        assert!(!turn.probes(Tap::BeforeLayer(LayerIdx::new(1))));
    }
}
