//! Claims outside of a call: forecasts, hot admission, warm start.

use slotstream_cache::{Abort, CacheError, Claim, Clock, Ensured, Found, Lru, SlotPool, SlotState};
use slotstream_core::*;

use crate::support::{
    Heard::{Admit, Choose, Insert, Miss, Remove},
    Scribe, call, experts, geometry, key, layer, slot, take,
};

#[test]
fn a_forecast_is_announced_when_it_is_adopted() {
    let (scribe, log) = Scribe::new(Lru::new());
    let mut pool = SlotPool::unfloored(geometry(2, 8, 2), 3, scribe).unwrap();
    call(&mut pool, 0, &[1, 2, 3]).unwrap();
    take(&log);
    let ticket = pool.claim(key(1, 5), Origin::Prefetch).unwrap();
    let reserved = vec![
        Admit(key(1, 5), Origin::Prefetch),
        Choose(key(1, 5), Origin::Prefetch, 0),
        Remove(0, key(0, 1), RemoveCause::Evicted),
    ];
    assert_eq!(take(&log), reserved);
    assert!(!pool.is_resident(key(1, 5)));
    let state = SlotState::Claimed { key: key(1, 5), origin: Origin::Prefetch };
    assert_eq!(pool.state(slot(0)), Some(state));
    assert_eq!((pool.capacity(), pool.available(), pool.open_claims()), (2, 2, 1));

    let mut out = Ensured::new();
    pool.ensure(layer(1), &experts(&[6, 5]), Phase::Decode, &mut out).unwrap();
    assert_eq!(out.entries()[1].found, Found::Adopted);
    assert_eq!((out.entries()[1].slot, out.claims().len()), (slot(0), 1));
    let adopted = vec![
        Miss(key(1, 6)),
        Choose(key(1, 6), Origin::Demand, 0),
        Remove(1, key(0, 2), RemoveCause::Evicted),
        Insert(1, key(1, 6), Origin::Demand),
        Miss(key(1, 5)),
        Insert(0, key(1, 5), Origin::Prefetch),
    ];
    assert_eq!(take(&log), adopted);
    pool.publish(ticket).unwrap();
    pool.validate().unwrap();
    let pinned = SlotState::Resident { key: key(1, 5), pinned: true };
    assert_eq!(pool.state(slot(0)), Some(pinned), "the call still needs it");
    pool.publish_all(&mut out).unwrap();
    pool.release();
    let decode = pool.counters().decode;
    assert_eq!((decode.misses, decode.adopted, decode.token_hits), (5, 1, 0));
}

#[test]
fn an_expired_forecast_leaves_no_trace_but_its_victim() {
    let (scribe, log) = Scribe::new(Lru::new());
    let mut pool = SlotPool::unfloored(geometry(1, 8, 2), 2, scribe).unwrap();
    call(&mut pool, 0, &[1, 2]).unwrap();
    let ticket = pool.claim(key(0, 5), Origin::Prefetch).unwrap();
    take(&log);
    pool.abort(ticket, Abort::Withdrawn).unwrap();
    assert_eq!(take(&log), []);
    assert_eq!((pool.counters().withdrawn, pool.state(slot(0))), (1, Some(SlotState::Free)));
    pool.validate().unwrap();
    assert_eq!(call(&mut pool, 0, &[5]).unwrap(), [0]);
}

#[test]
fn an_adopted_forecast_whose_read_failed_is_removed() {
    let (scribe, log) = Scribe::new(Lru::new());
    let mut pool = SlotPool::unfloored(geometry(1, 8, 2), 2, scribe).unwrap();
    let ticket = pool.claim(key(0, 5), Origin::Prefetch).unwrap();
    let mut out = Ensured::new();
    pool.ensure(layer(0), &experts(&[5]), Phase::Decode, &mut out).unwrap();
    take(&log);
    pool.abort(ticket, Abort::ReadFailed).unwrap();
    assert_eq!(take(&log), [Remove(0, key(0, 5), RemoveCause::ReadFailed)]);
    pool.validate().unwrap();
    pool.release();
    pool.validate().unwrap();
}

#[test]
fn publishing_what_nobody_demanded_withdraws_it() {
    let mut pool = SlotPool::unfloored(geometry(1, 8, 2), 2, Clock::new()).unwrap();
    let ticket = pool.claim(key(0, 5), Origin::Prefetch).unwrap();
    let error = pool.publish(ticket).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Bug);
    assert!(matches!(error, CacheError::NotAdopted { .. }), "{error}");
    assert!(!pool.is_resident(key(0, 5)));
    assert_eq!(pool.available(), 2);
    pool.validate().unwrap();
}

#[test]
fn a_claim_says_why_it_cannot_be() {
    #[derive(Debug, Default)]
    struct OnlyDemand(Lru);
    impl EvictionPolicy for OnlyDemand {
        fn on_insert(&mut self, slot: SlotId, key: ExpertKey, origin: Origin) {
            self.0.on_insert(slot, key, origin);
        }
        fn on_hit(&mut self, slot: SlotId, key: ExpertKey) {
            self.0.on_hit(slot, key);
        }
        fn choose_victim(&mut self, incoming: &Incoming, view: &SlotView<'_>) -> Option<SlotId> {
            self.0.choose_victim(incoming, view)
        }
        fn bind(&mut self, geometry: &Geometry, slots: usize) -> Result<(), BindError> {
            self.0.bind(geometry, slots)
        }
        fn admit(&mut self, _key: ExpertKey, origin: Origin) -> bool {
            origin == Origin::WarmStart
        }
        fn reset(&mut self) {
            self.0.reset();
        }
    }
    let mut pool = SlotPool::unfloored(geometry(1, 4, 2), 2, OnlyDemand::default()).unwrap();
    let warm = pool.claim(key(0, 0), Origin::WarmStart).unwrap();
    let is = |result: Result<_, CacheError>, expected| assert_eq!(result.unwrap_err(), expected);
    let error = pool.claim(key(0, 0), Origin::WarmStart).unwrap_err();
    assert!(matches!(error, CacheError::Claimed { slot: found, .. } if found == slot(0)));
    pool.publish(warm).unwrap();
    let error = pool.claim(key(0, 0), Origin::Demand).unwrap_err();
    assert!(matches!(error, CacheError::Resident { slot: found, .. } if found == slot(0)));
    let error = pool.claim(key(0, 1), Origin::PromptHot).unwrap_err();
    assert!(matches!(error, CacheError::NotAdmitted { origin: Origin::PromptHot, .. }));
    let error = pool.claim(key(0, 4), Origin::Demand).unwrap_err();
    assert!(matches!(error, CacheError::UnknownExpert { experts: 4, .. }));
    let open = [pool.claim(key(0, 1), Origin::Demand), pool.claim(key(0, 2), Origin::Demand)];
    assert!(open.iter().all(Result::is_ok));
    let error = pool.claim(key(0, 3), Origin::Demand).unwrap_err();
    assert!(matches!(error, CacheError::Exhausted { needed: 1, available: 0, slots: 2, .. }));
    is(pool.claim(key(0, 3), Origin::Demand), error);
    pool.validate().unwrap();
    let claims = pool.counters().claims;
    assert_eq!((claims.warm_start, claims.demand, claims.total()), (1, 2, 3));
}

#[test]
fn the_device_may_still_read_a_slot_that_is_claimed() {
    let mut pool = SlotPool::unfloored(geometry(1, 8, 2), 2, Lru::new()).unwrap();
    let mut out = Ensured::new();
    pool.ensure(layer(0), &experts(&[1, 2]), Phase::Decode, &mut out).unwrap();
    assert!(out.claims().iter().all(|claim| claim.after().is_none()));
    pool.publish_all(&mut out).unwrap();
    pool.release_after(Tick::new(7));
    pool.ensure(layer(0), &experts(&[2]), Phase::Decode, &mut out).unwrap();
    pool.release_after(Tick::new(9));
    pool.ensure(layer(0), &experts(&[3, 4]), Phase::Decode, &mut out).unwrap();
    let after: Vec<_> = out.claims().iter().map(Claim::after).collect();
    assert_eq!(after, [Some(Tick::new(7)), Some(Tick::new(9))]);
    let generations: Vec<_> = out.claims().iter().map(Claim::generation).collect();
    assert_ne!(generations[0], generations[1]);
    pool.publish_all(&mut out).unwrap();
    pool.release();
}
