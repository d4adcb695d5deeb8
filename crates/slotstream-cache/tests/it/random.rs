//! The pool against its model, under random requests and a policy that misbehaves now and then:
//! same answers, same story told to the policy, same slots, same counters.

use proptest::prelude::*;
use slotstream_cache::{Abort, Claim, Ensured, SlotPool, SlotState};
use slotstream_core::*;

use crate::model::{EXPERTS, Held, LAYERS, Model, Moody, no};
use crate::support::{Log, Scribe, geometry, key, layer, step, take};

#[derive(Clone, Debug)]
enum Request {
    Step,
    Ensure(u16, Vec<u16>),
    Release,
    Publish(usize),
    Abort(usize, bool),
    Claim(u16, u16, Origin),
    Resize(usize),
    Clear,
}

fn requests() -> impl Strategy<Value = Vec<Request>> {
    let origin = prop_oneof![
        4 => Just(Origin::Prefetch),
        1 => Just(Origin::Demand),
        1 => Just(Origin::PromptHot),
        1 => Just(Origin::WarmStart),
    ];
    // Now and then an expert twice, or one that does not exist.
    let ids = proptest::collection::vec(0..=EXPERTS, 0..5);
    let distinct =
        proptest::sample::subsequence((0..EXPERTS).collect::<Vec<_>>(), 1..6).prop_shuffle();
    let ids = prop_oneof![1 => ids, 8 => distinct];
    let request = prop_oneof![
        1 => Just(Request::Step),
        12 => (0..LAYERS, ids).prop_map(|(layer, ids)| Request::Ensure(layer, ids)),
        12 => Just(Request::Release),
        20 => (0..8_usize).prop_map(Request::Publish),
        4 => (0..8_usize, any::<bool>()).prop_map(|(at, failed)| Request::Abort(at, failed)),
        6 => (0..LAYERS, 0..EXPERTS, origin).prop_map(|(l, e, origin)| Request::Claim(l, e, origin)),
        2 => (0..25_usize).prop_map(Request::Resize),
        1 => Just(Request::Clear),
    ];
    proptest::collection::vec(request, 1..200)
}

struct Both {
    pool: SlotPool<Scribe<Moody>>,
    log: Log,
    model: Model,
    model_log: Log,
    out: Ensured,
    /// Open and stale claims, with the model's numbers.
    claims: Vec<(Claim, usize)>,
}

impl Both {
    fn new(slots: usize, seed: u32, bad: u32) -> Self {
        let moody = Moody { state: seed, bad };
        let (scribe, log) = Scribe::new(moody.clone());
        let (policy, model_log) = Scribe::new(moody);
        let pool = SlotPool::unfloored(geometry(LAYERS, EXPERTS, 3), slots, scribe).unwrap();
        let model = Model::new(slots, policy);
        Self { pool, log, model, model_log, out: Ensured::new(), claims: Vec::new() }
    }

    fn play(&mut self, request: &Request) {
        match request {
            Request::Step => {
                self.model.pass += 1;
                let at = step(self.model.pass, &[]);
                self.pool.begin_step(&at).unwrap();
                self.model.policy.on_step(&at);
            }
            Request::Ensure(of, ids) => self.ensure(*of, ids),
            Request::Release => {
                self.pool.release();
                self.model.call = None;
            }
            Request::Publish(at) if *at < self.claims.len() => {
                let (claim, number) = self.claims.remove(*at);
                assert_eq!(self.pool.publish(claim).map_err(no), self.model.publish(number));
            }
            Request::Abort(at, failed) if *at < self.claims.len() => {
                let (claim, number) = self.claims.remove(*at);
                let why = if *failed { Abort::ReadFailed } else { Abort::Withdrawn };
                assert_eq!(self.pool.abort(claim, why).map_err(no), self.model.abort(number));
            }
            Request::Publish(_) | Request::Abort(..) => {}
            Request::Claim(of, id, origin) => {
                let key = key(*of, *id);
                let found = self.pool.claim(key, *origin).map_err(no);
                let expected = self.model.claim(key, *origin);
                let slot = |claim: &Claim| claim.slot().index();
                assert_eq!(found.as_ref().map(slot), expected.as_ref().map(|(at, _)| *at));
                if let (Ok(claim), Ok((_, number))) = (found, expected) {
                    assert_eq!((claim.key(), claim.origin()), (key, *origin));
                    self.claims.push((claim, number));
                }
            }
            Request::Resize(slots) => {
                assert_eq!(self.pool.resize(*slots).map_err(no), self.model.resize(*slots));
            }
            Request::Clear => {
                self.pool.clear();
                self.model.clear();
            }
        }
        self.compare();
    }

    fn ensure(&mut self, of: u16, ids: &[u16]) {
        let experts: Vec<ExpertIdx> = ids.iter().copied().map(ExpertIdx::new).collect();
        let result = self.pool.ensure(layer(of), &experts, Phase::Decode, &mut self.out);
        let expected = self.model.ensure(of, ids);
        match (result.map_err(no), expected) {
            (Ok(()), Ok(expected)) => {
                let found = self.out.entries().iter();
                let found: Vec<_> = found.map(|entry| (entry.slot.index(), entry.found)).collect();
                let entries = expected.iter().map(|(at, kind, _)| (*at, *kind));
                assert_eq!(found, entries.collect::<Vec<_>>());
                let numbers = expected.iter().map(|(.., number)| *number).filter(|n| *n > 0);
                self.claims.extend(self.out.take_claims().zip(numbers));
            }
            (result, expected) => {
                assert_eq!(result, expected.map(|_| ()));
                assert!(self.out.claims().is_empty());
            }
        }
    }

    fn compare(&self) {
        self.pool.validate().unwrap();
        assert_eq!(take(&self.log), take(&self.model_log));
        assert_eq!(self.pool.slots(), self.model.slots.len());
        for (slot, state) in self.pool.states() {
            let at = slot.index();
            let held = match state {
                SlotState::Free => Held::Nothing,
                SlotState::Resident { key, pinned } => {
                    assert_eq!(pinned, self.model.pinned(at));
                    assert_eq!(self.pool.slot_of(key), Some(slot));
                    Held::Record(key)
                }
                SlotState::Claimed { key, origin } => match self.model.slots[at] {
                    Held::Claim(_, _, told, number) => Held::Claim(key, origin, told, number),
                    other => panic!("{other:?} is claimed"),
                },
                other => panic!("{other:?}"),
            };
            assert_eq!(held, self.model.slots[at], "{slot}");
        }
        let counters = self.pool.counters();
        let decode = (counters.decode.hits, counters.decode.misses, counters.decode.adopted);
        assert_eq!(decode, (self.model.hits, self.model.misses, self.model.adopted));
        assert_eq!(counters.evicted, self.model.evicted);
        assert_eq!(self.pool.available(), self.model.room());
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    #[test]
    fn the_pool_does_what_the_model_does(
        requests in requests(),
        slots in 1..16_usize,
        seed in any::<u32>(),
        bad in prop_oneof![Just(0_u32), 2..8_u32],
    ) {
        let mut both = Both::new(slots, seed, bad);
        for request in &requests {
            both.play(request);
        }
    }
}
