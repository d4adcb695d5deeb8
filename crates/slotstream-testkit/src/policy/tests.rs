//! The suite finds every kind of unlawful policy, and passes a lawful one.

use std::sync::atomic::{AtomicU32, Ordering};
use std::thread;

use slotstream_core::{
    ExpertKey, Geometry, Incoming, Origin, RemoveCause, Routing, SlotView, Step,
};

use super::*;

/// What the policy under test does wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fault {
    Nothing,
    RefusesBind,
    RefusesSmall,
    AnswersPinned,
    AnswersFree,
    AnswersBeyond,
    IgnoresResize,
    IgnoresOneLayer,
    GivesUp,
    AnswersFromNothing,
    SharesState,
    SharesAdmission,
    ResetKeepsState,
    TrustsForecasts,
    Panics,
    Hangs,
    ForgetsItsExport,
    ChokesOnImport,
    ImportsAnything,
    NoName,
    NeedsRoute,
    NeedsEverything,
    NeedsEverMore,
    ChokesOnLogits,
    TrustsTokens,
    ExpectsDemands,
    NeedsRouting,
}

static SHARED: AtomicU32 = AtomicU32::new(0);

/// Round robin over the slots, with a fault.
#[derive(Debug)]
struct Faulty {
    fault: Fault,
    slots: u32,
    hand: u32,
    inserts: u32,
    known: Vec<Option<ExpertKey>>,
    /// Routed and not demanded so far, and whether a routing was ever told.
    routed: Vec<ExpertKey>,
    was_routed: bool,
}

fn make(fault: Fault) -> impl Fn() -> Boxed {
    move || {
        let (known, routed) = (Vec::new(), Vec::new());
        Box::new(Faulty { fault, slots: 0, hand: 0, inserts: 0, known, routed, was_routed: false })
    }
}

impl Faulty {
    fn sweep(&mut self, mut is: impl FnMut(SlotId) -> bool) -> Option<SlotId> {
        for _ in 0..self.slots {
            let slot = SlotId::new(self.hand % self.slots);
            self.hand = self.hand.wrapping_add(1);
            if is(slot) {
                return Some(slot);
            }
        }
        None
    }
}

impl EvictionPolicy for Faulty {
    fn on_insert(&mut self, slot: SlotId, key: ExpertKey, _origin: Origin) {
        self.inserts += 1;
        assert!(self.fault != Fault::Panics || self.inserts < 30, "thirty is too many");
        if let Some(known) = self.known.get_mut(slot.index()) {
            *known = Some(key);
        }
    }

    fn on_hit(&mut self, _slot: SlotId, key: ExpertKey) {
        self.routed.retain(|routed| *routed != key);
    }

    fn on_miss(&mut self, key: ExpertKey) {
        self.routed.retain(|routed| *routed != key);
    }

    fn on_step(&mut self, step: &Step<'_>) {
        if self.fault == Fault::TrustsTokens {
            let seen = [0_u8; 50];
            self.hand += u32::from(step.tokens.iter().any(|token| seen[*token as usize] > 0));
        }
    }

    fn on_routing(&mut self, routing: &Routing<'_>) {
        self.was_routed = true;
        if self.fault == Fault::ChokesOnLogits
            && let Some(logits) = routing.logits()
        {
            let mut order: Vec<f32> = logits.to_vec();
            order.sort_by(|a, b| a.partial_cmp(b).expect("logits are numbers"));
        }
        if self.fault == Fault::ExpectsDemands {
            assert!(self.routed.is_empty(), "what was routed is demanded");
            self.routed = routing.ids().iter().map(|id| routing.key(*id)).collect();
        }
    }

    fn on_remove(&mut self, slot: SlotId, _key: ExpertKey, cause: RemoveCause) {
        if let Some(known) = self.known.get_mut(slot.index()) {
            let stays = self.fault == Fault::AnswersFree && cause == RemoveCause::ReadFailed;
            *known = known.filter(|_| stays);
        }
    }

    fn choose_victim(&mut self, incoming: &Incoming, view: &SlotView<'_>) -> Option<SlotId> {
        let lawful = |slot| view.is_evictable(slot);
        match self.fault {
            Fault::AnswersPinned => self.sweep(|slot| view.key(slot).is_some()),
            // Its own table says what is owned; a failed read does not reach it.
            Fault::AnswersFree => {
                let known = self.known.clone();
                self.sweep(|slot| {
                    lawful(slot) || (known[slot.index()].is_some() && view.key(slot).is_none())
                })
            }
            Fault::AnswersBeyond => Some(SlotId::new(self.slots)),
            Fault::IgnoresOneLayer => {
                let layers = (0..8).map(slotstream_core::LayerIdx::new);
                let shown: usize = layers.map(|layer| view.evictable_in(layer)).sum();
                let victim = self.sweep(lawful);
                // Right wherever all is shown; a layer's view is answered by any owned slot.
                if victim.is_none() && shown == 0 {
                    self.sweep(|s| view.key(s).is_some())
                } else {
                    victim
                }
            }
            Fault::GivesUp => {
                let first = SlotId::new(self.hand % self.slots);
                self.hand = self.hand.wrapping_add(1);
                lawful(first).then_some(first)
            }
            Fault::AnswersFromNothing => Some(self.sweep(lawful).unwrap_or(SlotId::new(0))),
            Fault::SharesState => {
                self.hand = SHARED.fetch_add(1, Ordering::Relaxed);
                self.sweep(lawful)
            }
            // Its hand is in range unless an import moved it.
            Fault::ImportsAnything if self.hand > 1 << 24 => Some(SlotId::new(self.hand)),
            Fault::NeedsRouting if !self.was_routed => None,
            Fault::TrustsForecasts if incoming.origin == Origin::Prefetch => None,
            Fault::Hangs => loop {
                thread::sleep(Duration::from_secs(60));
            },
            _ => self.sweep(lawful),
        }
    }

    fn bind(&mut self, geometry: &Geometry, slots: usize) -> Result<(), BindError> {
        let floor = geometry.floor_slots();
        match self.fault {
            Fault::RefusesBind => return Err(BindError::parameter("x", 1, "2")),
            Fault::RefusesSmall if slots < floor => {
                return Err(BindError::too_few_slots(slots, floor));
            }
            Fault::NeedsRoute if slots < geometry.layers() * geometry.top_k() => {
                let needed = geometry.layers() * geometry.top_k();
                return Err(BindError::too_few_slots(slots, needed));
            }
            Fault::NeedsEverything if slots < geometry.records() => {
                return Err(BindError::too_few_slots(slots, geometry.records()));
            }
            Fault::NeedsEverMore => return Err(BindError::too_few_slots(slots, slots + 1)),
            _ => {}
        }
        self.on_resize(slots);
        Ok(())
    }

    fn on_resize(&mut self, slots: usize) {
        if self.fault != Fault::IgnoresResize || self.slots == 0 {
            self.slots = slots as u32;
        }
        self.known.resize(slots, None);
    }

    fn admit(&mut self, _key: ExpertKey, _origin: Origin) -> bool {
        self.fault != Fault::SharesAdmission
            || !SHARED.fetch_add(1, Ordering::Relaxed).is_multiple_of(5)
    }

    fn export(&self) -> Option<Vec<u8>> {
        use Fault::{ChokesOnImport, ForgetsItsExport, ImportsAnything, Nothing};
        matches!(self.fault, Nothing | ForgetsItsExport | ChokesOnImport | ImportsAnything)
            .then(|| self.hand.to_le_bytes().to_vec())
    }

    fn import(&mut self, state: &[u8]) -> Result<(), BindError> {
        match (self.fault, state.first_chunk()) {
            (Fault::ChokesOnImport, None) => panic!("expected four bytes"),
            (Fault::Nothing, Some(_)) if state.len() > 4 => Err(BindError::state("four bytes")),
            (Fault::Nothing | Fault::ChokesOnImport | Fault::ImportsAnything, Some(bytes)) => {
                self.hand = u32::from_le_bytes(*bytes);
                Ok(())
            }
            _ => Err(BindError::state("four bytes")),
        }
    }

    fn name(&self) -> String {
        if self.fault == Fault::NoName { String::new() } else { "faulty".into() }
    }

    fn reset(&mut self) {
        self.inserts = 0;
        self.known.fill(None);
        self.routed.clear();
        self.was_routed = false;
        if self.fault != Fault::ResetKeepsState {
            self.hand = 0;
        }
    }
}

fn found(fault: Fault) -> Vec<Broken> {
    let violations = check(make(fault)).expect_err("an unlawful policy");
    violations.into_iter().map(|violation| violation.what).collect()
}

#[test]
fn a_lawful_policy_passes() {
    assert_lawful(make(Fault::Nothing));
    assert_lawful(make(Fault::RefusesSmall));
    assert_lawful(make(Fault::NeedsRoute));
}

#[test]
fn every_unlawful_answer_is_found() {
    let all = |fault, is: fn(&Broken) -> bool| {
        let found = found(fault);
        assert!(found.iter().all(is), "{fault:?}: {found:?}");
    };
    all(Fault::AnswersPinned, |what| {
        matches!(what, Broken::Blocked { .. } | Broken::OtherLayer { .. })
    });
    all(Fault::AnswersFree, |what| matches!(what, Broken::Free { .. } | Broken::Blocked { .. }));
    assert!(found(Fault::AnswersFree).iter().any(|what| matches!(what, Broken::Free { .. })));
    all(Fault::AnswersBeyond, |what| matches!(what, Broken::OutOfRange { .. }));
    all(Fault::GivesUp, |what| matches!(what, Broken::NoVictim { .. }));
    all(Fault::AnswersFromNothing, |what| {
        matches!(what, Broken::Blocked { .. } | Broken::Free { .. } | Broken::OtherLayer { .. })
    });
    all(Fault::TrustsForecasts, |what| matches!(what, Broken::NoVictim { .. }));
    all(Fault::IgnoresResize, |what| {
        matches!(what, Broken::NoVictim { .. } | Broken::OutOfRange { .. } | Broken::Free { .. })
    });
    all(Fault::NeedsRouting, |what| matches!(what, Broken::NoVictim { .. }));
    all(Fault::ImportsAnything, |what| matches!(what, Broken::OutOfRange { .. }));
    let one_layer = found(Fault::IgnoresOneLayer);
    assert!(
        one_layer.iter().any(|what| matches!(what, Broken::OtherLayer { .. })),
        "{one_layer:?}"
    );
}

#[test]
fn hidden_state_is_found() {
    let shared = found(Fault::SharesState);
    assert!(
        shared.iter().any(|what| matches!(what, Broken::NotDeterministic { .. })),
        "{shared:?}"
    );
    let kept = found(Fault::ResetKeepsState);
    assert!(kept.iter().all(|what| matches!(what, Broken::ResetKeepsState { .. })), "{kept:?}");
    assert!(found(Fault::SharesAdmission).contains(&Broken::AdmitDiffers));
}

#[test]
fn a_policy_that_cannot_start_is_found() {
    let refused = found(Fault::RefusesBind);
    assert_eq!(refused.len(), SCENARIOS.len(), "no scenario passes over a refusal");
    assert!(refused.iter().all(|what| matches!(what, Broken::Refused { .. })));
    for fault in [Fault::NeedsEverything, Fault::NeedsEverMore] {
        let refused = found(fault);
        let is = |what: &Broken| matches!(what, Broken::Refused { .. });
        assert!(!refused.is_empty() && refused.iter().all(is), "{fault:?}: {refused:?}");
    }
    assert!(matches!(&found(Fault::NoName)[0], Broken::Unnamed { name } if name.is_empty()));
    let forgot = found(Fault::ForgetsItsExport);
    assert!(forgot.iter().all(|what| matches!(what, Broken::ImportRefused { .. })), "{forgot:?}");
}

#[test]
fn panics_and_hangs_are_found() {
    let panicked = check(make(Fault::Panics)).expect_err("it panics");
    assert!(panicked[0].to_string().contains("thirty is too many"), "{}", panicked[0]);
    assert!(panicked[0].step > 0);
    let choked = found(Fault::ChokesOnImport);
    assert!(matches!(&choked[0], Broken::Panicked { message } if message.contains("four bytes")));
    for (fault, text) in [
        (Fault::ChokesOnLogits, "logits are numbers"),
        (Fault::TrustsTokens, "out of bounds"),
        (Fault::ExpectsDemands, "what was routed is demanded"),
    ] {
        let found = found(fault);
        let is =
            |what: &Broken| matches!(what, Broken::Panicked { message } if message.contains(text));
        assert!(found.iter().any(is), "{fault:?}: {found:?}");
    }
    let patience = Duration::from_millis(200);
    let hangs = Conformance::new().patience(patience).check(make(Fault::Hangs));
    let hangs = hangs.expect_err("it hangs");
    assert_eq!(hangs.len(), 1, "the rest of the suite is not tried");
    assert_eq!(hangs[0].what, Broken::Hangs { patience });
}

#[test]
#[should_panic(expected = "is out of range")]
fn the_assertion_lists_what_it_found() {
    assert_lawful(make(Fault::AnswersBeyond));
}
