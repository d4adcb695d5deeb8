//! Several instances of the forecaster under test, and what they must agree about.

use slotstream_core::{SessionId, Tap};

use super::scenario::Scenario;
use super::{Boxed, Broken, Difference, Said};

/// Resets of a session for which there are new instances to compare with.
const RESETS: usize = 24;

/// The instances of one scenario.
pub(super) struct Subjects {
    /// Is told everything, and judged.
    pub(super) lead: Boxed,
    /// Is told everything.
    twin: Boxed,
    /// Each is told of one session alone.
    alone: Vec<Boxed>,
    /// Each is told of one session alone since that was reset.
    fresh: Vec<Option<Boxed>>,
    spare: Vec<Boxed>,
}

impl Subjects {
    pub(super) fn new(scenario: &Scenario, make: impl Fn() -> Boxed) -> Self {
        let sessions = scenario.mix.sessions;
        let spare = if scenario.mix.reset > 0 { RESETS } else { 0 };
        Self {
            lead: make(),
            twin: make(),
            alone: (0..sessions).map(|_| make()).collect(),
            fresh: (0..sessions).map(|_| None).collect(),
            spare: (0..spare).map(|_| make()).collect(),
        }
    }

    /// Tells every instance that hears of `session`.
    pub(super) fn tell(&mut self, session: usize, tell: impl Fn(&mut Boxed)) {
        tell(&mut self.lead);
        tell(&mut self.twin);
        tell(&mut self.alone[session]);
        self.fresh[session].iter_mut().for_each(tell);
    }

    /// Ends what `session` was, and begins it anew.
    pub(super) fn reset(&mut self, session: usize, id: SessionId) {
        if let Some(new) = self.spare.pop() {
            self.fresh[session] = None;
            self.tell(session, |forecaster| forecaster.reset(id));
            self.fresh[session] = Some(new);
        }
    }

    /// Compares the lead's answer with those of the others to the same call.
    pub(super) fn compare<T: Copy + PartialEq + Into<Said>>(
        &mut self,
        session: usize,
        at: Tap,
        lead: &[T],
        ask: impl Fn(&mut Boxed, &mut Vec<T>),
    ) -> Result<(), Broken> {
        let answer = |forecaster: &mut Boxed| {
            let mut list = Vec::new();
            ask(forecaster, &mut list);
            list
        };
        let twin = answer(&mut self.twin);
        let alone = answer(&mut self.alone[session]);
        let fresh = self.fresh[session].as_mut().map(answer);
        let differs = |first: &[T], second: &[T]| Difference::find(at, first, second);
        if let Some(difference) = differs(lead, &twin) {
            return Err(Broken::NotDeterministic { difference });
        }
        if let Some(difference) = differs(lead, &alone) {
            return Err(Broken::SessionsMix { difference });
        }
        match fresh.and_then(|fresh| differs(&alone, &fresh)) {
            Some(difference) => Err(Broken::ResetKeepsState { difference }),
            None => Ok(()),
        }
    }
}
